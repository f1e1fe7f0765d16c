#include <errno.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/interrupt.h"
#include "client/cli/verbs.h"
#include "glyd/status.h"

namespace glyd::cli {
namespace {

std::string FromEnv(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

void AddGlobals(const Command& root, Cli& cli, std::string* output) {
  root.Option("--server", &cli.connect.server,
              "the daemon: unix:PATH or HOST:PORT; else $GLYD_SERVER, else glydd/glydd.sock in "
              "$XDG_RUNTIME_DIR "
              "or /run");
  root.Option("--tls-ca", &cli.connect.tls_ca_file,
              "PEM file: who signs a HOST:PORT server; $GLYD_TLS_CA");
  root.Option("--tls-cert", &cli.connect.tls_cert_file,
              "PEM file: this client's certificate; $GLYD_TLS_CERT");
  root.Option("--tls-key", &cli.connect.tls_key_file, "PEM file: its key; $GLYD_TLS_KEY");
  root.Choice("-o,--output", output, {"text", "json"}, "json: one document on stdout");
  root.Flag("-q,--quiet", &cli.quiet, "no progress and no talk");
}

void AddVerbs(Command root, Cli& cli, const CommandLine& line) {
  AddPack(root, cli);
  AddVerify(root, cli);
  AddUnpack(root, cli);
  AddLoad(root, cli);
  AddUnload(root, cli);
  AddPin(root, cli);
  AddPs(root, cli);
  AddShow(root, cli);
  AddHash(root, cli);
  AddLinear(root, cli);
  AddAttach(root, cli);
  AddJobs(root, cli);
  AddHealth(root, cli);
  AddInfo(root, cli);
  AddDoctor(root, cli);
  AddExplain(root, cli);
  AddBench(root, cli);
  AddVersion(root, cli);
  AddCompletion(root, cli, line);
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "glyd: %s\n", std::string(status.message()).c_str());
  return ExitCode(status);
}

// A result that did not reach its file is no success, unless its reader chose to stop (glyd ps |
// head -1).
int FinishOutput(const Cli& cli, int code) {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  const int error = cli.output_errno() != 0 ? cli.output_errno() : errno;
  if (!failed || error == EPIPE || code != 0) return code;
  std::fprintf(stderr, "glyd: writing the result: %s\n", std::strerror(error));
  return 1;
}

int Main(int argc, char** argv) {
  InstallSignalHandlers();
  Cli cli;
  cli.connect.tls_ca_file = FromEnv("GLYD_TLS_CA");
  cli.connect.tls_cert_file = FromEnv("GLYD_TLS_CERT");
  cli.connect.tls_key_file = FromEnv("GLYD_TLS_KEY");
  std::string output = "text";
  CommandLine line("glyd", "packs models losslessly, and shares them through glydd");
  AddGlobals(line.root(), cli, &output);
  AddVerbs(line.root(), cli, line);
  if (const std::optional<int> code = line.Parse(argc, argv)) return FinishOutput(cli, *code);
  cli.json = output == "json";
  cli.server_given = line.Given("--server");
  const absl::Status status = line.action()();
  if (!status.ok()) cli.PrintFailure(status);
  return FinishOutput(cli, status.ok() ? 0 : Fail(status));
}

}  // namespace
}  // namespace glyd::cli

int main(int argc, char** argv) { return glyd::cli::Main(argc, argv); }
