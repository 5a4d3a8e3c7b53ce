// SPDX-License-Identifier: Apache-2.0
#include "http/server/server_connection.hpp"

#include <event2/buffer.h>
#include <sys/socket.h>

#include <array>
#include <utility>

#include "base/error.hpp"

namespace accel::track {
namespace {

constexpr int kDrainSeconds = 2;
// Bytes of a stream that a client may leave unread.
constexpr size_t kMostUnreadBytes = size_t{4} << 20;

}  // namespace

ServerConnection::ServerConnection(event_base* base, FileDescriptor socket, uint64_t number,
                                   const ConnectionLimits& limits, const ConnectionEvents& events,
                                   ConnectionOutbox& outbox)
    : number_(number),
      timeout_seconds_(limits.timeout_seconds),
      events_(events),
      outbox_(outbox),
      parser_(limits.request) {
  buffer_.reset(bufferevent_socket_new(base, socket.number(), BEV_OPT_CLOSE_ON_FREE));
  require(buffer_ != nullptr, Status::kOutOfMemory, "no memory for a connection of the HTTP server");
  socket.release();
  timer_.reset(event_new(base, -1, 0, on_timeout, this));
  require(timer_ != nullptr, Status::kOutOfMemory, "no memory for a connection of the HTTP server");
  bufferevent_setcb(buffer_.get(), on_read, on_write, on_event, this);
  bufferevent_enable(buffer_.get(), EV_READ | EV_WRITE);
  set_timer(timeout_seconds_);
}

ServerConnection::~ServerConnection() {
  if (is_counted_) outbox_.count_answered();
  client_->leave();  // nobody is notified of a settled one
}

void ServerConnection::on_read(bufferevent* /*buffer*/, void* self) { static_cast<ServerConnection*>(self)->read(); }

void ServerConnection::on_write(bufferevent* /*buffer*/, void* self) {
  auto& connection = *static_cast<ServerConnection*>(self);
  if (connection.unsent_bytes() > 0) return;
  if (connection.phase_ == Phase::kFlushing) connection.drain();
  if (connection.phase_ == Phase::kAnswering) connection.set_timer(0);
}

void ServerConnection::on_event(bufferevent* /*buffer*/, short events, void* self) {  // NOLINT(google-runtime-int)
  auto& connection = *static_cast<ServerConnection*>(self);
  // A client that has closed its side may still read an answer that is complete.
  if ((events & BEV_EVENT_EOF) != 0 && connection.phase_ == Phase::kFlushing)
    connection.is_half_closed_ = true;
  else if ((events & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) != 0)
    connection.end();
}

void ServerConnection::on_timeout(evutil_socket_t /*socket*/, short /*events*/, void* self) {  // NOLINT
  auto& connection = *static_cast<ServerConnection*>(self);
  if (connection.phase_ == Phase::kReading && connection.parser_.has_begun())
    connection.refuse(
        {408, "text/plain; charset=utf-8", text("no whole request within ", connection.timeout_seconds_, " s\n")});
  else
    connection.end();
}

void ServerConnection::read() {
  std::array<char, 16384> bytes{};
  int count = 0;
  while ((count = static_cast<int>(bufferevent_read(buffer_.get(), bytes.data(), bytes.size()))) > 0)
    if (phase_ == Phase::kReading) parser_.add({bytes.data(), static_cast<size_t>(count)});
  if (phase_ != Phase::kReading) return;
  if (parser_.has_failed()) {
    refuse(parser_.refusal());
    return;
  }
  if (parser_.waits_for_continue() && !std::exchange(has_continued_, true)) append("HTTP/1.1 100 Continue\r\n\r\n");
  if (!parser_.is_complete()) return;
  phase_ = Phase::kAnswering;
  set_timer(0);
  outbox_.count_request();
  is_counted_ = true;
  events_.on_request(number_, parser_.take_request(), client_);
}

void ServerConnection::refuse(const HttpAnswer& answer) {
  append(head_of_answer(answer, false, false) + answer.body);
  flush();
}

void ServerConnection::send(const OutgoingBytes& outgoing) {
  if (phase_ != Phase::kAnswering) return;
  if (outgoing.is_abandoned || (outgoing.is_stream && unsent_bytes() > kMostUnreadBytes)) {
    end();
    return;
  }
  append(outgoing.bytes);
  if (outgoing.is_last)
    flush();
  else if (!has_timer_)  // until all of it is read
    set_timer(timeout_seconds_);
}

void ServerConnection::append(const std::string& bytes) {
  bufferevent_write(buffer_.get(), bytes.data(), bytes.size());
}

void ServerConnection::flush() {
  phase_ = Phase::kFlushing;
  set_timer(timeout_seconds_);
  if (unsent_bytes() == 0) drain();
}

void ServerConnection::drain() {
  phase_ = Phase::kDraining;
  if (std::exchange(is_counted_, false)) outbox_.count_answered();
  shutdown(bufferevent_getfd(buffer_.get()), SHUT_WR);
  if (is_half_closed_)
    event_active(timer_.get(), EV_TIMEOUT, 0);  // which ends the connection, when nobody above uses it
  else
    set_timer(kDrainSeconds);
}

void ServerConnection::end() { events_.on_end(number_); }

void ServerConnection::set_timer(int seconds) {
  has_timer_ = seconds > 0;
  const timeval time{seconds, 0};
  if (has_timer_)
    event_add(timer_.get(), &time);
  else
    event_del(timer_.get());
}

size_t ServerConnection::unsent_bytes() const { return evbuffer_get_length(bufferevent_get_output(buffer_.get())); }

}  // namespace accel::track
