#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/bytes.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace glyd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string TempDir() {
  std::string t = ::testing::TempDir() + "/glydXXXXXX";
  EXPECT_NE(::mkdtemp(t.data()), nullptr);
  return t;
}

void Put(const std::string& path, absl::string_view text) { std::ofstream(path) << text; }

TEST(BytesTest, ParsesSizes) {
  EXPECT_EQ(*ParseBytes("0"), 0u);
  EXPECT_EQ(*ParseBytes("4096"), 4096u);
  EXPECT_EQ(*ParseBytes("12GiB"), uint64_t{12} << 30);
  EXPECT_EQ(*ParseBytes("1.5kb"), 1500u);
  for (const char* bad :
       {"", "GiB", "-1", "1e9", "12XB", "1.2.3", "99999999999999999999", "nan", "5 GiBs"})
    EXPECT_EQ(ParseBytes(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
}

TEST(BytesTest, PrintsWhatATerminalWouldObey) {
  EXPECT_EQ(Printable("a\n\x1b[31mERR"), "a\\n\\x1b[31mERR");
  EXPECT_EQ(Printable("\xc3\xa9\xff\xc2\x9b"), "\xc3\xa9\\xff\\xc2\\x9b");
  EXPECT_EQ(Printable(absl::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable(std::string(70000, 'n'), 10), "nnnnnnnnnn...");
}

TEST(BytesTest, Names) {
  for (const char* good : {"a", "smollm2", "A.b_c-9", "9"}) EXPECT_TRUE(IsValidName(good)) << good;
  for (absl::string_view bad : {"", ".a", "../x", "a/b", "a b", "\xc3\xa9"})
    EXPECT_FALSE(IsValidName(bad)) << bad;
  EXPECT_TRUE(IsValidName(std::string(128, 'a')));
  EXPECT_FALSE(IsValidName(std::string(129, 'a')));
}

TEST(BytesTest, Human) {
  EXPECT_EQ(HumanBytes(999), "999 B");
  EXPECT_EQ(HumanBytes(269060352), "269.1 MB");
  EXPECT_EQ(HumanBytes(999999), "1.0 MB");
}

TEST(DirTest, StaysBeneathItsRoot) {
  const std::string t = TempDir();
  std::filesystem::create_directories(t + "/root/snapshots/c");
  std::filesystem::create_directories(t + "/root/blobs");
  Put(t + "/secret", "s");
  Put(t + "/root/blobs/b", "blob");
  Put(t + "/root/snapshots/c/own", "own");
  std::filesystem::create_symlink("../../blobs/b", t + "/root/snapshots/c/link");
  std::filesystem::create_symlink("../../../secret", t + "/root/snapshots/c/out");
  std::filesystem::create_symlink("nowhere", t + "/root/snapshots/c/dangling");
  ASSERT_EQ(::mkfifo((t + "/root/snapshots/c/fifo").c_str(), 0600), 0);

  const auto alone = Dir::Open(t + "/root/snapshots/c");
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_THAT(*alone->List(), ElementsAre("dangling", "fifo", "link", "out", "own"));
  EXPECT_EQ(alone->OpenFile("own")->size, 3u);
  EXPECT_THAT(std::string(alone->OpenFile("link").status().message()),
              HasSubstr("leaves the allowed root"));
  EXPECT_THAT(std::string(alone->OpenFile("../c/own").status().message()),
              HasSubstr("leaves the allowed root"));
  EXPECT_THAT(std::string(alone->OpenFile("fifo").status().message()),
              HasSubstr("not a regular file"));
  EXPECT_TRUE(absl::IsNotFound(alone->OpenFile("dangling").status()));

  const auto cache = Dir::OpenUnder(t + "/root/snapshots/c/", 2);
  ASSERT_TRUE(cache.ok()) << cache.status();
  EXPECT_EQ(cache->OpenFile("link")->size, 4u);
  EXPECT_THAT(std::string(cache->OpenFile("out").status().message()),
              HasSubstr("leaves the allowed root"));
  EXPECT_THAT(std::string(cache->OpenFile("/etc/passwd").status().message()), HasSubstr("passwd"));
  EXPECT_THAT(std::string(Dir::Open(t + "/secret").status().message()),
              HasSubstr("not a directory"));
}

TEST(FileTest, CutShortNamesTheOffset) {
  const std::string t = TempDir();
  Put(t + "/f", "12345");
  UniqueFd fd(::open((t + "/f").c_str(), O_RDONLY));
  char b[10];
  EXPECT_TRUE(PreadFull(fd.get(), b, 5, 0, "f").ok());
  const absl::Status s = PreadFull(fd.get(), b, 4, 3, "f");
  EXPECT_EQ(s.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(s.message()), HasSubstr("ends at 5, 2 more bytes expected"));
}

TEST(SocketTest, FramesCarryDescriptors) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  UniqueFd a(pair[0]), b(pair[1]);
  const std::string big(3 << 20, 'x');
  std::thread sender([&] {
    EXPECT_TRUE(SendFrame(a.get(), "one", {a.get(), b.get()}).ok());
    EXPECT_TRUE(SendFrame(a.get(), big).ok());
    a.reset();
  });
  auto one = RecvFrame(b.get(), 100);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->data, "one");
  EXPECT_EQ(one->fds.size(), 2u);
  one->fds.clear();
  EXPECT_EQ(RecvFrame(b.get(), 4 << 20)->data, big);
  sender.join();
  EXPECT_TRUE(absl::IsOutOfRange(RecvFrame(b.get(), 100).status()));
}

TEST(SocketTest, RefusesAnAbsurdLength) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  UniqueFd a(pair[0]), b(pair[1]);
  ASSERT_TRUE(WriteFull(a.get(), "\xff\xff\xff\xffgarbage", 11, "socket").ok());
  EXPECT_EQ(RecvFrame(b.get(), 1 << 20).status().code(), absl::StatusCode::kDataLoss);
}

TEST(SocketTest, PathTooLong) {
  const absl::Status s = ListenUnix("/tmp/" + std::string(110, 'a'), 1).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(s.message()), HasSubstr("115 characters, 1 to 107"));
}

}  // namespace
}  // namespace glyd
