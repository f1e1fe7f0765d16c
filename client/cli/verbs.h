#ifndef GLYD_CLIENT_CLI_VERBS_H_
#define GLYD_CLIENT_CLI_VERBS_H_

#include "client/cli/cli.h"
#include "client/cli/command.h"

namespace glyd::cli {

// Each declares a verb of `root`. `cli` outlives the parsing and the run.
void AddPack(Command& root, Cli& cli);
void AddVerify(Command& root, Cli& cli);
void AddUnpack(Command& root, Cli& cli);
void AddLoad(Command& root, Cli& cli);
void AddUnload(Command& root, Cli& cli);
void AddPin(Command& root, Cli& cli);  // pin and unpin
void AddPs(Command& root, Cli& cli);
void AddShow(Command& root, Cli& cli);
void AddHash(Command& root, Cli& cli);
void AddLinear(Command& root, Cli& cli);
void AddAttach(Command& root, Cli& cli);
void AddJobs(Command& root, Cli& cli);
void AddDoctor(Command& root, Cli& cli);
void AddHealth(Command& root, Cli& cli);
void AddInfo(Command& root, Cli& cli);
void AddExplain(Command& root, Cli& cli);
void AddBench(Command& root, Cli& cli);
void AddVersion(Command& root, Cli& cli);
void AddCompletion(Command& root, Cli& cli, const CommandLine& line);

}  // namespace glyd::cli

#endif  // GLYD_CLIENT_CLI_VERBS_H_
