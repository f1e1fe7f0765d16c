#include <cuda.h>

#include <cstddef>
#include <string>
#include <type_traits>

#include "gtest/gtest.h"
#include "kernels/device/cuda/driver_types.h"

// The declarations of driver_types.h against a toolkit's own.

namespace glyd::cu {
namespace {

// A type of cuda.h and ours are one where a register or a struct of the same layout holds them.
template <typename Theirs, typename Ours>
constexpr bool Same() {
  if constexpr (std::is_pointer_v<Theirs> != std::is_pointer_v<Ours>)
    return false;
  else
    return sizeof(Theirs) == sizeof(Ours) && alignof(Theirs) == alignof(Ours) &&
           (std::is_class_v<Theirs> == std::is_class_v<Ours>);
}
template <typename Theirs, typename Ours>
struct SameFunction : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
struct SameFunction<R (*)(A...), S (*)(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B))
      return false;
    else
      return Same<R, S>() && (Same<A, B>() && ...);
  }();
};

#define GLYD_QUOTE_(x) #x
#define GLYD_QUOTE(x) GLYD_QUOTE_(x)

// The macros of cuda.h give a function its versioned name. cuEventElapsedTime has a second version
// since 12.8, which takes the same.
#define GLYD_NAME(member) cu##member
#define GLYD_CHECK_FUNCTION(member, name, symbol, needed, args)                      \
  EXPECT_TRUE((SameFunction<decltype(&cu##member), Result(*) args>::value)) << name; \
  EXPECT_EQ(std::string(name), "cu" #member);                                        \
  if (std::string(name) != "cuEventElapsedTime") {                                   \
    EXPECT_EQ(std::string(symbol), GLYD_QUOTE(GLYD_NAME(member)));                   \
  }
TEST(DriverAbi, Functions) { GLYD_CUDA_FUNCTIONS(GLYD_CHECK_FUNCTION) }

#define GLYD_SAME_FIELD(ours, field, theirs, their_field)                 \
  static_assert(offsetof(ours, field) == offsetof(theirs, their_field) && \
                sizeof(ours::field) == sizeof(theirs::their_field))
static_assert(Same<CUuuid, Uuid>() && Same<CUipcMemHandle, IpcMemHandle>());
static_assert(Same<CUmemAllocationProp, MemAllocationProp>() && Same<CUmemLocation, MemLocation>());
GLYD_SAME_FIELD(MemAllocationProp, requested_handle_types, CUmemAllocationProp,
                requestedHandleTypes);
GLYD_SAME_FIELD(MemAllocationProp, location, CUmemAllocationProp, location);
GLYD_SAME_FIELD(MemAllocationProp, alloc_flags, CUmemAllocationProp, allocFlags);
GLYD_SAME_FIELD(MemAccessDesc, flags, CUmemAccessDesc, flags);
GLYD_SAME_FIELD(LaunchConfig, stream, CUlaunchConfig, hStream);
GLYD_SAME_FIELD(LaunchConfig, attributes, CUlaunchConfig, attrs);
GLYD_SAME_FIELD(LaunchConfig, attribute_count, CUlaunchConfig, numAttrs);
GLYD_SAME_FIELD(LaunchAttribute, value, CUlaunchAttribute, value);
static_assert(Same<CUlaunchConfig, LaunchConfig>() && Same<CUlaunchAttribute, LaunchAttribute>());
static_assert(Same<CUtensorMap, TensorMap>());

TEST(DriverAbi, Numbers) {
  const int pairs[][2] = {
      {kInvalidValue, CUDA_ERROR_INVALID_VALUE},
      {kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY},
      {kStubLibrary, CUDA_ERROR_STUB_LIBRARY},
      {kNoDevice, CUDA_ERROR_NO_DEVICE},
      {kInvalidDevice, CUDA_ERROR_INVALID_DEVICE},
      {kInvalidImage, CUDA_ERROR_INVALID_IMAGE},
      {kInvalidContext, CUDA_ERROR_INVALID_CONTEXT},
      {kMapFailed, CUDA_ERROR_MAP_FAILED},
      {kAlreadyMapped, CUDA_ERROR_ALREADY_MAPPED},
      {kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU},
      {kEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE},
      {kNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE},
      {kOperatingSystem, CUDA_ERROR_OPERATING_SYSTEM},
      {kInvalidHandle, CUDA_ERROR_INVALID_HANDLE},
      {kNotFound, CUDA_ERROR_NOT_FOUND},
      {kNotReady, CUDA_ERROR_NOT_READY},
      {kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS},
      {kLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES},
      {kLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT},
      {kContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED},
      {kAssert, CUDA_ERROR_ASSERT},
      {kHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR},
      {kIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION},
      {kMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS},
      {kInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE},
      {kInvalidPc, CUDA_ERROR_INVALID_PC},
      {kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED},
      {kNotPermitted, CUDA_ERROR_NOT_PERMITTED},
      {kNotSupported, CUDA_ERROR_NOT_SUPPORTED},
      {kSystemNotReady, CUDA_ERROR_SYSTEM_NOT_READY},
      {kSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH},
      {kUnknown, CUDA_ERROR_UNKNOWN},
      {kMaxSharedMemoryPerBlock, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
      {kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
      {kIntegrated, CU_DEVICE_ATTRIBUTE_INTEGRATED},
      {kUnifiedAddressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING},
      {kComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
      {kComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
      {kMaxSharedMemoryPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
      {kMaxSharedMemoryPerBlockOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
      {kVirtualMemoryManagementSupported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
      {kHandleTypePosixFdSupported,
       CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
      {kStreamNonBlocking, CU_STREAM_NON_BLOCKING},
      {kEventDisableTiming, CU_EVENT_DISABLE_TIMING},
      {kIpcLazyEnablePeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS},
      {kHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE},
      {kHandleTypePosixFd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
      {kAllocationTypePinned, CU_MEM_ALLOCATION_TYPE_PINNED},
      {kLocationTypeDevice, CU_MEM_LOCATION_TYPE_DEVICE},
      {kAccessRead, CU_MEM_ACCESS_FLAGS_PROT_READ},
      {kAccessReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
      {kGranularityMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM},
      {kGranularityRecommended, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED},
      {kPointerContext, CU_POINTER_ATTRIBUTE_CONTEXT},
      {kPointerMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
      {kPointerDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
      {kMemoryTypeHost, CU_MEMORYTYPE_HOST},
      {kMemoryTypeDevice, CU_MEMORYTYPE_DEVICE},
      {kFuncMaxThreadsPerBlock, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
      {kFuncSharedSizeBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES},
      {kFuncLocalSizeBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES},
      {kFuncNumRegs, CU_FUNC_ATTRIBUTE_NUM_REGS},
      {kFuncMaxDynamicSharedSizeBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES},
      {kFuncNonPortableClusterSizeAllowed, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED},
      {kLaunchClusterDimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION},
      {kLaunchProgrammaticStreamSerialization,
       CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION},
  };
  for (size_t i = 0; i < std::size(pairs); ++i) EXPECT_EQ(pairs[i][0], pairs[i][1]) << "pair " << i;
}

}  // namespace
}  // namespace glyd::cu
