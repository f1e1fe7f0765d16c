#ifndef GLYD_CLIENT_CLI_VERBS_H_
#define GLYD_CLIENT_CLI_VERBS_H_

#include "client/cli/cli.h"

namespace glyd::cli {

// Each declares a verb in `app`. `cli` outlives the parsing and the run.
void AddPack(CLI::App& app, Cli& cli);
void AddVerify(CLI::App& app, Cli& cli);
void AddUnpack(CLI::App& app, Cli& cli);
void AddLoad(CLI::App& app, Cli& cli);
void AddUnload(CLI::App& app, Cli& cli);
void AddPin(CLI::App& app, Cli& cli);  // pin and unpin
void AddPs(CLI::App& app, Cli& cli);
void AddShow(CLI::App& app, Cli& cli);
void AddHash(CLI::App& app, Cli& cli);
void AddLinear(CLI::App& app, Cli& cli);
void AddAttach(CLI::App& app, Cli& cli);
void AddJobs(CLI::App& app, Cli& cli);
void AddHealth(CLI::App& app, Cli& cli);
void AddInfo(CLI::App& app, Cli& cli);
void AddBench(CLI::App& app, Cli& cli);
void AddVersion(CLI::App& app, Cli& cli);
void AddCompletion(CLI::App& app, Cli& cli);

}  // namespace glyd::cli

#endif  // GLYD_CLIENT_CLI_VERBS_H_
