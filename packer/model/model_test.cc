#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/bytes.h"
#include "base/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "packer/model/config.h"
#include "packer/model/families.h"
#include "packer/model/manifest.h"
#include "packer/model/plan.h"
#include "packer/model/save.h"
#include "packer/safetensors/writer.h"
#include "packer/testing/fixtures.h"
#include "packer/verify/save_jobs.h"
#include "packer/verify/verify.h"

namespace glyd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReadFile;
using ::testing::StartsWith;
using testing::TempDir;
using testing::WriteFile;

TEST(ConfigTest, ReadsWhatThePackerNeeds) {
  const auto c = ModelConfig::Parse(
      R"({"architectures":["A","B"],"num_hidden_layers":3,"x":{"num_hidden_layers":[NaN]},)"
      R"("tie_word_embeddings":false,"mlp_bias":null,"attention_bias":true})",
      "f");
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->architecture, "A");
  EXPECT_EQ(c->num_hidden_layers, 3u);
  EXPECT_EQ(c->tie_word_embeddings, false);
  EXPECT_TRUE(c->attention_bias);
  EXPECT_FALSE(c->mlp_bias);
  for (const char* bad :
       {"", "[]", "{", R"({"num_hidden_layers":-1})", R"({"num_hidden_layers":"3"})",
        R"({"architectures":"A"})", R"({"architectures":[1]})", R"({"mlp_bias":1})", "{} {}"})
    EXPECT_FALSE(ModelConfig::Parse(bad, "f").ok()) << bad;
}

TEST(FamiliesTest, SourceNames) {
  const Family* moe = FindFamily("GraniteMoeForCausalLM");
  EXPECT_EQ(SourceName(moe, "model.layers.12.block_sparse_moe.router.weight"),
            "model.layers.12.block_sparse_moe.router.layer.weight");
  EXPECT_EQ(SourceName(moe, "model.layers.0.block_sparse_moe.experts.gate_up_proj"),
            "model.layers.0.block_sparse_moe.input_linear.weight");
  for (const char* same : {"model.layers.0.self_attn.q_proj.weight", "model.layers.x.a",
                           "lm_head.weight", "model.layers.0"})
    EXPECT_EQ(SourceName(moe, same), same);
  EXPECT_EQ(SourceName(nullptr, "model.layers.0.block_sparse_moe.router.weight"),
            "model.layers.0.block_sparse_moe.router.weight");
}

TEST(PlanTest, BufferNames) {
  EXPECT_EQ(PackBuffers("a.b", Layout::kMma, false).side, "a.b.glyd_blocks");
  EXPECT_EQ(PackBuffers("a.b", Layout::kMma12, false).base, "a.b.glyd_exc_base");
  EXPECT_EQ(PackBuffers("a.b", Layout::kMma, true).base, "a.glyd_b_block_base");
  EXPECT_EQ(PackBuffers("b", Layout::kMma12, true).data, "glyd_b_data");
}

StoredTensor Tensor(const std::string& name, const std::string& dtype, uint64_t n) {
  StoredTensor t;
  t.name = name;
  t.dtype = dtype;
  t.shape = {n};
  t.bytes = *TensorBytes(dtype, t.shape);
  return t;
}

TEST(WriterTest, ShardsCloseOnceTheyAreFull) {
  std::vector<StoredTensor> t = {Tensor("b", "BF16", 4), Tensor("z", "U8", 1),
                                 Tensor("a", "BF16", 4), Tensor("c", "I32", 1),
                                 Tensor("d", "U8", 100), Tensor("e", "U8", 1)};
  const auto files = PlanFiles(absl::MakeSpan(t), 16);
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].name, "model-00001-of-00003.safetensors");
  EXPECT_EQ(files[2].name, "model-00003-of-00003.safetensors");
  EXPECT_THAT(
      (std::vector<size_t>{t[0].file, t[1].file, t[2].file, t[3].file, t[4].file, t[5].file}),
      ElementsAre(0, 0, 0, 1, 1, 2));
  // By dtype, then by name.
  EXPECT_LT(t[2].offset, t[0].offset);
  EXPECT_LT(t[0].offset, t[1].offset);
  EXPECT_EQ(files[0].head.size() % 8, 0u);
  EXPECT_EQ(files[0].bytes, files[0].head.size() + 17);
  EXPECT_THAT(
      files[0].head,
      HasSubstr(
          R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},"b":)"));
  const auto parsed =
      ParseHeader(files[0].head.substr(8), files[0].head.size(), files[0].bytes, "f");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->size(), 3u);
  EXPECT_THAT(
      IndexJson(t, files),
      StartsWith("{\n  \"metadata\": {\n    \"total_size\": 122\n  },\n  \"weight_map\": {\n"
                 "    \"b\": \"model-00001-of-00003.safetensors\",\n    \"z\": "));
}

// A good save to be changed, and its glyd.json.
class SaveTest : public ::testing::Test {
 protected:
  void Make(const std::string& checkpoint, Layout layout) {
    PackOptions options;
    options.layout = layout;
    const auto packed = testing::Pack(absl::StrCat(testing::CheckpointCases(), "/", checkpoint),
                                      dir_ / "s", options);
    ASSERT_TRUE(packed.ok()) << packed.status();
    json_ = ReadFile(dir_ / "s/glyd.json");
  }
  absl::StatusOr<Save> Open() {
    WriteFile(dir_ / "s/glyd.json", json_);
    return Save::Open(*Dir::Open(dir_ / "s"));
  }
  void Replace(const std::string& from, const std::string& to) {
    ASSERT_THAT(json_, HasSubstr(from));
    json_ = absl::StrReplaceAll(json_, {{from, to}});
  }

  const TempDir dir_;
  std::string json_;
};

TEST_F(SaveTest, ManifestComesBackAsItWas) {
  for (const char* checkpoint : {"granite-moe", "llama-biases"}) {
    Make(checkpoint, Layout::kMma);
    const auto m = Manifest::Parse(json_, "f");
    ASSERT_TRUE(m.ok()) << m.status();
    EXPECT_EQ(m->ToJson(), json_);
    std::filesystem::remove_all(dir_ / "s");
  }
}

TEST_F(SaveTest, OfBeforeHashes) {
  Make("qwen3-tied", Layout::kMma);
  Replace("\"0.25.0\"", "\"0.21.3\"");
  json_ = json_.substr(0, json_.find(",\n \"tensors\": {")) + "\n}";
  const auto s = Open();
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_EQ(s->tensors.size(), 10u);
  EXPECT_FALSE(s->tensors[0].has_sha256);
  EXPECT_THAT(s->notes, ElementsAre(HasSubstr("no sha256 for the 10 tensors")));
  EXPECT_TRUE(testing::Verify(dir_ / "s").ok());
  EXPECT_TRUE(testing::Unpack(dir_ / "s", dir_ / "back").ok());
  EXPECT_EQ(testing::TensorsOf(dir_ / "back"),
            testing::TensorsOf(testing::CheckpointCases() + "/qwen3-tied"));
}

TEST_F(SaveTest, KeysOfANewerVersionAreSkipped) {
  Make("qwen3-tied", Layout::kMma12);
  Replace("\"layout\": \"mma12\"", "\"layout\": \"mma12\", \"colour\": {\"a\": [1, 2]}");
  EXPECT_FALSE(Open().ok());
  Replace("\"0.25.0\"", "\"0.26.0\"");
  const auto s = Open();
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_THAT(s->notes.front(), HasSubstr("colour"));
}

// What a save of 0.25 never has, though a careless reader takes it.
TEST_F(SaveTest, ManifestIsHeldToItsVersion) {
  struct Edit {
    const char *from, *to, *says;
  };
  const auto refused = [&](const std::vector<Edit>& edits) {
    const std::string good = json_;
    for (const Edit& e : edits) {
      Replace(e.from, e.to);
      const auto s = Open();
      EXPECT_THAT(std::string(s.status().message()), HasSubstr(e.says)) << e.to;
      json_ = good;
    }
    EXPECT_TRUE(Open().ok()) << Open().status();
  };
  Make("granite-moe", Layout::kMma);
  refused({{"\"0.25.0\"", "\" 0.25.0\"", "two numbers"},
           {"\"0.25.0\"", "\"+0.25\"", "two numbers"},
           {"\"0.25.0\"", "\"0.25.\"", "two numbers"},
           {"\"0.25.0\"", "\"0. 25\"", "two numbers"},
           {"\"0.25.0\"", "\"0.25 \"", "two numbers"},
           {"\"0.25.0\"", "\".25\"", "two numbers"},
           {"\"0.25.0\"", "\"0\"", "two numbers"},
           {"\"0.25.0\"", "\"0.25.0\\n\"", "two numbers"},
           {",\n  \"revision\": null", "", "source: needs repo and revision"},
           {"\"revision\": null", "\"revision\": \"\"", "40 hex digits"},
           {"\"revision\": null", "\"revision\": \"x\"", "40 hex digits"},
           {"\"revision\": null", "\"revision\": \"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"",
            "40 hex digits"},
           {",\n   \"transposed\": false", "", "experts and no transposed"}});
  for (const char* version : {"\"0.25\"", "\"0.25.0.dev1\"", "\"0.25.1+cu12\"", "\"1.0rc1.2\""}) {
    const std::string good = json_;
    Replace("\"0.25.0\"", version);
    EXPECT_EQ(Open().ok(), version[1] == '0') << version << Open().status();
    json_ = good;
  }
  Replace("\"revision\": null", absl::StrCat("\"revision\": \"", std::string(40, 'a'), "\""));
  EXPECT_TRUE(Open().ok());
}

// Before 0.25 another form of these was not known to be wrong.
TEST_F(SaveTest, OlderManifestsMayLackWhatCameLater) {
  Make("granite-moe", Layout::kMma);
  Replace("\"0.25.0\"", "\"0.22.0\"");
  Replace(",\n   \"transposed\": false", "");
  Replace(",\n  \"revision\": null", "");
  EXPECT_TRUE(Open().ok()) << Open().status();
}

// A tensor saved as it is with other words in its header: its bytes and their sha256 are the same.
TEST_F(SaveTest, RawTensorsKeepDtypeAndShape) {
  const auto refused = [&](const std::string& name, const std::string& dtype,
                           const std::string& shape) {
    const std::string file = ReadFile(dir_ / "s/model.safetensors");
    const uint64_t length = LoadLe64(file.data());
    std::string header = file.substr(8, length);
    const size_t at = header.find(absl::StrCat("\"", name, "\":{")), end = header.find("]", at);
    ASSERT_NE(at, std::string::npos) << name;
    header.replace(
        at, end + 1 - at,
        absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":[", shape, "]"));
    std::string out(8, '\0');
    StoreLe64(out.data(), header.size());
    WriteFile(dir_ / "s/model.safetensors", out + header + file.substr(8 + length));
    const absl::Status s = testing::Verify(dir_ / "s");
    EXPECT_TRUE(absl::IsDataLoss(s)) << name << s;
    EXPECT_THAT(std::string(s.message()), HasSubstr(name));
    WriteFile(dir_ / "s/model.safetensors", file);
  };
  for (const bool merge : {true, false}) {
    const std::string model = dir_ / absl::StrCat("model", merge);
    testing::WriteModel(model, testing::TinyTensors());
    PackOptions options;
    options.merge = merge;
    options.force = true;
    ASSERT_TRUE(testing::Pack(model, dir_ / "s", options).ok());
    EXPECT_TRUE(testing::Verify(dir_ / "s").ok());
    refused("model.norm.weight", "F16", "64");
    refused("model.norm.weight", "BF16", "8,8");
    refused("model.layers.0.input_layernorm.weight", "BF16", "1,64");
    refused("model.embed_tokens.weight", "BF16", "64,128");
    refused("model.layers.0.post_attention_layernorm.weight", "I16", "64");
  }
}

TEST_F(SaveTest, TransposedExperts) {
  Make("granite-moe", Layout::kMma12);
  // As the save of a model that holds each expert's [64, 128] as [128, 64].
  const std::string name = "model.layers.1.block_sparse_moe.experts.down_proj";
  const auto source = Checkpoint::Open(*Dir::Open(testing::CheckpointCases() + "/granite-moe"));
  const StoredTensor* t = source->Find("model.layers.1.block_sparse_moe.output_linear.weight");
  const std::string file = ReadFile(source->files()[0].shown);
  const std::string bytes = file.substr(t->offset, t->bytes);
  std::string turned(bytes.size(), '\0');
  for (size_t e = 0; e < 4; ++e)
    for (size_t r = 0; r < 64; ++r)
      for (size_t c = 0; c < 128; ++c)
        for (size_t b = 0; b < 2; ++b)
          turned[((e * 128 + c) * 64 + r) * 2 + b] = bytes[((e * 64 + r) * 128 + c) * 2 + b];
  auto m = Manifest::Parse(json_, "f");
  ManifestPack& p = m->packs.back();
  ASSERT_EQ(p.name, name);
  p.transposed = true;
  p.members[0].shape = {4, 128, 64};
  Sha256 hash;
  hash.Update(turned.data(), turned.size());
  p.members[0].sha256 = hash.Finish();
  WriteFile(dir_ / "s/glyd.json", m->ToJson());
  EXPECT_TRUE(testing::Verify(dir_ / "s").ok()) << testing::Verify(dir_ / "s");
}

TEST_F(SaveTest, QuickSeesStructureAlone) {
  Make("qwen3-tied", Layout::kMma12);
  Replace(Hex(Open()->packs[0].members[0].sha256), std::string(64, '0'));
  const auto s = Open();
  ASSERT_TRUE(s.ok()) << s.status();
  Progress silent;
  VerifyReport report;
  EXPECT_TRUE(VerifySave(*s, {.quick = true}, silent, &report).ok());
  EXPECT_EQ(report.verdicts.size(), report.tensors);
  for (const TensorVerdict& v : report.verdicts) {
    EXPECT_EQ(v.checked, Checked::kStructure);
    EXPECT_FALSE(v.file.empty());
  }
  EXPECT_FALSE(VerifySave(*s, {}, silent, &report).ok());
  // One bad tensor, and a verdict for each.
  EXPECT_EQ(report.verdicts.size(), report.tensors);
  size_t bad = 0;
  for (const TensorVerdict& v : report.verdicts) bad += !v.status.ok();
  EXPECT_EQ(bad, 1u);
}

// A verdict a tensor also where the save does not open, however little of it can be read.
TEST_F(SaveTest, VerdictsOfASaveThatDoesNotOpen) {
  Make("qwen3-tied", Layout::kMma12);
  const size_t all = CountTensors(*Open());
  const std::string good = json_;
  const auto verify = [&](const std::string& json) {
    WriteFile(dir_ / "s/glyd.json", json);
    Progress silent;
    VerifyReport report;
    const absl::Status s = VerifyDir(*Dir::Open(dir_ / "s"), {}, silent, &report);
    EXPECT_FALSE(s.ok());
    return report.verdicts;
  };
  // Of the manifest as a whole: no tensor is to blame.
  Replace("\"layout\": \"mma12\"", "\"colour\": 1, \"layout\": \"mma12\"");
  auto verdicts = verify(json_);
  EXPECT_EQ(verdicts.size(), all);
  for (const TensorVerdict& v : verdicts) {
    EXPECT_EQ(v.checked, Checked::kNothing);
    EXPECT_THAT(std::string(v.status.message()), HasSubstr("not checked"));
  }
  // Of one tensor: named, the others not.
  json_ = good;
  Replace("\"model.norm.weight\": \"", "\"model.no.weight\": \"");
  verdicts = verify(json_);
  EXPECT_EQ(verdicts.size(), all);
  size_t bad = 0;
  for (const TensorVerdict& v : verdicts) bad += v.checked != Checked::kNothing;
  EXPECT_EQ(bad, 1u);
  // No glyd.json to speak of: what the files hold.
  EXPECT_GT(verify("[").size(), all);
  std::filesystem::remove(dir_ / "s/model.safetensors");
  EXPECT_EQ(verify(good).size(), all);
}

}  // namespace
}  // namespace glyd
