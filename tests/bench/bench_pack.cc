#include <openssl/evp.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/parallel.h"
#include "base/status_macros.h"
#include "kernels/format/testing/weights.h"
#include "packer/model/save.h"
#include "packer/pack/pack.h"
#include "packer/safetensors/checkpoint.h"
#include "packer/safetensors/writer.h"
#include "packer/unpack/unpack.h"
#include "packer/verify/verify.h"

// glyd-bench-pack [GIGABYTES [MODEL]]: pack, verify and unpack of a made-up Qwen3 checkpoint of
// that size (3) or of MODEL. Each runs in a process of its own; the anchor is OpenSSL's SHA-256
// over the same bytes by one thread. CPU time is user and system; the ratio to the anchor is what
// compares between machines.
//
// glyd-bench-pack scale [GIGABYTES]: CPU time a byte from 0.1 GB to that size (10), and a
// checkpoint of 70,000 small tensors.

namespace glyd {
namespace {

namespace fs = std::filesystem;

struct Cost {
  double cpu = 0, wall = 0;
  uint64_t peak_bytes = 0;
  bool ok = false;
  // The cheaper of both.
  void Keep(const Cost& c) {
    if (wall == 0) *this = c;
    cpu = std::min(cpu, c.cpu);
    wall = std::min(wall, c.wall);
    peak_bytes = std::max(peak_bytes, c.peak_bytes);
    ok = ok && c.ok;
  }
};

double Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double Seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
}

Cost Measure(const std::function<absl::Status()>& f) {
  std::fflush(stdout);
  const double start = Now();
  const pid_t child = ::fork();
  if (child == 0) {
    const absl::Status s = f();
    if (!s.ok()) std::fprintf(stderr, "%s\n", s.ToString().c_str());
    ::_exit(s.ok() ? 0 : 1);
  }
  int status = 0;
  rusage used = {};
  ::wait4(child, &status, 0, &used);
  return {Seconds(used.ru_utime) + Seconds(used.ru_stime), Now() - start,
          static_cast<uint64_t>(used.ru_maxrss) * 1024,
          WIFEXITED(status) && WEXITSTATUS(status) == 0};
}

// The cheapest of some passes: other work on the machine only adds.
Cost Best(int passes, const std::function<absl::Status()>& f) {
  Cost best = Measure(f);
  for (int i = 1; i < passes && best.ok; ++i) best.Keep(Measure(f));
  return best;
}

absl::Status MakeFiles(const std::string& dir, std::vector<StoredTensor> tensors, int layers) {
  fs::create_directories(dir);
  const std::vector<PlannedFile> files = PlanFiles(absl::MakeSpan(tensors));
  for (size_t f = 0; f < files.size(); ++f) {
    const std::string path = dir + "/" + files[f].name;
    FILE* out = std::fopen(path.c_str(), "wb");
    if (out == nullptr) return ErrnoStatus(errno, path);
    std::fwrite(files[f].head.data(), 1, files[f].head.size(), out);
    uint64_t seed = 1 + f;
    for (uint64_t left = files[f].bytes - files[f].head.size(); left > 0;) {
      const uint64_t n = std::min<uint64_t>(left, 64 << 20);
      const std::vector<uint16_t> w = testing::Weights(n / 2, 0.0005, seed++);
      if (std::fwrite(w.data(), 1, n, out) != n) return ErrnoStatus(errno, path);
      left -= n;
    }
    std::fclose(out);
  }
  const std::string config = absl::StrCat(
      R"({"architectures":["Qwen3ForCausalLM"],"tie_word_embeddings":true,"num_hidden_layers":)",
      layers, "}");
  FILE* out = std::fopen((dir + "/config.json").c_str(), "wb");
  std::fwrite(config.data(), 1, config.size(), out);
  std::fclose(out);
  if (files.size() == 1) return absl::OkStatus();
  const std::string index = IndexJson(tensors, files);
  out = std::fopen((dir + "/" + kIndexFile).c_str(), "wb");
  std::fwrite(index.data(), 1, index.size(), out);
  std::fclose(out);
  return absl::OkStatus();
}

// 0.2 GB a layer, or 30 MB of a narrow model.
absl::Status Make(const std::string& dir, double gigabytes, bool narrow = false) {
  const uint64_t hidden = narrow ? 1024 : 2560, inter = narrow ? 3072 : 9728;
  const uint64_t q = narrow ? 2048 : 4096, kv = 1024, words = narrow ? 8000 : 32000;
  const double layer_bytes = 2.0 * (hidden * (2.0 * q + 2 * kv) + 3.0 * hidden * inter);
  const int layers = std::max(1, static_cast<int>(gigabytes * 1e9 / layer_bytes));
  std::vector<StoredTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<uint64_t> shape) {
    StoredTensor& t = tensors.emplace_back();
    t.name = name + ".weight";
    t.dtype = "BF16";
    t.shape = std::move(shape);
    t.bytes = *TensorBytes(t.dtype, t.shape);
  };
  add("model.embed_tokens", {words, hidden});
  add("model.norm", {hidden});
  for (int i = 0; i < layers; ++i) {
    const std::string p = absl::StrCat("model.layers.", i, ".");
    add(p + "self_attn.q_proj", {q, hidden});
    add(p + "self_attn.k_proj", {kv, hidden});
    add(p + "self_attn.v_proj", {kv, hidden});
    add(p + "self_attn.o_proj", {hidden, q});
    add(p + "self_attn.q_norm", {128});
    add(p + "self_attn.k_norm", {128});
    add(p + "mlp.gate_proj", {inter, hidden});
    add(p + "mlp.up_proj", {inter, hidden});
    add(p + "mlp.down_proj", {hidden, inter});
    add(p + "input_layernorm", {hidden});
    add(p + "post_attention_layernorm", {hidden});
  }
  return MakeFiles(dir, std::move(tensors), layers);
}

absl::Status MakeSmall(const std::string& dir, int count) {
  std::vector<StoredTensor> tensors;
  for (int i = 0; i < count; ++i)
    tensors.push_back({.name = absl::StrCat("t.", i, ".weight"),
                       .dtype = "BF16",
                       .shape = {64, 16},
                       .bytes = 2048});
  return MakeFiles(dir, std::move(tensors), 0);
}

absl::Status HashAll(const std::string& model) {
  GLYD_ASSIGN_OR_RETURN(const Dir dir, Dir::Open(model));
  GLYD_ASSIGN_OR_RETURN(const Checkpoint c, Checkpoint::Open(dir));
  std::vector<uint8_t> piece(1 << 20);
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  for (const StoredTensor& t : c.tensors()) {
    EVP_DigestInit_ex(md, EVP_sha256(), nullptr);
    for (uint64_t at = 0; at < t.bytes; at += piece.size()) {
      const uint64_t n = std::min<uint64_t>(piece.size(), t.bytes - at);
      GLYD_RETURN_IF_ERROR(
          PreadFull(c.files()[t.file].opened.fd.get(), piece.data(), n, t.offset + at, "model"));
      EVP_DigestUpdate(md, piece.data(), n);
    }
    uint8_t digest[32];
    EVP_DigestFinal_ex(md, digest, nullptr);
  }
  EVP_MD_CTX_free(md);
  return absl::OkStatus();
}

// What of the other rows is reading alone.
absl::Status ReadAll(const std::string& model, int threads) {
  GLYD_ASSIGN_OR_RETURN(const Dir dir, Dir::Open(model));
  GLYD_ASSIGN_OR_RETURN(const Checkpoint c, Checkpoint::Open(dir));
  const std::vector<StoredTensor>& tensors = c.tensors();
  const Progress silent;
  std::vector<std::vector<uint8_t>> pieces(static_cast<size_t>(threads));
  return ParallelFor(tensors.size(), threads, silent, [&](size_t worker, size_t i) {
    std::vector<uint8_t>& piece = pieces[worker];
    piece.resize(1 << 20);
    const StoredTensor& t = tensors[i];
    for (uint64_t at = 0; at < t.bytes; at += piece.size())
      GLYD_RETURN_IF_ERROR(PreadFull(c.files()[t.file].opened.fd.get(), piece.data(),
                                     std::min<uint64_t>(piece.size(), t.bytes - at), t.offset + at,
                                     "model"));
    return absl::OkStatus();
  });
}

absl::Status PackTo(const std::string& model, const std::string& parent, const std::string& name,
                    Layout layout, int threads, bool any = false) {
  GLYD_ASSIGN_OR_RETURN(const ModelSource source, FindModel(model));
  GLYD_ASSIGN_OR_RETURN(const Dir to, Dir::Open(parent));
  PackOptions options;
  options.layout = layout;
  options.threads = threads;
  options.any = any;
  options.repo = "bench";
  Progress silent;
  return PackModel(source.dir, to, name, options, silent).status();
}

absl::Status VerifyAt(const std::string& save, int threads) {
  GLYD_ASSIGN_OR_RETURN(const Dir dir, Dir::Open(save));
  GLYD_ASSIGN_OR_RETURN(const Save s, Save::Open(dir));
  Progress silent;
  VerifyReport report;
  return VerifySave(s, {.threads = threads}, silent, &report);
}

absl::Status UnpackTo(const std::string& save, const std::string& parent, int threads) {
  GLYD_ASSIGN_OR_RETURN(const Dir dir, Dir::Open(save));
  GLYD_ASSIGN_OR_RETURN(const Save s, Save::Open(dir));
  GLYD_ASSIGN_OR_RETURN(const Dir to, Dir::Open(parent));
  Progress silent;
  return UnpackSave(s, dir, to, "back", true, threads, silent).status();
}

uint64_t TensorBytesOf(const std::string& model) {
  uint64_t bytes = 0;
  if (const auto dir = Dir::Open(model); dir.ok()) {
    if (const auto c = Checkpoint::Open(*dir); c.ok())
      for (const StoredTensor& t : c->tensors()) bytes += t.bytes;
  }
  return bytes;
}

// A directory for one run, removed at its end.
struct RunDir {
  std::string path = fs::temp_directory_path() / "glyd-bench-pack-XXXXXX";
  RunDir() {
    if (::mkdtemp(path.data()) == nullptr) std::exit(1);
  }
  ~RunDir() { fs::remove_all(path); }
};

bool Made(const absl::Status& s) {
  if (!s.ok()) std::fprintf(stderr, "%s\n", s.ToString().c_str());
  return s.ok();
}

int Compare(double gigabytes, std::string model) {
  const RunDir dir;
  const std::string& run = dir.path;
  if (model.empty()) {
    model = run + "/model";
    if (!Made(Make(model, gigabytes))) return 1;
  }
  int bad = 0;
  const double gb = static_cast<double>(TensorBytesOf(model)) / 1e9;
  constexpr int kPasses = 3;
  (void)Measure([&] { return ReadAll(model, 1); });
  const double anchor = Best(kPasses, [&] { return HashAll(model); }).cpu;
  std::printf("%.2f GB of bf16; OpenSSL SHA-256 of it: %.2f s of CPU (%.2f GB/s)\n", gb, anchor,
              gb / anchor);
  std::printf("%-14s %8s %8s %8s %10s %10s\n", "", "CPU s", "ratio", "1 thread", "2 threads",
              "peak RSS");
  // `output` is made anew in every pass; removing it is no part of what is measured.
  const auto row = [&](const std::string& what, const std::string& output,
                       const std::function<absl::Status(int)>& f) {
    const auto remove = [&] {
      if (!output.empty()) fs::remove_all(run + "/" + output);
    };
    Cost one, two;
    // Turn by turn: both meet the same machine.
    for (int i = 0; i < kPasses; ++i) {
      remove();
      one.Keep(Measure([&] { return f(1); }));
      remove();
      two.Keep(Measure([&] { return f(2); }));
    }
    bad += !one.ok || !two.ok;
    std::printf("%-14s %8.2f %8.2f %7.2fs %5.2fx %7.0f MB\n", what.c_str(), one.cpu,
                one.cpu / anchor, one.wall, one.wall / two.wall,
                static_cast<double>(two.peak_bytes) / 1e6);
  };
  row("read", "", [&](int threads) { return ReadAll(model, threads); });
  for (const Layout layout : {Layout::kMma12, Layout::kMma}) {
    const std::string name(LayoutName(layout));
    row("pack " + name, name,
        [&](int threads) { return PackTo(model, run, name, layout, threads); });
    // A large save was written past the page cache.
    (void)Measure([&] { return ReadAll(run + "/" + name, 1); });
    row("verify " + name, "", [&](int threads) { return VerifyAt(run + "/" + name, threads); });
    row("unpack " + name, "back",
        [&](int threads) { return UnpackTo(run + "/" + name, run, threads); });
    fs::remove_all(run + "/back");
    fs::remove_all(run + "/" + name);
  }
  return bad == 0 ? 0 : 1;
}

int Scale(double gigabytes) {
  const RunDir dir;
  int bad = 0;
  std::printf("%-24s %20s %20s %12s\n", "", "pack mma12", "verify mma12", "peak RSS");
  const auto row = [&](const std::string& what, const std::string& model, bool any) {
    const double gb = static_cast<double>(TensorBytesOf(model)) / 1e9;
    (void)Measure([&] { return ReadAll(model, 1); });
    const Cost pack =
        Measure([&] { return PackTo(model, dir.path, "save", Layout::kMma12, 1, any); });
    const Cost verify = Measure([&] { return VerifyAt(dir.path + "/save", 1); });
    bad += !pack.ok || !verify.ok;
    std::printf("%-24s %7.2f s %5.2f s/GB %7.2f s %5.2f s/GB %7.0f MB\n", what.c_str(), pack.cpu,
                pack.cpu / gb, verify.cpu, verify.cpu / gb,
                static_cast<double>(std::max(pack.peak_bytes, verify.peak_bytes)) / 1e6);
    fs::remove_all(model);
    fs::remove_all(dir.path + "/save");
  };
  const std::string model = dir.path + "/model";
  for (double size = gigabytes / 100; size < 1.01 * gigabytes; size *= 10) {
    if (!Made(Make(model, size, true))) return 1;
    row(absl::StrCat(absl::SixDigits(size), " GB"), model, false);
  }
  constexpr int kSmall = 70'000;
  if (!Made(MakeSmall(model, kSmall))) return 1;
  row(absl::StrCat(kSmall, " tensors of 2 KB"), model, true);
  return bad == 0 ? 0 : 1;
}

}  // namespace
}  // namespace glyd

int main(int argc, char** argv) {
  const bool scale = argc > 1 && std::string(argv[1]) == "scale";
  const int at = scale ? 2 : 1;
  double gigabytes = scale ? 10 : 3;
  if (argc > 3 || (argc > at && !absl::SimpleAtod(argv[at], &gigabytes))) {
    std::fprintf(stderr, "usage: glyd-bench-pack [GIGABYTES [MODEL]] | scale [GIGABYTES]\n");
    return 2;
  }
  if (scale) return glyd::Scale(gigabytes);
  return glyd::Compare(gigabytes, argc > 2 ? argv[2] : "");
}
