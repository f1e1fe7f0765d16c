
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#if GLYD_WITH_DNNL
#include <oneapi/dnnl/dnnl.hpp>
#endif

#include "kernels/format/pack.h"
#include "kernels/format/testing/weights.h"
#include "kernels/linear/linear.h"

// glyd-bench-linear [THREADS]: y = x W^T from packed W beside oneDNN's bf16 product, where that is
// installed, and beside reading alone: one matrix after another, 2 GB of bf16 in all, so that no
// cache holds them. GB/s are of bf16 (what the same product reads without packing) by wall time,
// the best of some passes taken by turns.

namespace glyd {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kPasses = 5;

struct Shape {
  uint64_t rows, cols;
};

void InParallel(int threads, const std::function<void(int)>& f) {
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(f, t);
  f(0);
  for (std::thread& t : others) t.join();
}

__attribute__((target_clones("default", "avx2", "avx512f"), optimize("O3"))) uint64_t Read(
    const uint8_t* p, uint64_t bytes) {
  const uint64_t* words = reinterpret_cast<const uint64_t*>(p);
  uint64_t sum = 0;
  for (uint64_t i = 0; i < bytes / 8; ++i) sum ^= words[i];
  return sum;
}

#if GLYD_WITH_DNNL
// oneDNN's product with its own arrangement of the weights, which is made before it is timed.
class Dnnl {
 public:
  Dnnl(Shape shape, uint64_t m, const std::vector<std::vector<uint16_t>>& matrices)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using dnnl::memory;
    const memory::dim rows = static_cast<memory::dim>(shape.rows);
    const memory::dim cols = static_cast<memory::dim>(shape.cols);
    const memory::dims x{static_cast<memory::dim>(m), cols}, w{cols, rows};
    const memory::dims y{static_cast<memory::dim>(m), rows};
    const auto bf16 = memory::data_type::bf16;
    const dnnl::matmul::desc desc(memory::desc(x, bf16, memory::format_tag::ab),
                                  memory::desc(w, bf16, memory::format_tag::any),
                                  memory::desc(y, bf16, memory::format_tag::ab));
    const dnnl::matmul::primitive_desc primitive(desc, engine_);
    product_ = dnnl::matmul(primitive);
    for (const std::vector<uint16_t>& matrix : matrices) {
      memory plain({w, bf16, memory::format_tag::ba}, engine_,
                   const_cast<uint16_t*>(matrix.data()));
      memory arranged(primitive.weights_desc(), engine_);
      dnnl::reorder(plain, arranged).execute(stream_, plain, arranged);
      weights_.push_back(arranged);
    }
    stream_.wait();
    x_ = memory(primitive.src_desc(), engine_);
    y_ = memory(primitive.dst_desc(), engine_);
    std::memset(x_.get_data_handle(), 0x3F, primitive.src_desc().get_size());
  }
  void Run() {
    for (dnnl::memory& w : weights_)
      product_.execute(stream_, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y_}});
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul product_;
  std::vector<dnnl::memory> weights_;
  dnnl::memory x_, y_;
};
#endif

double Seconds(const std::function<void()>& f) {
  const auto start = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void Compare(Shape shape, const std::vector<uint64_t>& batches, int threads) {
  const uint64_t weights = shape.rows * shape.cols;
  const uint64_t count = std::max<uint64_t>(1, 1'000'000'000 / weights);
  const double bytes = 2.0 * static_cast<double>(weights * count);
  std::printf("[%d, %d], %d matrices, %.2f GB of bf16, %d thread%s\n", static_cast<int>(shape.rows),
              static_cast<int>(shape.cols), static_cast<int>(count), bytes / 1e9, threads,
              threads == 1 ? "" : "s");
  // A few different ones; the others are copies of their own.
  std::vector<std::vector<uint16_t>> matrices;
  std::vector<EncodedPack> packs[2];
  for (uint64_t i = 0; i < count; ++i) {
    matrices.push_back(i < 2 ? testing::Weights(weights, 0.0005, i) : matrices[i % 2]);
    for (const Layout layout : {Layout::kMma12, Layout::kMma}) {
      std::vector<EncodedPack>& p = packs[layout == Layout::kMma];
      p.push_back(i < 2 ? *Encode(layout, shape.rows, shape.cols, matrices.back().data())
                        : p[i % 2]);
    }
  }
  const auto read_all = [&] {
    InParallel(threads, [&](int t) {
      uint64_t sum = 0;
      for (const auto& m : matrices) {
        const uint64_t part = 2 * weights / static_cast<uint64_t>(threads);
        sum ^= Read(reinterpret_cast<const uint8_t*>(m.data()) + part * static_cast<uint64_t>(t),
                    part);
      }
      if (sum == 1) std::printf(" ");  // so that the sums are needed
    });
  };
  std::printf("%6s %16s %16s %16s %16s %8s %8s %8s\n", "M", "read GB/s", "oneDNN", "mma12", "mma",
              "mma12 x", "mma x", "of read");
  for (const uint64_t m : batches) {
    std::vector<uint16_t> x(m * shape.cols, 0x3F80), y(m * shape.rows);
    const auto product = [&](int which) {
      for (const EncodedPack& pack : packs[which])
        if (!LinearOnHost({.pack = pack.view(), .x = x.data(), .m = m, .y = y.data()}, threads)
                 .ok())
          std::abort();
    };
    double best[4] = {1e30, 1e30, 1e30, 1e30};
#if GLYD_WITH_DNNL
    Dnnl dnnl(shape, m, matrices);
#endif
    for (int pass = 0; pass < (m > 16 ? 1 : kPasses); ++pass) {
      best[0] = std::min(best[0], Seconds(read_all));
#if GLYD_WITH_DNNL
      best[1] = std::min(best[1], Seconds([&] { dnnl.Run(); }));
#endif
      for (int which = 0; which < 2; ++which)
        best[2 + which] = std::min(best[2 + which], Seconds([&] { product(which); }));
    }
    double rate[4];
    for (int i = 0; i < 4; ++i) rate[i] = bytes / best[i] / 1e9;
    std::printf("%6d %16.2f %16.2f %16.2f %16.2f %8.2f %8.2f %8.2f\n", static_cast<int>(m), rate[0],
                rate[1], rate[2], rate[3], rate[2] / rate[1], rate[3] / rate[1],
                rate[2] * 0.7526 / rate[0]);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace glyd

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1;
  // OpenMP, which oneDNN runs on, reads it before main.
  const std::string wanted = std::to_string(threads);
  if (const char* set = std::getenv("OMP_NUM_THREADS"); set == nullptr || set != wanted) {
    ::setenv("OMP_NUM_THREADS", wanted.c_str(), 1);
    ::execv("/proc/self/exe", argv);
    return 1;
  }
  for (const glyd::Shape shape : {glyd::Shape{4096, 4096}, {12288, 4096}, {4096, 12288}})
    glyd::Compare(shape, {1, 4, 16, 64}, threads);
}
