#ifndef GLYD_KERNELS_DEVICE_CUDA_DRIVER_TABLE_H_
#define GLYD_KERNELS_DEVICE_CUDA_DRIVER_TABLE_H_

#include <string>

#include "kernels/device/cuda/driver_types.h"

namespace glyd::cu {

// The driver's functions, found at run time: one program runs with and without a driver. Members
// have the names of cuda.h less their "cu": driver.MemAlloc is cuMemAlloc.
struct Driver {
#define GLYD_CUDA_MEMBER(member, name, symbol, needed, args) Result(*member) args = nullptr;
  GLYD_CUDA_FUNCTIONS(GLYD_CUDA_MEMBER)
#undef GLYD_CUDA_MEMBER

  int version = 0;  // of the CUDA that the driver serves: 12040 is 12.4

  // libcuda.so.1, opened and initialised once a process; the same answer every time after. A
  // process that forks must do it before the first call: a child of it cannot use the driver.
  struct Opened {
    const Driver* driver = nullptr;  // null: see the rest
    Result result = kSuccess;        // kInsufficientDriver: there is none, or it is too old for us
    std::string why;
  };
  static const Opened& Open();

  // The name of an error, by the driver where there is one.
  static std::string NameOf(Result result);
};

bool IsSticky(Result result);

}  // namespace glyd::cu

#endif  // GLYD_KERNELS_DEVICE_CUDA_DRIVER_TABLE_H_
