#include "packer/internal/file_writer.h"

#include <fcntl.h>

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/format/testing/weights.h"
#include "packer/testing/fixtures.h"

namespace glyd {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

std::string Noise(uint64_t n, uint64_t seed) {
  testing::Random random(seed);
  std::string s(n, '\0');
  for (char& c : s) c = static_cast<char>(random.Next() >> 13);
  return s;
}

absl::Span<const uint8_t> Bytes(const std::string& s, size_t at, size_t n) {
  return {reinterpret_cast<const uint8_t*>(s.data()) + at, n};
}

// Whether a file goes past the page cache or through it.
class FileWriterTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(FileWriterTest, StreamsThatMeetInsideBlocks) {
  const TempDir t;
  const std::string want = Noise(5 << 20, 1);
  UniqueFd fd(::open((t / "f").c_str(), O_RDWR | O_CREAT, 0666));
  FileWriter writer({.threads = 3, .direct_bytes = GetParam()});
  ASSERT_EQ(writer.Add(std::move(fd), "f", want.size()), 0u);
  // Places that are no multiples of anything, some streams longer than a buffer, some of a byte.
  const std::vector<size_t> cuts = {0,      1,       4095,    4097,    70000,
                                    200001, 1500007, 4000001, 4000002, want.size()};
  std::vector<std::thread> threads;
  for (size_t i = 0; i + 1 < cuts.size(); ++i)
    threads.emplace_back([&, i] {
      FileWriter::Stream s(&writer, 0, cuts[i]);
      for (size_t at = cuts[i], n = 1; at < cuts[i + 1]; at += n, n = 3 * n % 300007) {
        n = std::min(n, cuts[i + 1] - at);
        EXPECT_TRUE(s.Append(Bytes(want, at, n)).ok());
      }
      EXPECT_TRUE(s.Flush().ok());
    });
  for (std::thread& thread : threads) thread.join();
  Progress silent;
  ASSERT_TRUE(writer.Finish(silent).ok());
  EXPECT_TRUE(testing::ReadFile(t / "f") == want);
}

TEST_P(FileWriterTest, AFailureComesToWhoeverWrites) {
  FileWriter writer({.threads = 1, .direct_bytes = GetParam()});
  writer.Add(UniqueFd(::open("/dev/full", O_WRONLY)), "the file", UINT64_MAX);
  const std::string data = Noise(1 << 20, 2);
  FileWriter::Stream s(&writer, 0, 0);
  absl::Status status;
  for (int i = 0; status.ok() && i < 1000; ++i) status = s.Append(Bytes(data, 0, data.size()));
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the file"));
  Progress silent;
  EXPECT_FALSE(writer.Finish(silent).ok());
}

INSTANTIATE_TEST_SUITE_P(, FileWriterTest, ::testing::Values(0, UINT64_MAX),
                         [](const auto& p) { return p.param == 0 ? "Direct" : "Cached"; });

TEST(FileWriterEndTest, GivenUpInTheMiddle) {
  const TempDir t;
  FileWriter writer;
  writer.Add(UniqueFd(::open((t / "f").c_str(), O_RDWR | O_CREAT, 0666)), "f", 8 << 20);
  const std::string data = Noise(4 << 20, 3);
  FileWriter::Stream s(&writer, 0, 5);
  EXPECT_TRUE(s.Append(Bytes(data, 0, data.size())).ok());
}

}  // namespace
}  // namespace glyd
