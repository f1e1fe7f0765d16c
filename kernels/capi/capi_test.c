/* A C program of a user's: it links the library and asks what needs no GPU. Prints what is wrong and ends with 1. */
#include <stdio.h>
#include <string.h>

#include "kernels/capi/glyd_gpu.h"

static int wrong = 0;

static void expect(const char* what, long long is, long long should) {
  if (is == should) return;
  printf("%s: %lld, expected %lld\n", what, is, should);
  wrong = 1;
}

int main(void) {
  int route = -1;
  int64_t last = -1;
  size_t bytes = 0;
  expect("api version", glyd_gpu_api_version(), 5);
  expect("route", glyd_gpu_mma12_route(90, 4096, 4096, 17, &route, &last), 0);
  expect("route of M 17 on a 90", route, 3);
  expect("its last M", last, 1024);
  expect("a route without a place for its last M", glyd_gpu_mma_route(80, 64, 64, 65, &route, NULL), 0);
  expect("route of M 65 on an 80", route, 4);
  expect("workspace", glyd_gpu_mma_gemm_workspace(4096, 4096, 1, &bytes), 0);
  expect("workspace without a place", glyd_gpu_mma_gemm_workspace(4096, 4096, 1, NULL), 1);
  expect("a format that is not there", glyd_gpu_fast_gemm(), 801);
  expect("error string", strcmp(glyd_gpu_error_string(1), "cudaErrorInvalidValue"), 0);
  expect("error string of another", glyd_gpu_error_string(-12345) != NULL, 1);
  return wrong;
}
