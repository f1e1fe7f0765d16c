#include "packer/testing/fixtures.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "gtest/gtest.h"
#include "kernels/format/testing/weights.h"
#include "packer/model/manifest.h"
#include "packer/model/save.h"
#include "packer/safetensors/writer.h"
#include "packer/unpack/unpack.h"
#include "packer/verify/verify.h"

namespace glyd::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kCases[] = GLYD_CASES_DIR;

std::string Env(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

void RunPython(const std::string& script, const std::vector<std::string>& arguments) {
  std::string command = absl::StrCat("/usr/bin/python3 '", kCases, "/", script, "'");
  for (const std::string& a : arguments) absl::StrAppend(&command, " '", a, "'");
  ASSERT_EQ(::system(command.c_str()), 0) << command;
}

// Makes a directory once for all test processes of a build: under a lock, renamed whole, its name
// that of the generator's content.
std::string Cached(const std::string& script, const std::function<void(const std::string&)>& make) {
  const std::string bin = Env("GLYD_BIN_DIR");
  const std::string root =
      bin.empty() ? absl::StrCat(::testing::TempDir(), "glyd-cases") : bin + "/../test-cases";
  fs::create_directories(root);
  const std::string source = ReadFile(absl::StrCat(kCases, "/", script));
  const std::string dir =
      absl::StrCat(root, "/", script, "-", Sha256Hex(source.data(), source.size()).substr(0, 16));
  UniqueFd lock(::open((root + "/lock-" + script).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  EXPECT_EQ(::flock(lock.get(), LOCK_EX), 0);
  if (fs::exists(dir)) return dir;
  fs::remove_all(dir + ".new");
  make(dir + ".new");
  fs::rename(dir + ".new", dir);
  return dir;
}

// Dir and name of `out`.
absl::StatusOr<std::pair<Dir, std::string>> Split(const std::string& out) {
  const size_t slash = out.rfind('/');
  GLYD_ASSIGN_OR_RETURN(Dir parent, Dir::Open(out.substr(0, slash)));
  return std::make_pair(std::move(parent), out.substr(slash + 1));
}

}  // namespace

TempDir::TempDir() : path_(::testing::TempDir() + "glyd-packer-XXXXXX") {
  EXPECT_NE(::mkdtemp(path_.data()), nullptr);
}
TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}
std::string TempDir::operator/(absl::string_view name) const {
  return absl::StrCat(path_, "/", name);
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

void WriteFile(const std::string& path, absl::string_view content) {
  std::ofstream out(path, std::ios::binary);
  out << content;
  EXPECT_TRUE(out.good()) << path;
}

std::vector<std::string> ListDir(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& e : fs::directory_iterator(path)) names.push_back(e.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> Snapshot(const std::string& path) {
  std::vector<std::string> all;
  for (const auto& e : fs::recursive_directory_iterator(path)) {
    std::string what = "other";
    if (e.is_symlink()) {
      what = fs::read_symlink(e.path());
    } else if (e.is_regular_file()) {
      const std::string content = ReadFile(e.path());
      what = Sha256Hex(content.data(), content.size());
    }
    all.push_back(absl::StrCat(e.path().string(), " ", what));
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<std::vector<std::string>> CaseRows(absl::string_view file, bool has_title) {
  std::vector<std::vector<std::string>> rows;
  std::ifstream in(absl::StrCat(kCases, "/", file));
  for (std::string line; std::getline(in, line);) rows.push_back(absl::StrSplit(line, '\t'));
  if (has_title && !rows.empty()) rows.erase(rows.begin());
  return rows;
}

std::string HeaderCases() {
  return Cached("headers.py", [](const std::string& dir) { RunPython("headers.py", {dir}); });
}

std::string CheckpointCases() {
  return Cached("checkpoints.py",
                [](const std::string& dir) { RunPython("checkpoints.py", {dir}); });
}

std::string SaveCases() {
  const std::string checkpoints = CheckpointCases();
  return Cached("saves.py", [&](const std::string& dir) {
    const TempDir good;
    for (const char* name : {"qwen3-tied.mma12", "qwen3-tied.mma", "granite-moe.mma12"}) {
      const std::vector<std::string> parts = absl::StrSplit(name, '.');
      PackOptions options;
      options.layout = *ParseLayout(parts[1]);
      const auto packed = Pack(absl::StrCat(checkpoints, "/", parts[0]), good / name, options);
      ASSERT_TRUE(packed.ok()) << packed.status();
    }
    RunPython("saves.py", {good.path(), dir});
  });
}

std::string Bf16(uint64_t n, uint64_t seed, double wild) {
  const std::vector<uint16_t> w = Weights(n, wild, seed);
  return std::string(reinterpret_cast<const char*>(w.data()), 2 * n);
}

std::string SafetensorsBytes(const std::vector<TestTensor>& tensors) {
  std::string header = "{", data;
  for (const TestTensor& t : tensors) {
    const uint64_t bytes = t.data.empty() ? *TensorBytes(t.dtype, t.shape) : t.data.size();
    absl::StrAppend(&header, header.size() > 1 ? "," : "", "\"", t.name, R"(":{"dtype":")", t.dtype,
                    R"(","shape":[)", absl::StrJoin(t.shape, ","), R"(],"data_offsets":[)",
                    data.size(), ",", data.size() + bytes, "]}");
    data += t.data.empty() ? std::string(bytes, '\0') : t.data;
  }
  header += '}';
  std::string file(8, '\0');
  StoreLe64(file.data(), header.size());
  return file + header + data;
}

std::string TinyConfig() {
  return R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1,
 "tie_word_embeddings": true, "rope_theta": Infinity})";
}

std::vector<TestTensor> TinyTensors() {
  std::vector<TestTensor> all = {{"model.embed_tokens.weight", "BF16", {128, 64}},
                                 {"model.norm.weight", "BF16", {64}}};
  const std::string layer = "model.layers.0.";
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
    all.push_back({absl::StrCat(layer, norm, ".weight"), "BF16", {64}});
  for (const char* linear : {"q_proj", "k_proj", "v_proj", "o_proj"})
    all.push_back({absl::StrCat(layer, "self_attn.", linear, ".weight"), "BF16", {64, 64}});
  for (const char* linear : {"gate_proj", "up_proj"})
    all.push_back({absl::StrCat(layer, "mlp.", linear, ".weight"), "BF16", {128, 64}});
  all.push_back({layer + "mlp.down_proj.weight", "BF16", {64, 128}});
  uint64_t seed = 1;
  for (TestTensor& t : all) t.data = Bf16(*TensorBytes(t.dtype, t.shape) / 2, seed++);
  return all;
}

void WriteModel(const std::string& dir, const std::vector<TestTensor>& tensors,
                absl::string_view config) {
  fs::create_directories(dir);
  WriteFile(dir + "/config.json", config);
  WriteFile(dir + "/model.safetensors", SafetensorsBytes(tensors));
}

void NoteProgress::Note(absl::string_view text) { notes_.emplace_back(text); }
std::string NoteProgress::notes() const { return absl::StrJoin(notes_, "\n"); }

absl::StatusOr<PackSummary> Pack(const std::string& model, const std::string& out,
                                 PackOptions options, Progress* progress) {
  Progress silent;
  GLYD_ASSIGN_OR_RETURN(const ModelSource source, FindModel(model));
  GLYD_ASSIGN_OR_RETURN(const auto to, Split(out));
  if (options.repo.empty()) options.repo = model;
  options.revision = source.revision;
  options.file = source.file;
  return PackModel(source.dir, to.first, to.second, options,
                   progress == nullptr ? silent : *progress);
}

absl::Status Verify(const std::string& save) {
  GLYD_ASSIGN_OR_RETURN(const Dir dir, Dir::Open(save));
  GLYD_ASSIGN_OR_RETURN(const Save s, Save::Open(dir));
  Progress silent;
  VerifyReport report;
  return VerifySave(s, {}, silent, &report);
}

std::vector<std::string> TensorsOf(const std::string& path) {
  const auto dir = Dir::Open(path);
  const auto c = dir.ok() ? Checkpoint::Open(*dir) : dir.status();
  EXPECT_TRUE(c.ok()) << c.status();
  std::vector<std::string> all;
  if (!c.ok()) return all;
  for (const StoredTensor& t : c->tensors()) {
    std::string bytes(t.bytes, '\0');
    const TensorFile& f = c->files()[t.file];
    EXPECT_TRUE(PreadFull(f.opened.fd.get(), bytes.data(), t.bytes, t.offset, f.shown).ok());
    all.push_back(absl::StrCat(t.name, " ", t.dtype, " [", absl::StrJoin(t.shape, ","), "] ",
                               Sha256Hex(bytes.data(), bytes.size())));
  }
  std::sort(all.begin(), all.end());
  return all;
}

absl::Status Unpack(const std::string& save, const std::string& out, bool force) {
  GLYD_ASSIGN_OR_RETURN(const Dir dir, Dir::Open(save));
  GLYD_ASSIGN_OR_RETURN(const Save s, Save::Open(dir));
  GLYD_ASSIGN_OR_RETURN(const auto to, Split(out));
  Progress silent;
  return UnpackSave(s, dir, to.first, to.second, force, 0, silent).status();
}

void WriteSaveOf(const std::string& file, const std::string& dir) {
  fs::create_directories(dir);
  fs::copy_file(file, dir + "/model.safetensors");
  Manifest m;
  m.format = std::string(FormatName(m.layout, false));
  m.repo = "model";
  if (const auto c = Checkpoint::Open(*Dir::Open(dir)); c.ok()) {
    const std::string content = ReadFile(file);
    for (const StoredTensor& t : c->tensors()) {
      Sha256 hash;
      hash.Update(content.data() + t.offset, t.bytes);
      m.tensors.push_back({t.name, hash.Finish()});
    }
  }
  WriteFile(dir + "/glyd.json", m.ToJson());
}

std::string InChild(const std::function<std::string()>& f) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = f();
    (void)!::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text(65536, '\0');
  const ssize_t n = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  text.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return text;
}

}  // namespace glyd::testing
