#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/device.h"
#include "kernels/format/testing/weights.h"

extern char** environ;

// What every kind of device must do, by each transport. GLYD_TEST_DEVICE names one; else the host
// is meant.

namespace glyd {
namespace {

using ::testing::HasSubstr;

// Another process that has imported a block: testing/device_peer.cc.
class Peer {
 public:
  Peer(const std::string& device, const Memory& memory, Access access) {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    socket_.reset(pair[0]);
    UniqueFd theirs(pair[1]);
    ::fcntl(theirs.get(), F_SETFD, 0);
    const std::string program = absl::StrCat(std::getenv("GLYD_BIN_DIR"), "/device-peer");
    std::string fd = absl::StrCat(theirs.get()), mode = access == Access::kRead ? "r" : "rw";
    std::string name = device, arg0 = program;
    char* argv[] = {arg0.data(), name.data(), mode.data(), fd.data(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, program.c_str(), nullptr, nullptr, argv, environ), 0) << program;
    theirs.reset();  // a peer that is not there ends the wait for it

    const absl::StatusOr<ExportedMemory> e = memory.Export();
    EXPECT_TRUE(e.ok()) << e.status();
    std::string frame(1, static_cast<char>(e->transport));
    frame.append(reinterpret_cast<const char*>(e->handle.data()), e->handle.size());
    frame.append(reinterpret_cast<const char*>(&e->bytes), sizeof e->bytes);
    const int out = e->fd.get();
    const auto fds = out >= 0 ? absl::MakeConstSpan(&out, 1) : absl::Span<const int>();
    EXPECT_TRUE(SendFrame(socket_.get(), frame, fds).ok());
    imported_ = Receive();
  }
  ~Peer() {
    socket_.reset();
    int status;
    ::waitpid(pid_, &status, 0);
    EXPECT_EQ(status, 0);
  }

  const std::string& imported() const { return imported_; }  // "ready", or why not
  std::string Ask(const std::string& command) {
    EXPECT_TRUE(SendFrame(socket_.get(), command).ok());
    return Receive();
  }

 private:
  std::string Receive() {
    const auto frame = RecvFrame(socket_.get(), 1 << 16);
    EXPECT_TRUE(frame.ok()) << frame.status();
    return frame.ok() ? frame->data : "";
  }

  UniqueFd socket_;
  pid_t pid_ = 0;
  std::string imported_;
};

struct Kind {
  std::string device;
  Transport transport;
};
void PrintTo(const Kind& k, std::ostream* out) {
  *out << k.device << (k.transport == Transport::kFd ? " fd" : " cuda_ipc");
}

class DeviceConformance : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    auto device = CreateDevice(GetParam().device, 2, GetParam().transport);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  std::unique_ptr<Memory> Allocate(uint64_t bytes) {
    auto m = device_->Allocate(bytes, "a test");
    EXPECT_TRUE(m.ok()) << m.status();
    return *std::move(m);
  }
  void Write(Memory& m, uint64_t offset, const void* data, uint64_t bytes) {
    const auto window = device_->OpenWindow(m, offset, bytes);
    ASSERT_TRUE(window.ok()) << window.status();
    std::memcpy(*window, data, bytes);
    EXPECT_TRUE(device_->Commit(m, offset, *window, bytes).ok());
    EXPECT_TRUE(device_->Finish(m).ok());
  }
  std::vector<uint8_t> Read(const Memory& m, uint64_t offset, uint64_t bytes) {
    std::vector<uint8_t> out(bytes);
    const absl::Status s = device_->CopyOut(m, offset, out.data(), bytes);
    EXPECT_TRUE(s.ok()) << s;
    return out;
  }

  std::unique_ptr<Device> device_;
};

TEST_P(DeviceConformance, TellsWhatItIs) {
  EXPECT_EQ(device_->info().name, GetParam().device);
  const auto free = device_->FreeBytes();
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_GT(*free, 0u);
  EXPECT_LE(*free, device_->info().total_bytes);
  EXPECT_EQ(device_->info().uuid.empty(), device_->info().kind == "host");
  EXPECT_FALSE(device_->info().kind.empty());
  EXPECT_FALSE(device_->info().model.empty());
  EXPECT_GT(device_->info().total_bytes, uint64_t{64} << 20);
}

TEST_P(DeviceConformance, MemoryIsZeroedAlignedAndRoundedUp) {
  for (const uint64_t bytes : {uint64_t{1}, kAllocationAlign, kAllocationAlign + 1}) {
    const auto m = Allocate(bytes);
    EXPECT_EQ(m->bytes(), (bytes + kAllocationAlign - 1) / kAllocationAlign * kAllocationAlign);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(m->data()) % kAllocationAlign, 0u);
    EXPECT_TRUE(Read(*m, 0, m->bytes()) == std::vector<uint8_t>(m->bytes()));
  }
}

TEST_P(DeviceConformance, RefusesWhatItDoesNotHave) {
  for (const uint64_t bytes : {uint64_t{1} << 50, ~uint64_t{0}, ~uint64_t{0} - kAllocationAlign}) {
    const absl::Status s = device_->Allocate(bytes, "too much").status();
    EXPECT_EQ(s.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(s.message()), HasSubstr(absl::StrCat(bytes)));
  }
  EXPECT_EQ(device_->Allocate(0, "none").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(DeviceConformance, WindowsCarryBytes) {
  const auto m = Allocate(3 * kAllocationAlign);
  const std::vector<uint8_t> a(1000, 'a'), b(1001, 'b');
  Write(*m, 4096, a.data(), a.size());
  Write(*m, m->bytes() - b.size(), b.data(), b.size());
  EXPECT_EQ(Read(*m, 4096, a.size()), a);
  EXPECT_EQ(Read(*m, m->bytes() - b.size(), b.size()), b);
  EXPECT_EQ(Read(*m, 4095, 1)[0], 0);
  EXPECT_TRUE(device_->OpenWindow(*m, m->bytes(), 0).ok());
}

TEST_P(DeviceConformance, RefusesRangesOutside) {
  const auto m = Allocate(1);
  uint8_t byte;
  const struct {
    uint64_t offset, bytes;
  } bad[] = {
      {m->bytes(), 1}, {m->bytes() + 1, 0}, {~uint64_t{0}, 2}, {1, m->bytes()}, {2, ~uint64_t{0}}};
  for (const auto& r : bad) {
    EXPECT_EQ(device_->OpenWindow(*m, r.offset, r.bytes).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(device_->CopyOut(*m, r.offset, &byte, r.bytes).code(),
              absl::StatusCode::kInvalidArgument);
  }
  const auto big = Allocate(2 * Device::kWindowBytes);
  EXPECT_TRUE(device_->OpenWindow(*big, 0, Device::kWindowBytes).ok());
  EXPECT_EQ(device_->OpenWindow(*big, 0, Device::kWindowBytes + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(DeviceConformance, SealedMemoryIsReadAndNotWritten) {
  const auto m = Allocate(1);
  Write(*m, 7, "sealed", 6);
  ASSERT_TRUE(m->Seal().ok());
  EXPECT_TRUE(m->Seal().ok());
  EXPECT_EQ(std::memcmp(Read(*m, 7, 6).data(), "sealed", 6), 0);
  EXPECT_EQ(device_->OpenWindow(*m, 0, 1).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(DeviceConformance, AnotherProcessReadsTheSameBytes) {
  const auto m = Allocate(kAllocationAlign + 1);
  const std::vector<uint16_t> w = testing::Weights(1 << 16, 1, 4);
  Write(*m, 12345, w.data(), w.size() * 2);
  ASSERT_TRUE(m->Seal().ok());
  const std::vector<uint8_t> all = Read(*m, 0, m->bytes());
  Peer one(GetParam().device, *m, Access::kRead), two(GetParam().device, *m, Access::kRead);
  EXPECT_EQ(one.imported(), "ready");
  EXPECT_EQ(one.Ask("hash"), Sha256Hex(all.data(), all.size()));
  EXPECT_EQ(two.Ask("hash"), one.Ask("hash"));
  EXPECT_THAT(one.Ask("put 0 1"), HasSubstr("imported to read"));
}

TEST_P(DeviceConformance, AnArenaIsWrittenByBoth) {
  const auto m = Allocate(1);
  Peer peer(GetParam().device, *m, Access::kReadWrite);
  EXPECT_EQ(peer.imported(), "ready");
  EXPECT_EQ(peer.Ask("put 99 42"), "done");
  EXPECT_EQ(Read(*m, 99, 1)[0], 42);
  Write(*m, 100, "+", 1);
  const std::vector<uint8_t> all = Read(*m, 0, m->bytes());
  EXPECT_EQ(peer.Ask("hash"), Sha256Hex(all.data(), all.size()));
}

TEST_P(DeviceConformance, ImportedMemoryOutlivesTheExporters) {
  if (GetParam().transport == Transport::kCudaIpc)
    GTEST_SKIP() << "memory of a handle dies with its owner";
  auto m = Allocate(1);
  Write(*m, 5, "still here", 10);
  ASSERT_TRUE(m->Seal().ok());
  const std::vector<uint8_t> all = Read(*m, 0, m->bytes());
  Peer peer(GetParam().device, *m, Access::kRead);
  m.reset();
  EXPECT_EQ(peer.Ask("hash"), Sha256Hex(all.data(), all.size()));
}

TEST_P(DeviceConformance, MultipliesAndDecodes) {
  const uint64_t rows = 128, cols = 528, m = 3;
  const std::vector<uint16_t> w = testing::Weights(rows * cols, 0.05, 1);
  const std::vector<uint16_t> x = testing::Weights(m * cols, 0, 2);
  for (const Layout layout : {Layout::kMma, Layout::kMma12}) {
    const EncodedPack pack = *Encode(layout, rows, cols, w.data());
    const auto memory = Allocate(kAllocationAlign);
    uint64_t end = 0;
    const auto put = [&](const void* data, uint64_t bytes) {
      const uint64_t at = end;
      Write(*memory, at, data, bytes);
      end += (bytes + kBufferAlign - 1) / kBufferAlign * kBufferAlign;
      return memory->data() + at;
    };
    PackView view = pack.view();
    view.data = put(pack.data.data(), pack.data.size());
    view.side = put(pack.side.data(), pack.side.size());
    view.base = reinterpret_cast<const int32_t*>(put(pack.base.data(), pack.base.size() * 4));
    const uint16_t* d_x = reinterpret_cast<const uint16_t*>(put(x.data(), x.size() * 2));
    uint16_t* d_y = reinterpret_cast<uint16_t*>(memory->data() + end);
    const absl::Status s = device_->Linear({.pack = view, .x = d_x, .m = m, .y = d_y});
    ASSERT_TRUE(s.ok()) << s;
    std::vector<uint16_t> y(m * rows), want(m * rows), decoded(w.size() - 64 * cols);
    ASSERT_TRUE(device_->CopyOut(*memory, end, y.data(), y.size() * 2).ok());
    ASSERT_TRUE(
        LinearOnHost({.pack = pack.view(), .x = x.data(), .m = m, .y = want.data()}, 1).ok());
    EXPECT_EQ(y, want);
    ASSERT_TRUE(device_->DecodeRows(view, 64, 64, decoded.data()).ok());
    EXPECT_TRUE(std::equal(decoded.begin(), decoded.end(), w.begin() + 64 * cols));
    EXPECT_FALSE(device_->DecodeRows(view, 64, 128, decoded.data()).ok());
    EXPECT_FALSE(device_->DecodeRows(view, 1, 64, decoded.data()).ok());
    EXPECT_FALSE(device_->DecodeRows(view, ~uint64_t{63}, 128, decoded.data()).ok());
  }
}

TEST_P(DeviceConformance, AWindowThatIsNotCommittedGoesWithItsMemory) {
  for (int i = 0; i < 20; ++i) {
    const auto m = Allocate(1);
    ASSERT_TRUE(device_->OpenWindow(*m, 0, 1).ok());
  }
}

TEST_P(DeviceConformance, ManyThreadsFillManyWindows) {
  const uint64_t part = 3 * kAllocationAlign + 1, threads = 4, each = 5;
  const auto m = Allocate(threads * each * part);
  std::vector<std::thread> all;
  for (uint64_t t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      for (uint64_t i = t; i < threads * each; i += threads) {
        const auto window = device_->OpenWindow(*m, i * part, part);
        ASSERT_TRUE(window.ok()) << window.status();
        std::memset(*window, static_cast<int>(i + 1), part);
        const absl::Status s = device_->Commit(*m, i * part, *window, part);
        ASSERT_TRUE(s.ok()) << s;
        // Without Finish: what a load checks while it reads on.
        EXPECT_EQ(Read(*m, i * part + part - 1, 1)[0], i + 1);
      }
    });
  for (std::thread& t : all) t.join();
  ASSERT_TRUE(device_->Finish(*m).ok());
  for (uint64_t i = 0; i < threads * each; ++i)
    EXPECT_TRUE(Read(*m, i * part, part) == std::vector<uint8_t>(part, i + 1)) << i;
}

TEST_P(DeviceConformance, WhatIsNoMemoryIsNotImported) {
  ExportedMemory exported;
  exported.transport = GetParam().transport;
  exported.fd.reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
  exported.bytes = kAllocationAlign;
  EXPECT_FALSE(device_->Import(std::move(exported), Access::kRead).ok());
}

#ifndef GLYD_TEST_DEVICE
TEST(CreateDeviceTest, NamesWhatThereIs) {
  const absl::Status s = CreateDevice("cuda:9", 1).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(s.message()), HasSubstr("\"cuda:9\""));
  EXPECT_THAT(std::string(s.message()), HasSubstr("host"));
  for (const char* bad : {"cuda:", "cuda:x", "cuda:01", "cuda:-1", "gpu", ""})
    EXPECT_EQ(CreateDevice(bad, 1).status().code(), absl::StatusCode::kNotFound) << bad;
  EXPECT_EQ(CreateDevice("host", 1, Transport::kCudaIpc).status().code(),
            absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Host, DeviceConformance, ::testing::Values(Kind{"host", Transport::kFd}),
                         [](const auto&) { return "fd"; });
#else
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformance,
                         ::testing::Values(Kind{GLYD_TEST_DEVICE, Transport::kFd},
                                           Kind{GLYD_TEST_DEVICE, Transport::kCudaIpc}),
                         [](const auto& info) {
                           return info.param.transport == Transport::kFd ? "fd" : "cuda_ipc";
                         });
#endif

}  // namespace
}  // namespace glyd
