#include "absl/types/span.h"
#include "base/bytes.h"
#include "packer/internal/python_json.h"
#include "packer/model/manifest.h"

namespace glyd {
namespace {

template <typename T>
void WriteNumbers(PythonJson& json, absl::string_view key, const T& numbers) {
  json.Key(key);
  json.BeginList();
  for (const auto n : numbers) json.Number(n);
  json.EndList();
}

void WriteString(PythonJson& json, absl::string_view key, absl::string_view value) {
  json.Key(key);
  json.String(value);
}

void WritePack(PythonJson& json, const ManifestPack& pack) {
  json.Key(pack.name);
  json.BeginObject();
  WriteString(json, "layout", LayoutName(pack.meta.layout));
  WriteNumbers(json, "shape", std::initializer_list<uint64_t>{pack.meta.rows, pack.meta.cols});
  if (pack.meta.layout == Layout::kMma) {
    WriteNumbers(json, "tiers", pack.meta.tiers);
  } else {
    json.Key("hb");
    json.Number(pack.meta.hb);
  }
  json.Key("tensors");
  json.BeginList();
  for (const PackMember& m : pack.members) {
    json.BeginObject();
    WriteString(json, "name", m.name);
    WriteNumbers(json, "shape", m.shape);
    WriteString(json, "sha256", Hex(m.sha256));
    json.EndObject();
  }
  json.EndList();
  if (pack.experts != 0) {
    json.Key("experts");
    json.Number(pack.experts);
    json.Key("transposed");
    json.Bool(pack.transposed);
  }
  json.EndObject();
}

}  // namespace

absl::string_view FormatName(Layout layout, bool has_experts) {
  return layout == Layout::kMma12 ? "glyd-v3" : has_experts ? "glyd-v2" : "glyd-v1";
}

std::string Manifest::ToJson() const {
  PythonJson json(1);
  json.BeginObject();
  WriteString(json, "format", format);
  WriteString(json, "glyd", version);
  json.Key("source");
  json.BeginObject();
  WriteString(json, "repo", repo);
  json.Key("revision");
  if (revision.has_value())
    json.String(*revision);
  else
    json.Null();
  json.EndObject();
  WriteString(json, "layout", LayoutName(layout));
  json.Key("packs");
  json.BeginObject();
  for (const ManifestPack& pack : packs) WritePack(json, pack);
  json.EndObject();
  if (has_tensors) {
    json.Key("tensors");
    json.BeginObject();
    for (const ManifestTensor& t : tensors) WriteString(json, t.name, Hex(t.sha256));
    json.EndObject();
  }
  json.EndObject();
  return json.Take();
}

}  // namespace glyd
