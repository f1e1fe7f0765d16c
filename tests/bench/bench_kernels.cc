#include <openssl/evp.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "kernels/format/internal/fast.h"
#include "kernels/format/pack.h"
#include "kernels/format/testing/weights.h"
#include "kernels/linear/linear.h"

// The host's kernels on one core, each beside an anchor measured in the same run: GB/s of bf16 by
// CPU time, the best of several passes over one 4096 x 4096 matrix.

namespace glyd {
namespace {

constexpr uint64_t kRows = 4096, kCols = 4096, kWeights = kRows * kCols, kBytes = 2 * kWeights;
constexpr int kPasses = 9;

double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// GB/s of the best pass, each over `bytes`.
double Rate(uint64_t bytes, const std::function<void()>& pass) {
  double best = 1e30;
  for (int i = 0; i < kPasses; ++i) {
    const double start = CpuSeconds();
    pass();
    best = std::min(best, CpuSeconds() - start);
  }
  return static_cast<double>(bytes) / best / 1e9;
}

void Row(const std::string& what, const char* target, double rate, const char* anchor,
         double anchor_rate) {
  std::printf("%-16s %-8s %8.2f   %5.2f x %s\n", what.c_str(), target, rate, rate / anchor_rate,
              anchor);
  std::fflush(stdout);
}

void OpenSslSha256(const void* data, size_t bytes) {
  uint8_t digest[32];
  EVP_Digest(data, bytes, digest, nullptr, EVP_sha256(), nullptr);
}

void Run() {
  const std::vector<uint16_t> w = testing::Weights(kWeights, 0.0005, 1);
  std::vector<uint16_t> out(kWeights, 1);
  std::printf("%-16s %-8s %8s   ratio to its anchor\n", "kernel", "target", "GB/s");

  const double copy = Rate(kBytes, [&] { std::memcpy(out.data(), w.data(), kBytes); });
  Row("memcpy", "-", copy, "memcpy", copy);
  const double sha = Rate(kBytes, [&] { OpenSslSha256(w.data(), kBytes); });
  Row("sha256 openssl", "-", sha, "openssl", sha);

  Row("sha256 one", "-", Rate(kBytes, [&] { Sha256Hex(w.data(), kBytes); }), "openssl", sha);
  Row("sha256 pair", "-",
      Rate(kBytes,
           [&] {
             Sha256 a, b;
             Sha256::UpdatePair(a, w.data(), kBytes / 2, b, w.data() + kWeights / 2, kBytes / 2);
             a.Finish(), b.Finish();
           }),
      "openssl", sha);

  ExponentHistogram h;
  h.Add(w.data(), kWeights);
  for (const HostTarget target : AvailableTargets()) {
    const HostKernels& kernels = KernelsFor(target);
    const char* name = HostTargetName(target).data();
    Row("histogram", name,
        Rate(kBytes,
             [&] {
               uint64_t counts[256] = {};
               kernels.histogram(w.data(), kWeights, counts);
             }),
        "openssl", sha);
    for (const Layout layout : {Layout::kMma12, Layout::kMma}) {
      const std::string layout_name(LayoutName(layout));
      const PackMeta meta = ChooseCodes(layout, kRows, kCols, h);
      EncodedPack pack;
      Row("encode " + layout_name, name,
          Rate(kBytes,
               [&] {
                 if (!internal::EncodeWith(kernels, meta, w.data(), kCols, &pack).ok())
                   std::abort();
               }),
          "openssl", sha);
      Row("decode " + layout_name, name,
          Rate(kBytes,
               [&] { internal::DecodeRowsWith(kernels, pack.view(), 0, kRows, out.data()); }),
          "memcpy", copy);
      if (out != w) std::abort();
    }
  }
  for (const Layout layout : {Layout::kMma12, Layout::kMma}) {
    const PackMeta meta = ChooseCodes(layout, kRows, kCols, h);
    const EncodedPack pack = *Encode(meta, w.data());
    Row("check " + std::string(LayoutName(layout)), "-",
        Rate(kBytes,
             [&] {
               if (!CheckPack(pack.view()).ok()) std::abort();
             }),
        "memcpy", copy);
    for (const uint64_t m : {1, 16, 64}) {
      const std::vector<uint16_t> x = testing::Weights(m * kCols, 0, 2);
      std::vector<uint16_t> y(m * kRows);
      Row("linear " + std::string(LayoutName(layout)) + " M=" + std::to_string(m), "-",
          Rate(kBytes,
               [&] {
                 const LinearArgs args = {
                     .pack = pack.view(), .x = x.data(), .m = m, .y = y.data()};
                 if (!LinearOnHost(args, 1).ok()) std::abort();
               }),
          "memcpy", copy);
    }
  }
}

}  // namespace
}  // namespace glyd

int main() { glyd::Run(); }
