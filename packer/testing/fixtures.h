#ifndef GLYD_PACKER_TESTING_FIXTURES_H_
#define GLYD_PACKER_TESTING_FIXTURES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/progress.h"
#include "packer/pack/pack.h"
#include "packer/safetensors/header.h"

namespace glyd::testing {

// A directory of its own, removed with all that is in it.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(absl::string_view name) const;

 private:
  std::string path_;
};

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, absl::string_view content);
// Names in a directory, hidden ones too, sorted.
std::vector<std::string> ListDir(const std::string& path);
// Every file below `path` with its content's sha256, and every link with its target: equal where
// nothing changed.
std::vector<std::string> Snapshot(const std::string& path);

// Rows of a table in tests/data/cases, without its title where it has one; each as its
// tab-separated cells.
std::vector<std::vector<std::string>> CaseRows(absl::string_view file, bool has_title);

// Directories that the generators in tests/data/cases write, made once for all tests of a build and
// shared: not to be changed. Headers: hNN_what.safetensors. Checkpoints: nine small ones, by name.
// Saves: the damaged ones, by name.
std::string HeaderCases();
std::string CheckpointCases();
std::string SaveCases();

// A tensor for WriteCheckpoint; `data` of the right length, or empty for zeros.
struct TestTensor {
  std::string name;
  std::string dtype = "BF16";
  std::vector<uint64_t> shape;
  std::string data = {};
};
// Bytes of made-up bf16 weights.
std::string Bf16(uint64_t n, uint64_t seed, double wild = 0.001);
// A safetensors file with these tensors, in this order.
std::string SafetensorsBytes(const std::vector<TestTensor>& tensors);

// A Llama of one layer, hidden size 64, 128 words, its head tied: all tensors packable but norms
// and embedding.
std::string TinyConfig();
std::vector<TestTensor> TinyTensors();
// config.json and model.safetensors in a directory that is made.
void WriteModel(const std::string& dir, const std::vector<TestTensor>& tensors,
                absl::string_view config = TinyConfig());

// Keeps the notes, hears the rest.
class NoteProgress : public Progress {
 public:
  void Note(absl::string_view text) override;
  std::string notes() const;

 private:
  std::vector<std::string> notes_;
};

// PackModel as `glyd pack MODEL OUT` calls it. `options.repo` is MODEL where it is empty.
absl::StatusOr<PackSummary> Pack(const std::string& model, const std::string& out,
                                 PackOptions options = {}, Progress* progress = nullptr);
// Save::Open and VerifySave.
absl::Status Verify(const std::string& save);
// The tensors of the directory's safetensors files: name, dtype, shape and content, sorted.
std::vector<std::string> TensorsOf(const std::string& dir);
// UnpackSave as `glyd unpack SAVE OUT` calls it.
absl::Status Unpack(const std::string& save, const std::string& out, bool force = false);

// A save whose one file of weights is a copy of `file`, all of it saved as it is. Where that has a
// good header the save is good.
void WriteSaveOf(const std::string& file, const std::string& dir);

// Runs `f` in a child process; its text comes back.
std::string InChild(const std::function<std::string()>& f);

}  // namespace glyd::testing

#endif  // GLYD_PACKER_TESTING_FIXTURES_H_
