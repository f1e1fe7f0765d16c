// Random operations of several clients against a small model of the daemon, with kills of its
// worker and of itself. After each the daemon is what the model says: models, their states, pins
// and leases, and the bytes in use.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <random>

#include "tests/e2e/cases.h"

namespace glyd {
namespace {

constexpr uint64_t kBlock = uint64_t{2} << 20;  // each save, and each arena, takes one
constexpr uint64_t kBudget = 4 * kBlock;

// What the daemon should be. Blocks are told apart by the path that they came from and a number.
struct Model {
  struct Block {
    std::string path;
    int names = 0, leases = 0;
  };
  struct Entry {
    int block = 0;
    bool pinned = false, draining = false;
    uint64_t used = 0;  // when, in turns
    int leases = 0;
  };
  struct Lease {
    int client = 0, block = 0;
    std::string name;
    uint64_t serial = 0;
  };
  std::map<std::string, Entry> entries;
  std::map<std::string, uint64_t> serials;  // of the entry that has the name
  std::map<int, Block> blocks;
  std::map<std::string, Lease> leases;
  std::map<std::string, int> arenas;  // id -> client
  uint64_t now = 0;
  int next_block = 1;

  uint64_t bytes() const { return (blocks.size() + arenas.size()) * kBlock; }

  void Drop(int block) {
    const Block& b = blocks[block];
    if (b.names == 0 && b.leases == 0) blocks.erase(block);
  }
  void Erase(const std::string& name) {
    const int block = entries[name].block;
    entries.erase(name);
    --blocks[block].names;
    Drop(block);
  }
  // false: it does not fit.
  bool MakeRoom() {
    while (bytes() + kBlock > kBudget) {
      // The block longest unused whose names are neither pinned nor leased.
      std::map<int, uint64_t> idle;
      std::vector<int> kept;
      for (const auto& [name, e] : entries) {
        idle[e.block] = std::max(idle[e.block], e.used);
        if (e.pinned || e.leases > 0) kept.push_back(e.block);
      }
      for (const int k : kept) idle.erase(k);
      // Leases of a name that is gone hold their block all the same.
      std::erase_if(idle, [&](const auto& i) { return blocks[i.first].leases > 0; });
      if (idle.size() * kBlock + kBudget < bytes() + kBlock) return false;
      const auto oldest = std::min_element(idle.begin(), idle.end(),
                                           [](auto& a, auto& b) { return a.second < b.second; });
      std::vector<std::string> names;
      for (const auto& [name, e] : entries)
        if (e.block == oldest->first) names.push_back(name);
      for (const std::string& name : names) Erase(name);
    }
    return true;
  }
  // The state that the load ends in.
  v1::ModelState Load(const std::string& name, const std::string& path) {
    for (const auto& [id, b] : blocks)
      if (b.path == path) return Add(name, id);
    if (!MakeRoom()) return v1::MODEL_STATE_FAILED;
    blocks[next_block].path = path;
    return Add(name, next_block++);
  }
  v1::ModelState Add(const std::string& name, int block) {
    entries[name] = {block, false, false, ++now, 0};
    serials[name] = now;
    ++blocks[block].names;
    return v1::MODEL_STATE_READY;
  }
  void EndLease(const std::string& id) {
    const Lease lease = leases[id];
    leases.erase(id);
    --blocks[lease.block].leases;
    const auto e = entries.find(lease.name);
    if (e != entries.end() && serials[lease.name] == lease.serial) {
      e->second.used = ++now;
      --e->second.leases;
      if (e->second.leases == 0 && e->second.draining) return Erase(lease.name);
    }
    Drop(lease.block);
  }
  void EndClient(int client) {
    std::vector<std::string> gone;
    for (const auto& [id, lease] : leases)
      if (lease.client == client) gone.push_back(id);
    for (const std::string& id : gone) EndLease(id);
    std::erase_if(arenas, [&](const auto& a) { return a.second == client; });
  }
};

class RandomTest : public CasesTest {
 protected:
  static constexpr int kClients = 4;

  size_t Below(size_t n) { return random_() % n; }
  void Restart() {
    if (HasDaemon()) {
      daemon().process().Signal(SIGKILL);
      daemon().process().Wait();
    }
    Start({"--budget", absl::StrCat(kBudget)});
    model_ = Model();
    clients_.clear();
    for (int i = 0; i < kClients; ++i) clients_.push_back(std::make_unique<RawClient>(dir()));
    lines_.push_back("restart");
  }
  std::string AnyLease() {
    if (model_.leases.empty()) return "";
    return std::next(model_.leases.begin(), static_cast<long>(Below(model_.leases.size())))->first;
  }

  void Load(RawClient& c, const std::string& name, const std::string& path) {
    const auto there = model_.entries.find(name);
    if (there != model_.entries.end()) {
      const bool same = model_.blocks[there->second.block].path == path && !there->second.draining;
      EXPECT_EQ(ReasonIn(c.Load(name, path)), same ? "" : "NAME_TAKEN");
      return;
    }
    const v1::ModelState want = model_.Load(name, path);
    EXPECT_EQ(c.LoadAndWait(name, path).state(), want) << c.Get(name).error();
    if (want == v1::MODEL_STATE_FAILED) {
      EXPECT_THAT(c.Get(name).error(), ::testing::HasSubstr("does not fit"));
      EXPECT_TRUE(c.Unload(name).ok());
    }
  }

  void Unload(RawClient& c, const std::string& name, bool drain) {
    const grpc::Status s = c.Unload(name, drain);
    const auto e = model_.entries.find(name);
    if (e == model_.entries.end()) {
      EXPECT_EQ(ReasonIn(s), "NO_MODEL");
    } else if (e->second.leases == 0) {
      EXPECT_TRUE(s.ok()) << s.error_message();
      model_.Erase(name);
    } else if (drain) {
      EXPECT_TRUE(s.ok()) << s.error_message();
      e->second.draining = true;
    } else {
      EXPECT_EQ(ReasonIn(s), "IN_USE");
    }
  }

  void Attach(int client, const std::string& name) {
    v1::AttachReply reply;
    const grpc::Status s = clients_[client]->Attach(name, &reply);
    const auto e = model_.entries.find(name);
    if (e == model_.entries.end()) {
      EXPECT_EQ(ReasonIn(s), "NO_MODEL");
    } else if (e->second.draining) {
      EXPECT_EQ(ReasonIn(s), "DRAINING");
    } else {
      ASSERT_TRUE(s.ok()) << s.error_message();
      e->second.used = ++model_.now;
      ++e->second.leases;
      ++model_.blocks[e->second.block].leases;
      model_.leases[reply.lease_id()] = {client, e->second.block, name, model_.serials[name]};
    }
  }

  void UseLease(int client, bool release) {
    const std::string id = AnyLease();
    if (id.empty()) return;
    const bool own = model_.leases[id].client == client;
    v1::LinearReply reply;
    const grpc::Status s =
        release ? clients_[client]->Release(id) : clients_[client]->Linear(Product(id), &reply);
    EXPECT_EQ(ReasonIn(s), own ? "" : "NO_LEASE") << s.error_message();
    if (!own) return;
    const Model::Lease& lease = model_.leases[id];
    const auto e = model_.entries.find(lease.name);
    if (e != model_.entries.end()) e->second.used = ++model_.now;
    if (release) model_.EndLease(id);
  }

  void CreateArena(int client) {
    v1::CreateArenaRequest r;
    r.set_bytes(1 + Below(kBlock));
    const grpc::Status s = clients_[client]->linear->CreateArena(
        Deadline(10, clients_[client]->token()).get(), r, &arena_reply_);
    const bool fits = model_.bytes() + kBlock <= kBudget;
    EXPECT_EQ(ReasonIn(s), fits ? "" : "NO_ROOM");
    if (s.ok()) model_.arenas[arena_reply_.arena_id()] = client;
  }

  void Step() {
    const int client = static_cast<int>(Below(kClients));
    RawClient& c = *clients_[client];
    const std::string name = std::string(1, static_cast<char>('a' + Below(5)));
    const std::string path = Below(2) == 0 ? "m/save" : absl::StrCat("m/other", Below(3));
    const size_t op = Below(100);
    lines_.push_back(absl::StrCat("op ", op, " client ", client, " ", name, " ", path));
    if (op < 25) {
      Load(c, name, path);
    } else if (op < 40) {
      Unload(c, name, Below(3) == 0);
    } else if (op < 62) {
      Attach(client, name);
    } else if (op < 74) {
      UseLease(client, /*release=*/true);
    } else if (op < 84) {
      UseLease(client, /*release=*/false);
    } else if (op < 88) {
      v1::PinRequest r;
      r.set_name(name);
      r.set_pinned(Below(3) == 0);
      v1::PinReply reply;
      const bool there = model_.entries.count(name) != 0;
      EXPECT_EQ(c.models->Pin(Deadline().get(), r, &reply).ok(), there);
      if (there) model_.entries[name].pinned = r.pinned();
    } else if (op < 91) {
      CreateArena(client);
    } else if (op < 97) {
      clients_[client] = std::make_unique<RawClient>(dir());  // the old one's session ends
      model_.EndClient(client);
    } else if (op < 98) {
      const auto worker = static_cast<pid_t>(c.Info().devices(0).worker_pid());
      ::kill(worker, SIGKILL);
      // Calls that are in it fail; none is here.
      EXPECT_TRUE(Eventually(
          [&] {
            const auto next = static_cast<pid_t>(c.Info().devices(0).worker_pid());
            return next > 0 && next != worker;
          },
          absl::Seconds(40)));  // one that ends again and again is held back, to 10 s
    } else {
      Restart();
    }
  }

  // Ends of sessions are not waited for by anyone: they are seen a moment later.
  ::testing::AssertionResult Agrees() {
    std::string what;
    const bool good = Eventually([&] {
      what.clear();
      const v1::InfoReply info = clients_[0]->Info();
      if (info.leases() != model_.leases.size())
        absl::StrAppend(&what, info.leases(), " leases, not ", model_.leases.size(), "; ");
      if (info.devices_size() == 1 && info.devices(0).used_bytes() != model_.bytes())
        absl::StrAppend(&what, info.devices(0).used_bytes(), " bytes, not ", model_.bytes(), "; ");
      std::vector<std::string> is, want;
      for (const v1::Model& m : clients_[0]->List())
        is.push_back(absl::StrCat(m.name(),
                                  m.state() == v1::MODEL_STATE_DRAINING ? " draining" : "",
                                  m.pinned() ? " pinned " : " ", m.leases()));
      for (const auto& [name, e] : model_.entries)
        want.push_back(absl::StrCat(name, e.draining ? " draining" : "",
                                    e.pinned ? " pinned " : " ", e.leases));
      if (is != want)
        absl::StrAppend(&what, ::testing::PrintToString(is), ", not ",
                        ::testing::PrintToString(want));
      return what.empty();
    });
    if (good) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << what;
  }

  std::mt19937_64 random_;
  Model model_;
  std::vector<std::unique_ptr<RawClient>> clients_;
  std::vector<std::string> lines_;
};

TEST_F(RandomTest, TheDaemonIsWhatTheModelSays) {
  const char* given = std::getenv("GLYD_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("seed %lu (GLYD_TEST_SEED)\n", static_cast<unsigned long>(seed));
  random_.seed(seed);
  for (const char* copy : {"other0", "other1", "other2"})
    std::filesystem::copy(dir() + "/other", dir() + "/" + copy);
  // Copies with one glyd.json: blocks of their own, for nobody hashed them.
  Restart();
  for (int i = 0; i < 600; ++i) {
    Step();
    const auto agrees = Agrees();
    if (!agrees || HasFailure()) {
      std::string last;
      for (size_t l = lines_.size() < 30 ? 0 : lines_.size() - 30; l < lines_.size(); ++l)
        absl::StrAppend(&last, lines_[l], "\n");
      FAIL() << "seed " << seed << ", step " << i << ": " << agrees.message() << "\n" << last;
    }
  }
  EXPECT_TRUE(daemon().process().running());
}

}  // namespace
}  // namespace glyd
