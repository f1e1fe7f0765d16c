#include "packer/safetensors/header.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "packer/internal/json.h"
#include "packer/internal/looks_like.h"
#include "packer/safetensors/dtype.h"

namespace glyd {
namespace {

using json::Bad;

// Text to text, or null: what the format allows for "__metadata__".
absl::Status CheckMetadata(json::sj::value value, absl::string_view shown) {
  if (json::IsNull(value)) return absl::OkStatus();
  const std::string what = absl::StrCat(shown, ": __metadata__");
  json::sj::object object;
  GLYD_RETURN_IF_ERROR(json::GetObject(value, what, &object));
  return json::ForEachField(object, what, [&](absl::string_view, json::sj::value v) {
    std::string_view text;
    return v.get_string().get(text) ? Bad(what, "a value that is not a string") : absl::OkStatus();
  });
}

absl::Status ReadNumbers(json::sj::value value, absl::string_view what,
                         std::vector<uint64_t>* out) {
  json::sj::array array;
  GLYD_RETURN_IF_ERROR(json::GetArray(value, what, &array));
  return json::ForEachElement(
      array, what, [&](json::sj::value v) { return json::GetUint(v, what, &out->emplace_back()); });
}

// One tensor's entry; `offset` is from the data's start still, `bytes` is what the offsets say.
absl::Status ParseTensor(json::sj::value value, absl::string_view what, StoredTensor* t) {
  json::sj::object object;
  GLYD_RETURN_IF_ERROR(json::GetObject(value, what, &object));
  std::vector<uint64_t> offsets;
  unsigned seen = 0;
  GLYD_RETURN_IF_ERROR(json::ForEachField(
      object, what, [&](absl::string_view key, json::sj::value v) -> absl::Status {
        if (key == "dtype") {
          seen |= 1;
          return json::GetString(v, absl::StrCat(what, ": dtype"), &t->dtype);
        }
        if (key == "shape") {
          seen |= 2;
          return ReadNumbers(v, absl::StrCat(what, ": shape"), &t->shape);
        }
        if (key == "data_offsets") {
          seen |= 4;
          return ReadNumbers(v, absl::StrCat(what, ": data_offsets"), &offsets);
        }
        return Bad(what, absl::StrCat("unknown key \"", Printable(key), "\""));
      }));
  if (seen != 7) return Bad(what, "needs dtype, shape and data_offsets");
  if (offsets.size() != 2)
    return Bad(what, absl::StrCat("data_offsets has ", offsets.size(), " numbers, needs 2"));
  if (offsets[1] < offsets[0])
    return Bad(what, absl::StrCat("data ends at ", offsets[1], ", before its start ", offsets[0]));
  t->offset = offsets[0];
  t->bytes = offsets[1] - offsets[0];
  const absl::StatusOr<uint64_t> bytes = TensorBytes(t->dtype, t->shape);
  if (!bytes.ok()) return Bad(what, bytes.status().message());
  if (*bytes != t->bytes)
    return Bad(what, absl::StrCat("dtype and shape take ", *bytes, " bytes, data_offsets have ",
                                  t->bytes));
  return absl::OkStatus();
}

// Back to back, from the data's start to the file's end.
absl::Status PlaceTensors(uint64_t data_start, uint64_t file_bytes, absl::string_view shown,
                          std::vector<StoredTensor>* tensors) {
  std::sort(tensors->begin(), tensors->end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  const uint64_t data_bytes = file_bytes - data_start;
  uint64_t at = 0;
  for (StoredTensor& t : *tensors) {
    if (t.offset != at)
      return Bad(shown, absl::StrCat("tensor \"", Printable(t.name), "\" starts at ", t.offset,
                                     " of the data, the one before it ends at ", at));
    // at <= data_bytes here, so the difference does not wrap.
    if (t.bytes > data_bytes - at)
      return Bad(shown, absl::StrCat("tensor \"", Printable(t.name), "\" takes ", t.bytes,
                                     " bytes at ", at, " of the data, the file has ", data_bytes,
                                     " bytes of data: cut short"));
    at += t.bytes;
    t.offset += data_start;
  }
  if (at != data_bytes)
    return Bad(shown, absl::StrCat("the tensors end at ", at, " of the data, the file has ",
                                   data_bytes, " bytes of data"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> TensorBytes(absl::string_view dtype, const std::vector<uint64_t>& shape) {
  const DtypeInfo* info = FindDtype(dtype);
  if (info == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("unknown dtype \"", Printable(dtype), "\""));
  // The product without zeros must fit too: whoever multiplies in another order meets it.
  uint64_t bits = info->bits;
  bool empty = false;
  for (uint64_t n : shape) {
    if (n == 0)
      empty = true;
    else if (!CheckedMul(bits, n, &bits))
      return absl::InvalidArgumentError("shape takes more than 2^64 bits");
  }
  if (empty) return 0;
  if (bits % 8 != 0)
    return absl::InvalidArgumentError(
        absl::StrCat("shape takes ", bits, " bits, no whole number of bytes"));
  return bits / 8;
}

absl::StatusOr<std::vector<StoredTensor>> ParseHeader(std::string json, uint64_t data_start,
                                                      uint64_t file_bytes,
                                                      absl::string_view shown) {
  if (data_start > file_bytes)
    return Bad(shown,
               absl::StrCat("data starts at ", data_start, ", file has ", file_bytes, " bytes"));
  if (json.empty() || json[0] != '{') return Bad(shown, "the header does not start with '{'");
  std::vector<StoredTensor> tensors;
  GLYD_RETURN_IF_ERROR(json::ParseObject(
      json, absl::StrCat(shown, ": header"),
      [&](absl::string_view key, json::sj::value v) -> absl::Status {
        if (key == "__metadata__") return CheckMetadata(v, shown);
        StoredTensor& t = tensors.emplace_back();
        t.name = std::string(key);
        return ParseTensor(v, absl::StrCat(shown, ": tensor \"", Printable(key), "\""), &t);
      }));
  GLYD_RETURN_IF_ERROR(PlaceTensors(data_start, file_bytes, shown, &tensors));
  return tensors;
}

absl::StatusOr<std::vector<StoredTensor>> ReadHeader(int fd, uint64_t file_bytes,
                                                     absl::string_view shown) {
  char head[64];
  const uint64_t have = std::min<uint64_t>(file_bytes, sizeof head);
  GLYD_RETURN_IF_ERROR(PreadFull(fd, head, have, 0, shown));
  const uint64_t length = have < 8 ? 0 : LoadLe64(head);
  // A header's length may have any of the bytes that other files start with; what follows is JSON.
  if (have <= 8 || length > kMaxHeaderBytes || head[8] != '{')
    if (const absl::string_view kind = LooksLike({head, have}); !kind.empty())
      return Bad(shown, absl::StrCat("not a safetensors file: looks like ", kind));
  if (have < 8)
    return Bad(shown, absl::StrCat("not a safetensors file: ", file_bytes,
                                   " bytes, 8 at least are needed"));
  if (length > kMaxHeaderBytes)
    return Bad(shown, absl::StrCat("header of ", length, " bytes, at most ", kMaxHeaderBytes,
                                   " are read"));
  if (length > file_bytes - 8)
    return Bad(shown, absl::StrCat("header of ", length, " bytes, the file has ", file_bytes - 8,
                                   " bytes after its length"));
  std::string json;
  json.reserve(length + simdjson::SIMDJSON_PADDING);
  json.resize(length);
  GLYD_RETURN_IF_ERROR(PreadFull(fd, json.data(), length, 8, shown));
  return ParseHeader(std::move(json), 8 + length, file_bytes, shown);
}

}  // namespace glyd
