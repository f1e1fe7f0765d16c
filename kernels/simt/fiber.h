#ifndef GLYD_KERNELS_SIMT_FIBER_H_
#define GLYD_KERNELS_SIMT_FIBER_H_

#include <cstddef>
#include <functional>
#include <memory>

namespace glyd::simt {

// A stack of its own that runs one function after another: it is made once and used for many lanes.
// It stays in the thread that made it. AddressSanitizer is told of each switch.
class Fiber {
 public:
  Fiber();
  ~Fiber();  // not while `work` is suspended
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The function that the next Resume begins. It throws nothing. Not while another is suspended.
  void Start(std::function<void()> work);
  // Runs the work until it suspends or ends.
  void Resume();
  // From the work alone: back to who resumed it.
  void Suspend();

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace glyd::simt

#endif  // GLYD_KERNELS_SIMT_FIBER_H_
