// pack_driver pack MODEL OUT | verify SAVE | unpack SAVE OUT: the packer as a process, for tests of
// what happens to one. One thread, mma12, an output that is there replaced, any checkpoint. Prints
// the status; exits 1 where it is not OK.

#include <csignal>
#include <cstdio>
#include <string>

#include "packer/testing/fixtures.h"

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);
  const std::string verb = argc > 2 ? argv[1] : "";
  absl::Status status =
      absl::InvalidArgumentError("usage: pack MODEL OUT | verify SAVE | unpack SAVE OUT");
  if (verb == "pack" && argc == 4) {
    glyd::PackOptions options;
    options.layout = glyd::Layout::kMma12;
    options.force = options.any = true;
    options.threads = 1;
    status = glyd::testing::Pack(argv[2], argv[3], options).status();
  } else if (verb == "verify") {
    status = glyd::testing::Verify(argv[2]);
  } else if (verb == "unpack" && argc == 4) {
    status = glyd::testing::Unpack(argv[2], argv[3]);
  }
  std::printf("%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
