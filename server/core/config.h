#ifndef GLYD_SERVER_CORE_CONFIG_H_
#define GLYD_SERVER_CORE_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/log.h"

namespace glyd {

struct RootConfig {
  std::string name, directory;
  bool writable = false;
};

struct PreloadConfig {
  std::string name, path;  // path: ROOT/relative
  bool pin = false;
};

// What the operator set, checked. A flag beats GLYDD_* in the environment, which beats the file.
struct Config {
  std::string socket;  // of gRPC; the broker's is broker.sock beside it
  std::string state;   // directory
  std::vector<RootConfig> roots;
  std::vector<std::string> devices;  // "host"
  std::string budget = "80%";        // a device's: bytes or a share of its memory
  std::vector<PreloadConfig> preload;
  std::vector<uint32_t> allow_uids;  // besides its own
  std::vector<uint32_t> allow_gids;
  int max_clients = 1024;  // sessions at once
  int jobs = 1;            // at once
  int queue = 100;         // jobs that wait, at most
  int threads = 0;         // for products; 0: one a core that this process may use
  absl::Duration drain_timeout = absl::Seconds(5);
  int max_connections = 4096;  // of gRPC, at once; a quarter of them of one process
  bool log_json = false;
  LogLevel log_level = LogLevel::kInfo;
  std::string listen;  // HOST:PORT of the TCP listener, which is TLS alone; empty: none
  std::string tls_cert, tls_key, tls_client_ca;  // PEM files
  std::string metrics;                           // HOST:PORT; empty: none
  std::string worker;                            // path of glyd-worker
  bool check_only = false;
  std::string effective;  // every value and where it came from, a line each

  std::string broker_socket() const;
};

struct ParsedConfig {
  Config config;
  int exit_code = -1;  // >= 0: stop with it, `text` printed (help, version, bad usage)
  std::string text;
};

// Flags, environment and file into a Config. exit_code 78 where something is wrong, with the value
// named.
ParsedConfig ParseConfig(int argc, char** argv, char** environment);

// "80%" of `total`, or bytes.
absl::StatusOr<uint64_t> ParseBudget(absl::string_view text, uint64_t total);

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_CONFIG_H_
