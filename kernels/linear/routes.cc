#include "kernels/linear/routes.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace glyd {
namespace {

constexpr int64_t kNever = INT64_MAX;  // as a first M: no M is past it, itself neither
constexpr int64_t kStepMax = 64;       // the most rows of x that the step kernel takes
constexpr int64_t kTileCols = 64;      // K of every kernel but the step kernel and decode

// The first M of each route past the step kernel's, one row a GPU.
struct GpuRoutes {
  int64_t gpu;
  int64_t mid_max;              // mma12: last M of kMid; 0: none
  int64_t decode[2], ahead[2];  // mma, mma12
};
constexpr GpuRoutes kGpus[] = {
    {80, 128, {kNever, 769}, {kNever, kNever}},   {86, 64, {kNever, kNever}, {kNever, kNever}},
    {87, 64, {kNever, kNever}, {kNever, kNever}}, {89, 64, {kNever, kNever}, {kNever, kNever}},
    {90, 0, {65, 65}, {kNever, kNever}},          {1089, 64, {kNever, kNever}, {513, 1793}},
    {2086, 64, {kNever, kNever}, {512, 640}},
};
constexpr GpuRoutes kOther = {0, 0, {kNever, kNever}, {kNever, kNever}};

const GpuRoutes& RoutesOf(int64_t gpu) {
  for (const GpuRoutes& g : kGpus)
    if (g.gpu == gpu) return g;
  return kOther;
}

struct Chooser {
  Layout layout;
  const GpuRoutes& gpu;
  int64_t k;
  const RouteLimits& limits;

  bool mma12() const { return layout == Layout::kMma12; }
  int64_t decode() const { return gpu.decode[mma12()]; }
  int64_t ahead() const { return gpu.ahead[mma12()]; }

  static bool From(int64_t m, int64_t first) { return first != kNever && m >= first; }

  Route Of(int64_t m) const {
    const bool tiles = k % kTileCols == 0;
    if (tiles && mma12()) {
      if (gpu.gpu == 90 && m >= limits.wg_min && m <= limits.wg_max) return Route::kWg;
      if (m >= limits.mid_min && m <= gpu.mid_max) return Route::kMid;
    }
    if (mma12() && From(m, limits.decode_min)) return Route::kDecode;
    if (m <= kStepMax) return Route::kGemm;
    if (From(m, ahead())) return Route::kAhead;
    return tiles && !From(m, decode()) ? Route::kBig : Route::kDecode;
  }
};

bool IsWordCharacter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

bool HasWord(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !IsWordCharacter(text[at - 1])) &&
        (end == text.size() || !IsWordCharacter(text[end])))
      return true;
  }
  return false;
}

}  // namespace

RouteLimits RouteLimits::From(const std::function<const char*(const char*)>& variable) {
  RouteLimits limits;
  const auto read = [&](const char* name, int64_t* to) {
    const char* text = variable(name);
    if (text == nullptr || *text == '\0') return;
    char* end = nullptr;
    errno = 0;
    const long long value = std::strtoll(text, &end, 10);
    if (errno == 0 && end != text && *end == '\0') *to = value;
  };
  read("GLYD_WG_MIN", &limits.wg_min);
  read("GLYD_WG_MAX", &limits.wg_max);
  read("GLYD_MID_MIN", &limits.mid_min);
  read("GLYD_DEC_MIN", &limits.decode_min);
  return limits;
}

int64_t GpuCode(int major, int minor, std::string_view name) {
  int64_t code = int64_t{10} * major + minor;
  if (name.find("GeForce") != name.npos) code += 1000;
  if (HasWord(name, "A10")) code += 2000;
  return code;
}

bool HasKernels(int64_t gpu) { return gpu >= 0 && gpu % 1000 >= 80; }

RouteChoice ChooseRoute(Layout layout, int64_t gpu, int64_t k, int64_t m,
                        const RouteLimits& limits) {
  const Chooser chooser{layout, RoutesOf(gpu), k, limits};
  const Route route = chooser.Of(m);
  // A route changes only at one of these.
  int64_t starts[] = {kStepMax + 1,  chooser.decode(), chooser.ahead(),   limits.wg_min,
                      limits.wg_max, limits.mid_min,   limits.decode_min, chooser.gpu.mid_max + 1};
  if (limits.wg_max < kNever) starts[4] = limits.wg_max + 1;
  std::sort(std::begin(starts), std::end(starts));
  for (const int64_t start : starts)
    if (start > m && chooser.Of(start) != route) return {route, start - 1};
  return {route, INT64_MAX};
}

}  // namespace glyd
