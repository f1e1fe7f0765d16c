#include "kernels/simt/host_lane.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/simt/fiber.h"

namespace glyd::simt {
namespace {

constexpr uintptr_t kSector = 32;
constexpr int kBanks = 32, kBankBytes = 4;
constexpr size_t kSharedAlign = 1024;
constexpr uint8_t kPoison = 0xA5;  // a NaN nearly everywhere that it is read as a number

// Ends a lane: of the one that broke a rule, then of all the others.
struct Stop {};

std::string Text(Site site) { return std::string(site.file) + ":" + std::to_string(site.line); }

using Operands = void* [kWarp];
using Combine = void (*)(uint32_t mask, Operands operands);

struct Copy {
  uint8_t* to;
  const void* from;
  size_t bytes;
  int group;
};

struct Place {  // the nth time that a lane came to a site, since its warp was last together
  Site site;
  int kind;
  int nth;
  bool operator==(const Place&) const = default;
};

struct Touched {
  int lane;
  uintptr_t at;
  size_t bytes;
};

struct WarpAccess {
  Place place;
  Memory::Buffer* buffer;
  std::vector<Touched> touched;
};

enum class State { kReady, kAtBlock, kAtWarp, kDone };

struct Thread {
  bool begun = false;
  State state = State::kReady;
  uint32_t mask = 0;
  Combine combine = nullptr;
  void* operand = nullptr;
  int group = 0;  // of copies: the one that is open
  std::vector<Copy> copies;
  std::vector<Place> counted;
};

// How many turns the banks of shared memory take for one access of a warp: lanes go in runs that
// together touch at most one row of the banks' bytes, and a bank serves one word a turn.
std::pair<uint64_t, uint64_t> Turns(const std::vector<Touched>& touched) {
  uint64_t turns = 0, fewest = 0;
  const size_t a_run =
      std::max<size_t>(1, kBanks * kBankBytes / std::max<size_t>(touched[0].bytes, kBankBytes));
  for (size_t first = 0; first < touched.size(); first += a_run) {
    std::vector<uintptr_t> words;
    for (size_t i = first; i < std::min(first + a_run, touched.size()); ++i)
      for (uintptr_t w = touched[i].at / kBankBytes;
           w <= (touched[i].at + touched[i].bytes - 1) / kBankBytes; ++w)
        words.push_back(w);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    uint64_t load[kBanks] = {}, most = 0;
    for (const uintptr_t w : words) most = std::max(most, ++load[w % kBanks]);
    turns += most;
    ++fewest;
  }
  return {turns, fewest};
}

uint64_t Sectors(const std::vector<Touched>& touched) {
  std::vector<uintptr_t> sectors;
  for (const Touched& t : touched)
    for (uintptr_t s = t.at / kSector; s <= (t.at + t.bytes - 1) / kSector; ++s)
      sectors.push_back(s);
  std::sort(sectors.begin(), sectors.end());
  return std::unique(sectors.begin(), sectors.end()) - sectors.begin();
}

std::vector<std::unique_ptr<Fiber>>& Pool() {
  static thread_local std::vector<std::unique_ptr<Fiber>> pool;
  return pool;
}

}  // namespace

class Block {
 public:
  Block(const Launch& launch, int x, int y) : launch_(launch), x_(x), y_(y) {
    threads_.resize(launch.threads);
    warps_.resize(launch.threads / kWarp);
    const size_t bytes = std::max<size_t>(launch.shared_bytes, 1);
    shared_ = static_cast<uint8_t*>(
        std::aligned_alloc(kSharedAlign, (bytes + kSharedAlign - 1) / kSharedAlign * kSharedAlign));
    std::memset(shared_, kPoison, bytes);
    written_.resize(launch.shared_bytes);
  }
  ~Block() { std::free(shared_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const Launch& launch() const { return launch_; }
  int x() const { return x_; }
  int y() const { return y_; }
  Thread& at(int thread) { return threads_[thread]; }

  std::string Run(const std::function<void(HostLane&, void*)>& body) {
    auto& pool = Pool();
    while (pool.size() < threads_.size()) pool.push_back(std::make_unique<Fiber>());
    for (int i = 0; i < launch_.threads; ++i)
      pool[i]->Start([this, i, &body] {
        try {
          HostLane lane(this, i);
          body(lane, shared_);
          Leave(i);
        } catch (Stop) {
        }
        threads_[i].state = State::kDone;
      });
    std::vector<int> order(threads_.size());
    std::iota(order.begin(), order.end(), 0);
    if (launch_.order == Order::kReverse) std::reverse(order.begin(), order.end());
    std::mt19937_64 random(launch_.seed * 7919 + x_ + 104729ull * y_);
    for (bool left = true; left;) {
      if (launch_.order == Order::kShuffled) std::shuffle(order.begin(), order.end(), random);
      bool ran = false;
      for (const int i : order) {
        if (threads_[i].state != State::kReady) continue;
        threads_[i].begun = true;
        pool[i]->Resume();
        ran = true;
        if (stopping_) break;
      }
      if (!ran && !stopping_) error_ = Where() + Divergence(), stopping_ = true;
      if (stopping_) EndAll(pool);
      left = std::any_of(threads_.begin(), threads_.end(),
                         [](const Thread& t) { return t.state != State::kDone; });
    }
    for (auto& warp : warps_) Count(&warp);
    return error_;
  }

  [[noreturn]] void Fail(int thread, const std::string& what) {
    if (!stopping_) error_ = Where() + "thread " + std::to_string(thread) + ": " + what;
    stopping_ = true;
    throw Stop();
  }

  void Access(int thread, const void* p, size_t bytes, int kind, Site site) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(p);
    const auto what = [&] {
      return std::to_string(bytes) + " bytes " +
             (kind == HostLane::kGlobalRead || kind == HostLane::kSharedRead ? "read" : "written") +
             " at " + Text(site);
    };
    if (at % bytes != 0) Fail(thread, what() + ": the address is not a multiple of the size");
    Memory::Buffer* buffer = nullptr;
    if (kind == HostLane::kSharedRead || kind == HostLane::kSharedWrite) {
      const size_t offset = SharedOffset(thread, p, bytes, what);
      if (kind == HostLane::kSharedWrite)
        std::fill_n(written_.begin() + offset, bytes, 1);
      else
        for (size_t i = offset; i < offset + bytes; ++i)
          if (!written_[i])
            Fail(thread,
                 what() + ": nothing wrote byte " + std::to_string(i) + " of shared memory");
    } else {
      buffer = Global(thread, p, bytes, kind == HostLane::kGlobalWrite, what);
    }
    Note(thread, at, bytes, kind, site, buffer);
  }

  void StartCopy(int thread, void* to, const void* from, size_t bytes, Site site) {
    const auto what = [&] {
      return "copy of " + std::to_string(bytes) + " bytes at " + Text(site);
    };
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % bytes != 0)
      Fail(thread, what() + ": an address is not a multiple of the size");
    const size_t offset = SharedOffset(thread, to, bytes, what);
    Memory::Buffer* buffer = Global(thread, from, bytes, false, what);
    Note(thread, reinterpret_cast<uintptr_t>(from), bytes, HostLane::kGlobalRead, site, buffer);
    std::fill_n(written_.begin() + offset, bytes, 0);
    threads_[thread].copies.push_back(
        {static_cast<uint8_t*>(to), from, bytes, threads_[thread].group});
  }

  void Land(int thread, int newest) {
    Thread& t = threads_[thread];
    const auto landed = [&](const Copy& c) { return c.group < t.group - newest; };
    for (const Copy& c : t.copies)
      if (landed(c)) {
        std::memcpy(c.to, c.from, c.bytes);
        std::fill_n(written_.begin() + (c.to - shared_), c.bytes, 1);
      }
    std::erase_if(t.copies, landed);
  }

  void SyncBlock(int thread) {
    Thread& t = threads_[thread];
    t.state = State::kAtBlock;
    if (++at_block_ < launch_.threads) return Wait(thread);
    at_block_ = 0;
    for (Thread& other : threads_) other.state = State::kReady;
    if (launch_.counts != nullptr) ++launch_.counts->barriers;
    for (auto& warp : warps_) Count(&warp);
  }

  // The last lane of `mask` to come combines what all of them brought.
  void Together(int thread, uint32_t mask, Combine combine, void* operand) {
    Thread& t = threads_[thread];
    if ((mask >> thread % kWarp & 1) == 0) Fail(thread, "a warp's mask without the lane itself");
    t.state = State::kAtWarp;
    t.mask = mask;
    t.combine = combine;
    t.operand = operand;
    Thread* warp = &threads_[thread / kWarp * kWarp];
    Operands operands = {};
    for (int l = 0; l < kWarp; ++l) {
      if ((mask >> l & 1) == 0) continue;
      if (warp[l].state != State::kAtWarp || warp[l].mask != mask || warp[l].combine != combine)
        return Wait(thread);
      operands[l] = warp[l].operand;
    }
    combine(mask, operands);
    for (int l = 0; l < kWarp; ++l)
      if (mask >> l & 1) warp[l].state = State::kReady;
    if (mask == kAllLanes) Count(&warps_[thread / kWarp]);
  }

 private:
  std::string Where() const {
    return "block " + std::to_string(x_) + ", " + std::to_string(y_) + ": ";
  }

  void Wait(int thread) {
    Pool()[thread]->Suspend();
    if (stopping_) throw Stop();
  }

  void Leave(int thread) {
    if (!threads_[thread].copies.empty())
      Fail(thread, "ends with " + std::to_string(threads_[thread].copies.size()) +
                       " asynchronous copies that it did not wait for");
  }

  // Lanes that have begun are unwound, by the Stop that they meet where they wait.
  void EndAll(std::vector<std::unique_ptr<Fiber>>& pool) {
    for (int i = 0; i < launch_.threads; ++i) {
      if (threads_[i].begun && threads_[i].state != State::kDone) pool[i]->Resume();
      threads_[i].state = State::kDone;
    }
  }

  std::string Divergence() const {
    int block = 0, warp = 0, done = 0;
    for (const Thread& t : threads_) {
      block += t.state == State::kAtBlock;
      warp += t.state == State::kAtWarp;
      done += t.state == State::kDone;
    }
    return "divergent: " + std::to_string(block) + " threads at the block's barrier, " +
           std::to_string(warp) + " at a warp's, " + std::to_string(done) + " ended";
  }

  template <typename What>
  size_t SharedOffset(int thread, const void* p, size_t bytes, const What& what) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(p),
                    start = reinterpret_cast<uintptr_t>(shared_);
    if (at < start || at - start > written_.size() || bytes > written_.size() - (at - start))
      Fail(thread, what() + ": outside the block's " + std::to_string(written_.size()) +
                       " bytes of shared memory");
    return at - start;
  }

  template <typename What>
  Memory::Buffer* Global(int thread, const void* p, size_t bytes, bool write, const What& what) {
    if (launch_.memory == nullptr) return nullptr;
    Memory::Buffer* buffer = launch_.memory->Find(p, bytes);
    if (buffer == nullptr) Fail(thread, what() + ": in no buffer of global memory");
    if (write && !buffer->writable)
      Fail(thread, what() + ": \"" + buffer->name + "\" is read-only");
    return buffer;
  }

  void Note(int thread, uintptr_t at, size_t bytes, int kind, Site site, Memory::Buffer* buffer) {
    const bool shared = kind == HostLane::kSharedRead || kind == HostLane::kSharedWrite;
    if (launch_.counts == nullptr || (!shared && buffer == nullptr)) return;
    auto& counted = threads_[thread].counted;
    Place place{site, kind, 0};
    for (const Place& p : counted) place.nth += p.site == site && p.kind == kind;
    counted.push_back(place);
    auto& warp = warps_[thread / kWarp];
    auto it = std::find_if(warp.begin(), warp.end(), [&](const WarpAccess& a) {
      return a.place == place && a.buffer == buffer;
    });
    if (it == warp.end()) it = warp.insert(it, {place, buffer, {}});
    it->touched.push_back({thread % kWarp, at, bytes});
  }

  void Count(std::vector<WarpAccess>* warp) {
    for (WarpAccess& a : *warp) {
      std::sort(a.touched.begin(), a.touched.end(),
                [](const Touched& x, const Touched& y) { return x.lane < y.lane; });
      if (a.buffer == nullptr) {
        const auto [turns, fewest] = Turns(a.touched);
        launch_.counts->shared_accesses += fewest;
        launch_.counts->shared_conflicts += turns - std::min(turns, fewest);
        launch_.counts->conflicts_at[Text(a.place.site)] += turns - std::min(turns, fewest);
        continue;
      }
      const bool write = a.place.kind == HostLane::kGlobalWrite;
      Traffic& t = a.buffer->traffic;
      (write ? t.written_sectors : t.read_sectors) += Sectors(a.touched);
      for (const Touched& x : a.touched) (write ? t.written_bytes : t.read_bytes) += x.bytes;
    }
    warp->clear();
    const size_t w = warp - warps_.data();
    for (size_t i = w * kWarp; i < (w + 1) * kWarp; ++i) threads_[i].counted.clear();
  }

  const Launch& launch_;
  const int x_, y_;
  std::vector<Thread> threads_;
  std::vector<std::vector<WarpAccess>> warps_;
  uint8_t* shared_;
  std::vector<uint8_t> written_;
  int at_block_ = 0;
  bool stopping_ = false;
  std::string error_;
};

int HostLane::block_x() const { return block_->x(); }
int HostLane::block_y() const { return block_->y(); }
int HostLane::grid_x() const { return block_->launch().grid_x; }
int HostLane::grid_y() const { return block_->launch().grid_y; }
int HostLane::threads() const { return block_->launch().threads; }

uint64_t HostLane::Nanoseconds() const {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

void HostLane::Access(const void* p, size_t bytes, Kind kind, Site site) const {
  block_->Access(thread_, p, bytes, kind, site);
}
void HostLane::StartCopy(void* shared, const void* global, size_t bytes, Site site) const {
  block_->StartCopy(thread_, shared, global, bytes, site);
}
void HostLane::CommitCopies() const { ++block_->at(thread_).group; }
void HostLane::LandCopies(int newest) const { block_->Land(thread_, newest); }
void HostLane::SyncBlock() const { block_->SyncBlock(thread_); }

void HostLane::SyncWarp(uint32_t mask) const {
  block_->Together(
      thread_, mask, [](uint32_t, Operands) {}, nullptr);
}

uint32_t HostLane::Ballot(uint32_t mask, bool value) const {
  uint32_t v = value;
  block_->Together(
      thread_, mask,
      [](uint32_t mask, Operands operands) {
        uint32_t all = 0;
        for (int l = 0; l < kWarp; ++l)
          if (mask >> l & 1) all |= *static_cast<uint32_t*>(operands[l]) << l;
        for (int l = 0; l < kWarp; ++l)
          if (mask >> l & 1) *static_cast<uint32_t*>(operands[l]) = all;
      },
      &v);
  return v;
}

uint32_t HostLane::Shuffle(uint32_t mask, uint32_t value, int from) const {
  struct Exchange {
    uint32_t in, out;
    int from;
  } e{value, 0, from % kWarp};
  if ((mask >> e.from & 1) == 0) block_->Fail(thread_, "a shuffle from a lane outside the mask");
  block_->Together(
      thread_, mask,
      [](uint32_t mask, Operands operands) {
        for (int l = 0; l < kWarp; ++l) {
          if ((mask >> l & 1) == 0) continue;
          auto* e = static_cast<Exchange*>(operands[l]);
          e->out = static_cast<Exchange*>(operands[e->from])->in;
        }
      },
      &e);
  return e.out;
}

void HostLane::LoadMatrices(const void* row, uint32_t (&out)[4], const char* file, int line) const {
  struct Rows {
    uint8_t bytes[16];
    uint32_t* out;
  } r;
  r.out = out;
  Access(row, sizeof r.bytes, kSharedRead, {file, line});
  std::memcpy(r.bytes, row, sizeof r.bytes);
  block_->Together(
      thread_, kAllLanes,
      [](uint32_t, Operands operands) {
        for (int l = 0; l < kWarp; ++l)
          for (int m = 0; m < 4; ++m)
            std::memcpy(&static_cast<Rows*>(operands[l])->out[m],
                        static_cast<Rows*>(operands[8 * m + l / 4])->bytes + 4 * (l % 4), 4);
      },
      &r);
}

void HostLane::Mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
  struct Fragments {
    float* d;
    const uint32_t *a, *b;
  } f{d, a, b};
  if (block_->launch().counts != nullptr && lane() == 0) ++block_->launch().counts->mma;
  block_->Together(
      thread_, kAllLanes,
      [](uint32_t, Operands operands) {
        float a[16][16], b[16][8];
        for (int l = 0; l < kWarp; ++l) {
          const auto& f = *static_cast<Fragments*>(operands[l]);
          const int g = l / 4, t = l % 4;
          for (int h = 0; h < 2; ++h) {
            for (int r = 0; r < 4; ++r)
              a[g + 8 * (r & 1)][2 * t + 8 * (r >> 1) + h] = Bf16ToFloat(f.a[r] >> 16 * h & 0xFFFF);
            for (int r = 0; r < 2; ++r)
              b[2 * t + 8 * r + h][g] = Bf16ToFloat(f.b[r] >> 16 * h & 0xFFFF);
          }
        }
        for (int l = 0; l < kWarp; ++l) {
          const auto& f = *static_cast<Fragments*>(operands[l]);
          for (int r = 0; r < 4; ++r) {
            const int row = l / 4 + 8 * (r >> 1), col = 2 * (l % 4) + (r & 1);
            float sum = 0;
            for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][col];
            f.d[r] += sum;
          }
        }
      },
      &f);
}

std::string Run(const Launch& launch, const std::function<void(HostLane&, void*)>& body) {
  if (launch.threads <= 0 || launch.threads % kWarp != 0 || launch.threads > 1024)
    return "a block of " + std::to_string(launch.threads) + " threads";
  std::vector<int64_t> order(int64_t{launch.grid_x} * launch.grid_y);
  std::iota(order.begin(), order.end(), 0);
  if (launch.order == Order::kReverse) std::reverse(order.begin(), order.end());
  if (launch.order == Order::kShuffled) {
    std::mt19937_64 random(launch.seed);
    std::shuffle(order.begin(), order.end(), random);
  }
  for (const int64_t b : order) {
    Block block(launch, static_cast<int>(b % launch.grid_x), static_cast<int>(b / launch.grid_x));
    if (std::string error = block.Run(body); !error.empty()) return error;
  }
  return "";
}

}  // namespace glyd::simt
