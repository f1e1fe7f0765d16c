#include "server/worker/channel.h"

#include <utility>

#include "absl/time/clock.h"
#include "base/bytes.h"
#include "server/core/errors.h"

namespace glyd {

using worker::v1::FromWorker;
using worker::v1::ToWorker;

void Channel::Send(uint64_t call, FromWorker message, const std::vector<int>& fds) {
  message.set_call(call);
  absl::MutexLock lock(&mu_);
  // Where glydd is gone the receiving thread hears of it.
  (void)SendFrame(socket_, message.SerializeAsString(), fds);
}

void Channel::SendDone(uint64_t call, worker::v1::Done done, const std::vector<int>& fds) {
  FromWorker m;
  *m.mutable_done() = std::move(done);
  Send(call, std::move(m), fds);
}

void Channel::SendError(uint64_t call, const absl::Status& status) {
  Send(call, ErrorMessage(status));
}

bool Channel::Receive(ToWorker* message, std::vector<UniqueFd>* fds) {
  auto frame = RecvFrame(socket_, size_t{64} << 20);
  if (!frame.ok() || !message->ParseFromString(frame->data)) return false;
  *fds = std::move(frame->fds);
  return true;
}

void CallProgress::Phase(absl::string_view name, uint64_t total_bytes) {
  absl::MutexLock lock(&mu_);
  worker::v1::ProgressEvent& p = *message_.mutable_progress();
  p.set_phase(std::string(name));
  p.set_bytes_done(0);
  p.set_bytes_total(total_bytes);
  Tell(true);
}

void CallProgress::Advance(uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  worker::v1::ProgressEvent& p = *message_.mutable_progress();
  p.set_bytes_done(p.bytes_done() + bytes);
  Tell(p.bytes_done() >= p.bytes_total());
}

void CallProgress::Item(absl::string_view name) {
  absl::MutexLock lock(&mu_);
  message_.mutable_progress()->set_item(Printable(name));
  Tell(false);
}

void CallProgress::Note(absl::string_view text) {
  absl::MutexLock lock(&mu_);
  message_.mutable_progress()->add_notes(std::string(text));
  Tell(true);
}

void CallProgress::Tell(bool now) {
  const absl::Time t = absl::Now();
  if (!now && t - told_ < absl::Milliseconds(100)) return;
  told_ = t;
  channel_->Send(call_, message_);
  message_.mutable_progress()->clear_notes();
}

}  // namespace glyd
