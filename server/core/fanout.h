#ifndef GLYD_SERVER_CORE_FANOUT_H_
#define GLYD_SERVER_CORE_FANOUT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace glyd {

// One receiver of a stream of messages. Implementations never block and may be called from any
// thread.
template <class Message>
class Sink {
 public:
  virtual ~Sink() = default;
  // `key`: a message not yet sent with the same key may be replaced by this one; empty: never.
  virtual void Push(Message message, const std::string& key) = 0;
  virtual void End(absl::Status status) = 0;
};

// Tells every sink that is still alive. Thread-safe; sinks are called without its lock.
template <class Message>
class Fanout {
 public:
  void Add(const std::shared_ptr<Sink<Message>>& sink) {
    absl::MutexLock lock(&mu_);
    std::erase_if(sinks_, [](const auto& s) { return s.expired(); });
    sinks_.push_back(sink);
  }
  void Push(const Message& message, const std::string& key = "") {
    for (const auto& s : Alive()) s->Push(message, key);
  }
  void End(const absl::Status& status) {
    for (const auto& s : Alive()) s->End(status);
  }

 private:
  std::vector<std::shared_ptr<Sink<Message>>> Alive() {
    std::vector<std::shared_ptr<Sink<Message>>> out;
    absl::MutexLock lock(&mu_);
    for (const auto& weak : sinks_)
      if (auto s = weak.lock()) out.push_back(std::move(s));
    return out;
  }

  absl::Mutex mu_;
  std::vector<std::weak_ptr<Sink<Message>>> sinks_ ABSL_GUARDED_BY(mu_);
};

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_FANOUT_H_
