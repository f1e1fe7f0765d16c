#include <errno.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "client/cli/cli.h"
#include "client/cli/interrupt.h"
#include "client/cli/verbs.h"
#include "glyd/status.h"

namespace glyd::cli {
namespace {

constexpr int kUsage = 2;

std::string FromEnv(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

void AddGlobals(CLI::App& app, Cli& cli, std::string& output) {
  app.add_option("--server", cli.connect.server,
                 "the daemon: unix:PATH or HOST:PORT (GLYD_SERVER; else " + DefaultServer() + ")");
  app.add_option("--tls-ca", cli.connect.tls_ca_file,
                 "PEM file: who signs a HOST:PORT server (GLYD_TLS_CA)");
  app.add_option("--tls-cert", cli.connect.tls_cert_file,
                 "PEM file: this client's certificate (GLYD_TLS_CERT)");
  app.add_option("--tls-key", cli.connect.tls_key_file, "PEM file: its key (GLYD_TLS_KEY)");
  app.add_option("-o,--output", output, "text, or json: one document on stdout")
      ->check(CLI::IsMember({"text", "json"}))
      ->default_str("text");
  app.add_flag("-q,--quiet", cli.quiet, "no progress and no talk");
}

void AddVerbs(CLI::App& app, Cli& cli) {
  AddPack(app, cli);
  AddVerify(app, cli);
  AddUnpack(app, cli);
  AddLoad(app, cli);
  AddUnload(app, cli);
  AddPin(app, cli);
  AddPs(app, cli);
  AddShow(app, cli);
  AddHash(app, cli);
  AddLinear(app, cli);
  AddAttach(app, cli);
  AddJobs(app, cli);
  AddHealth(app, cli);
  AddInfo(app, cli);
  AddBench(app, cli);
  AddVersion(app, cli);
  AddCompletion(app, cli);
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "glyd: %s\n", std::string(status.message()).c_str());
  return ExitCode(status);
}

// A result that did not reach its file is no success, unless its reader chose to stop (glyd ps |
// head -1).
int FinishOutput(int code) {
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!failed || errno == EPIPE || code != 0) return code;
  std::fprintf(stderr, "glyd: writing the result: %s\n", std::strerror(errno));
  return 1;
}

int Main(int argc, char** argv) {
  InstallSignalHandlers();
  Cli cli;
  cli.connect.tls_ca_file = FromEnv("GLYD_TLS_CA");
  cli.connect.tls_cert_file = FromEnv("GLYD_TLS_CERT");
  cli.connect.tls_key_file = FromEnv("GLYD_TLS_KEY");
  std::string output = "text";
  CLI::App app("packs models losslessly, and shares them through glydd", "glyd");
  app.require_subcommand(1);
  app.fallthrough();  // global options may stand behind the verb; verbs inherit it
  AddGlobals(app, cli, output);
  AddVerbs(app, cli);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help
    return FinishOutput(app.exit(e));
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "glyd: %s\nglyd: try: glyd --help, or glyd VERB --help\n", e.what());
    return kUsage;
  }
  cli.json = output == "json";
  cli.server_given = app.count("--server") > 0;
  const absl::Status status = cli.run();
  return FinishOutput(status.ok() ? 0 : Fail(status));
}

}  // namespace
}  // namespace glyd::cli

int main(int argc, char** argv) { return glyd::cli::Main(argc, argv); }
