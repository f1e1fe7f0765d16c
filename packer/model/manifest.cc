#include "packer/model/manifest.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "packer/internal/json.h"
#include "packer/internal/python_json.h"
#include "packer/model/families.h"

namespace glyd {
namespace {

using json::Bad;
namespace sj = json::sj;

absl::StatusOr<std::pair<uint32_t, uint32_t>> ParseVersion(absl::string_view version,
                                                           absl::string_view what) {
  // Digits alone: what converts a number takes spaces and signs, too.
  const std::vector<absl::string_view> parts = absl::StrSplit(version, '.');
  const auto number = [](absl::string_view part, uint32_t* out) {
    return absl::c_all_of(part, absl::ascii_isdigit) && absl::SimpleAtoi(part, out);
  };
  const auto is_word = [](absl::string_view part) {
    return !part.empty() && absl::c_all_of(part, [](char c) {
      return absl::ascii_isalnum(c) || c == '+' || c == '-' || c == '_';
    });
  };
  uint32_t major = 0, minor = 0;
  if (parts.size() < 2 || !number(parts[0], &major) || !number(parts[1], &minor) ||
      !absl::c_all_of(parts, is_word))
    return Bad(
        what, absl::StrCat("version \"", Printable(version), "\" does not start with two numbers"));
  return std::make_pair(major, minor);
}

int HexDigit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

absl::Status ReadDigest(sj::value v, absl::string_view what, Digest* out) {
  std::string hex;
  GLYD_RETURN_IF_ERROR(json::GetString(v, what, &hex));
  bool good = hex.size() == 2 * out->size();
  for (size_t i = 0; good && i < out->size(); ++i) {
    const int high = HexDigit(hex[2 * i]), low = HexDigit(hex[2 * i + 1]);
    good = high >= 0 && low >= 0;
    (*out)[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return good ? absl::OkStatus()
              : Bad(what, absl::StrCat("\"", Printable(hex), "\" is no sha256 in lower-case hex"));
}

// A string that may be a path of any bytes.
absl::Status ReadPath(sj::value v, absl::string_view what, std::string* out) {
  const absl::string_view token = absl::StripAsciiWhitespace(json::View(v.raw_json_token()));
  simdjson::ondemand::raw_json_string taken;
  std::optional<std::string> path = FromPythonString(token);
  if (v.get_raw_json_string().get(taken) || !path.has_value()) return Bad(what, "not a string");
  *out = *std::move(path);
  return absl::OkStatus();
}

absl::Status ReadNumbers(sj::value v, absl::string_view what, std::vector<uint64_t>* out) {
  sj::array array;
  GLYD_RETURN_IF_ERROR(json::GetArray(v, what, &array));
  return json::ForEachElement(
      array, what, [&](sj::value n) { return json::GetUint(n, what, &out->emplace_back()); });
}

absl::Status ReadLayout(sj::value v, absl::string_view what, Layout* out) {
  std::string name;
  GLYD_RETURN_IF_ERROR(json::GetString(v, what, &name));
  const absl::StatusOr<Layout> layout = ParseLayout(name);
  if (!layout.ok()) return Bad(what, layout.status().message());
  *out = *layout;
  return absl::OkStatus();
}

absl::Status ReadMember(sj::value v, absl::string_view what, PackMember* m) {
  sj::object object;
  GLYD_RETURN_IF_ERROR(json::GetObject(v, what, &object));
  unsigned seen = 0;
  GLYD_RETURN_IF_ERROR(
      json::ForEachField(object, what, [&](absl::string_view key, sj::value value) -> absl::Status {
        const std::string place = absl::StrCat(what, ": ", Printable(key));
        if (key == "name") {
          seen |= 1;
          return json::GetString(value, place, &m->name);
        }
        if (key == "shape") {
          seen |= 2;
          return ReadNumbers(value, place, &m->shape);
        }
        if (key == "sha256") {
          seen |= 4;
          return ReadDigest(value, place, &m->sha256);
        }
        return Bad(place, "unknown key");
      }));
  return seen == 7 ? absl::OkStatus() : Bad(what, "needs name, shape and sha256");
}

std::string ShapeText(const std::vector<uint64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Whether the members are those that a pack of this name may have: its weight, the whole of a
// merged group, or itself.
bool HasItsOwnMembers(const ManifestPack& pack) {
  if (pack.members.size() == 1) {
    const std::string& name = pack.members[0].name;
    return name == pack.name || (pack.experts == 0 && name == absl::StrCat(pack.name, ".weight"));
  }
  for (const auto group : MergedGroups()) {
    absl::string_view prefix = pack.name;
    if (pack.members.size() != group.size() || !absl::ConsumeSuffix(&prefix, group[0])) continue;
    bool all = true;
    for (size_t i = 0; i < group.size(); ++i)
      all = all && pack.members[i].name == absl::StrCat(prefix, group[i], ".weight");
    if (all) return true;
  }
  return false;
}

// The members' rows are the pack's.
absl::Status CheckMemberShapes(const ManifestPack& pack, absl::string_view what) {
  const PackMeta& meta = pack.meta;
  if (pack.experts != 0) {
    std::vector<uint64_t> want = {pack.experts, meta.rows / pack.experts, meta.cols};
    if (pack.transposed) std::swap(want[1], want[2]);
    if (meta.rows % pack.experts != 0 || pack.members[0].shape != want)
      return Bad(what, absl::StrCat("tensor of shape ", ShapeText(pack.members[0].shape), ", ",
                                    pack.experts, " experts of a matrix [", meta.rows, ", ",
                                    meta.cols, "] have ", ShapeText(want)));
    const uint64_t rows = meta.rows / pack.experts;
    const absl::Status shape = CheckShape(rows, meta.cols);
    return shape.ok() ? shape : Bad(what, absl::StrCat("an expert's shape: ", shape.message()));
  }
  uint64_t rows = 0;
  for (const PackMember& m : pack.members) {
    if (m.shape.size() != 2 || m.shape[1] != meta.cols || m.shape[0] % kStepRows != 0 ||
        !CheckedAdd(rows, m.shape[0], &rows))
      return Bad(what,
                 absl::StrCat("tensor \"", Printable(m.name), "\" of shape ", ShapeText(m.shape),
                              " is no rows of a matrix [", meta.rows, ", ", meta.cols, "]"));
  }
  if (rows != meta.rows)
    return Bad(what, absl::StrCat("its tensors have ", rows, " rows, its shape has ", meta.rows));
  return absl::OkStatus();
}

absl::Status CheckPackEntry(const ManifestPack& pack, absl::string_view what) {
  if (const absl::Status s = CheckShape(pack.meta.rows, pack.meta.cols); !s.ok())
    return Bad(what, absl::StrCat("shape: ", s.message()));
  if (!HasItsOwnMembers(pack)) {
    std::vector<std::string> names;
    for (const PackMember& m : pack.members) names.push_back(Printable(m.name));
    return Bad(what, absl::StrCat("its tensors are not its own: ", absl::StrJoin(names, ", ")));
  }
  return CheckMemberShapes(pack, what);
}

class Parser {
 public:
  explicit Parser(absl::string_view shown) : shown_(shown) {}

  absl::StatusOr<Manifest> Run(std::string json) {
    GLYD_RETURN_IF_ERROR(json::ParseObject(
        json, shown_, [&](absl::string_view key, sj::value v) { return ReadKey(key, v); }));
    static constexpr absl::string_view kNeeded[] = {"format", "glyd", "source", "layout", "packs"};
    for (absl::string_view key : kNeeded)
      if (!seen_.contains(key)) return Bad(shown_, absl::StrCat("no \"", key, "\""));
    GLYD_ASSIGN_OR_RETURN(const auto version,
                          ParseVersion(m_.version, absl::StrCat(shown_, ": glyd")));
    const bool newer = version > std::make_pair(0u, 25u);
    for (const std::string& key : unknown_) {
      if (!newer)
        return Bad(shown_, absl::StrCat("unknown key ", key, " in a save of version ",
                                        Printable(m_.version)));
      m_.notes.push_back(absl::StrCat(shown_, ": key ", key, " of version ", Printable(m_.version),
                                      " is skipped"));
    }
    // What versions before this one wrote there is not known here.
    if (version >= std::make_pair(0u, 25u)) {
      GLYD_RETURN_IF_ERROR(CheckSource());
      if (!incomplete_.empty()) return absl::DataLossError(incomplete_[0]);
    }
    GLYD_RETURN_IF_ERROR(CheckFormat());
    m_.has_tensors = seen_.contains("tensors");
    if (!m_.has_tensors && (m_.format == "glyd-v3" || version >= std::make_pair(0u, 25u)))
      return Bad(shown_, absl::StrCat("no \"tensors\", which a save of format ", m_.format,
                                      " and version ", Printable(m_.version), " has"));
    GLYD_RETURN_IF_ERROR(CheckNamesOnce());
    return std::move(m_);
  }

 private:
  absl::Status ReadKey(absl::string_view key, sj::value v) {
    const std::string what = absl::StrCat(shown_, ": ", Printable(key));
    seen_.insert(std::string(key));
    if (key == "format") return json::GetString(v, what, &m_.format);
    if (key == "glyd") return json::GetString(v, absl::StrCat(what, " (the version)"), &m_.version);
    if (key == "layout") return ReadLayout(v, what, &m_.layout);
    if (key != "source" && key != "packs" && key != "tensors") {
      unknown_.push_back(absl::StrCat("\"", Printable(key), "\""));
      return absl::OkStatus();
    }
    sj::object object;
    GLYD_RETURN_IF_ERROR(json::GetObject(v, what, &object));
    return json::ForEachField(
        object, what, [&](absl::string_view name, sj::value value) -> absl::Status {
          const std::string place = absl::StrCat(what, ": \"", Printable(name), "\"");
          if (key == "source") return ReadSource(name, value, place);
          if (key == "tensors") {
            ManifestTensor& t = m_.tensors.emplace_back();
            t.name = std::string(name);
            return ReadDigest(value, place, &t.sha256);
          }
          ManifestPack& pack = m_.packs.emplace_back();
          pack.name = std::string(name);
          return ReadPack(value, place, &pack);
        });
  }

  absl::Status ReadSource(absl::string_view key, sj::value v, absl::string_view what) {
    if (key == "repo") {
      has_repo_ = true;
      return ReadPath(v, what, &m_.repo);
    }
    if (key != "revision") {
      unknown_.push_back(absl::StrCat("\"source\": \"", Printable(key), "\""));
      return absl::OkStatus();
    }
    has_revision_ = true;
    if (json::IsNull(v)) return absl::OkStatus();
    return json::GetString(v, what, &m_.revision.emplace());
  }

  absl::Status ReadPack(sj::value v, absl::string_view what, ManifestPack* pack) {
    sj::object object;
    GLYD_RETURN_IF_ERROR(json::GetObject(v, what, &object));
    bool has_layout = false, has_hb = false, has_transposed = false;
    std::vector<uint64_t> shape, tiers;
    GLYD_RETURN_IF_ERROR(json::ForEachField(
        object, what, [&](absl::string_view key, sj::value value) -> absl::Status {
          const std::string place = absl::StrCat(what, ": ", Printable(key));
          if (key == "layout") {
            has_layout = true;
            return ReadLayout(value, place, &pack->meta.layout);
          }
          if (key == "shape") return ReadNumbers(value, place, &shape);
          if (key == "tiers") return ReadNumbers(value, place, &tiers);
          if (key == "transposed") {
            has_transposed = true;
            return json::GetBool(value, place, &pack->transposed);
          }
          if (key == "experts") {
            GLYD_RETURN_IF_ERROR(json::GetUint(value, place, &pack->experts));
            return pack->experts == 0 ? Bad(place, "0 experts") : absl::OkStatus();
          }
          if (key == "hb") {
            uint64_t hb = 0;
            has_hb = true;
            GLYD_RETURN_IF_ERROR(json::GetUint(value, place, &hb));
            if (hb > 120) return Bad(place, absl::StrCat(hb, " is over 120"));
            pack->meta.hb = static_cast<uint32_t>(hb);
            return absl::OkStatus();
          }
          if (key == "tensors") {
            sj::array list;
            GLYD_RETURN_IF_ERROR(json::GetArray(value, place, &list));
            return json::ForEachElement(list, place, [&](sj::value member) {
              return ReadMember(member, place, &pack->members.emplace_back());
            });
          }
          unknown_.push_back(
              absl::StrCat("\"", Printable(pack->name), "\": \"", Printable(key), "\""));
          return absl::OkStatus();
        }));
    if (!has_layout) return Bad(what, "no layout");
    if (shape.size() != 2)
      return Bad(what, absl::StrCat("shape has ", shape.size(), " numbers, needs 2"));
    pack->meta.rows = shape[0];
    pack->meta.cols = shape[1];
    if (pack->meta.layout == Layout::kMma12 && !has_hb) return Bad(what, "no hb");
    if (pack->meta.layout == Layout::kMma) {
      if (tiers.size() != 3)
        return Bad(what, absl::StrCat("tiers has ", tiers.size(), " numbers, needs 3"));
      for (size_t i = 0; i < 3; ++i) {
        if (tiers[i] > UINT32_MAX || tiers[i] >> 24 != 0xFF)
          return Bad(what, absl::StrCat("tiers: ", tiers[i],
                                        " is no 32-bit word of 0xFF and three exponents"));
        pack->meta.tiers[i] = static_cast<uint32_t>(tiers[i]);
      }
    }
    if (pack->transposed && pack->experts == 0) return Bad(what, "transposed and no experts");
    if (pack->experts != 0 && !has_transposed)
      incomplete_.push_back(absl::StrCat(what, ": experts and no transposed"));
    return CheckPackEntry(*pack, what);
  }

  absl::Status CheckSource() const {
    const std::string what = absl::StrCat(shown_, ": source");
    if (!has_repo_ || !has_revision_) return Bad(what, "needs repo and revision");
    if (!m_.revision.has_value()) return absl::OkStatus();
    const std::string& r = *m_.revision;
    if (r.size() == 40 && absl::c_all_of(r, [](char c) { return HexDigit(c) >= 0; }))
      return absl::OkStatus();
    return Bad(what, absl::StrCat("revision \"", Printable(r), "\" is no commit of 40 hex digits"));
  }

  absl::Status CheckFormat() const {
    bool experts = false;
    for (const ManifestPack& p : m_.packs) {
      experts = experts || p.experts != 0;
      if (p.meta.layout != m_.layout)
        return Bad(shown_, absl::StrCat("pack \"", Printable(p.name), "\" has layout ",
                                        LayoutName(p.meta.layout), ", the save has ",
                                        LayoutName(m_.layout)));
    }
    const absl::string_view want = FormatName(m_.layout, experts);
    if (m_.format != want)
      return Bad(shown_, absl::StrCat("format \"", Printable(m_.format), "\", a save of layout ",
                                      LayoutName(m_.layout), experts ? " with" : " without",
                                      " experts has ", want));
    return absl::OkStatus();
  }

  // A tensor is in one pack, or saved as it is.
  absl::Status CheckNamesOnce() const {
    absl::flat_hash_set<absl::string_view> names;
    for (const ManifestTensor& t : m_.tensors) names.insert(t.name);
    for (const ManifestPack& p : m_.packs)
      for (const PackMember& m : p.members)
        if (!names.insert(m.name).second)
          return Bad(shown_,
                     absl::StrCat("pack \"", Printable(p.name), "\": tensor \"", Printable(m.name),
                                  "\" is in another pack or saved as it is, too"));
    return absl::OkStatus();
  }

  const std::string shown_;
  Manifest m_;
  absl::flat_hash_set<std::string> seen_;
  std::vector<std::string> unknown_;
  bool has_repo_ = false, has_revision_ = false;
  std::vector<std::string> incomplete_;  // packs without all that a save of this version has
};

}  // namespace

absl::StatusOr<Manifest> Manifest::Parse(std::string json, absl::string_view shown) {
  return Parser(shown).Run(std::move(json));
}

}  // namespace glyd
