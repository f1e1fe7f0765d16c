// The program against a real daemon: what it prints, its exit codes, and processes that share, die
// and are refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "packer/testing/fixtures.h"
#include "tests/e2e/daemon.h"

namespace glyd::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Json = nlohmann::json;

constexpr char kPack[] = "model.layers.0.mlp.gate_proj";

class CliDaemon : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* layout : {"mma", "mma12"})
      ASSERT_EQ(RunProgram("glyd", {"-q", "pack", CheckpointCases() + "/llama-biases",
                                    dir_ / (std::string(layout)), "--layout", layout})
                    .code,
                0);
    daemon_ = std::make_unique<DaemonProcess>(
        dir_.path(), std::vector<std::string>{"--root", absl::StrCat("m=", dir_.path(), ":rw")});
    ASSERT_TRUE(daemon_->ready()) << daemon_->process().err();
  }

  std::vector<std::string> ToDaemon(std::vector<std::string> args) const {
    args.insert(args.begin(), {"-q", "--server", daemon_->server()});
    return args;
  }
  Finished Glyd(const std::vector<std::string>& args) const {
    return RunProgram("glyd", ToDaemon(args));
  }
  // The document of a command that must succeed.
  Json Ask(std::vector<std::string> args) const {
    args.insert(args.begin(), {"-o", "json"});
    const Finished o = Glyd(args);
    EXPECT_EQ(o.code, 0) << o.err;
    Json out = Json::parse(o.out, nullptr, false);
    EXPECT_FALSE(out.is_discarded()) << o.out;
    return out;
  }
  void Load(const std::string& name, const std::string& save = "mma12") const {
    const Finished o = Glyd({"load", name, "m/" + save, "--wait"});
    ASSERT_EQ(o.code, 0) << o.err;
  }
  // A process that has `name` mapped and holds its lease; its line is in `line`.
  std::unique_ptr<Process> Hold(const std::string& name, Json* line) const {
    auto p = std::make_unique<Process>(
        "glyd", ToDaemon({"-o", "json", "attach", name, "--seconds", "120"}));
    EXPECT_TRUE(p->WaitForOut("\n}")) << p->err();
    *line = Json::parse(p->out(), nullptr, false);
    return p;
  }
  std::vector<int> Holders(const std::string& name) const {
    std::vector<int> pids;
    const Json doc = Ask({"ps"});
    for (const Json& model : doc.at("models"))
      if (model.at("name") == name)
        for (const Json& h : model.at("holders")) pids.push_back(h.at("pid"));
    return pids;
  }

  testing::TempDir dir_;
  std::unique_ptr<DaemonProcess> daemon_;
};

TEST_F(CliDaemon, LoadsListsShowsAndUnloads) {
  EXPECT_THAT(Glyd({"health"}).out, "SERVING\n");
  const Json loaded = Ask({"load", "a", "m/mma12", "--wait", "--verify", "--pin"});
  EXPECT_EQ(loaded.at("state"), "READY");
  EXPECT_EQ(loaded.at("pinned"), true);
  EXPECT_EQ(Glyd({"health", "a"}).out, "SERVING\n");
  EXPECT_EQ(Glyd({"health", "liveness"}).out, "SERVING\n");
  EXPECT_EQ(Glyd({"health", "b"}).code, 1);
  EXPECT_THAT(Glyd({"health", "b"}).err, HasSubstr("glyd.model.b"));
  const Json models = Ask({"ps"}).at("models");
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models.at(0).at("format"), "glyd-v3");
  EXPECT_THAT(Glyd({"ps"}).out, AllOf(StartsWith("NAME"), HasSubstr("READY"), HasSubstr("mma12")));
  const Json shown = Ask({"show", "a"});
  EXPECT_EQ(shown.at("packs").size(), shown.at("model").at("packs"));
  EXPECT_THAT(Glyd({"show", "a"}).out, HasSubstr(kPack));
  EXPECT_EQ(Ask({"info"}).at("roots").at(0).at("writable"), true);
  EXPECT_EQ(Glyd({"unpin", "a"}).code, 0);
  EXPECT_EQ(Ask({"ps"}).at("models").at(0).at("pinned"), false);
  EXPECT_EQ(Ask({"verify", "a", "--resident"}).at("ok"), true);
  EXPECT_EQ(Ask({"unload", "a"}).at("draining"), false);
  EXPECT_THAT(Ask({"ps"}).at("models"), IsEmpty());
}

TEST_F(CliDaemon, BenchesGiveTheirTimes) {
  Load("a");
  const Json attach = Ask({"bench", "attach", "a", "--n", "3"});
  EXPECT_GT(attach.at("attach").at("p50_seconds"), 0);
  const Json linear = Ask({"bench", "linear", "a", kPack, "--n", "3", "--m", "2"});
  EXPECT_EQ(linear.at("m"), 2);
  ASSERT_EQ(linear.at("times").size(), 4u);
  for (const Json& row : linear.at("times")) EXPECT_GT(row.at("p50_seconds"), 0) << row.dump();
  EXPECT_THAT(Glyd({"bench", "linear", "a", "zz"}).err, HasSubstr("has no pack \"zz\""));
}

TEST_F(CliDaemon, HashIsWhatTheManifestSays) {
  for (const char* layout : {"mma", "mma12"}) {
    Load(layout, layout);
    const Json manifest = Json::parse(ReadFile(dir_ / (std::string(layout) + "/glyd.json")));
    std::map<std::string, std::string> expected = manifest.at("tensors");
    for (const auto& [name, pack] : manifest.at("packs").items())
      for (const Json& t : pack.at("tensors")) expected[t.at("name")] = t.at("sha256");
    std::map<std::string, std::string> got;
    const Finished o = Glyd({"hash", layout});
    ASSERT_EQ(o.code, 0) << o.err;
    std::istringstream lines(o.out);
    for (std::string sha256, name; lines >> sha256 >> name;) got[name] = sha256;
    EXPECT_EQ(got, expected);
    EXPECT_EQ(Ask({"hash", layout, expected.begin()->first}).at("tensors").size(), 1u);
    const Finished none = Glyd({"hash", layout, "no.such.tensor"});
    EXPECT_EQ(none.code, 1);
    EXPECT_THAT(none.err, HasSubstr("no.such.tensor"));
  }
}

TEST_F(CliDaemon, LinearHasTheSameBitsOnBothSides) {
  for (const char* layout : {"mma", "mma12"}) {
    Load(layout, layout);
    for (const char* m : {"1", "7", "64", "200"}) {
      const Json doc = Ask({"linear", layout, kPack, "--m", m, "--check", "--bias"});
      EXPECT_EQ(doc.at("same_bits"), true) << layout << " " << m;
      EXPECT_EQ(doc.at("sides").at(0).at("sha256"), doc.at("sides").at(1).at("sha256"));
      EXPECT_LT(doc.at("relative_error"), 6e-3);
    }
    EXPECT_EQ(Ask({"linear", layout, kPack, "--via", "daemon"}).at("sides").size(), 1u);
    const Finished o = Glyd({"linear", layout, "no_such_pack"});
    EXPECT_EQ(o.code, 1);
    EXPECT_THAT(o.err, HasSubstr("no_such_pack"));
  }
}

TEST_F(CliDaemon, TwoClientsShareOneCopyAndADeadOnesLeaseEnds) {
  Load("a");
  Json one, two;
  const auto p1 = Hold("a", &one), p2 = Hold("a", &two);
  EXPECT_EQ(one.at("memory_inode"), two.at("memory_inode"));
  EXPECT_EQ(one.at("memory_inode"), Ask({"ps"}).at("models").at(0).at("memory_inode"));
  EXPECT_NE(one.at("lease_id"), two.at("lease_id"));
  EXPECT_THAT(Holders("a"), ::testing::UnorderedElementsAre(p1->pid(), p2->pid()));
  for (const pid_t pid : {p1->pid(), p2->pid()}) {
    std::stringstream maps;
    maps << std::ifstream(absl::StrCat("/proc/", pid, "/maps")).rdbuf();
    EXPECT_THAT(maps.str(),
                HasSubstr(absl::StrCat(" ", one.at("memory_inode").get<uint64_t>(), " ")));
  }
  p1->Signal(SIGKILL);
  EXPECT_TRUE(Eventually([&] { return Holders("a") == std::vector<int>{p2->pid()}; }));
  p2->Signal(SIGTERM);
  EXPECT_EQ(p2->Wait(), 128 + SIGTERM);
  EXPECT_TRUE(Eventually([&] { return Holders("a").empty(); }));
}

TEST_F(CliDaemon, UnloadWithALeaseOutNamesItsHolderAndDrainWaits) {
  Load("a");
  Json line;
  const auto holder = Hold("a", &line);
  Finished o = Glyd({"unload", "a"});
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr(absl::StrCat(holder->pid())));
  EXPECT_EQ(Ask({"unload", "a", "--drain"}).at("draining"), true);
  EXPECT_EQ(Ask({"ps"}).at("models").at(0).at("state"), "DRAINING");
  o = Glyd({"attach", "a"});
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("\"a\""));
  holder->Signal(SIGINT);
  EXPECT_EQ(holder->Wait(), 128 + SIGINT);
  EXPECT_TRUE(Eventually([&] { return Ask({"ps"}).at("models").empty(); }));
}

TEST_F(CliDaemon, WhatCannotBeLoadedIsNamed) {
  Load("a");
  struct Case {
    std::vector<std::string> args;
    const char* says;
  };
  for (const Case& c : std::vector<Case>{{{"load", "a", "m/mma"}, "\"a\""},
                                         {{"load", "../x", "m/mma"}, "../x"},
                                         {{"load", ".x", "m/mma"}, ".x"},
                                         {{"load", "", "m/mma"}, "name"},
                                         {{"load", std::string(129, 'n'), "m/mma"}, "nnn"},
                                         {{"load", "b", "elsewhere/mma"}, "elsewhere"},
                                         {{"load", "b", "m/../../etc"}, "m/../../etc"},
                                         {{"load", "b", "m/nothing", "--wait"}, "nothing"},
                                         {{"unload", "zz"}, "zz"},
                                         {{"show", "zz"}, "zz"},
                                         {{"attach", "zz"}, "zz"},
                                         {{"verify", "zz", "--resident"}, "zz"},
                                         {{"jobs", "show", "99"}, "99"},
                                         {{"jobs", "cancel", "99"}, "99"},
                                         {{"jobs", "watch", "99"}, "99"}}) {
    const Finished o = Glyd(c.args);
    EXPECT_EQ(o.code, 1) << ::testing::PrintToString(c.args) << o.err;
    EXPECT_THAT(o.err, AllOf(StartsWith("glyd: "), HasSubstr(c.says)))
        << ::testing::PrintToString(c.args);
    EXPECT_THAT(o.out, IsEmpty()) << ::testing::PrintToString(c.args);
  }
  EXPECT_EQ(Glyd({"hash", "a"}).code, 0);
}

TEST_F(CliDaemon, PackAndVerifyAsJobs) {
  ASSERT_EQ(::symlink((CheckpointCases() + "/llama-biases").c_str(), (dir_ / "outside").c_str()),
            0);
  ASSERT_EQ(
      RunProgram("/bin/cp", {"-r", CheckpointCases() + "/llama-biases", dir_ / "source"}).code, 0);
  const Json packed = Ask({"pack", "m/source", "m/out", "--layout", "mma12"});
  EXPECT_EQ(packed.at("state"), "SUCCEEDED");
  EXPECT_EQ(packed.at("result").at("layout"), "mma12");
  EXPECT_EQ(ReadFile(dir_ / "out/model.safetensors"), ReadFile(dir_ / "mma12/model.safetensors"));
  EXPECT_EQ(Ask({"verify", "m/out"}).at("state"), "SUCCEEDED");

  const Finished leaves = Glyd({"pack", "m/outside", "m/out2"});
  EXPECT_EQ(leaves.code, 1);
  EXPECT_THAT(leaves.err, HasSubstr("failed"));
  const Finished id = Glyd({"verify", "m/out", "--detach"});
  ASSERT_EQ(id.code, 0) << id.err;
  EXPECT_EQ(Ask({"jobs", "watch", id.out.substr(0, id.out.size() - 1)}).at("state"), "SUCCEEDED");
  EXPECT_EQ(Ask({"jobs"}).at("jobs").size(), 4u);
  EXPECT_THAT(Glyd({"jobs", "ls"}).out,
              AllOf(HasSubstr("FAILED"), HasSubstr("pack m/source -> m/out")));
}

TEST_F(CliDaemon, AnotherUserIsRefusedWithExit4) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const auto as_other = [&] {
    Process p("glyd", ToDaemon({"ps"}), {"/usr/bin/setpriv", "--reuid=54321", "--clear-groups"});
    const int code = p.Wait();
    return Finished{code, p.out(), p.err()};
  };
  // First the directory keeps the socket from it, then the daemon's list does.
  Finished o = as_other();
  EXPECT_EQ(o.code, 4) << o.err;
  EXPECT_THAT(o.err, HasSubstr("Permission denied"));
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(daemon_->socket().c_str(), 0666), 0);
  ASSERT_EQ(::chmod(daemon_->broker_socket().c_str(), 0666), 0);
  o = as_other();
  EXPECT_EQ(o.code, 4) << o.err;
}

TEST_F(CliDaemon, ADaemonThatGoesIsExit3) {
  Load("a");
  Json line;
  const auto holder = Hold("a", &line);
  daemon_->process().Signal(SIGKILL);
  daemon_->process().Wait();
  const Finished o = Glyd({"ps"});
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.err, HasSubstr(daemon_->socket()));
  // Its memory stays mapped; its process still ends as it was asked to.
  EXPECT_TRUE(holder->running());
  holder->Signal(SIGTERM);
  EXPECT_EQ(holder->Wait(), 128 + SIGTERM);
}

}  // namespace
}  // namespace glyd::testing
