#ifndef GLYD_BASE_PROGRESS_H_
#define GLYD_BASE_PROGRESS_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace glyd {

// Where long work tells how far it is, and asks whether to go on. Called from several threads at
// once; calls are cheap and never block for long. The base class hears nothing and never cancels.
class Progress {
 public:
  virtual ~Progress() = default;
  // A new phase ("read", "pack", "verify") of `total_bytes`; the bytes done start at 0 again.
  virtual void Phase(absl::string_view /*name*/, uint64_t /*total_bytes*/) {}
  // `bytes` more are done.
  virtual void Advance(uint64_t /*bytes*/) {}
  // What is at hand now: a tensor's or a file's name.
  virtual void Item(absl::string_view /*name*/) {}
  // Something that the user should know and that is no failure: a file ignored, a tensor kept raw.
  virtual void Note(absl::string_view /*text*/) {}
  // true: stop soon and return Cancelled.
  virtual bool cancelled() const { return false; }
};

}  // namespace glyd

#endif  // GLYD_BASE_PROGRESS_H_
