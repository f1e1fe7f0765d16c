#include "packer/safetensors/writer.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "packer/internal/python_json.h"
#include "packer/safetensors/dtype.h"

namespace glyd {
namespace {

uint32_t DtypeOrder(const StoredTensor& t) {
  const DtypeInfo* info = FindDtype(t.dtype);
  return info == nullptr ? ~0u : info->order;
}

// Places the tensors of one file and writes its header.
PlannedFile PlanFile(std::vector<StoredTensor*> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor* a, const StoredTensor* b) {
    const uint32_t x = DtypeOrder(*a), y = DtypeOrder(*b);
    return x != y ? x < y : a->name < b->name;
  });
  std::string json = R"({"__metadata__":{"format":"pt"})";
  uint64_t at = 0;
  for (StoredTensor* t : tensors) {
    absl::StrAppend(&json, ",", CompactString(t->name), R"(:{"dtype":")", t->dtype,
                    R"(","shape":[)", absl::StrJoin(t->shape, ","), R"(],"data_offsets":[)", at,
                    ",", at + t->bytes, "]}");
    t->offset = at;
    at += t->bytes;
  }
  json += '}';
  json.append(AlignUp(json.size(), 8) - json.size(), ' ');
  PlannedFile file;
  file.head.resize(8);
  StoreLe64(file.head.data(), json.size());
  file.head += json;
  for (StoredTensor* t : tensors) t->offset += file.head.size();
  file.bytes = file.head.size() + at;
  return file;
}

}  // namespace

std::vector<PlannedFile> PlanFiles(absl::Span<StoredTensor> tensors, uint64_t shard_bytes) {
  std::vector<std::vector<StoredTensor*>> shards(1);
  uint64_t held = 0;
  for (StoredTensor& t : tensors) {
    if (held >= shard_bytes) {
      shards.emplace_back();
      held = 0;
    }
    t.file = shards.size() - 1;
    shards.back().push_back(&t);
    held += t.bytes;
  }
  std::vector<PlannedFile> files;
  for (std::vector<StoredTensor*>& shard : shards) {
    files.push_back(PlanFile(std::move(shard)));
    files.back().name = shards.size() == 1 ? "model.safetensors"
                                           : absl::StrFormat("model-%05d-of-%05d.safetensors",
                                                             files.size(), shards.size());
  }
  return files;
}

std::string IndexJson(absl::Span<const StoredTensor> tensors, absl::Span<const PlannedFile> files) {
  uint64_t total = 0;
  for (const StoredTensor& t : tensors) total += t.bytes;
  PythonJson json(2);
  json.BeginObject();
  json.Key("metadata");
  json.BeginObject();
  json.Key("total_size");
  json.Number(total);
  json.EndObject();
  json.Key("weight_map");
  json.BeginObject();
  for (const StoredTensor& t : tensors) {
    json.Key(t.name);
    json.String(files[t.file].name);
  }
  json.EndObject();
  json.EndObject();
  return json.Take();
}

bool IsShardFile(absl::string_view name) {
  const auto digits = [&name] {
    size_t n = 0;
    while (n < name.size() && absl::ascii_isdigit(name[n])) ++n;
    name.remove_prefix(n);
    return n >= 5;
  };
  return absl::ConsumePrefix(&name, "model-") && digits() && absl::ConsumePrefix(&name, "-of-") &&
         digits() && name == ".safetensors";
}

}  // namespace glyd
