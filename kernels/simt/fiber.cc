#include "kernels/simt/fiber.h"

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace glyd::simt {
namespace {

namespace context = boost::context;

// Bodies with accumulators and a frame a call, without optimisation and with a sanitizer's red
// zones.
constexpr size_t kStackBytes = 256 << 10;

#if defined(__SANITIZE_ADDRESS__)
void Leaving(void** fake, const void* bottom, size_t size) {
  __sanitizer_start_switch_fiber(fake, bottom, size);
}
void Arrived(void* fake, const void** bottom, size_t* size) {
  __sanitizer_finish_switch_fiber(fake, bottom, size);
}
#else
void Leaving(void**, const void*, size_t) {}
void Arrived(void*, const void**, size_t*) {}
#endif

}  // namespace

struct Fiber::Rep {
  context::fiber self, caller;
  std::function<void()> work;
  bool ends = false;
  context::stack_context stack;
  // Of AddressSanitizer: the caller's stack, and what either side left behind.
  const void* caller_bottom = nullptr;
  size_t caller_size = 0;
  void* caller_fake = nullptr;
  void* own_fake = nullptr;

  void Back() {
    Leaving(&own_fake, caller_bottom, caller_size);
    caller = std::move(caller).resume();
    Arrived(own_fake, &caller_bottom, &caller_size);
  }

  context::fiber Run(context::fiber&& from) {
    Arrived(nullptr, &caller_bottom, &caller_size);
    caller = std::move(from);
    while (!ends) {
      work();
      Back();
    }
    Leaving(nullptr, caller_bottom, caller_size);
    return std::move(caller);
  }
};

Fiber::Fiber() : rep_(std::make_unique<Rep>()) {
  context::protected_fixedsize_stack allocator(kStackBytes);
  Rep* rep = rep_.get();
  rep->stack = allocator.allocate();
  rep->self = context::fiber(
      std::allocator_arg, context::preallocated(rep->stack.sp, rep->stack.size, rep->stack),
      allocator, [rep](context::fiber&& from) { return rep->Run(std::move(from)); });
}

Fiber::~Fiber() {
  rep_->ends = true;
  rep_->work = [] {};
  Resume();
}

void Fiber::Start(std::function<void()> work) { rep_->work = std::move(work); }

void Fiber::Resume() {
  Leaving(&rep_->caller_fake, static_cast<char*>(rep_->stack.sp) - rep_->stack.size,
          rep_->stack.size);
  rep_->self = std::move(rep_->self).resume();
  Arrived(rep_->caller_fake, nullptr, nullptr);
}

void Fiber::Suspend() { rep_->Back(); }

}  // namespace glyd::simt
