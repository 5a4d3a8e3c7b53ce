// SPDX-License-Identifier: Apache-2.0
#include "http/server/connection_outbox.hpp"

#include <sys/eventfd.h>

#include <atomic>
#include <utility>

#include "base/error.hpp"

namespace accel::track {
namespace {

class ConnectionReply final : public HttpReply {
 public:
  ConnectionReply(std::shared_ptr<ConnectionOutbox> outbox, std::shared_ptr<ClientPresence> client, uint64_t connection,
                  bool is_version_1_0)
      : outbox_(std::move(outbox)),
        client_(std::move(client)),
        connection_(connection),
        is_version_1_0_(is_version_1_0) {}
  ConnectionReply(const ConnectionReply&) = delete;
  ConnectionReply& operator=(const ConnectionReply&) = delete;
  ~ConnectionReply() override {
    if (!has_ended_) outbox_->put({connection_, "", false, true, true});
  }

  void send(HttpAnswer answer) override {
    if (has_begun_.exchange(true)) return;
    std::string bytes = head_of_answer(answer, false, is_version_1_0_) + answer.body;
    finish(std::move(bytes), false);
  }
  void begin(HttpAnswer head) override {
    if (has_begun_.exchange(true)) return;
    std::string bytes = head_of_answer(head, true, is_version_1_0_);
    if (!head.body.empty()) bytes += body_bytes(std::move(head.body));
    outbox_->put({connection_, std::move(bytes), true});
  }
  void write(std::string text) override {
    if (!text.empty()) outbox_->put({connection_, body_bytes(std::move(text)), true});
  }
  void end() override { finish(is_version_1_0_ ? "" : chunk_of_answer(""), true); }
  void on_disconnect(std::function<void()> function) override { client_->on_disconnect(std::move(function)); }

 private:
  std::string body_bytes(std::string text) const { return is_version_1_0_ ? std::move(text) : chunk_of_answer(text); }
  void finish(std::string bytes, bool is_stream) {
    if (has_ended_.exchange(true)) return;
    client_->settle();
    outbox_->put({connection_, std::move(bytes), is_stream, true});
  }

  const std::shared_ptr<ConnectionOutbox> outbox_;
  const std::shared_ptr<ClientPresence> client_;
  const uint64_t connection_;
  const bool is_version_1_0_;
  std::atomic<bool> has_begun_{false}, has_ended_{false};
};

}  // namespace

ConnectionOutbox::ConnectionOutbox() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  require(wake_.is_open(), Status::kOutOfMemory, "no descriptor for the HTTP server; see how many files may be open");
}

void ConnectionOutbox::put(OutgoingBytes outgoing) {
  const std::lock_guard<std::mutex> lock(mutex_);
  outgoing_.push_back(std::move(outgoing));
  eventfd_write(wake_.number(), 1);
}

std::vector<OutgoingBytes> ConnectionOutbox::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  eventfd_t count = 0;
  eventfd_read(wake_.number(), &count);
  return std::exchange(outgoing_, {});
}

void ConnectionOutbox::count_request() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++open_requests_;
}

void ConnectionOutbox::count_answered() {
  const std::lock_guard<std::mutex> lock(mutex_);
  --open_requests_;
  changed_.notify_all();
}

bool ConnectionOutbox::wait_for_answers(std::chrono::milliseconds longest) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, longest, [this] { return open_requests_ == 0; });
}

void ClientPresence::on_disconnect(std::function<void()> function) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!has_left_) {
      function_ = std::move(function);
      return;
    }
  }
  function();
}

void ClientPresence::leave() {
  std::function<void()> function;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    has_left_ = true;
    function = std::exchange(function_, nullptr);
  }
  if (function) function();
}

void ClientPresence::settle() {
  std::function<void()> function;  // destroyed outside of the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  function = std::exchange(function_, nullptr);
}

std::shared_ptr<HttpReply> make_reply(std::shared_ptr<ConnectionOutbox> outbox, std::shared_ptr<ClientPresence> client,
                                      uint64_t connection, bool is_version_1_0) {
  return std::make_shared<ConnectionReply>(std::move(outbox), std::move(client), connection, is_version_1_0);
}

}  // namespace accel::track
