#include "client/cli/text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"

namespace glyd::cli {
namespace {

bool Continues(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

}  // namespace

size_t Columns(absl::string_view text) {
  return text.size() - static_cast<size_t>(std::count_if(text.begin(), text.end(), Continues));
}

std::string Cut(absl::string_view text, size_t width) {
  if (Columns(text) <= width) return std::string(text);
  const size_t keep = width > 3 ? width - 3 : width;
  size_t bytes = 0;
  for (size_t columns = 0; bytes < text.size(); ++bytes) {
    if (Continues(text[bytes])) continue;
    if (columns == keep) break;
    ++columns;
  }
  return absl::StrCat(text.substr(0, bytes), width > 3 ? "..." : "");
}

std::string HumanSeconds(double seconds) {
  if (seconds < 0.001) return absl::StrFormat("%.0f us", seconds * 1e6);
  if (seconds < 0.1) return absl::StrFormat("%.1f ms", seconds * 1e3);
  if (seconds < 10) return absl::StrFormat("%.2f s", seconds);
  return WholeSeconds(seconds);
}

std::string WholeSeconds(double seconds) {
  const auto s = static_cast<uint64_t>(std::llround(std::clamp(seconds, 0.0, 1e15)));
  if (s < 60) return absl::StrCat(s, " s");
  if (s < 3600) return absl::StrCat(s / 60, " min ", s % 60, " s");
  if (s < 86400) return absl::StrCat(s / 3600, " h ", s / 60 % 60, " min");
  return absl::StrCat(s / 86400, " d ", s / 3600 % 24, " h");
}

std::string HumanAge(absl::Time then, absl::Time now) {
  return then == absl::InfinitePast() ? "-"
                                      : WholeSeconds(std::floor(absl::ToDoubleSeconds(now - then)));
}

std::string HumanRate(uint64_t bytes, absl::Duration took) {
  const double seconds = std::max(absl::ToDoubleSeconds(took), 1e-9);
  return absl::StrCat(HumanBytes(static_cast<uint64_t>(static_cast<double>(bytes) / seconds)),
                      "/s");
}

std::string Shape(absl::Span<const uint64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

std::string OneLine(absl::string_view message) {
  std::string out(message);
  for (char& c : out)
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = '?';
  return out;
}

std::string Plural(uint64_t n, absl::string_view noun) {
  return absl::StrCat(n, " ", noun, n == 1 ? "" : "s");
}

std::string TextTable::Text() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = Columns(columns_[c].name);
    for (const auto& row : rows_) width = std::max(width, Columns(row[c]));
    widths.push_back(width);
  }
  std::string out;
  const auto add = [&](size_t c, absl::string_view cell) {
    const std::string space(widths[c] - Columns(cell), ' ');
    if (columns_[c].align == kRight) {
      absl::StrAppend(&out, space, cell);
    } else {
      absl::StrAppend(&out, cell, space);
    }
    absl::StrAppend(&out, "  ");
  };
  const auto end = [&] {
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  };
  for (size_t c = 0; c < columns_.size(); ++c) add(c, columns_[c].name);
  end();
  for (const auto& row : rows_) {
    for (size_t c = 0; c < columns_.size(); ++c) add(c, row[c]);
    end();
  }
  return out;
}

}  // namespace glyd::cli
