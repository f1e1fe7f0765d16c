// The program as a user runs it, where no daemon is needed: usage, exit codes, what goes to stdout
// and to stderr, and that nothing half-written is left.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "packer/testing/fixtures.h"
#include "tests/e2e/daemon.h"

namespace glyd::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

class CliFiles : public ::testing::Test {
 protected:
  // `env`: options and settings of env(1).
  Finished Glyd(const std::vector<std::string>& args, const std::vector<std::string>& env = {}) {
    std::vector<std::string> wrap = {"/usr/bin/env", "--unset=GLYD_SERVER"};
    wrap.insert(wrap.end(), env.begin(), env.end());
    wrap.push_back("XDG_RUNTIME_DIR=" + dir_.path());
    Process p("glyd", args, wrap);
    const int code = p.Wait();
    return {code, p.out(), p.err()};
  }
  // A script of bash, $0 the program and $1... the rest.
  Finished Bash(const std::string& script, const std::vector<std::string>& args = {}) {
    std::vector<std::string> all = {"-c", script,
                                    std::string(std::getenv("GLYD_BIN_DIR")) + "/glyd"};
    all.insert(all.end(), args.begin(), args.end());
    return RunProgram("/bin/bash", all);
  }
  // A small Llama checkpoint with biases, and a save of it.
  std::string Checkpoint() const { return CheckpointCases() + "/llama-biases"; }
  std::string Save() {
    const std::string save = dir_ / "save";
    const Finished o = Glyd({"-q", "pack", Checkpoint(), save, "--layout", "mma12"});
    EXPECT_EQ(o.code, 0) << o.err;
    return save;
  }

  TempDir dir_;
};

TEST_F(CliFiles, WrongUsageIsExit2AndSaysSoOnStderr) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"nonsense"},
      {"pack"},
      {"pack", "a"},
      {"pack", "a", "b", "c"},
      {"pack", "a", "b", "--layout", "mma13"},
      {"pack", "a", "b", "--threads", "-1"},
      {"pack", "a", "b", "--threads", "many"},
      {"pack", ".", ""},
      {"-o", "xml", "version"},
      {"verify"},
      {"verify", "a", "b", "--resident"},
      {"verify", "a", "--resident", "--quick"},
      {"load", "x"},
      {"linear", "x", "y", "--m", "0"},
      {"linear", "x", "y", "--via", "post"},
      {"jobs", "show"},
      {"jobs", "nonsense"},
      {"bench"},
      {"completion", "fish"},
      {"--server"},
  };
  for (const auto& args : wrong) {
    const Finished o = Glyd(args);
    EXPECT_EQ(o.code, 2) << ::testing::PrintToString(args) << o.err;
    EXPECT_THAT(o.out, IsEmpty()) << ::testing::PrintToString(args);
    EXPECT_THAT(o.err, StartsWith("glyd: ")) << ::testing::PrintToString(args);
  }
}

TEST_F(CliFiles, HelpAndVersionGoToStdout) {
  Finished o = Glyd({"--help"});
  EXPECT_EQ(o.code, 0);
  for (const char* verb :
       {"pack", "verify", "unpack", "load", "unload", "ps", "show", "hash", "linear", "jobs"})
    EXPECT_THAT(o.out, HasSubstr(verb));
  EXPECT_THAT(o.err, IsEmpty());
  o = Glyd({"version"});
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.out, StartsWith("glyd "));
  o = Glyd({"version", "-o", "json"});
  EXPECT_EQ(Json::parse(o.out).at("format"), "0.25.0");
}

TEST_F(CliFiles, OneFilePacksWithAnyWhateverItsName) {
  const std::string alone = dir_ / "x.safetensors", save = dir_ / "save";
  ASSERT_EQ(Bash("cp \"$1\" \"$2\"", {Checkpoint() + "/model.safetensors", alone}).code, 0);
  Finished o = Glyd({"-q", "pack", alone, save});
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("--any"));
  o = Glyd({"-q", "pack", alone, save, "--any"});
  EXPECT_EQ(o.code, 0) << o.err;
  o = Glyd({"-q", "verify", save});
  EXPECT_EQ(o.code, 0) << o.err;
}

TEST_F(CliFiles, NoDaemonIsExit3AndNamesTheSocket) {
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"ps"},
                                             {"health"},
                                             {"info"},
                                             {"hash", "x"},
                                             {"load", "x", "r/y"},
                                             {"jobs"},
                                             {"attach", "x"},
                                             {"verify", "x", "--resident"},
                                             {"pack", "r/a", "r/b", "--job"}}) {
    const Finished o = Glyd(args);
    EXPECT_EQ(o.code, 3) << args[0] << o.err;
    EXPECT_THAT(o.err, AllOf(HasSubstr(dir_ / "glydd/glydd.sock"), HasSubstr("glydd --socket")))
        << args[0];
    EXPECT_THAT(o.out, IsEmpty()) << args[0];
  }
  // It may have been meant as a save's path: that there is none is the failure.
  Finished o = Glyd({"show", "x"});
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, AllOf(HasSubstr("no save is there"), HasSubstr(dir_ / "glydd/glydd.sock")));
  o = Glyd({"ps"}, {"GLYD_SERVER=unix:" + dir_ / "other.sock"});
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.err, HasSubstr("other.sock"));
  // A socket file that nobody listens on any more.
  WriteFile(dir_ / "stale.sock", "");
  o = Glyd({"--server", "unix:" + dir_ / "stale.sock", "ps"});
  EXPECT_EQ(o.code, 3) << o.err;
  o = Glyd({"ps", "--server", "nonsense"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("neither unix:PATH nor HOST:PORT"));
  o = Glyd({"ps", "--server", "localhost:7443"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("a TCP server needs a TLS CA file"));
  o = Glyd({"ps", "--server", "unix:/" + std::string(120, 'x')});
  EXPECT_THAT(o.err, HasSubstr("121 characters, 1 to 107"));
}

TEST_F(CliFiles, PacksVerifiesShowsAndUnpacks) {
  const std::string save = dir_ / "save";
  Finished o = Glyd({"-o", "json", "pack", Checkpoint(), save, "--layout", "mma12"});
  ASSERT_EQ(o.code, 0) << o.err;
  Json packed = Json::parse(o.out);
  EXPECT_GT(packed.at("packs"), 0);
  EXPECT_EQ(packed.at("layout"), "mma12");

  o = Glyd({"verify", save, "-o", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const Json verified = Json::parse(o.out);
  EXPECT_EQ(verified.at("ok"), true);
  EXPECT_EQ(verified.at("saves").at(0).at("packs"), packed.at("packs"));
  EXPECT_GT(verified.at("saves").at(0).at("verdicts").size(), 0u);
  o = Glyd({"verify", "--quick", save});
  EXPECT_THAT(o.out, HasSubstr("structure alone"));

  o = Glyd({"show", save, "-o", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const Json shown = Json::parse(o.out);
  EXPECT_EQ(shown.at("packs").size(), packed.at("packs"));
  EXPECT_TRUE(shown.at("packs").at(0).at("exceptions").is_number_unsigned());
  for (const Json& t : shown.at("tensors")) EXPECT_FALSE(t.at("why").get<std::string>().empty());
  o = Glyd({"show", "save"}, {"--chdir=" + dir_.path()});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("glyd-v3 mma12"));
  EXPECT_THAT(o.out, HasSubstr("largest "));

  const std::string back = dir_ / "back/";
  o = Glyd({"unpack", save, back});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(ReadFile(dir_ / "back/model.safetensors").size(),
            ReadFile(Checkpoint() + "/model.safetensors").size());
  EXPECT_THAT(ListDir(dir_.path()), ::testing::ElementsAre("back", "save"));
}

TEST_F(CliFiles, PackErrorsNameTheirObjectAndLeaveNothing) {
  WriteFile(dir_ / "file", "no directory");
  const std::string out = dir_ / "out";
  struct Case {
    std::vector<std::string> args;
    const char* says;
  };
  ASSERT_EQ(::mkdir((dir_ / "empty").c_str(), 0700), 0);
  ASSERT_EQ(::mkdir((dir_ / "taken").c_str(), 0700), 0);
  const std::vector<std::string> before = ListDir(dir_.path());
  for (const Case& c : std::vector<Case>{{{"pack", dir_ / "file", out}, "file"},
                                         {{"pack", dir_ / "nowhere", out}, "nowhere"},
                                         {{"pack", dir_ / "empty", out}, "model.safetensors"},
                                         {{"pack", Checkpoint(), dir_ / "taken"}, "taken"},
                                         {{"pack", Checkpoint(), dir_ / "nowhere/out"}, "nowhere"},
                                         {{"unpack", dir_ / "empty", out}, "glyd.json"},
                                         {{"verify", dir_ / "empty"}, "glyd.json"},
                                         {{"show", dir_ / "empty"}, "glyd.json"}}) {
    const Finished o = Glyd(c.args);
    EXPECT_EQ(o.code, 1) << c.says << o.err;
    EXPECT_THAT(o.err, AllOf(StartsWith("glyd: "), HasSubstr(c.says)));
    EXPECT_EQ(ListDir(dir_.path()), before) << c.says;
  }
}

TEST_F(CliFiles, OneBadSaveAmongSeveralFailsVerifyAndNamesTheTensor) {
  const std::string save = Save();
  const std::string bad = dir_ / "bad";
  ASSERT_EQ(::mkdir(bad.c_str(), 0700), 0);
  for (const std::string& name : ListDir(save)) {
    std::string content = ReadFile(save + "/" + name);
    if (name == "model.safetensors") content[content.size() - 1] ^= 1;
    WriteFile(bad + "/" + name, content);
  }
  Finished o = Glyd({"verify", save, bad});
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.out, AllOf(HasSubstr(save + ": ok"), HasSubstr(bad + ": BAD")));
  EXPECT_THAT(o.err, StartsWith("glyd: "));
  o = Glyd({"-o", "json", "verify", save, bad});
  EXPECT_EQ(o.code, 1);
  const Json doc = Json::parse(o.out);
  EXPECT_EQ(doc.at("ok"), false);
  EXPECT_EQ(doc.at("saves").at(0).at("ok"), true);
  EXPECT_EQ(doc.at("saves").at(1).at("ok"), false);
}

TEST_F(CliFiles, AFullDiskIsTold) {
  Finished o = Bash("exec \"$0\" version > /dev/full");
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("No space left on device"));

  // A file size limit in place of a small disk: the write fails, where SIGXFSZ would kill.
  o = Bash("ulimit -f 8; exec \"$0\" pack \"$1\" \"$2\"", {Checkpoint(), dir_ / "out"});
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, AllOf(HasSubstr("File too large"), HasSubstr("bytes")));
  EXPECT_THAT(ListDir(dir_.path()), IsEmpty());
}

TEST_F(CliFiles, InterruptedIsExit130AndNothingIsHalfWritten) {
  // 600 MB of zeros, sparse: long enough to be met at work.
  const std::string model = dir_ / "model";
  ASSERT_EQ(::mkdir(model.c_str(), 0700), 0);
  const Finished made = RunProgram("/usr/bin/python3", {"-c", R"(
import json, struct, sys
hidden, layers, heads = 1024, 24, 16
config = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=hidden, intermediate_size=4096,
              num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads, vocab_size=512,
              tie_word_embeddings=True)
shapes = {"model.embed_tokens.weight": [512, hidden], "model.norm.weight": [hidden]}
for i in range(layers):
    p = f"model.layers.{i}."
    for n in "qkvo": shapes[p + f"self_attn.{n}_proj.weight"] = [hidden, hidden]
    for n in ("gate", "up"): shapes[p + f"mlp.{n}_proj.weight"] = [4096, hidden]
    shapes[p + "mlp.down_proj.weight"] = [hidden, 4096]
    for n in ("input_layernorm", "post_attention_layernorm"): shapes[p + n + ".weight"] = [hidden]
header, at = {}, 0
for name, shape in shapes.items():
    size = 2
    for d in shape: size *= d
    header[name] = dict(dtype="BF16", shape=shape, data_offsets=[at, at + size])
    at += size
text = json.dumps(header).encode()
with open(sys.argv[1] + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    f.truncate(8 + len(text) + at)
json.dump(config, open(sys.argv[1] + "/config.json", "w"))
)",
                                                        model});
  ASSERT_EQ(made.code, 0) << made.err;
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) {
    Process p("glyd", {"pack", model, dir_ / "out"});
    // At work once its temporary directory is there.
    ASSERT_TRUE(Eventually([&] { return ListDir(dir_.path()).size() > 1 || !p.running(); }));
    ASSERT_TRUE(p.running()) << p.err();
    p.Signal(signal);
    EXPECT_EQ(p.Wait(), 128 + signal) << p.err();
    EXPECT_THAT(ListDir(dir_.path()), ::testing::ElementsAre("model"));
  }
  // One that is ignored from the start, as under nohup, changes nothing.
  const Finished o = Bash("trap '' HUP; \"$0\" -q pack \"$1\" \"$2\" & kill -HUP $!; wait $!",
                          {model, dir_ / "out"});
  EXPECT_EQ(o.code, 0) << o.err;
}

TEST_F(CliFiles, ExplainTellsAReason) {
  const Finished one = Glyd({"explain", "no_room"});
  EXPECT_EQ(one.code, 0);
  EXPECT_THAT(one.out, ::testing::StartsWith("NO_ROOM (RESOURCE_EXHAUSTED): "));
  EXPECT_EQ(std::count(one.out.begin(), one.out.end(), '\n'), 1);
  const Finished none = Glyd({"explain", "NO_SUCH"});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, ::testing::HasSubstr("NO_SUCH"));
}

TEST_F(CliFiles, CompletionIsAScriptThatBashTakes) {
  const Finished o = Glyd({"completion", "bash"});
  ASSERT_EQ(o.code, 0);
  const Finished words =
      Bash(o.out + "COMP_WORDS=(glyd pack --lay); COMP_CWORD=2; _glyd; echo ${COMPREPLY[@]}");
  EXPECT_EQ(words.out, "--layout\n") << words.err;
  const Finished verbs =
      Bash(o.out + "COMP_WORDS=(glyd ver); COMP_CWORD=1; _glyd; echo ${COMPREPLY[@]}");
  EXPECT_EQ(verbs.out, "verify version\n") << verbs.err;
}

}  // namespace
}  // namespace glyd::testing
