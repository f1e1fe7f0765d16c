#include "kernels/device/cuda/gpu.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace glyd::cu {

absl::StatusOr<std::shared_ptr<const Gpu>> Gpu::Open(int ordinal) {
  const std::string name = absl::StrCat("cuda:", ordinal);
  const absl::StatusOr<const Driver*> driver = GetDriver();
  if (!driver.ok())
    return absl::Status(driver.status().code(),
                        absl::StrCat("device \"", name, "\" is not there; this machine has: host (",
                                     driver.status().message(), ")"));
  const Driver& cu = **driver;
  int count = 0;
  GLYD_CU(DeviceGetCount(&count), "counting the GPUs");
  if (ordinal < 0 || ordinal >= count) {
    std::string have = "host";
    for (int i = 0; i < count; ++i) absl::StrAppend(&have, ", cuda:", i);
    return absl::NotFoundError(
        absl::StrCat("device \"", name, "\" is not there; this machine has: ", have));
  }
  Device device = 0;
  GLYD_CU(DeviceGet(&device, ordinal), name);
  Context context = nullptr;
  GLYD_CU(DevicePrimaryCtxRetain(&context, device), absl::StrCat(name, ": starting it"));
  return std::shared_ptr<const Gpu>(new Gpu(cu, device, context));
}

Gpu::~Gpu() { driver_.DevicePrimaryCtxRelease(ordinal_); }

std::string Gpu::name() const { return absl::StrCat("cuda:", ordinal_); }

absl::StatusOr<int> Gpu::Attribute(DeviceAttribute attribute) const {
  const Driver& cu = driver_;
  int value = 0;
  GLYD_CU(DeviceGetAttribute(&value, attribute, ordinal_), absl::StrCat(name(), ": an attribute"));
  return value;
}

}  // namespace glyd::cu
