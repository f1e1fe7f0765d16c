#ifndef GLYD_CLIENT_CLI_TEXT_H_
#define GLYD_CLIENT_CLI_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace glyd::cli {

// Columns that a terminal gives to UTF-8 text, each character counted as one.
size_t Columns(absl::string_view text);
// The front of `text` that fits in `width` columns, "..." at its end where something is left out.
std::string Cut(absl::string_view text, size_t width);

std::string HumanSeconds(double seconds);  // "310 us", "12.3 ms", "0.31 s", then as WholeSeconds
std::string WholeSeconds(double seconds);  // "12 s", "3 min 20 s", "2 h 5 min", "4 d 3 h"
std::string HumanAge(absl::Time then, absl::Time now);       // "-" for a time that has not come
std::string HumanRate(uint64_t bytes, absl::Duration took);  // "310.2 MB/s"
std::string Shape(absl::Span<const uint64_t> shape);         // "[576, 576]"
// A message of the daemon's, which is printable already, as one line: control characters that it
// should not have become "?". Printable would escape its quotes again.
std::string OneLine(absl::string_view message);
std::string Plural(uint64_t n, absl::string_view noun);  // "1 tensor", "2 tensors"

// Rows of cells under a header, columns aligned: numbers to the right. Cells are printed as they
// are: what comes from files goes through Printable first.
class TextTable {
 public:
  enum Align { kLeft, kRight };
  struct Column {
    std::string name;
    Align align = kLeft;
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // As many cells as there are columns.
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string Text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace glyd::cli

#endif  // GLYD_CLIENT_CLI_TEXT_H_
