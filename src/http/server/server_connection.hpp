// SPDX-License-Identifier: Apache-2.0
// One connection of a server, from its accept() to its end, on the server's thread: it reads a request, hands it on,
// sends what the outbox has for it, and reads on for a moment, because a close with unread bytes would destroy the
// answer.
#pragma once

#include <event2/bufferevent.h>
#include <event2/event.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "http/server/connection_outbox.hpp"
#include "http/server/request_parser.hpp"
#include "os/file_descriptor.hpp"

namespace accel::track {

template <auto function>
struct FreeBy {
  template <typename T>
  void operator()(T* object) const {
    function(object);
  }
};
template <typename T, auto function>
using Owned = std::unique_ptr<T, FreeBy<function>>;

struct ConnectionLimits {
  int timeout_seconds = 10;
  RequestLimits request = {};
};

struct ConnectionEvents {
  // A request that is complete. An answer that is given at once is there when this has returned, in the outbox.
  std::function<void(uint64_t connection, HttpRequest request, const std::shared_ptr<ClientPresence>& client)>
      on_request;
  std::function<void(uint64_t connection)> on_end;  // the connection is destroyed in it
};

class ServerConnection {
 public:
  // Owns the socket. kOutOfMemory.
  ServerConnection(event_base* base, FileDescriptor socket, uint64_t number, const ConnectionLimits& limits,
                   const ConnectionEvents& events, ConnectionOutbox& outbox);
  ServerConnection(const ServerConnection&) = delete;
  ServerConnection& operator=(const ServerConnection&) = delete;
  ~ServerConnection();

  // The connection may be destroyed when this returns.
  void send(const OutgoingBytes& outgoing);

 private:
  enum class Phase { kReading, kAnswering, kFlushing, kDraining };

  static void on_read(bufferevent* buffer, void* self);
  static void on_write(bufferevent* buffer, void* self);
  static void on_event(bufferevent* buffer, short events, void* self);       // NOLINT(google-runtime-int)
  static void on_timeout(evutil_socket_t socket, short events, void* self);  // NOLINT(google-runtime-int)

  void read();
  void refuse(const HttpAnswer& answer);
  void append(const std::string& bytes);
  void flush();  // and then drain
  void drain();
  void end();
  void set_timer(int seconds);
  size_t unsent_bytes() const;

  const uint64_t number_;
  const int timeout_seconds_;
  const ConnectionEvents& events_;
  ConnectionOutbox& outbox_;
  RequestParser parser_;
  Owned<bufferevent, bufferevent_free> buffer_;
  Owned<event, event_free> timer_;
  Phase phase_ = Phase::kReading;
  bool has_continued_ = false, is_counted_ = false, has_timer_ = false, is_half_closed_ = false;
  std::shared_ptr<ClientPresence> client_ = std::make_shared<ClientPresence>();
};

}  // namespace accel::track
