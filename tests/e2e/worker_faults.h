#ifndef GLYD_TESTS_E2E_WORKER_FAULTS_H_
#define GLYD_TESTS_E2E_WORKER_FAULTS_H_

#include <atomic>

namespace glyd {

// What a test and the worker share.
struct WorkerFaults {
  std::atomic<int> fail_in;            // the N-th call from now that takes memory fails; 0: none
  std::atomic<int> failed;             // calls that did
  std::atomic<int> slow_free_seconds;  // of a block
  std::atomic<int> freeing;            // frees that are on their way
};

}  // namespace glyd

#endif  // GLYD_TESTS_E2E_WORKER_FAULTS_H_
