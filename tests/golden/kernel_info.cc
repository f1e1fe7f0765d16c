#include <cstdio>

#include "kernels/cuda/emulated.h"

// Prints each kernel's name, threads a block and bytes of shared memory a block.
int main() {
  for (const glyd::gpu::EmulatedKernel& k : glyd::gpu::EmulatedKernels())
    std::printf("%s\t%d\t%zu\n", k.name, k.threads, k.shared_bytes);
}
