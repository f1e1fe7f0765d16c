#ifndef GLYD_SERVER_RPC_PUSH_STREAM_H_
#define GLYD_SERVER_RPC_PUSH_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/core/fanout.h"
#include "server/rpc/status.h"

namespace glyd {

// A server-streaming call that others push messages into. The reactor and the sink that others hold
// end apart: a push after the call's end is dropped. gRPC may run a reaction inside StartWrite and
// Finish, so neither is called under a lock.
template <class Message>
class PushStream : public grpc::ServerWriteReactor<Message> {
 public:
  PushStream() : state_(std::make_shared<State>(this)) {}

  std::shared_ptr<Sink<Message>> sink() const { return state_; }

  void OnWriteDone(bool ok) override { state_->Continue(ok); }
  void OnCancel() override { state_->Abandon(); }
  void OnDone() override {
    state_->Forget();
    delete this;
  }

 private:
  class State : public Sink<Message> {
   public:
    static constexpr size_t kMaxQueued = 4096;

    explicit State(PushStream* reactor) : reactor_(reactor) {}

    void Push(Message message, const std::string& key) override {
      {
        absl::MutexLock lock(&mu_);
        if (reactor_ == nullptr || ended_) return;
        if (!key.empty() && !queue_.empty() && queue_.back().second == key) {
          queue_.back().first = std::move(message);
          return;
        }
        if (queue_.size() >= kMaxQueued) {
          ended_ = true;
          status_ = absl::ResourceExhaustedError("the watcher is too slow; watch again");
        } else {
          queue_.emplace_back(std::move(message), key);
        }
      }
      Step();
    }

    void End(absl::Status status) override {
      {
        absl::MutexLock lock(&mu_);
        if (ended_) return;
        ended_ = true;
        status_ = std::move(status);
      }
      Step();
    }

    void Continue(bool ok) {
      {
        absl::MutexLock lock(&mu_);
        writing_ = false;
      }
      if (ok)
        Step();
      else
        Abandon();
    }

    // The peer is gone: what waits for it is dropped.
    void Abandon() {
      {
        absl::MutexLock lock(&mu_);
        ended_ = true;
        queue_.clear();
      }
      Step();
    }

    void Forget() {
      absl::MutexLock lock(&mu_);
      reactor_ = nullptr;
    }

   private:
    // The one write or the Finish that is due. While either is on its way the reactor lives.
    void Step() {
      PushStream* reactor;
      bool finish;
      {
        absl::MutexLock lock(&mu_);
        if (reactor_ == nullptr || writing_ || finished_) return;
        if (queue_.empty() && !ended_) return;
        finish = queue_.empty();
        if (finish) {
          finished_ = true;
        } else {
          writing_ = true;
          current_ = std::move(queue_.front().first);
          queue_.pop_front();
        }
        reactor = reactor_;
      }
      if (finish)
        reactor->Finish(ToGrpc(status_));
      else
        reactor->StartWrite(&current_);
    }

    absl::Mutex mu_;
    PushStream* reactor_ ABSL_GUARDED_BY(mu_);
    std::deque<std::pair<Message, std::string>> queue_ ABSL_GUARDED_BY(mu_);
    Message current_;      // gRPC's while writing_
    absl::Status status_;  // settled once ended_
    bool writing_ ABSL_GUARDED_BY(mu_) = false;
    bool ended_ ABSL_GUARDED_BY(mu_) = false;
    bool finished_ ABSL_GUARDED_BY(mu_) = false;
  };

  const std::shared_ptr<State> state_;
};

// Ends a unary call with `status`.
inline grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context,
                                             const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

}  // namespace glyd

#endif  // GLYD_SERVER_RPC_PUSH_STREAM_H_
