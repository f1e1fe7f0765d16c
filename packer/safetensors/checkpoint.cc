#include "packer/safetensors/checkpoint.h"

#include <errno.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "packer/internal/json.h"
#include "packer/internal/looks_like.h"
#include "packer/internal/text.h"

namespace glyd {
namespace {

using WeightMap = std::vector<std::pair<std::string, std::string>>;

int64_t MtimeNs(const struct stat& st) {
  return int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec;
}

bool IsPlainFileName(absl::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find('/') == absl::string_view::npos && name.find('\0') == absl::string_view::npos;
}

absl::StatusOr<TensorFile> OpenTensorFile(const Dir& dir, absl::string_view name) {
  TensorFile f;
  f.name = std::string(name);
  f.shown = Printable(absl::StrCat(dir.name(), "/", name), 4096);
  GLYD_ASSIGN_OR_RETURN(f.opened, dir.OpenFile(name));
  struct stat st;
  if (::fstat(f.opened.fd.get(), &st) != 0) return ErrnoStatus(errno, f.shown);
  f.mtime_ns = MtimeNs(st);
  return f;
}

// What else a directory without weights of the right name has of weights, and what it is.
std::vector<std::string> OtherWeights(const Dir& dir, const std::vector<std::string>& names) {
  static constexpr absl::string_view kEnds[] = {".safetensors", ".bin",  ".pt", ".pth",
                                                ".ckpt",        ".gguf", ".h5", ".zip"};
  std::vector<std::string> other;
  for (const std::string& n : names) {
    if (absl::c_none_of(kEnds, [&](absl::string_view end) { return absl::EndsWith(n, end); }))
      continue;
    const absl::StatusOr<OpenedFile> file = dir.OpenFile(n);
    const absl::string_view kind = file.ok() ? LooksLike(file->fd.get()) : "";
    other.push_back(kind.empty() || absl::EndsWith(n, ".safetensors")
                        ? Printable(n)
                        : absl::StrCat(Printable(n), " (", kind, ")"));
  }
  return other;
}

// The index and the shards must say the same of every tensor.
absl::Status CompareWithIndex(const WeightMap& map, const Checkpoint& c, absl::string_view shown) {
  std::vector<std::string> lacking, unnamed;
  for (const auto& [tensor, file] : map) {
    const StoredTensor* t = c.Find(tensor);
    if (t == nullptr || c.files()[t->file].name != file)
      lacking.push_back(absl::StrCat("\"", Printable(tensor), "\" in ", Printable(file)));
  }
  if (map.size() - lacking.size() != c.tensors().size()) {
    absl::flat_hash_map<absl::string_view, absl::string_view> named;
    for (const auto& [tensor, file] : map) named[tensor] = file;
    for (const StoredTensor& t : c.tensors()) {
      const auto it = named.find(t.name);
      if (it == named.end() || it->second != c.files()[t.file].name)
        unnamed.push_back(
            absl::StrCat("\"", Printable(t.name), "\" in ", Printable(c.files()[t.file].name)));
    }
  }
  if (lacking.empty() && unnamed.empty()) return absl::OkStatus();
  std::string text = absl::StrCat(shown, ": the index does not fit its shards");
  if (!lacking.empty())
    absl::StrAppend(&text, "; named there and not in that shard: ", ListSome(lacking));
  if (!unnamed.empty())
    absl::StrAppend(&text, "; in a shard and not named there: ", ListSome(unnamed));
  return absl::DataLossError(text);
}

}  // namespace

absl::StatusOr<WeightMap> ParseIndex(std::string json, absl::string_view shown) {
  WeightMap map;
  bool found = false;
  GLYD_RETURN_IF_ERROR(
      json::ParseObject(json, shown, [&](absl::string_view key, json::sj::value v) -> absl::Status {
        if (key != "weight_map") return absl::OkStatus();
        found = true;
        const std::string what = absl::StrCat(shown, ": weight_map");
        json::sj::object object;
        GLYD_RETURN_IF_ERROR(json::GetObject(v, what, &object));
        return json::ForEachField(
            object, what, [&](absl::string_view tensor, json::sj::value file) -> absl::Status {
              auto& entry = map.emplace_back(std::string(tensor), "");
              const std::string place = absl::StrCat(what, ": \"", Printable(tensor), "\"");
              GLYD_RETURN_IF_ERROR(json::GetString(file, place, &entry.second));
              if (IsPlainFileName(entry.second)) return absl::OkStatus();
              return json::Bad(place, absl::StrCat("\"", Printable(entry.second),
                                                   "\" is not a plain file name"));
            });
      }));
  if (!found) return json::Bad(shown, "no weight_map");
  return map;
}

absl::StatusOr<WeightMap> ReadIndex(const Dir& dir, absl::string_view name) {
  const std::string shown = Printable(absl::StrCat(dir.name(), "/", name), 4096);
  GLYD_ASSIGN_OR_RETURN(const OpenedFile index, dir.OpenFile(name));
  GLYD_ASSIGN_OR_RETURN(std::string json, ReadJson(index.fd.get(), kMaxJsonBytes, shown));
  return ParseIndex(std::move(json), shown);
}

absl::Status Checkpoint::Add(TensorFile file) {
  GLYD_ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors,
                        ReadHeader(file.opened.fd.get(), file.opened.size, file.shown));
  for (StoredTensor& t : tensors) {
    t.file = files_.size();
    const auto [it, added] = by_name_.emplace(t.name, tensors_.size());
    if (!added)
      return absl::DataLossError(absl::StrCat(
          "tensor \"", Printable(t.name),
          "\" is in two files: ", files_[tensors_[it->second].file].shown, " and ", file.shown));
    tensors_.push_back(std::move(t));
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> Checkpoint::OpenFile(const Dir& dir, absl::string_view name) {
  Checkpoint c;
  GLYD_ASSIGN_OR_RETURN(TensorFile file, OpenTensorFile(dir, name));
  GLYD_RETURN_IF_ERROR(c.Add(std::move(file)));
  return c;
}

absl::StatusOr<Checkpoint> Checkpoint::Open(const Dir& dir) {
  GLYD_ASSIGN_OR_RETURN(const std::vector<std::string> names, dir.List());
  const std::string shown_dir = Printable(dir.name(), 4096);
  const auto listed = [&](absl::string_view n) {
    return std::binary_search(names.begin(), names.end(), n);
  };
  Checkpoint c;
  absl::btree_set<std::string> used;
  if (listed(kIndexFile)) {
    const std::string shown = absl::StrCat(shown_dir, "/", kIndexFile);
    GLYD_ASSIGN_OR_RETURN(const WeightMap map, ReadIndex(dir, kIndexFile));
    for (const auto& [tensor, file] : map) used.insert(file);
    std::vector<TensorFile> shards;
    std::vector<std::string> missing;
    for (const std::string& file : used) {
      absl::StatusOr<TensorFile> shard = OpenTensorFile(dir, file);
      if (absl::IsNotFound(shard.status()))
        missing.push_back(Printable(file));
      else if (!shard.ok())
        return shard.status();
      else
        shards.push_back(*std::move(shard));
    }
    if (!missing.empty())
      return absl::NotFoundError(absl::StrCat(shown, ": ", missing.size(), " of ", used.size(),
                                              " shards are not there: ", ListSome(missing, 1000)));
    for (TensorFile& shard : shards) GLYD_RETURN_IF_ERROR(c.Add(std::move(shard)));
    GLYD_RETURN_IF_ERROR(CompareWithIndex(map, c, shown));
  } else if (listed(kSingleFile)) {
    used.insert(kSingleFile);
    GLYD_ASSIGN_OR_RETURN(TensorFile file, OpenTensorFile(dir, kSingleFile));
    GLYD_RETURN_IF_ERROR(c.Add(std::move(file)));
  } else {
    const std::vector<std::string> other = OtherWeights(dir, names);
    std::string text = absl::StrCat(shown_dir, ": neither ", kSingleFile, " nor ", kIndexFile);
    if (!other.empty()) absl::StrAppend(&text, "; there are ", ListSome(other));
    return absl::NotFoundError(text);
  }
  for (const std::string& n : names)
    if (absl::EndsWith(n, ".safetensors") && used.count(n) == 0)
      c.notes_.push_back(absl::StrCat(
          shown_dir, "/", Printable(n), ": ignored: ",
          listed(kIndexFile) ? "the index does not name it" : "model.safetensors is the model"));
  return c;
}

const StoredTensor* Checkpoint::Find(absl::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

absl::Status Checkpoint::CheckUnchanged() const {
  for (const TensorFile& f : files_) {
    struct stat st;
    if (::fstat(f.opened.fd.get(), &st) != 0) return ErrnoStatus(errno, f.shown);
    if (static_cast<uint64_t>(st.st_size) != f.opened.size)
      return absl::FailedPreconditionError(
          absl::StrCat(f.shown, ": size changed while it was read: ", f.opened.size,
                       " bytes at first, now ", st.st_size));
    if (MtimeNs(st) != f.mtime_ns)
      return absl::FailedPreconditionError(absl::StrCat(f.shown, ": written to while it was read"));
  }
  return absl::OkStatus();
}

}  // namespace glyd
