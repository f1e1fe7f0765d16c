#include "server/core/config.h"

#include <grp.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "base/version.h"

namespace glyd {
namespace {

using Values = std::vector<std::string>;

struct Option {
  const char* key;  // in the file; the flag is --key, the variable GLYDD_KEY
  const char* meta;
  const char* help;
  bool repeats;
  std::function<absl::Status(const Values&, Config*)> set;
};

absl::Status Bad(absl::string_view value, absl::string_view want) {
  return absl::InvalidArgumentError(absl::StrCat("\"", Printable(value), "\": want ", want));
}

absl::Status SetInt(const Values& v, int least, int most, int* out) {
  if (!absl::SimpleAtoi(v.back(), out) || *out < least || *out > most)
    return Bad(v.back(), absl::StrCat("a number from ", least, " to ", most));
  return absl::OkStatus();
}

absl::Status SetRoots(const Values& values, Config* c) {
  c->roots.clear();
  for (const std::string& v : values) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(v, absl::MaxSplits('=', 1));
    RootConfig root{parts.first, parts.second, false};
    if (absl::EndsWith(root.directory, ":rw")) {
      root.directory.resize(root.directory.size() - 3);
      root.writable = true;
    }
    if (!IsValidName(root.name) || root.directory.empty()) return Bad(v, "NAME=DIR or NAME=DIR:rw");
    for (const RootConfig& other : c->roots)
      if (other.name == root.name) return Bad(v, "each root's name once");
    c->roots.push_back(std::move(root));
  }
  return absl::OkStatus();
}

absl::Status SetPreload(const Values& values, Config* c) {
  c->preload.clear();
  for (const std::string& v : values) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(v, absl::MaxSplits('=', 1));
    PreloadConfig p{parts.first, parts.second, false};
    if (absl::EndsWith(p.path, ",pin")) {
      p.path.resize(p.path.size() - 4);
      p.pin = true;
    }
    if (!IsValidName(p.name) || p.path.empty())
      return Bad(v, "NAME=ROOT/PATH or NAME=ROOT/PATH,pin");
    c->preload.push_back(std::move(p));
  }
  return absl::OkStatus();
}

absl::Status SetAllowed(const Values& values, Config* c) {
  c->allow_uids.clear();
  c->allow_gids.clear();
  for (const std::string& v : values) {
    uint32_t id;
    if (absl::StartsWith(v, "@")) {
      const group* g = ::getgrnam(v.c_str() + 1);
      if (g == nullptr) return Bad(v, "a group that exists");
      c->allow_gids.push_back(g->gr_gid);
    } else if (absl::SimpleAtoi(v, &id)) {
      c->allow_uids.push_back(id);
    } else {
      return Bad(v, "a numeric uid or @group");
    }
  }
  return absl::OkStatus();
}

absl::Status SetDevices(const Values& values, Config* c) {
  c->devices.clear();
  for (const std::string& v : values) {
    if (v != "auto" && v != "host") return Bad(v, "auto or host (this build has no CUDA device)");
    const std::string device = v == "auto" ? "host" : v;
    if (std::find(c->devices.begin(), c->devices.end(), device) == c->devices.end())
      c->devices.push_back(device);
  }
  return absl::OkStatus();
}

absl::Status SetDuration(const Values& v, absl::Duration* out) {
  double seconds;
  if (absl::SimpleAtod(v.back(), &seconds) && seconds >= 0 && seconds <= 86400)
    *out = absl::Seconds(seconds);
  else if (!absl::ParseDuration(v.back(), out) || *out < absl::ZeroDuration() ||
           *out > absl::Hours(24))
    return Bad(v.back(), "a duration from 0 to 24h, such as 5s");
  return absl::OkStatus();
}

absl::Status SetAddress(const Values& v, std::string* out) {
  const size_t colon = v.back().rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(v.back().substr(colon + 1), &port) || port < 0 || port > 65535)
    return Bad(v.back(), "HOST:PORT, such as 127.0.0.1:7700 or [::1]:7700");
  *out = v.back();
  return absl::OkStatus();
}

absl::Status SetLogLevel(const Values& v, Config* c) {
  const std::map<absl::string_view, LogLevel> levels = {{"debug", LogLevel::kDebug},
                                                        {"info", LogLevel::kInfo},
                                                        {"warning", LogLevel::kWarning},
                                                        {"error", LogLevel::kError}};
  const auto it = levels.find(v.back());
  if (it == levels.end()) return Bad(v.back(), "debug, info, warning or error");
  c->log_level = it->second;
  return absl::OkStatus();
}

const std::vector<Option>& Options() {
  static const std::vector<Option>* const kOptions =
      new std::vector<Option>{
          {"socket", "PATH", "the gRPC socket; the broker's is broker.sock beside it", false,
           [](const Values& v, Config* c) { return c->socket = v.back(), absl::OkStatus(); }},
          {"state", "DIR", "where state is kept", false,
           [](const Values& v, Config* c) { return c->state = v.back(), absl::OkStatus(); }},
          {"root", "NAME=DIR[:rw]", "a directory that requests may name files in", true, SetRoots},
          {"device", "auto|host", "a device to serve", true, SetDevices},
          {"budget", "BYTES|SHARE%", "memory that models and arenas may take on a device", false,
           [](const Values& v, Config* c) {
             c->budget = v.back();
             const auto bytes = ParseBudget(v.back(), uint64_t{1} << 40);
             return bytes.ok() && *bytes == 0 ? Bad(v.back(), "more than 0 bytes") : bytes.status();
           }},
          {"transport", "fd|cuda-ipc", "how memory is shared where a load does not say", false,
           [](const Values& v, Config*) {
             return v.back() == "fd" ? absl::OkStatus()
                                     : Bad(v.back(), "fd (cuda-ipc needs a CUDA device)");
           }},
          {"preload", "NAME=ROOT/PATH[,pin]", "a model to load at start", true, SetPreload},
          {"allow-uid", "UID|@GROUP", "who may connect besides the daemon's own user", true,
           SetAllowed},
          {"max-clients", "N", "sessions at once", false,
           [](const Values& v, Config* c) { return SetInt(v, 1, 100000, &c->max_clients); }},
          {"max-connections", "N", "gRPC connections at once; a quarter of them of one process",
           false,
           [](const Values& v, Config* c) { return SetInt(v, 1, 1000000, &c->max_connections); }},
          {"jobs", "N", "pack and verify jobs at once", false,
           [](const Values& v, Config* c) { return SetInt(v, 1, 1024, &c->jobs); }},
          {"queue", "N", "jobs that may wait", false,
           [](const Values& v, Config* c) { return SetInt(v, 1, 100000, &c->queue); }},
          {"threads", "N", "threads for products, 0: one a core", false,
           [](const Values& v, Config* c) { return SetInt(v, 0, 1024, &c->threads); }},
          {"drain-timeout", "TIME", "how long calls in flight may take at SIGTERM", false,
           [](const Values& v, Config* c) { return SetDuration(v, &c->drain_timeout); }},
          {"listen", "HOST:PORT", "a TCP listener, with mutual TLS alone", false,
           [](const Values& v, Config* c) { return SetAddress(v, &c->listen); }},
          {"tls-cert", "FILE", "the listener's certificate, PEM", false,
           [](const Values& v, Config* c) { return c->tls_cert = v.back(), absl::OkStatus(); }},
          {"tls-key", "FILE", "its private key, PEM", false,
           [](const Values& v, Config* c) { return c->tls_key = v.back(), absl::OkStatus(); }},
          {"tls-client-ca", "FILE", "who signs the clients' certificates, PEM", false,
           [](const Values& v, Config* c) {
             return c->tls_client_ca = v.back(), absl::OkStatus();
           }},
          {"metrics", "HOST:PORT", "where Prometheus finds /metrics", false,
           [](const Values& v, Config* c) { return SetAddress(v, &c->metrics); }},
          {"log-format", "text|json", "of the lines on stderr", false,
           [](const Values& v, Config* c) {
             c->log_json = v.back() == "json";
             return v.back() == "json" || v.back() == "text" ? absl::OkStatus()
                                                             : Bad(v.back(), "text or json");
           }},
          {"log-level", "debug|info|warning|error", "the least that is told; debug: every call",
           false, SetLogLevel},
          {"worker", "PATH", "the glyd-worker program", false,
           [](const Values& v, Config* c) { return c->worker = v.back(), absl::OkStatus(); }},
      };
  return *kOptions;
}

std::string VariableOf(absl::string_view key) {
  return absl::StrCat("GLYDD_", absl::AsciiStrToUpper(absl::StrReplaceAll(key, {{"-", "_"}})));
}

// Kubernetes tells every container of a Service called "glydd" by variables like these.
bool IsKubernetesLink(absl::string_view variable) {
  return absl::StartsWith(variable, "GLYDD_SERVICE_") || variable == "GLYDD_PORT" ||
         absl::StartsWith(variable, "GLYDD_PORT_");
}

std::string EnvironmentOr(const char* variable, const std::string& otherwise) {
  const char* v = std::getenv(variable);
  return v != nullptr && *v != '\0' ? v : otherwise;
}

std::string DefaultSocket() {
  const std::string run = EnvironmentOr("XDG_RUNTIME_DIR", "");
  return run.empty() ? "/run/glydd/glydd.sock" : absl::StrCat(run, "/glydd/glydd.sock");
}

std::string DefaultState() {
  if (::getuid() == 0) return "/var/lib/glydd";
  const std::string state = EnvironmentOr("XDG_STATE_HOME", "");
  if (!state.empty()) return absl::StrCat(state, "/glydd");
  return absl::StrCat(EnvironmentOr("HOME", "/tmp"), "/.local/state/glydd");
}

std::string DefaultWorker() {
  std::string self(4096, '\0');
  const ssize_t n = ::readlink("/proc/self/exe", self.data(), self.size());
  self.resize(n > 0 ? n : 0);
  const std::string bin = self.substr(0, self.rfind('/'));
  for (const std::string& w : {bin + "/glyd-worker", bin + "/../libexec/glyd-worker"})
    if (::access(w.c_str(), X_OK) == 0) return w;
  return bin + "/glyd-worker";
}

// The file's values as text, by key.
absl::StatusOr<std::map<std::string, Values>> ReadToml(const std::string& path) {
  std::map<std::string, Values> out;
  toml::table table;
  try {
    table = toml::parse_file(path);
  } catch (const toml::parse_error& e) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", e.source().begin.line, ": ", std::string(e.description())));
  }
  bool good = true;
  const auto text = [&good](const toml::node& n) -> std::string {
    if (const auto* s = n.as_string()) return s->get();
    if (const auto* i = n.as_integer()) return absl::StrCat(i->get());
    if (const auto* f = n.as_floating_point()) return absl::StrCat(f->get());
    good = false;
    return "";
  };
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    bool known = false;
    for (const Option& o : Options()) known |= name == o.key;
    if (!known)
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": unknown key \"", Printable(name), "\""));
    Values values;
    if (const auto* array = node.as_array()) {
      for (const auto& e : *array) values.push_back(text(e));
    } else {
      values.push_back(text(node));
    }
    if (!good)
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", name, ": want a string or a number, or a list of them"));
    out[name] = values;
  }
  return out;
}

}  // namespace

std::string Config::broker_socket() const {
  const size_t slash = socket.rfind('/');
  return slash == std::string::npos ? "broker.sock" : socket.substr(0, slash) + "/broker.sock";
}

absl::StatusOr<uint64_t> ParseBudget(absl::string_view text, uint64_t total) {
  double share;
  if (absl::EndsWith(text, "%")) {
    if (!absl::SimpleAtod(text.substr(0, text.size() - 1), &share) || !(share > 0) || share > 100)
      return Bad(text, "a share above 0% and at most 100%");
    return static_cast<uint64_t>(static_cast<double>(total) * share / 100);
  }
  return ParseBytes(text);
}

ParsedConfig ParseConfig(int argc, char** argv, char** environment) {
  ParsedConfig out;
  Config& c = out.config;
  c.socket = DefaultSocket();
  c.state = DefaultState();
  c.devices = {"host"};
  c.worker = DefaultWorker();

  CLI::App app(
      "glydd: keeps packed models in device memory and lends them to any process of the host");
  std::string file;
  std::map<std::string, Values> flags;
  bool version = false;
  app.add_option("--config", file, "a TOML file with the same keys as the flags");
  app.add_flag("--check-config", c.check_only, "print the effective configuration and stop");
  app.add_flag("--version", version, "print the version and stop");
  for (const Option& o : Options())
    app.add_option(absl::StrCat("--", o.key), flags[o.key], o.help)
        ->type_name(o.meta)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    out.exit_code = e.get_exit_code() == 0 ? 0 : 78;
    out.text = out.exit_code == 0 ? app.help() : absl::StrCat("glydd: ", e.what(), "\n");
    return out;
  }
  const auto fail = [&](absl::string_view text) {
    out.exit_code = 78;
    out.text = absl::StrCat("glydd: ", text, "\n");
    return out;
  };
  if (version) {
    out.exit_code = 0;
    out.text = absl::StrCat("glydd ", kVersion, "\n");
    return out;
  }

  std::map<std::string, Values> from_file;
  if (!file.empty()) {
    auto read = ReadToml(file);
    if (!read.ok()) return fail(read.status().message());
    from_file = *std::move(read);
  }
  std::map<std::string, std::string> from_environment;
  for (char** e = environment; *e != nullptr; ++e)
    if (absl::StartsWith(*e, "GLYDD_")) {
      const std::pair<std::string, std::string> kv = absl::StrSplit(*e, absl::MaxSplits('=', 1));
      const bool known = std::any_of(Options().begin(), Options().end(), [&](const Option& o) {
        return VariableOf(o.key) == kv.first;
      });
      if (!known && !IsKubernetesLink(kv.first))
        return fail(absl::StrCat("environment ", Printable(kv.first),
                                 ": no setting is called so (glydd --help lists them)"));
      from_environment[kv.first] = kv.second;
    }
  for (const Option& o : Options()) {
    Values values;
    std::string source = "default";
    const std::string variable = VariableOf(o.key);
    if (!flags[o.key].empty()) {
      values = flags[o.key], source = absl::StrCat("flag --", o.key);
    } else if (from_environment.count(variable) != 0) {
      if (o.repeats)
        values = absl::StrSplit(from_environment[variable], ';', absl::SkipEmpty());
      else
        values = {from_environment[variable]};
      source = absl::StrCat("environment ", variable);
    } else if (from_file.count(o.key) != 0) {
      values = from_file[o.key], source = file;
    }
    if (!o.repeats && values.size() > 1)
      return fail(absl::StrCat(source, ": ", o.key, " is given ", values.size(),
                               " times, once is possible"));
    if (!values.empty()) {
      if (absl::Status s = o.set(values, &c); !s.ok())
        return fail(absl::StrCat(source, ": ", o.key, ": ", s.message()));
    }
    std::string shown = absl::StrJoin(values, " ");
    if (values.empty()) {
      const std::map<absl::string_view, std::string> defaults = {
          {"socket", c.socket},
          {"state", c.state},
          {"device", "host"},
          {"budget", c.budget},
          {"max-clients", absl::StrCat(c.max_clients)},
          {"jobs", absl::StrCat(c.jobs)},
          {"queue", absl::StrCat(c.queue)},
          {"threads", absl::StrCat(c.threads)},
          {"drain-timeout", absl::FormatDuration(c.drain_timeout)},
          {"log-format", "text"},
          {"log-level", "info"},
          {"max-connections", absl::StrCat(c.max_connections)},
          {"transport", "fd"},
          {"worker", c.worker}};
      const auto it = defaults.find(o.key);
      shown = it == defaults.end() ? "(none)" : it->second;
    }
    absl::StrAppend(&c.effective, o.key, " = ", shown, "  # ", source, "\n");
  }
  const bool tls = !c.tls_cert.empty() && !c.tls_key.empty() && !c.tls_client_ca.empty();
  if (!c.listen.empty() && !tls)
    return fail("listen needs tls-cert, tls-key and tls-client-ca: there is no plaintext TCP");
  if (c.listen.empty() && (!c.tls_cert.empty() || !c.tls_key.empty() || !c.tls_client_ca.empty()))
    return fail("tls-cert, tls-key and tls-client-ca are for listen, which is not set");
  if (c.socket == c.broker_socket())
    return fail(absl::StrCat("socket ", Printable(c.socket), ": broker.sock is the broker's name"));
  if (c.state.empty()) return fail("state: empty; want a directory");
  constexpr size_t kMaxSocketPath = 107;
  for (const std::string& path : {c.socket, c.broker_socket()})
    if (path.empty() || path.size() > kMaxSocketPath)
      return fail(absl::StrCat("socket path ", Printable(path), ": ", path.size(),
                               " characters, 1 to ", kMaxSocketPath, " are possible"));
  return out;
}

}  // namespace glyd
