#include "client/cli/bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "client/cli/interrupt.h"
#include "client/cli/text.h"

namespace glyd::cli {
namespace {

constexpr absl::Duration kRedraw = absl::Milliseconds(100);
constexpr absl::Duration kLine = absl::Seconds(5);
constexpr size_t kBlocks = 20;
constexpr size_t kPlainWidth = 200;  // where there is no terminal

size_t TerminalWidth() {
  winsize w;
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &w) != 0 || w.ws_col == 0) return 80;
  return w.ws_col;
}

}  // namespace

std::string BarLine(const BarState& s, size_t width) {
  std::string line = Printable(s.phase);
  if (s.total > 0) {
    const double part = std::min(1.0, static_cast<double>(s.done) / static_cast<double>(s.total));
    const size_t full = static_cast<size_t>(part * kBlocks);
    if (width >= 80)
      absl::StrAppend(&line, " [", std::string(full, '#'), std::string(kBlocks - full, '.'), "]");
    absl::StrAppendFormat(&line, " %3d%% %s of %s", static_cast<int>(part * 100),
                          HumanBytes(s.done), HumanBytes(s.total));
  } else if (s.done > 0) {
    absl::StrAppend(&line, " ", HumanBytes(s.done));
  }
  if (s.bytes_per_second >= 1) {
    absl::StrAppend(&line, ", ", HumanBytes(static_cast<uint64_t>(s.bytes_per_second)), "/s");
    if (s.total > s.done)
      absl::StrAppend(&line, ", ", WholeSeconds(std::ceil((s.total - s.done) / s.bytes_per_second)),
                      " left");
  }
  if (!s.item.empty()) absl::StrAppend(&line, "  ", Printable(s.item));
  return Cut(line, width);
}

Bar::Bar(bool quiet)
    : quiet_(quiet), terminal_(::isatty(STDERR_FILENO) == 1), phase_began_(absl::Now()) {
  if (!quiet_) thread_ = std::thread(&Bar::Run, this);
}

Bar::~Bar() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Bar::Run() {
  absl::MutexLock lock(&mutex_);
  while (!mutex_.AwaitWithTimeout(absl::Condition(&stop_), terminal_ ? kRedraw : kLine)) Draw();
  Clear();
}

void Bar::Draw() {
  if (state_.phase.empty()) return;
  BarState s = state_;
  const double seconds = absl::ToDoubleSeconds(absl::Now() - phase_began_);
  if (!rate_is_told_ && seconds > 0.2) s.bytes_per_second = static_cast<double>(s.done) / seconds;
  if (terminal_) {
    // One column stays free: a full last line wraps on some terminals.
    std::fprintf(stderr, "\r\033[K%s", BarLine(s, TerminalWidth() - 1).c_str());
  } else {
    std::fprintf(stderr, "%s\n", BarLine(s, kPlainWidth).c_str());
  }
  std::fflush(stderr);
  drawn_ = true;
}

void Bar::Clear() {
  if (!terminal_ || !drawn_) return;
  std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

void Bar::Phase(absl::string_view name, uint64_t total_bytes) {
  absl::MutexLock lock(&mutex_);
  state_ = {};
  state_.phase = std::string(name);
  state_.total = total_bytes;
  phase_began_ = absl::Now();
}

void Bar::Advance(uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  state_.done += bytes;
}

void Bar::Item(absl::string_view name) {
  absl::MutexLock lock(&mutex_);
  state_.item = std::string(name);
}

void Bar::Note(absl::string_view text) {
  if (quiet_) return;
  absl::MutexLock lock(&mutex_);
  Clear();
  std::fprintf(stderr, "note: %s\n", Printable(text, 1000).c_str());
}

bool Bar::cancelled() const { return NotedSignal() != 0; }

void Bar::Set(BarState state) {
  absl::MutexLock lock(&mutex_);
  rate_is_told_ = true;
  state_ = std::move(state);
}

}  // namespace glyd::cli
