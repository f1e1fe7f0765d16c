#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/format/testing/weights.h"
#include "packer/model/save.h"
#include "packer/testing/fixtures.h"
#include "packer/verify/verify.h"

// Faults that checkpoints and disks have met elsewhere, each a test named after it.

namespace glyd {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::Bf16;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::InChild;
using testing::NoteProgress;
using testing::Pack;
using testing::ReadFile;
using testing::SafetensorsBytes;
using testing::TempDir;
using testing::TensorsOf;
using testing::TestTensor;
using testing::TinyConfig;
using testing::TinyTensors;
using testing::WriteFile;
using testing::WriteModel;

class TrapTest : public ::testing::Test {
 protected:
  TrapTest() : model_(dir_ / "model"), out_(dir_ / "out") {}

  // Packs the model and wants a refusal that leaves nothing behind and the input as it was.
  std::string Refusal(const PackOptions& options = {}) {
    const auto before = testing::Snapshot(dir_.path());
    const auto packed = Pack(model_, out_, options);
    EXPECT_FALSE(packed.ok());
    EXPECT_EQ(testing::Snapshot(dir_.path()), before);
    return std::string(packed.status().message());
  }

  // Packs whatever there is with --any, in both layouts, and wants every tensor back.
  void RoundTripAny(const std::vector<TestTensor>& tensors) {
    WriteModel(model_, tensors);
    for (const Layout layout : {Layout::kMma, Layout::kMma12}) {
      PackOptions options;
      options.any = options.force = true;
      options.layout = layout;
      const auto packed = Pack(model_, out_, options);
      ASSERT_TRUE(packed.ok()) << packed.status();
      last_ = *packed;
      EXPECT_TRUE(testing::Verify(out_).ok()) << testing::Verify(out_);
      fs::remove_all(dir_ / "back");
      const absl::Status unpacked = testing::Unpack(out_, dir_ / "back");
      ASSERT_TRUE(unpacked.ok()) << unpacked;
      EXPECT_EQ(TensorsOf(dir_ / "back"), TensorsOf(model_));
    }
  }

  const TempDir dir_;
  const std::string model_, out_;
  PackSummary last_;
};

TEST_F(TrapTest, Html) {
  WriteModel(model_, {});
  WriteFile(model_ + "/model.safetensors", "<!DOCTYPE html><html>Entry not found</html>");
  EXPECT_THAT(Refusal(), HasSubstr("looks like an HTML page"));
  WriteFile(model_ + "/model.safetensors", "version https://git-lfs.github.com/spec/v1\noid ...\n");
  EXPECT_THAT(Refusal(), HasSubstr("looks like a Git LFS pointer"));
}

TEST_F(TrapTest, OtherFilesAreNamedAsWhatTheyAre) {
  const std::string number("\x03\0\0\0\0\0\0\0\x01\0\0\0", 12);
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"GGUF" + number, "a GGUF file"},
      {"PK\x03\x04\x0a" + number, "a zip archive"},
      {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9", "a Python pickle"},
      {"\n<html>not found</html>", "an HTML page"},
      {"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"}};
  for (const auto& [content, kind] : kinds) {
    WriteModel(model_, TinyTensors());
    for (const char* name : {"model.safetensors", "config.json", "model.safetensors.index.json"}) {
      WriteFile(absl::StrCat(model_, "/", name), content);
      EXPECT_THAT(Refusal(), AllOf(HasSubstr("looks like " + kind), HasSubstr(name)));
      if (absl::EndsWith(name, "index.json")) fs::remove(absl::StrCat(model_, "/", name));
      if (absl::StartsWith(name, "model")) WriteModel(model_, TinyTensors());
    }
    // Neither named nor listed as if it were a model.
    fs::remove(model_ + "/model.safetensors");
    WriteFile(model_ + "/pytorch_model.bin", content);
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("pytorch_model.bin"), HasSubstr(kind)));
    EXPECT_THAT(std::string(Pack(model_ + "/pytorch_model.bin", out_).status().message()),
                HasSubstr("looks like " + kind));
    fs::remove(model_ + "/pytorch_model.bin");
  }
}

TEST_F(TrapTest, NumbersThatConfigLacks) {
  WriteModel(model_, TinyTensors(), R"({"architectures":["LlamaForCausalLM"]})");
  EXPECT_THAT(Refusal(), HasSubstr("config.json has no num_hidden_layers"));
}

TEST_F(TrapTest, Cap) {
  WriteModel(model_, {});
  WriteFile(model_ + "/model.safetensors", std::string("\xff\xe0\xf5\x05\x01\0\0\0{}", 10));
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("4394967295"), HasSubstr("100000000")));
}

TEST_F(TrapTest, Growing) {
  class Append : public Progress {
   public:
    explicit Append(std::string file) : file_(std::move(file)) {}
    void Phase(absl::string_view name, uint64_t) override {
      if (name == "pack") std::ofstream(file_, std::ios::app) << "more";
    }
    const std::string file_;
  };
  WriteModel(model_, TinyTensors());
  Append append(model_ + "/model.safetensors");
  const auto packed = Pack(model_, out_, {}, &append);
  EXPECT_THAT(std::string(packed.status().message()), HasSubstr("size changed"));
  EXPECT_THAT(testing::ListDir(dir_.path()), ElementsAre("model"));
}

TEST_F(TrapTest, Unaligned) {
  RoundTripAny({{"u", "U8", {1}, "\x07"},
                {"w.weight", "BF16", {64, 16}, Bf16(1024, 1)},
                {"v.weight", "BF16", {64, 32}, Bf16(2048, 2)}});
  EXPECT_EQ(last_.packs, 2u);
}

TEST_F(TrapTest, Escape) {
  const TempDir outside;
  WriteModel(model_, TinyTensors());
  fs::rename(model_ + "/model.safetensors", outside / "x");
  fs::create_symlink(outside / "x", model_ + "/model.safetensors");
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("model.safetensors"), HasSubstr("leaves the allowed root")));
}

TEST_F(TrapTest, NotAFile) {
  WriteModel(model_, {});
  fs::remove(model_ + "/model.safetensors");
  ASSERT_EQ(::mkfifo((model_ + "/model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(Refusal(), HasSubstr("not a regular file"));
}

TEST_F(TrapTest, NoConfig) {
  WriteModel(model_, TinyTensors());
  fs::remove(model_ + "/config.json");
  EXPECT_THAT(Refusal(), HasSubstr("no config.json"));
}

TEST_F(TrapTest, UnknownArchitecture) {
  WriteModel(model_, TinyTensors(), R"({"architectures": ["Gpt5ForCausalLM"]})");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("Gpt5ForCausalLM"), HasSubstr("Qwen3ForCausalLM"),
                               HasSubstr("GraniteMoeForCausalLM"), HasSubstr("--any")));
}

TEST_F(TrapTest, MissingTensor) {
  std::vector<TestTensor> tensors = TinyTensors();
  tensors.erase(tensors.begin() + 4);
  WriteModel(model_, tensors);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("self_attn.q_proj.weight"), HasSubstr("missing")));
}

TEST_F(TrapTest, TensorOfNoFamily) {
  std::vector<TestTensor> tensors = TinyTensors();
  tensors.push_back({"model.layers.1.input_layernorm.weight", "BF16", {64}});
  WriteModel(model_, tensors);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("model.layers.1.input_layernorm.weight"),
                               HasSubstr("has no tensor"), HasSubstr("--any")));
}

TEST_F(TrapTest, Truncated) {
  WriteModel(model_, TinyTensors());
  fs::resize_file(model_ + "/model.safetensors", fs::file_size(model_ + "/model.safetensors") - 1);
  EXPECT_THAT(Refusal(), HasSubstr("cut short"));
}

TEST_F(TrapTest, NotADirectory) {
  EXPECT_TRUE(absl::IsNotFound(Pack(dir_ / "nowhere", out_).status()));
  WriteFile(dir_ / "file", "x");
  EXPECT_THAT(std::string(Pack(dir_ / "file", out_).status().message()),
              HasSubstr("not a directory"));
}

TEST_F(TrapTest, PackedAlready) {
  WriteModel(model_, TinyTensors());
  ASSERT_TRUE(Pack(model_, out_).ok());
  EXPECT_THAT(std::string(Pack(out_, dir_ / "again").status().message()),
              HasSubstr("packed already"));
}

// What `tie` in config.json and a head in the checkpoint make of the output layer.
TEST_F(TrapTest, Tied) {
  const auto raw = [&](const char* tie, bool head, uint64_t words,
                       uint64_t head_seed = 9) -> std::string {
    std::vector<TestTensor> tensors = TinyTensors();
    tensors[0].shape = {words, 64};
    tensors[0].data = Bf16(words * 64, 1);
    if (head)
      tensors.push_back({"lm_head.weight", "BF16", {words, 64}, Bf16(words * 64, head_seed)});
    WriteModel(
        model_, tensors,
        absl::StrCat(R"({"architectures":["LlamaForCausalLM"],"num_hidden_layers":1)", tie, "}"));
    PackOptions options;
    options.force = true;
    NoteProgress notes;
    const auto packed = Pack(model_, out_, options, &notes);
    if (!packed.ok()) return std::string(packed.status().message());
    const auto save = Save::Open(*Dir::Open(out_));
    if (absl::StrContains(notes.notes(), "lm_head")) return "left out";
    for (const std::string& w : packed->warnings)
      if (absl::StrContains(w, "lm_head.weight of the checkpoint is not saved")) return "lost";
    for (const SavedPack& p : save->packs)
      if (p.name == "lm_head") return "packed";
    for (const RawTensor& r : save->tensors)
      if (r.tensor.name == "lm_head.weight")
        return r.sha256 == save->tensors.front().sha256 ? "the embedding" : "raw";
    return "none";
  };
  EXPECT_EQ(raw(R"(,"tie_word_embeddings":true)", false, 128), "none");
  EXPECT_EQ(raw(R"(,"tie_word_embeddings":true)", true, 128), "lost");
  EXPECT_EQ(raw(R"(,"tie_word_embeddings":true)", true, 100), "lost");
  EXPECT_EQ(raw(R"(,"tie_word_embeddings":true)", true, 128, 1), "left out");
  EXPECT_EQ(raw(R"(,"tie_word_embeddings":true)", false, 100), "the embedding");
  EXPECT_EQ(raw(R"(,"tie_word_embeddings":false)", true, 128), "packed");
  EXPECT_EQ(raw(R"(,"tie_word_embeddings":false)", true, 100), "raw");
  EXPECT_THAT(raw(R"(,"tie_word_embeddings":false)", false, 128), HasSubstr("lm_head.weight"));
  EXPECT_EQ(raw("", false, 128), "none");
  EXPECT_EQ(raw("", true, 128), "packed");
  EXPECT_EQ(raw(R"(,"tie_word_embeddings":null)", true, 128), "packed");
}

// Back comes what the source had: no head that the save only copied.
TEST_F(TrapTest, UnpackAddsNoHead) {
  for (const char* tie : {R"(,"tie_word_embeddings":true)", ""}) {
    std::vector<TestTensor> tensors = TinyTensors();
    tensors[0].shape = {100, 64};
    tensors[0].data = Bf16(100 * 64, 1);
    WriteModel(
        model_, tensors,
        absl::StrCat(R"({"architectures":["LlamaForCausalLM"],"num_hidden_layers":1)", tie, "}"));
    PackOptions options;
    options.force = true;
    ASSERT_TRUE(Pack(model_, out_, options).ok());
    ASSERT_TRUE(testing::Unpack(out_, dir_ / "back", true).ok());
    EXPECT_EQ(TensorsOf(dir_ / "back"), TensorsOf(model_)) << tie;
  }
}

TEST_F(TrapTest, Fp32Inside) {
  std::vector<TestTensor> tensors = TinyTensors();
  tensors.push_back({"model.layers.0.router.bias", "F32", {16}});
  WriteModel(model_, tensors);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("model.layers.0.router.bias"), HasSubstr("F32")));
  RoundTripAny(tensors);
  EXPECT_EQ(last_.raw_tensors, 4u);  // and three norms; the embedding packs
  EXPECT_THAT(Save::Open(*Dir::Open(out_))->notes,
              ElementsAre(AllOf(HasSubstr("router.bias"), HasSubstr("F32"))));
}

TEST_F(TrapTest, Bits) {
  const std::vector<uint16_t> w = testing::EveryPattern();
  RoundTripAny({{"w.weight",
                 "BF16",
                 {256, 256},
                 std::string(reinterpret_cast<const char*>(w.data()), 2 * w.size())}});
  EXPECT_EQ(last_.packs, 1u);
}

TEST_F(TrapTest, Random) {
  std::string bytes(2 * 256 * 256, '\0');
  testing::Random random(7);
  for (char& c : bytes) c = static_cast<char>(random.Next() >> 20);
  RoundTripAny({{"w.weight", "BF16", {256, 256}, bytes}});
  EXPECT_GT(last_.pack_bytes, last_.source_bytes);
  EXPECT_THAT(last_.warnings, ElementsAre(HasSubstr("larger than the tensors")));
}

TEST_F(TrapTest, Constant) {
  std::string one, nine;
  for (int i = 0; i < 64 * 64; ++i) {
    one += std::string("\x80\x3f", 2);
    nine += {static_cast<char>((i & 1) << 7), static_cast<char>(0x38 + i % 9 / 2)};
  }
  RoundTripAny({{"zero.weight", "BF16", {64, 64}, std::string(2 * 64 * 64, '\0')},
                {"one.weight", "BF16", {64, 64}, one},
                {"nine.weight", "BF16", {64, 64}, nine}});
  EXPECT_EQ(last_.packs, 3u);
}

TEST_F(TrapTest, OddK) {
  RoundTripAny({{"a.weight", "BF16", {5, 17}, Bf16(85, 1)},
                {"b.weight", "BF16", {64, 24}, Bf16(1536, 2)},
                {"c.weight", "BF16", {48, 64}, Bf16(3072, 3)},
                {"d.weight", "BF16", {0, 16}},
                {"e.weight", "BF16", {}, "ab"}});
  EXPECT_EQ(last_.packs, 0u);
  EXPECT_EQ(last_.raw_tensors, 5u);
}

TEST_F(TrapTest, Experts) {
  RoundTripAny({{"m.experts.w1", "BF16", {3, 64, 16}, Bf16(3072, 1)},
                {"m.experts.w2.weight", "BF16", {2, 64, 32}, Bf16(4096, 2)},
                {"m.experts.w3", "BF16", {3, 4, 16}, Bf16(192, 3)},
                {"matrix", "BF16", {64, 16}, Bf16(1024, 4)}});
  EXPECT_EQ(last_.packs, 3u);
  EXPECT_EQ(last_.raw_tensors, 1u);
  const auto save = Save::Open(*Dir::Open(out_));
  ASSERT_TRUE(save.ok()) << save.status();
  EXPECT_EQ(save->packs[0].name, "m.experts.w1");
  EXPECT_EQ(save->packs[0].experts, 3u);
  EXPECT_EQ(save->packs[0].data.name, "m.experts.glyd_w1_data");
}

TEST_F(TrapTest, NamesOfPacksThatAreTaken) {
  RoundTripAny({{"a.weight", "BF16", {64, 16}, Bf16(1024, 1)},
                {"a", "BF16", {64, 16}, Bf16(1024, 2)},
                {"b.weight", "BF16", {64, 16}, Bf16(1024, 3)},
                {"b.glyd_data", "BF16", {1}, "ab"}});
  EXPECT_EQ(last_.packs, 1u);
}

TEST_F(TrapTest, StrangeNames) {
  RoundTripAny({{"\xc3\xa9\\u0000\\n\\\"\xf0\x9f\x98\x80.weight", "BF16", {64, 16}, Bf16(1024, 1)},
                {"", "BF16", {1}, "ab"},
                {std::string(70000, 'n'), "BF16", {1}, "ab"}});
  EXPECT_EQ(last_.packs, 1u);
}

TEST_F(TrapTest, SingleFile) {
  WriteFile(dir_ / "some.safetensors",
            SafetensorsBytes({{"a.weight", "BF16", {64, 16}, Bf16(1024, 1)}}));
  WriteFile(dir_ / "config.json", TinyConfig());
  EXPECT_THAT(std::string(Pack(dir_ / "some.safetensors", out_).status().message()),
              HasSubstr("--any"));
  PackOptions options;
  options.any = true;
  ASSERT_TRUE(Pack(dir_ / "some.safetensors", out_, options).ok());
  EXPECT_THAT(testing::ListDir(out_), ElementsAre("glyd.json", "model.safetensors"));
  EXPECT_TRUE(testing::Verify(out_).ok());
}

// config.json names a family whose saves rename tensors; one of --any does not.
TEST_F(TrapTest, AnySaveOfARenamingFamilyKeepsItsNames) {
  const std::string block = "model.layers.0.block_sparse_moe.";
  const TestTensor embedding = {
      .name = "model.embed_tokens.weight", .shape = {128, 64}, .data = Bf16(8192, 1)};
  const TestTensor router = {
      .name = block + "router.weight", .shape = {64, 64}, .data = Bf16(4096, 2)};
  const TestTensor source_router = {
      .name = block + "router.layer.weight", .shape = {4, 64}, .data = Bf16(256, 3)};
  const TestTensor experts = {
      .name = block + "experts.gate_up_proj", .shape = {4, 64, 64}, .data = Bf16(16384, 4)};
  const std::vector<std::vector<TestTensor>> models = {
      {embedding, experts}, {router, experts}, {source_router, experts}, {source_router, router}};
  for (const std::vector<TestTensor>& tensors : models) {
    for (const std::string& dir : {model_, dir_ / "back"}) fs::remove_all(dir);
    WriteModel(model_, tensors,
               R"({"architectures":["GraniteMoeForCausalLM"],"num_hidden_layers":1})");
    PackOptions options;
    options.any = true;
    options.force = true;
    ASSERT_TRUE(Pack(model_, out_, options).ok());
    const absl::Status unpacked = testing::Unpack(out_, dir_ / "back");
    ASSERT_TRUE(unpacked.ok()) << unpacked;
    EXPECT_EQ(TensorsOf(dir_ / "back"), TensorsOf(model_)) << tensors[0].name;
  }
}

TEST_F(TrapTest, ShardedSave) {
  WriteModel(model_, TinyTensors());
  for (const Layout layout : {Layout::kMma, Layout::kMma12}) {
    PackOptions options;
    options.layout = layout;
    options.shard_bytes = 20000;
    options.force = true;
    ASSERT_TRUE(Pack(model_, out_, options).ok());
    EXPECT_TRUE(fs::exists(out_ + "/model.safetensors.index.json"));
    EXPECT_FALSE(fs::exists(out_ + "/model.safetensors"));
    EXPECT_TRUE(testing::Verify(out_).ok()) << testing::Verify(out_);
    fs::remove_all(dir_ / "back");
    ASSERT_TRUE(testing::Unpack(out_, dir_ / "back").ok());
    EXPECT_EQ(TensorsOf(dir_ / "back"), TensorsOf(model_));
  }
}

TEST_F(TrapTest, ZeroPage) {
  WriteModel(model_, TinyTensors());
  ASSERT_TRUE(Pack(model_, out_).ok());
  std::string file = ReadFile(out_ + "/model.safetensors");
  file.replace(file.size() - 4096, 4096, 4096, '\0');
  WriteFile(out_ + "/model.safetensors", file);
  const absl::Status s = testing::Verify(out_);
  EXPECT_THAT(std::string(s.message()),
              AllOf(HasSubstr("self_attn.v_proj.weight"), HasSubstr("model.safetensors")));
}

TEST_F(TrapTest, Many) {
  // Counts what is open while all tensors are at hand.
  class Count : public Progress {
   public:
    void Phase(absl::string_view, uint64_t) override {
      fds = std::max(fds, testing::ListDir("/proc/self/fd").size());
      const std::string maps = ReadFile("/proc/self/maps");
      mappings = std::max<size_t>(mappings, std::count(maps.begin(), maps.end(), '\n'));
    }
    size_t fds = 0, mappings = 0;
  };
  std::vector<TestTensor> tensors;
  for (int i = 0; i < 70000; ++i)
    tensors.push_back({absl::StrCat("t.", i), "BF16", {1}, std::string(2, 'a')});
  WriteModel(model_, tensors);
  PackOptions options;
  options.any = true;
  Count count;
  ASSERT_TRUE(Pack(model_, out_, options, &count).ok());
  EXPECT_LT(count.fds, 100u);
  EXPECT_LT(count.mappings, 1000u);
  EXPECT_TRUE(testing::Verify(out_).ok());
}

TEST_F(TrapTest, OutExists) {
  WriteModel(model_, TinyTensors());
  fs::create_directory(out_);
  EXPECT_THAT(Refusal(), HasSubstr("is there already"));
  PackOptions force;
  force.force = true;
  EXPECT_TRUE(Pack(model_, out_, force).ok());
  // A save is replaced by a save; what is none stays.
  EXPECT_TRUE(Pack(model_, out_, force).ok());
  fs::remove_all(out_);
  fs::create_directory(out_);
  WriteFile(out_ + "/thesis.txt", "x");
  EXPECT_THAT(Refusal(force), HasSubstr("not replaced"));
}

// What --force would take with it: the source inside the output, a user's files beside a save.
TEST_F(TrapTest, InIsInOut) {
  fs::create_directory(out_);
  const std::string inside = out_ + "/source";
  WriteModel(inside, TinyTensors());
  WriteFile(out_ + "/glyd.json", "{}");
  PackOptions force;
  force.force = true;
  auto before = testing::Snapshot(inside);
  EXPECT_THAT(std::string(Pack(inside, out_, force).status().message()),
              HasSubstr("the input lies in this output"));
  EXPECT_EQ(testing::Snapshot(inside), before);
  fs::remove_all(inside);
  WriteModel(model_, TinyTensors());
  WriteFile(out_ + "/thesis.txt", "x");
  EXPECT_THAT(Refusal(force), HasSubstr("thesis.txt"));
  EXPECT_TRUE(fs::exists(out_ + "/thesis.txt"));
  fs::remove(out_ + "/thesis.txt");
  fs::create_symlink(model_ + "/config.json", out_ + "/config.json");
  EXPECT_THAT(Refusal(force), HasSubstr("config.json"));
  fs::remove(out_ + "/config.json");
  EXPECT_TRUE(Pack(model_, out_, force).ok());

  // Unpack: neither the save it reads nor another one.
  const std::string root = dir_ / "root";
  fs::create_directory(root);
  WriteFile(root + "/model.safetensors", "old");
  fs::rename(out_, root + "/save");
  before = testing::Snapshot(root + "/save");
  EXPECT_THAT(std::string(testing::Unpack(root + "/save", root, true).message()),
              HasSubstr("the input lies in this output"));
  EXPECT_EQ(testing::Snapshot(root + "/save"), before);
  ASSERT_TRUE(Pack(model_, out_, {}).ok());
  EXPECT_THAT(std::string(testing::Unpack(root + "/save", out_, true).message()),
              HasSubstr("glyd.json"));
}

// What lies beside a save and only has the name of a file that goes with one.
TEST_F(TrapTest, ForceTakesNoFileOfTheUsers) {
  WriteModel(model_, TinyTensors());
  WriteFile(model_ + "/tokenizer.json", "{}");
  PackOptions force;
  force.force = true;
  ASSERT_TRUE(Pack(model_, out_).ok());
  ASSERT_TRUE(Pack(model_, out_, force).ok());
  for (const char* name :
       {"tokenizer_notes.txt", "vocab.bak", "mine.model", "model-old.safetensors",
        "model-00001-of-00002.safetensors", "model.safetensors.index.json"}) {
    WriteFile(absl::StrCat(out_, "/", name), "x");
    EXPECT_THAT(Refusal(force), AllOf(HasSubstr(name), HasSubstr("is not replaced")));
    fs::remove(absl::StrCat(out_, "/", name));
  }
  // Of a sharded save its shards, and those alone.
  force.shard_bytes = 20000;
  ASSERT_TRUE(Pack(model_, out_, force).ok());
  ASSERT_TRUE(Pack(model_, out_, force).ok());
  WriteFile(out_ + "/model-00001-of-00099.safetensors", "x");
  EXPECT_THAT(Refusal(force), HasSubstr("model-00001-of-00099.safetensors"));
  fs::remove(out_ + "/model-00001-of-00099.safetensors");

  ASSERT_TRUE(testing::Unpack(out_, dir_ / "back").ok());
  WriteFile(dir_ / "back/tokenizer_notes.txt", "x");
  EXPECT_THAT(std::string(testing::Unpack(out_, dir_ / "back", true).message()),
              HasSubstr("tokenizer_notes.txt"));
  fs::remove(dir_ / "back/tokenizer_notes.txt");
  EXPECT_TRUE(testing::Unpack(out_, dir_ / "back", true).ok());
}

// What comes while the new save is written is met before the old one goes.
TEST_F(TrapTest, AFileThatComesLateIsKept) {
  class Late : public Progress {
   public:
    explicit Late(std::string file) : file_(std::move(file)) {}
    void Phase(absl::string_view name, uint64_t) override {
      if (name == "sync") WriteFile(file_, "x");
    }
    const std::string file_;
  };
  WriteModel(model_, TinyTensors());
  ASSERT_TRUE(Pack(model_, out_).ok());
  PackOptions force;
  force.force = true;
  Late late(out_ + "/thesis.txt");
  EXPECT_THAT(std::string(Pack(model_, out_, force, &late).status().message()),
              HasSubstr("thesis.txt"));
  EXPECT_EQ(ReadFile(out_ + "/thesis.txt"), "x");
  EXPECT_THAT(testing::ListDir(dir_.path()), ElementsAre("model", "out"));
}

TEST_F(TrapTest, OutIsInsideIn) {
  WriteModel(model_, TinyTensors());
  fs::create_directories(model_ + "/a/b");
  fs::create_symlink(model_ + "/a", dir_ / "way");
  const auto before = testing::Snapshot(model_);
  for (const std::string& out : {model_ + "/out", model_ + "/a/b/out", dir_ / "way/out"}) {
    EXPECT_THAT(std::string(Pack(model_, out).status().message()),
                HasSubstr("would lie in the input directory"));
    PackOptions any;
    any.any = true;
    EXPECT_TRUE(absl::IsInvalidArgument(Pack(model_ + "/.", out, any).status()));
  }
  EXPECT_EQ(testing::Snapshot(model_), before);
  // Beside one file of a directory is not in it.
  PackOptions any;
  any.any = true;
  EXPECT_TRUE(Pack(model_ + "/model.safetensors", model_ + "/out", any).ok());
  EXPECT_THAT(std::string(testing::Unpack(model_ + "/out", model_ + "/out/back").message()),
              HasSubstr("would lie in the input directory"));
}

TEST_F(TrapTest, PathThatIsNotUtf8) {
  const std::string model = dir_ / "m\xffo\xc3\xa9 \"d\xed\xa0\x80";
  WriteModel(model, TinyTensors());
  ASSERT_TRUE(Pack(model, out_).ok());
  EXPECT_TRUE(testing::Verify(out_).ok()) << testing::Verify(out_);
  EXPECT_THAT(ReadFile(out_ + "/glyd.json"),
              HasSubstr("m\\udcffo\\u00e9 \\\"d\\udced\\udca0\\udc80"));
  const auto save = Save::Open(*Dir::Open(out_));
  ASSERT_TRUE(save.ok()) << save.status();
  EXPECT_THAT(save->source_repo, HasSubstr("m\\xffo\xc3\xa9 \\\"d\\xed\\xa0\\x80"));
}

TEST_F(TrapTest, OutIsIn) {
  WriteModel(model_, TinyTensors());
  PackOptions force;
  force.force = true;
  const auto before = testing::Snapshot(model_);
  EXPECT_THAT(std::string(Pack(model_, model_, force).status().message()),
              HasSubstr("the same directory"));
  fs::create_symlink("model", dir_ / "link");
  EXPECT_THAT(std::string(Pack(model_, dir_ / "link", force).status().message()),
              HasSubstr("symbolic link"));
  EXPECT_THAT(std::string(Pack(dir_ / "link", model_, force).status().message()),
              HasSubstr("the same directory"));
  fs::create_directory(out_);
  fs::create_hard_link(model_ + "/model.safetensors", out_ + "/model.safetensors");
  EXPECT_THAT(std::string(Pack(model_, out_, force).status().message()),
              HasSubstr("the same file"));
  EXPECT_EQ(testing::Snapshot(model_), before);
}

TEST_F(TrapTest, Blob) {
  WriteModel(model_, TinyTensors());
  fs::create_directory(dir_ / "blob");
  WriteFile(dir_ / "blob/glyd.json", "{}");
  fs::create_symlink("blob", out_);
  PackOptions force;
  force.force = true;
  EXPECT_THAT(Refusal(force), HasSubstr("symbolic link"));
}

TEST_F(TrapTest, Hub) {
  const std::string commit(40, 'a');
  const std::string repo = dir_ / "hub/models--org--name";
  fs::create_directories(repo + "/snapshots/" + commit);
  fs::create_directories(repo + "/refs");
  fs::create_directories(repo + "/blobs");
  WriteFile(repo + "/refs/main", commit + "\n");
  WriteFile(repo + "/blobs/b1", SafetensorsBytes(TinyTensors()));
  WriteFile(repo + "/blobs/b2", TinyConfig());
  fs::create_symlink("../../blobs/b1", repo + "/snapshots/" + commit + "/model.safetensors");
  fs::create_symlink("../../blobs/b2", repo + "/snapshots/" + commit + "/config.json");
  ::setenv("HF_HUB_CACHE", (dir_ / "hub").c_str(), 1);
  int n = 0;
  for (const std::string& model :
       {std::string("org/name"), std::string("org/name@main"), "org/name@" + commit,
        repo + "/snapshots/" + commit, repo + "/snapshots/" + commit + "/",
        repo + "//snapshots/./" + commit + "/../" + commit}) {
    const std::string out = dir_ / absl::StrCat("out", n++);
    const auto packed = Pack(model, out);
    ASSERT_TRUE(packed.ok()) << model << ": " << packed.status();
    const auto save = Save::Open(*Dir::Open(out));
    EXPECT_EQ(save->source_repo, model);
    EXPECT_EQ(save->source_revision, commit);
    EXPECT_TRUE(testing::Verify(out).ok());
  }
  const auto before = testing::Snapshot(repo);
  for (const std::string& out : {repo + "/out", repo + "/blobs/out", repo + "/snapshots/out",
                                 repo + "/snapshots/" + commit + "/out"})
    EXPECT_THAT(std::string(Pack("org/name", out).status().message()),
                HasSubstr("would lie in the"))
        << out;
  EXPECT_EQ(testing::Snapshot(repo), before);
  for (const char* absent : {"org/other", "org/name@v2", "org/name@../main", "a/b/c"})
    EXPECT_TRUE(absl::IsNotFound(Pack(absent, out_).status())) << Pack(absent, out_).status();
  ::unsetenv("HF_HUB_CACHE");
}

TEST_F(TrapTest, Swap) {
  WriteModel(model_, TinyTensors());
  ASSERT_TRUE(Pack(model_, out_).ok());
  const auto save = Save::Open(*Dir::Open(out_));
  fs::rename(out_ + "/model.safetensors", out_ + "/old");
  WriteFile(out_ + "/model.safetensors", "another file");
  Progress silent;
  VerifyReport report;
  EXPECT_TRUE(VerifySave(*save, {}, silent, &report).ok());
}

TEST_F(TrapTest, TwoJobs) {
  // The second starts while the first is at work.
  class Second : public Progress {
   public:
    explicit Second(std::function<void()> f) : f_(std::move(f)) {}
    void Phase(absl::string_view name, uint64_t) override {
      if (name == "pack") f_();
    }
    const std::function<void()> f_;
  };
  WriteModel(model_, TinyTensors());
  absl::Status second;
  Second progress([&] { second = Pack(model_, out_).status(); });
  ASSERT_TRUE(Pack(model_, out_, {}, &progress).ok());
  EXPECT_THAT(std::string(second.message()),
              HasSubstr(absl::StrCat("being written by process ", ::getpid())));
  EXPECT_THAT(testing::ListDir(dir_.path()), ElementsAre("model", "out"));
}

TEST_F(TrapTest, StaleTemporariesGo) {
  WriteModel(model_, TinyTensors());
  fs::create_directories(dir_ / ".out.glyd-tmp-1-00000000/sub");
  WriteFile(dir_ / ".out.glyd-tmp-1-00000000/sub/x", "x");
  WriteFile(dir_ / ".out.glyd-lock", "1");
  ASSERT_TRUE(Pack(model_, out_).ok());
  EXPECT_THAT(testing::ListDir(dir_.path()), ElementsAre("model", "out"));
}

TEST_F(TrapTest, Cancelled) {
  class Cancel : public Progress {
   public:
    void Phase(absl::string_view name, uint64_t) override { cancelled_ = name == "pack"; }
    bool cancelled() const override { return cancelled_; }
    std::atomic<bool> cancelled_ = false;
  };
  WriteModel(model_, TinyTensors());
  Cancel cancel;
  EXPECT_TRUE(absl::IsCancelled(Pack(model_, out_, {}, &cancel).status()));
  EXPECT_THAT(testing::ListDir(dir_.path()), ElementsAre("model"));
}

std::vector<TestTensor> FiveMegabytes() {
  return {{"a.weight", "BF16", {2048, 1024}, Bf16(2048 * 1024, 1)},
          {"b", "F32", {512, 1024}, std::string(4 * 512 * 1024, 'x')}};
}

TEST_F(TrapTest, FullByFileSizeLimit) {
  WriteModel(model_, FiveMegabytes());
  const std::string text = InChild([&]() -> std::string {
    const struct rlimit limit = {1 << 20, 1 << 20};
    ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
    PackOptions options;
    options.any = true;
    return std::string(Pack(model_, out_, options).status().ToString());
  });
  EXPECT_THAT(text, AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("File too large"),
                          HasSubstr("the whole output needs")));
  EXPECT_THAT(testing::ListDir(dir_.path()), ElementsAre("model"));
}

TEST_F(TrapTest, ForceKeepsTheDirectorysMode) {
  WriteModel(model_, TinyTensors());
  ASSERT_TRUE(Pack(model_, out_).ok());
  for (const fs::perms mode :
       {fs::perms::owner_all, fs::perms::owner_read | fs::perms::owner_exec}) {
    fs::permissions(out_, mode);
    PackOptions options;
    options.force = true;
    ASSERT_TRUE(Pack(model_, out_, options).ok());
    EXPECT_EQ(fs::status(out_).permissions(), mode);
  }
  fs::permissions(out_, fs::perms::owner_all);
}

TEST_F(TrapTest, FullFileSystem) {
  WriteModel(model_, FiveMegabytes());
  WriteModel(dir_ / "small", TinyTensors());
  fs::create_directory(dir_ / "disk");
  const std::string text = InChild([&]() -> std::string {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", (dir_ / "disk").c_str(), "tmpfs", 0, "size=4m") != 0)
      return "no mount";
    PackOptions options;
    options.any = true;
    const absl::Status full = Pack(model_, dir_ / "disk/out", options).status();
    size_t left = testing::ListDir(dir_ / "disk").size();
    const absl::Status next = Pack(dir_ / "small", dir_ / "disk/out").status();
    // Not a byte free: that must be told of the save, not of what is written first.
    std::ofstream fill(dir_ / "disk/fill");
    while (fill << std::string(4096, 'x') << std::flush) {
    }
    const absl::Status none = Pack(dir_ / "small", dir_ / "disk/other").status();
    left += testing::ListDir(dir_ / "disk").size() - 2;
    if (!absl::StrContains(none.message(), "needs")) return none.ToString();
    return absl::StrCat(full.ToString(), "; left ", left, "; next ", next.ToString());
  });
  if (text == "no mount") GTEST_SKIP() << "this process may not mount a tmpfs";
  EXPECT_THAT(text, AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("needs"), HasSubstr("free"),
                          HasSubstr("left 0"), HasSubstr("next OK")));
}

}  // namespace
}  // namespace glyd
