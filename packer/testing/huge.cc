#include "packer/testing/huge.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/sha256.h"
#include "gtest/gtest.h"
#include "packer/model/save.h"

namespace glyd::testing {

namespace fs = std::filesystem;

void WriteSparse(const std::string& path, std::string header, uint64_t data_bytes) {
  header.append(AlignUp(header.size(), 8) - header.size(), ' ');
  std::string head(8, '\0');
  StoreLe64(head.data(), header.size());
  WriteFile(path, head + header);
  fs::resize_file(path, 8 + header.size() + data_bytes);
}

uint64_t PeakBytes(const std::function<absl::Status()>& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    const absl::Status s = f();
    if (!s.ok()) std::fprintf(stderr, "%s\n", s.ToString().c_str());
    ::_exit(s.ok() ? 0 : 1);
  }
  int status = 0;
  rusage used = {};
  ::wait4(child, &status, 0, &used);
  EXPECT_EQ(status, 0);
  return static_cast<uint64_t>(used.ru_maxrss) * 1024;
}

bool PackAndVerify3GiB(const TempDir& dir, Layout layout) {
  constexpr uint64_t kBytes = uint64_t{3} << 30;
  if (fs::space(dir.path()).available < 4 * kBytes) return false;
  fs::create_directories(dir / "model");
  WriteSparse(dir / "model/model.safetensors",
              absl::StrCat(R"({"w.weight":{"dtype":"BF16","shape":[65536,24576],)",
                           R"("data_offsets":[0,)", kBytes, "]}}"),
              kBytes);
  PackOptions options;
  options.any = options.force = true;
  options.layout = layout;
  EXPECT_LT(PeakBytes([&] { return Pack(dir / "model", dir / "out", options).status(); }),
            kMemoryBound);
  Sha256 hash;
  const std::vector<uint8_t> zeros(kMiB);
  for (uint64_t at = 0; at < kBytes; at += zeros.size()) hash.Update(zeros.data(), zeros.size());
  const auto save = Save::Open(*Dir::Open(dir / "out"));
  EXPECT_TRUE(save.ok()) << save.status();
  EXPECT_EQ(save->packs.at(0).members.at(0).sha256, hash.Finish());
  EXPECT_LT(PeakBytes([&] { return Verify(dir / "out"); }), kMemoryBound);
  return true;
}

}  // namespace glyd::testing
