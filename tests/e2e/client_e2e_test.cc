// The client library against a real daemon.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/sha256.h"
#include "glyd/client.h"
#include "glyd/linear.h"
#include "packer/testing/fixtures.h"
#include "tests/e2e/daemon.h"

namespace glyd {
namespace {

using ::testing::HasSubstr;

constexpr char kPack[] = "model.layers.0.mlp.gate_proj";

class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // A save is made once: nothing here changes it.
    static const testing::TempDir made;
    static const int code =
        RunProgram("glyd",
                   {"-q", "pack", testing::CheckpointCases() + "/llama-biases", made / "save"})
            .code;
    ASSERT_EQ(code, 0);
    ASSERT_EQ(RunProgram("/bin/cp", {"-r", made / "save",
                                     testing::CheckpointCases() + "/llama-ragged", dir_.path()})
                  .code,
              0);
    StartDaemon();
  }
  void StartDaemon(std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.begin(), {"--root", absl::StrCat("m=", dir_.path(), ":rw")});
    daemon_ = std::make_unique<DaemonProcess>(dir_.path(), arguments);
    ASSERT_TRUE(daemon_->ready()) << daemon_->process().err();
  }
  Client Connect() {
    ConnectOptions options;
    options.server = daemon_->server();
    auto client = Client::Connect(options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  void Load(const Client& client, const std::string& name) {
    LoadOptions load;
    load.name = name;
    load.path = "m/save";
    ASSERT_TRUE(client.Load(load).ok());
    const auto ready = client.WaitUntilLoaded(name);
    ASSERT_TRUE(ready.ok()) << ready.status();
    ASSERT_EQ(ready->state, ModelState::kReady);
  }
  static absl::Status HashAll(const Model& model) {
    for (const std::string& name : model.TensorNames()) {
      Sha256 sha;
      absl::Status s = model.ReadTensor(
          name, [&](absl::Span<const uint8_t> bytes) { sha.Update(bytes.data(), bytes.size()); });
      if (!s.ok()) return s;
      if (sha.Finish() != *model.TensorSha256(name)) return absl::DataLossError(name);
    }
    return absl::OkStatus();
  }

  TempDir dir_;
  std::unique_ptr<DaemonProcess> daemon_;
};

TEST_F(ClientTest, ReasonsOfFailures) {
  const Client client = Connect();
  Load(client, "a");
  const auto reason = [&](const char* name, const char* path) {
    LoadOptions load;
    load.name = name;
    load.path = path;
    return Reason(client.Load(load).status());
  };
  ASSERT_TRUE(reason("a", "m/save").empty());  // the same again
  EXPECT_EQ(reason("a", "m/llama-ragged"), "NAME_TAKEN");
  EXPECT_EQ(reason("a/b", "m/save"), "BAD_NAME");
  EXPECT_EQ(reason("b", "m/../save"), "BAD_PATH");
  EXPECT_EQ(reason("b", "x/save"), "UNKNOWN_ROOT");
  EXPECT_EQ(Reason(client.Attach("zz").status()), "NO_MODEL");
  EXPECT_EQ(Reason(client.GetJob("zz").status()), "NO_JOB");
  const auto model = client.Attach("a");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(Reason(client.Unload("a").status()), "IN_USE");
  const absl::Status gone = client.WaitUntilLoaded("zz").status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound) << gone;
}

TEST_F(ClientTest, AFailedLoadIsToldWithItsError) {
  const Client client = Connect();
  LoadOptions load;
  load.name = "a";
  load.path = "m/llama-ragged";
  const auto started = client.Load(load);
  const absl::Status s = started.ok() ? client.WaitUntilLoaded("a").status() : started.status();
  EXPECT_THAT(std::string(s.message()), HasSubstr("glyd.json"));
}

TEST_F(ClientTest, AModelIsItsBytesInEveryWayOfReading) {
  const Client client = Connect();
  Load(client, "a");
  auto model = client.Attach("a");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(HashAll(*model).ok());
  EXPECT_EQ(model->info().name, "a");
  EXPECT_EQ(model->memory_inode(), client.Get("a")->memory_inode);
  EXPECT_EQ(model->TensorNames().size(), model->info().tensors);
  EXPECT_EQ(model->FindPack("zz"), nullptr);
  EXPECT_EQ(model->FindTensor(kPack), nullptr);
  const auto contents = client.GetContents("a");
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->packs.size(), model->packs().size());
  EXPECT_EQ(contents->tensors.size(), model->tensors().size());
  // A moved model is the same mapping; a released one's lease is gone.
  const uint8_t* at = model->tensors()[0].bytes.data();
  Model moved = *std::move(model);
  EXPECT_EQ(moved.tensors()[0].bytes.data(), at);
  EXPECT_EQ(client.Info()->leases, 1u);
  EXPECT_TRUE(std::move(moved).Release().ok());
  EXPECT_EQ(client.Info()->leases, 0u);
}

TEST_F(ClientTest, ProductsByArenaInlineAndHereHaveTheSameBits) {
  const Client client = Connect();
  Load(client, "a");
  const auto model = client.Attach("a");
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelPack& pack = *model->FindPack(kPack);
  const auto bias = model->Bias(pack);
  ASSERT_TRUE(bias.ok()) << bias.status();
  constexpr uint64_t kM = 5;
  std::vector<uint16_t> x(kM * pack.cols), here(kM * pack.rows), there(here.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(0x3f00 + i % 97);

  ASSERT_TRUE(LinearInProcess(pack, x, kM, *bias, absl::MakeSpan(here), 2).ok());
  ASSERT_TRUE(LinearByDaemon(*model, kPack, kM, x, absl::MakeSpan(there), true).ok());
  EXPECT_EQ(here, there);

  const auto arena = client.CreateArena(1 << 20);
  ASSERT_TRUE(arena.ok()) << arena.status();
  std::memcpy(arena->data(), x.data(), x.size() * 2);
  const auto product = LinearByDaemon(*model, kPack, kM, {&*arena, 0}, {&*arena, 1 << 16}, true);
  ASSERT_TRUE(product.ok()) << product.status();
  EXPECT_EQ(std::memcmp(arena->data() + (1 << 16), here.data(), here.size() * 2), 0);

  EXPECT_EQ(LinearByDaemon(*model, kPack, kM, {&*arena, 0}, {&*arena, arena->bytes() - 16})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LinearByDaemon(*model, "zz", 1, {&*arena, 0}, {&*arena, 0}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(LinearInProcess(pack, x, kM + 1, {}, absl::MakeSpan(here), 1).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LinearInProcess(pack, x, UINT64_MAX, {}, absl::MakeSpan(here), 1).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ClientTest, MappedMemoryOutlivesTheDaemonAndTheClientFindsTheNextOne) {
  const Client client = Connect();
  Load(client, "a");
  auto model = client.Attach("a");
  ASSERT_TRUE(model.ok()) << model.status();
  daemon_->process().Signal(SIGKILL);
  daemon_->process().Wait();
  EXPECT_EQ(Reason(client.Info().status()), kReasonConnectionLost);
  EXPECT_TRUE(HashAll(*model).ok());
  EXPECT_TRUE(Eventually([&] { return absl::IsUnavailable(model->lease_status()); }));
  StartDaemon();
  ASSERT_TRUE(Eventually([&] { return client.Info().ok(); }));
  EXPECT_TRUE(absl::IsUnavailable(model->lease_status())) << "nothing is loaded yet";
  const std::string before = model->lease_id();
  Load(client, "a");
  // The lease is there again, without a call of ours.
  ASSERT_TRUE(Eventually([&] { return model->lease_status().ok(); }));
  EXPECT_NE(model->lease_id(), before);
  EXPECT_EQ(client.Get("a")->leases, 1u);
  EXPECT_TRUE(HashAll(*model).ok());
  const ModelPack& pack = *model->FindPack(kPack);
  std::vector<uint16_t> x(pack.cols, 0x3f80), y(pack.rows);
  EXPECT_TRUE(LinearByDaemon(*model, kPack, 1, x, absl::MakeSpan(y)).ok());
  EXPECT_TRUE(std::move(*model).Release().ok());
  EXPECT_EQ(client.Get("a")->leases, 0u);
}

// As an operator does it: the old daemon is told to stop, the new one loads by itself.
TEST_F(ClientTest, AnUpgradeOfTheDaemonLeavesAttachedClientsTheirModel) {
  const Client client = Connect();
  Load(client, "a");
  const auto model = client.Attach("a");
  ASSERT_TRUE(model.ok()) << model.status();
  const std::string before = model->lease_id();
  std::atomic<bool> done = false;
  std::atomic<int> bad = 0, passes = 0;
  std::thread reader([&] {
    for (; !done || passes == 0; ++passes) bad += !HashAll(*model).ok();
  });
  daemon_->process().Signal(SIGTERM);
  EXPECT_EQ(daemon_->process().Wait(), 0) << daemon_->process().err();
  StartDaemon({"--preload", "a=m/save"});
  EXPECT_TRUE(
      Eventually([&] { return model->lease_id() != before && model->lease_status().ok(); }));
  done = true;
  reader.join();
  EXPECT_EQ(bad, 0);
  EXPECT_EQ(client.Get("a")->leases, 1u);
}

TEST_F(ClientTest, AnotherModelOfTheNameIsNoRenewal) {
  ASSERT_EQ(RunProgram("glyd",
                       {"-q", "pack", testing::CheckpointCases() + "/llama-ragged", dir_ / "other"})
                .code,
            0);
  const Client client = Connect();
  Load(client, "a");
  const auto model = client.Attach("a");
  ASSERT_TRUE(model.ok()) << model.status();
  daemon_->process().Signal(SIGKILL);
  daemon_->process().Wait();
  StartDaemon();
  ASSERT_TRUE(Eventually([&] { return client.Info().ok(); }));
  LoadOptions load;
  load.name = "a";
  load.path = "m/other";
  ASSERT_TRUE(client.Load(load).ok());
  EXPECT_TRUE(Eventually([&] { return Reason(model->lease_status()) == "OTHER_MODEL"; }));
  EXPECT_TRUE(HashAll(*model).ok());
  EXPECT_TRUE(Eventually([&] { return client.Get("a")->leases == 0; }));
}

TEST_F(ClientTest, ManyThreadsAttachAndReleaseAtOnce) {
  const Client client = Connect();
  Load(client, "a");
  std::atomic<int> bad{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) {
        const auto model = client.Attach("a");
        if (!model.ok() || !HashAll(*model).ok()) ++bad;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(bad, 0);
  EXPECT_EQ(client.Info()->leases, 0u);
  EXPECT_TRUE(client.Unload("a").ok());
}

TEST_F(ClientTest, JobsAreTheSameForTheSameRequestId) {
  const Client client = Connect();
  const auto job = client.Submit(VerifyJob{"m/save"}, "request-1");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(client.Submit(VerifyJob{"m/save"}, "request-1")->id, job->id);
  uint64_t last = 0;
  const auto ended = client.WatchJob(job->id, [&](const JobInfo& j) {
    EXPECT_GE(j.sequence, last);
    last = j.sequence;
    return true;
  });
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->state, JobState::kSucceeded) << ended->error;
  EXPECT_EQ(client.WatchJob(job->id)->state, JobState::kSucceeded);
  EXPECT_EQ(client.CancelJob(job->id)->state, JobState::kSucceeded);
  EXPECT_EQ(std::get<VerifyJob>(ended->spec).path, "m/save");
  EXPECT_EQ(client.ListJobs()->size(), 1u);
  const auto failed = client.Submit(VerifyJob{"m/nothing"});
  if (failed.ok()) {
    const auto end = client.WatchJob(failed->id);
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(end->state, JobState::kFailed);
    EXPECT_FALSE(end->error_reason.empty());
  }
}

TEST_F(ClientTest, AWatchEndsWhenItsCallerWishes) {
  const Client client = Connect();
  Load(client, "a");
  EXPECT_EQ(client.VerifyResident("a", [](uint64_t, uint64_t) { return false; }).status().code(),
            absl::StatusCode::kCancelled);
  const auto bad = client.VerifyResident("a");
  ASSERT_TRUE(bad.ok()) << bad.status();
  EXPECT_TRUE(bad->empty());
}

// Two saves with one glyd.json, one of them with a byte changed: each name has its own file's
// bytes, in whatever order they are loaded.
TEST_F(ClientTest, ASaveIsNotServedWithAnothersBytes) {
  ASSERT_EQ(RunProgram("/bin/cp", {"-r", dir_ / "save", dir_ / "evil"}).code, 0);
  const std::string file = dir_ / "evil/model.safetensors";
  const auto size = std::filesystem::file_size(file);
  {
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(static_cast<std::streamoff>(size) - 5);
    const char was = static_cast<char>(f.get());
    f.seekp(static_cast<std::streamoff>(size) - 5);
    f.put(static_cast<char>(was ^ 1));
  }
  const Client client = Connect();
  LoadOptions evil;
  evil.name = "evil";
  evil.path = "m/evil";
  ASSERT_TRUE(client.Load(evil).ok());
  ASSERT_TRUE(client.WaitUntilLoaded("evil").ok());
  Load(client, "good");
  const auto good = client.Attach("good"), bad = client.Attach("evil");
  ASSERT_TRUE(good.ok() && bad.ok());
  EXPECT_TRUE(HashAll(*good).ok());
  EXPECT_FALSE(HashAll(*bad).ok());
  // The same files under a second name are one block still.
  Load(client, "again");
  EXPECT_EQ(client.Get("again")->allocation_id, client.Get("good")->allocation_id);
  EXPECT_NE(client.Get("evil")->allocation_id, client.Get("good")->allocation_id);
}

TEST_F(ClientTest, VerifyIsNeverSkipped) {
  const Client client = Connect();
  Load(client, "plain");
  LoadOptions verified;
  verified.name = "plain";
  verified.path = "m/save";
  verified.verify = true;
  EXPECT_EQ(Reason(client.Load(verified).status()), "NAME_TAKEN");
  verified.name = "checked";
  ASSERT_TRUE(client.Load(verified).ok());
  ASSERT_TRUE(client.WaitUntilLoaded("checked").ok());
  EXPECT_NE(client.Get("checked")->allocation_id, client.Get("plain")->allocation_id);
  EXPECT_TRUE(client.Load(verified).ok()) << "verified already";
}

// Leases have an end: a session may have so many, and all of them go at once.
TEST_F(ClientTest, AThousandLeasesOfOneSession) {
  const Client client = Connect();
  Load(client, "a");
  {
    const Client greedy = Connect();
    std::vector<Model> held;
    absl::Status refused;
    while (refused.ok() && held.size() < 2000) {
      auto model = greedy.Attach("a");
      refused = model.status();
      if (model.ok()) held.push_back(*std::move(model));
    }
    EXPECT_EQ(held.size(), 1024u);
    EXPECT_EQ(Reason(refused), "TOO_MANY_LEASES");
    const auto info = client.Get("a");
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(info->leases, 1024u);
    EXPECT_EQ(info->holders.size(), 256u);
  }
  EXPECT_TRUE(Eventually([&] { return client.Get("a")->leases == 0; }));
}

}  // namespace
}  // namespace glyd
