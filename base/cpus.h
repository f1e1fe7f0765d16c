#ifndef GLYD_BASE_CPUS_H_
#define GLYD_BASE_CPUS_H_

namespace glyd {

// Cores that this process may use: its affinity, less where its cgroup's CPU quota is smaller. 1 at
// least.
int AvailableCpus();

}  // namespace glyd

#endif  // GLYD_BASE_CPUS_H_
