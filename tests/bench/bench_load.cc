#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/cpus.h"
#include "base/dir.h"
#include "base/parallel.h"
#include "kernels/device/device.h"
#include "packer/testing/fixtures.h"
#include "server/worker/resident.h"

// glyd-bench-load: a made-up model of 400 tensors and 600 MB, read into a block as a load does it,
// beside memcpy of the same file from the page cache with as many threads into a block of the same
// kind: fresh pages, which the kernel has to find in both cases.

namespace glyd {
namespace {

constexpr int kTensors = 400, kRounds = 7;
constexpr uint64_t kSide = 1024, kPiece = Device::kWindowBytes;

void Check(const absl::Status& s) {
  if (s.ok()) return;
  std::fprintf(stderr, "glyd-bench-load: %s\n", s.ToString().c_str());
  std::exit(1);
}

void MakeSave(const testing::TempDir& dir) {
  std::vector<testing::TestTensor> tensors;
  for (int i = 0; i < kTensors; ++i) {
    testing::TestTensor& t = tensors.emplace_back();
    t.name = absl::StrCat("t.", i, ".weight");
    t.shape = {kSide, kSide};
    t.data = testing::Bf16(kSide * kSide, static_cast<uint64_t>(i));
  }
  testing::WriteModel(dir / "bf16", tensors);
  PackOptions options;
  options.any = true;
  options.layout = Layout::kMma12;
  Check(testing::Pack(dir / "bf16", dir / "save", options).status());
}

class Rates {
 public:
  explicit Rates(uint64_t bytes) : bytes_(bytes) {}
  void Add(absl::Duration d) { seconds_.push_back(absl::ToDoubleSeconds(d)); }
  double Median() {
    std::sort(seconds_.begin(), seconds_.end());
    return static_cast<double>(bytes_) / seconds_[seconds_.size() / 2] / 1e9;
  }

 private:
  const uint64_t bytes_;
  std::vector<double> seconds_;
};

int Run() {
  const testing::TempDir dir;
  MakeSave(dir);
  const int threads = AvailableCpus();
  const UniqueFd file(::open((dir / "save/model.safetensors").c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st;
  if (!file || ::fstat(file.get(), &st) != 0) Check(absl::NotFoundError("the save"));
  const auto bytes = static_cast<uint64_t>(st.st_size);
  const auto save = Dir::Open(dir / "save");
  Check(save.status());
  auto* from = static_cast<uint8_t*>(
      ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file.get(), 0));
  if (from == MAP_FAILED) Check(absl::InternalError("mmap"));
  const auto device = CreateHostDevice(threads);
  Progress silent;
  Rates copy(bytes), load(bytes), verify(bytes);
  // In turn, so that all meet the same machine; the first round is not counted.
  for (int round = 0; round <= kRounds; ++round) {
    absl::Time start = absl::Now();
    {
      const auto to = device->Allocate(bytes, "copy");
      Check(to.status());
      Check(ParallelFor((bytes + kPiece - 1) / kPiece, threads, silent, [&](size_t, size_t i) {
        std::memcpy((*to)->data() + i * kPiece, from + i * kPiece,
                    std::min(kPiece, bytes - i * kPiece));
        return absl::OkStatus();
      }));
      if (round > 0) copy.Add(absl::Now() - start);
    }
    for (const bool hashed : {false, true}) {
      start = absl::Now();
      const auto model = ResidentModel::Load(
          *device, *save, "load", hashed, threads, [](const ResidentModel::Size&) { return true; },
          silent);
      Check(model.status());
      if (round > 0) (hashed ? verify : load).Add(absl::Now() - start);
    }
  }
  std::printf("%.0f MB from a warm cache, %d threads, the median of %d\n",
              static_cast<double>(bytes) / 1e6, threads, kRounds);
  std::printf("%-28s %6.2f GB/s\n", "memcpy into a new block", copy.Median());
  std::printf("%-28s %6.2f GB/s, %.0f%% of memcpy\n", "load", load.Median(),
              100 * load.Median() / copy.Median());
  std::printf("%-28s %6.2f GB/s\n", "load --verify", verify.Median());
  return 0;
}

}  // namespace
}  // namespace glyd

int main() { return glyd::Run(); }
