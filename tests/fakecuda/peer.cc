#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "kernels/device/cuda/driver_table.h"

// fakecuda-peer: a process that calls the driver as it is told. A command a line, its answer a
// line: the result's number, then what the call gave. Names are variables that hold addresses,
// handles or streams; a number stands for itself.

namespace glyd::cu {
namespace {

using Words = std::istringstream;

class Peer {
 public:
  explicit Peer(const Driver& d) : d_(d) {
    Memory();
    Sharing();
    Virtual();
    Streams();
    Processes();
  }

  std::string Do(const std::string& line) {
    Words words(line);
    std::string command;
    words >> command;
    const auto it = commands_.find(command);
    if (it == commands_.end()) return "what? " + line;
    answer_.clear();
    const Result r = it->second(words);
    return std::to_string(r) + answer_;
  }

 private:
  uint64_t Number(Words& words) {
    std::string word;
    words >> word;
    const auto it = values_.find(word);
    if (it != values_.end()) return it->second;
    return word.empty() ? 0 : std::strtoull(word.c_str(), nullptr, 0);
  }
  std::string Name(Words& words) {
    std::string word;
    words >> word;
    return word;
  }
  template <typename T>
  T Pointer(Words& words) {
    return reinterpret_cast<T>(Number(words));
  }
  void Answer(uint64_t n) { answer_ += " " + std::to_string(n); }
  // A call whose result is kept under the name that comes first.
  template <typename T, typename F>
  Result Keep(Words& words, const F& call) {
    const std::string name = Name(words);
    T value = {};
    const Result r = call(&value);
    if (r == kSuccess) values_[name] = (uint64_t)value;
    return r;
  }

  void Memory() {
    commands_["count"] = [this](Words&) {
      int n = 0;
      const Result r = d_.DeviceGetCount(&n);
      return Answer(n), r;
    };
    commands_["uuid"] = [this](Words& w) {
      Uuid u = {};
      const Result r = d_.DeviceGetUuid(&u, static_cast<int>(Number(w)));
      char hex[40] = " GPU-";
      answer_ = hex;
      for (int i = 0; i < 16; ++i) {
        std::snprintf(hex, sizeof hex, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                      u.bytes[i]);
        answer_ += hex;
      }
      return r;
    };
    commands_["retain"] = [this](Words& w) {
      return Keep<Context>(
          w, [&](Context* c) { return d_.DevicePrimaryCtxRetain(c, static_cast<int>(Number(w))); });
    };
    commands_["release"] = [this](Words& w) {
      return d_.DevicePrimaryCtxRelease(static_cast<int>(Number(w)));
    };
    commands_["push"] = [this](Words& w) { return d_.CtxPushCurrent(Pointer<Context>(w)); };
    commands_["pop"] = [this](Words&) {
      Context c;
      return d_.CtxPopCurrent(&c);
    };
    commands_["alloc"] = [this](Words& w) {
      return Keep<DevicePtr>(w, [&](DevicePtr* p) { return d_.MemAlloc(p, Number(w)); });
    };
    commands_["free"] = [this](Words& w) { return d_.MemFree(Number(w)); };
    commands_["info"] = [this](Words&) {
      size_t free = 0, total = 0;
      const Result r = d_.MemGetInfo(&free, &total);
      return Answer(free), Answer(total), r;
    };
    commands_["set"] = [this](Words& w) {  // ADDRESS BYTE BYTES
      const DevicePtr at = Number(w);
      const auto byte = static_cast<unsigned char>(Number(w));
      return d_.MemsetD8Async(at, byte, Number(w), nullptr);
    };
    commands_["get"] = [this](Words& w) {  // ADDRESS [OFFSET]
      unsigned char byte = 0;
      const DevicePtr at = Number(w);
      const Result r = d_.MemcpyDtoHAsync(&byte, at + Number(w), 1, nullptr);
      return Answer(byte), r;
    };
    commands_["put"] = [this](Words& w) {  // ADDRESS BYTE
      const DevicePtr at = Number(w);
      const auto byte = static_cast<unsigned char>(Number(w));
      return d_.MemcpyHtoDAsync(at, &byte, 1, nullptr);
    };
    commands_["address"] = [this](Words& w) { return Answer(Number(w)), kSuccess; };
  }

  void Sharing() {
    commands_["ipc"] = [this](Words& w) {
      IpcMemHandle h = {};
      const Result r = d_.IpcGetMemHandle(&h, Number(w));
      answer_ = " ";
      for (const char c : h.reserved) {
        char hex[4];
        std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(c));
        answer_ += hex;
      }
      return r;
    };
    commands_["open"] = [this](Words& w) {  // NAME HEX
      return Keep<DevicePtr>(w, [&](DevicePtr* p) {
        const std::string hex = Name(w);
        IpcMemHandle h = {};
        for (size_t i = 0; i < sizeof h && 2 * i + 1 < hex.size(); ++i)
          h.reserved[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
        return d_.IpcOpenMemHandle(p, h, kIpcLazyEnablePeerAccess);
      });
    };
    commands_["close"] = [this](Words& w) { return d_.IpcCloseMemHandle(Number(w)); };
  }

  void Virtual() {
    commands_["create"] = [this](Words& w) {  // NAME BYTES
      return Keep<MemHandle>(w, [&](MemHandle* h) {
        MemAllocationProp p = {};
        p.type = kAllocationTypePinned;
        p.location = {kLocationTypeDevice, 0};
        p.requested_handle_types = kHandleTypePosixFd;
        return d_.MemCreate(h, Number(w), &p, 0);
      });
    };
    commands_["drop"] = [this](Words& w) { return d_.MemRelease(Number(w)); };
    commands_["reserve"] = [this](Words& w) {  // NAME BYTES
      return Keep<DevicePtr>(
          w, [&](DevicePtr* p) { return d_.MemAddressReserve(p, Number(w), 0, 0, 0); });
    };
    commands_["unreserve"] = [this](Words& w) {
      const DevicePtr at = Number(w);
      return d_.MemAddressFree(at, Number(w));
    };
    commands_["map"] = [this](Words& w) {  // ADDRESS HANDLE BYTES
      const DevicePtr at = Number(w);
      const MemHandle h = Number(w);
      return d_.MemMap(at, Number(w), 0, h, 0);
    };
    commands_["access"] = [this](Words& w) {  // ADDRESS BYTES FLAGS
      const DevicePtr at = Number(w);
      const size_t bytes = Number(w);
      const MemAccessDesc a = {{kLocationTypeDevice, 0}, static_cast<int>(Number(w))};
      return d_.MemSetAccess(at, bytes, &a, 1);
    };
    commands_["unmap"] = [this](Words& w) {
      const DevicePtr at = Number(w);
      return d_.MemUnmap(at, Number(w));
    };
    commands_["export"] = [this](Words& w) {
      int fd = -1;
      const Result r = d_.MemExportToShareableHandle(&fd, Number(w), kHandleTypePosixFd, 0);
      answer_ = " /proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd);
      return r;
    };
    commands_["import"] = [this](Words& w) {  // NAME PATH
      return Keep<MemHandle>(w, [&](MemHandle* h) {
        const int fd = ::open(Name(w).c_str(), O_RDWR | O_CLOEXEC);
        const Result r = d_.MemImportFromShareableHandle(
            h, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), kHandleTypePosixFd);
        ::close(fd);
        return r;
      });
    };
  }

  void Streams() {
    commands_["stream"] = [this](Words& w) {
      return Keep<Stream>(w, [&](Stream* s) { return d_.StreamCreate(s, kStreamNonBlocking); });
    };
    commands_["destroy"] = [this](Words& w) { return d_.StreamDestroy(Pointer<Stream>(w)); };
    commands_["wait"] = [this](Words& w) { return d_.StreamSynchronize(Pointer<Stream>(w)); };
    commands_["event"] = [this](Words& w) {
      return Keep<Event>(w, [&](Event* e) { return d_.EventCreate(e, 0); });
    };
    commands_["record"] = [this](Words& w) {
      const Event e = Pointer<Event>(w);
      return d_.EventRecord(e, Pointer<Stream>(w));
    };
    commands_["after"] = [this](Words& w) {  // STREAM EVENT
      const Stream s = Pointer<Stream>(w);
      return d_.StreamWaitEvent(s, Pointer<Event>(w), 0);
    };
    commands_["query"] = [this](Words& w) { return d_.EventQuery(Pointer<Event>(w)); };
    commands_["reach"] = [this](Words& w) { return d_.EventSynchronize(Pointer<Event>(w)); };
    commands_["unevent"] = [this](Words& w) { return d_.EventDestroy(Pointer<Event>(w)); };
    commands_["module"] = [this](Words& w) {  // NAME [IMAGE WORDS]
      return Keep<Module>(w, [&](Module* m) {
        std::string image;
        std::getline(w, image);
        return d_.ModuleLoadData(m, image.empty() ? "fakecuda image" : image.c_str());
      });
    };
    commands_["unload"] = [this](Words& w) { return d_.ModuleUnload(Pointer<Module>(w)); };
    commands_["function"] = [this](Words& w) {  // NAME MODULE KERNEL
      return Keep<Function>(w, [&](Function* f) {
        const Module m = Pointer<Module>(w);
        return d_.ModuleGetFunction(f, m, Name(w).c_str());
      });
    };
    commands_["launch"] = [this](Words& w) {  // FUNCTION STREAM THREADS [PARAMETER]...
      const Function f = Pointer<Function>(w);
      const Stream s = Pointer<Stream>(w);
      const auto threads = static_cast<unsigned>(Number(w));
      uint64_t values[4] = {Number(w), Number(w), Number(w), 0};
      void* parameters[] = {&values[0], &values[1], &values[2], &values[3]};
      return d_.LaunchKernel(f, 1, 1, 1, threads, 1, 1, 0, s, parameters, nullptr);
    };
  }

  void Processes() {
    commands_["fork"] = [this](Words&) {  // what a child's call answers
      const pid_t pid = ::fork();
      if (pid == 0) {
        int n;
        ::_exit(d_.DeviceGetCount(&n));
      }
      int status = 0;
      ::waitpid(pid, &status, 0);
      return static_cast<Result>(WEXITSTATUS(status));
    };
    commands_["elsewhere"] = [this](Words& w) {  // COMMAND in another thread
      std::string line, answer;
      std::getline(w, line);
      std::thread([&] { answer = Do(line.substr(1)); }).join();
      const size_t space = answer.find(' ');
      answer_ = space == std::string::npos ? "" : answer.substr(space);
      return static_cast<Result>(std::atoi(answer.c_str()));
    };
    commands_["touch"] = [this](Words& w) {  // as the CPU
      return Answer(*Pointer<volatile unsigned char*>(w)), kSuccess;
    };
  }

  const Driver& d_;
  std::map<std::string, std::function<Result(Words&)>> commands_;
  std::map<std::string, uint64_t> values_;
  std::string answer_;
};

}  // namespace
}  // namespace glyd::cu

int main() {
  const auto& opened = glyd::cu::Driver::Open();
  std::cout << opened.result << " " << opened.why << std::endl;
  if (opened.driver == nullptr) return 0;
  glyd::cu::Peer peer(*opened.driver);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << peer.Do(line) << std::endl;
    if (line == "die") ::_exit(0);
  }
  return 0;
}
