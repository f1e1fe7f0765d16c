#ifndef GLYD_KERNELS_DEVICE_CUDA_DRIVER_TYPES_H_
#define GLYD_KERNELS_DEVICE_CUDA_DRIVER_TYPES_H_

#include <cstddef>
#include <cstdint>

// The CUDA driver's binary interface, as much of it as is used here: the build needs no CUDA
// toolkit. Where a toolkit is installed, driver_abi_test.cc compares all of it with the toolkit's
// cuda.h.

// The toolkit's own names, so that a CUstream of a caller is a Stream of ours.
struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;

namespace glyd::cu {

enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kStubLibrary = 34,
  kInsufficientDriver = 35,  // of the runtime's numbers; no driver function answers it
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kMapFailed = 205,
  kAlreadyMapped = 208,
  kNoBinaryForGpu = 209,
  kEccUncorrectable = 214,
  kNvlinkUncorrectable = 220,
  kContained = 226,
  kOperatingSystem = 304,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchTimeout = 702,
  kContextIsDestroyed = 709,
  kAssert = 710,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidPc = 718,
  kLaunchFailed = 719,
  kTensorMemoryLeak = 721,
  kNotPermitted = 800,
  kNotSupported = 801,
  kSystemNotReady = 802,
  kSystemDriverMismatch = 803,
  kCompatNotSupportedOnDevice = 804,
  kUnknown = 999,
};

using Device = int;
using DevicePtr = unsigned long long;
using MemHandle = unsigned long long;  // CUmemGenericAllocationHandle
using Context = struct CUctx_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;
using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;

struct Uuid {
  unsigned char bytes[16];
};

enum DeviceAttribute : int {
  kMaxSharedMemoryPerBlock = 8,
  kMultiprocessorCount = 16,
  kIntegrated = 18,
  kUnifiedAddressing = 41,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedMemoryPerMultiprocessor = 81,
  kMaxSharedMemoryPerBlockOptin = 97,
  kVirtualMemoryManagementSupported = 102,
  kHandleTypePosixFdSupported = 103,
};

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr unsigned kIpcLazyEnablePeerAccess = 1;
constexpr unsigned kHostAllocPortable = 1;

struct IpcMemHandle {
  char reserved[64];
};

constexpr int kHandleTypePosixFd = 1;
constexpr int kAllocationTypePinned = 1;
constexpr int kLocationTypeDevice = 1;
constexpr int kAccessRead = 1, kAccessReadWrite = 3;
constexpr int kGranularityMinimum = 0, kGranularityRecommended = 1;

struct MemLocation {
  int type;
  int id;
};
struct MemAllocationProp {
  int type;
  int requested_handle_types;
  MemLocation location;
  void* win32_handle_meta_data;
  struct {
    unsigned char compression_type;
    unsigned char gpu_direct_rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
  } alloc_flags;
};
struct MemAccessDesc {
  MemLocation location;
  int flags;
};

enum PointerAttribute : int {
  kPointerContext = 1,
  kPointerMemoryType = 2,  // unsigned: 1 host, 2 device
  kPointerDeviceOrdinal = 9,
};
constexpr unsigned kMemoryTypeHost = 1, kMemoryTypeDevice = 2;

enum FunctionAttribute : int {
  kFuncMaxThreadsPerBlock = 0,
  kFuncSharedSizeBytes = 1,
  kFuncLocalSizeBytes = 3,
  kFuncNumRegs = 4,
  kFuncMaxDynamicSharedSizeBytes = 8,
  kFuncNonPortableClusterSizeAllowed = 14,
};

enum LaunchAttributeId : int {
  kLaunchClusterDimension = 4,
  kLaunchProgrammaticStreamSerialization = 6,
};
struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    char pad[64];
    void* pointer;
    struct {
      unsigned x, y, z;
    } cluster_dim;
    int programmatic_stream_serialization_allowed;
  } value;
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct alignas(128) TensorMap {
  uint64_t opaque[16];
};

// X(member, name for cuGetProcAddress, exported symbol, needed, arguments). Arguments are named
// nowhere: cuda.h's documentation has them under the same name. Not needed: null where the driver
// is too old for it.
#define GLYD_CUDA_FUNCTIONS(X)                                                                     \
  X(Init, "cuInit", "cuInit", 1, (unsigned))                                                       \
  X(DriverGetVersion, "cuDriverGetVersion", "cuDriverGetVersion", 1, (int*))                       \
  X(GetErrorName, "cuGetErrorName", "cuGetErrorName", 1, (Result, const char**))                   \
  X(GetErrorString, "cuGetErrorString", "cuGetErrorString", 1, (Result, const char**))             \
  X(DeviceGetCount, "cuDeviceGetCount", "cuDeviceGetCount", 1, (int*))                             \
  X(DeviceGet, "cuDeviceGet", "cuDeviceGet", 1, (Device*, int))                                    \
  X(DeviceGetName, "cuDeviceGetName", "cuDeviceGetName", 1, (char*, int, Device))                  \
  X(DeviceGetUuid, "cuDeviceGetUuid", "cuDeviceGetUuid_v2", 1, (Uuid*, Device))                    \
  X(DeviceTotalMem, "cuDeviceTotalMem", "cuDeviceTotalMem_v2", 1, (size_t*, Device))               \
  X(DeviceGetAttribute, "cuDeviceGetAttribute", "cuDeviceGetAttribute", 1,                         \
    (int*, DeviceAttribute, Device))                                                               \
  X(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", 1,             \
    (Context*, Device))                                                                            \
  X(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", 1,       \
    (Device))                                                                                      \
  X(CtxGetCurrent, "cuCtxGetCurrent", "cuCtxGetCurrent", 1, (Context*))                            \
  X(CtxPushCurrent, "cuCtxPushCurrent", "cuCtxPushCurrent_v2", 1, (Context))                       \
  X(CtxPopCurrent, "cuCtxPopCurrent", "cuCtxPopCurrent_v2", 1, (Context*))                         \
  X(CtxGetDevice, "cuCtxGetDevice", "cuCtxGetDevice", 1, (Device*))                                \
  X(CtxSynchronize, "cuCtxSynchronize", "cuCtxSynchronize", 1, ())                                 \
  X(StreamCreate, "cuStreamCreate", "cuStreamCreate", 1, (Stream*, unsigned))                      \
  X(StreamDestroy, "cuStreamDestroy", "cuStreamDestroy_v2", 1, (Stream))                           \
  X(StreamSynchronize, "cuStreamSynchronize", "cuStreamSynchronize", 1, (Stream))                  \
  X(StreamWaitEvent, "cuStreamWaitEvent", "cuStreamWaitEvent", 1, (Stream, Event, unsigned))       \
  X(EventCreate, "cuEventCreate", "cuEventCreate", 1, (Event*, unsigned))                          \
  X(EventDestroy, "cuEventDestroy", "cuEventDestroy_v2", 1, (Event))                               \
  X(EventRecord, "cuEventRecord", "cuEventRecord", 1, (Event, Stream))                             \
  X(EventSynchronize, "cuEventSynchronize", "cuEventSynchronize", 1, (Event))                      \
  X(EventQuery, "cuEventQuery", "cuEventQuery", 1, (Event))                                        \
  X(EventElapsedTime, "cuEventElapsedTime", "cuEventElapsedTime", 1, (float*, Event, Event))       \
  X(MemGetInfo, "cuMemGetInfo", "cuMemGetInfo_v2", 1, (size_t*, size_t*))                          \
  X(MemAlloc, "cuMemAlloc", "cuMemAlloc_v2", 1, (DevicePtr*, size_t))                              \
  X(MemFree, "cuMemFree", "cuMemFree_v2", 1, (DevicePtr))                                          \
  X(MemGetAddressRange, "cuMemGetAddressRange", "cuMemGetAddressRange_v2", 1,                      \
    (DevicePtr*, size_t*, DevicePtr))                                                              \
  X(MemHostAlloc, "cuMemHostAlloc", "cuMemHostAlloc", 1, (void**, size_t, unsigned))               \
  X(MemFreeHost, "cuMemFreeHost", "cuMemFreeHost", 1, (void*))                                     \
  X(MemcpyHtoDAsync, "cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", 1,                               \
    (DevicePtr, const void*, size_t, Stream))                                                      \
  X(MemcpyDtoHAsync, "cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", 1,                               \
    (void*, DevicePtr, size_t, Stream))                                                            \
  X(MemcpyDtoDAsync, "cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2", 1,                               \
    (DevicePtr, DevicePtr, size_t, Stream))                                                        \
  X(MemsetD8Async, "cuMemsetD8Async", "cuMemsetD8Async", 1,                                        \
    (DevicePtr, unsigned char, size_t, Stream))                                                    \
  X(PointerGetAttribute, "cuPointerGetAttribute", "cuPointerGetAttribute", 1,                      \
    (void*, PointerAttribute, DevicePtr))                                                          \
  X(MemGetAllocationGranularity, "cuMemGetAllocationGranularity", "cuMemGetAllocationGranularity", \
    1, (size_t*, const MemAllocationProp*, int))                                                   \
  X(MemCreate, "cuMemCreate", "cuMemCreate", 1,                                                    \
    (MemHandle*, size_t, const MemAllocationProp*, unsigned long long))                            \
  X(MemRelease, "cuMemRelease", "cuMemRelease", 1, (MemHandle))                                    \
  X(MemAddressReserve, "cuMemAddressReserve", "cuMemAddressReserve", 1,                            \
    (DevicePtr*, size_t, size_t, DevicePtr, unsigned long long))                                   \
  X(MemAddressFree, "cuMemAddressFree", "cuMemAddressFree", 1, (DevicePtr, size_t))                \
  X(MemMap, "cuMemMap", "cuMemMap", 1, (DevicePtr, size_t, size_t, MemHandle, unsigned long long)) \
  X(MemUnmap, "cuMemUnmap", "cuMemUnmap", 1, (DevicePtr, size_t))                                  \
  X(MemSetAccess, "cuMemSetAccess", "cuMemSetAccess", 1,                                           \
    (DevicePtr, size_t, const MemAccessDesc*, size_t))                                             \
  X(MemExportToShareableHandle, "cuMemExportToShareableHandle", "cuMemExportToShareableHandle", 1, \
    (void*, MemHandle, int, unsigned long long))                                                   \
  X(MemImportFromShareableHandle, "cuMemImportFromShareableHandle",                                \
    "cuMemImportFromShareableHandle", 1, (MemHandle*, void*, int))                                 \
  X(IpcGetMemHandle, "cuIpcGetMemHandle", "cuIpcGetMemHandle", 1, (IpcMemHandle*, DevicePtr))      \
  X(IpcOpenMemHandle, "cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2", 1,                            \
    (DevicePtr*, IpcMemHandle, unsigned))                                                          \
  X(IpcCloseMemHandle, "cuIpcCloseMemHandle", "cuIpcCloseMemHandle", 1, (DevicePtr))               \
  X(ModuleLoadData, "cuModuleLoadData", "cuModuleLoadData", 1, (Module*, const void*))             \
  X(ModuleUnload, "cuModuleUnload", "cuModuleUnload", 1, (Module))                                 \
  X(ModuleGetFunction, "cuModuleGetFunction", "cuModuleGetFunction", 1,                            \
    (Function*, Module, const char*))                                                              \
  X(FuncGetAttribute, "cuFuncGetAttribute", "cuFuncGetAttribute", 1,                               \
    (int*, FunctionAttribute, Function))                                                           \
  X(FuncSetAttribute, "cuFuncSetAttribute", "cuFuncSetAttribute", 1,                               \
    (Function, FunctionAttribute, int))                                                            \
  X(LaunchKernel, "cuLaunchKernel", "cuLaunchKernel", 1,                                           \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,       \
     void**, void**))                                                                              \
  X(LaunchKernelEx, "cuLaunchKernelEx", "cuLaunchKernelEx", 0,                                     \
    (const LaunchConfig*, Function, void**, void**))                                               \
  X(OccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor",      \
    "cuOccupancyMaxActiveBlocksPerMultiprocessor", 1, (int*, Function, int, size_t))               \
  X(TensorMapEncodeTiled, "cuTensorMapEncodeTiled", "cuTensorMapEncodeTiled", 0,                   \
    (TensorMap*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*,          \
     const uint32_t*, int, int, int, int))

}  // namespace glyd::cu

#endif  // GLYD_KERNELS_DEVICE_CUDA_DRIVER_TYPES_H_
