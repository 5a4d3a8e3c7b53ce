// SPDX-License-Identifier: Apache-2.0
// Bytes that other threads have for the connections of a server, until its thread takes them. It may outlive the
// server.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "http/server/http_reply.hpp"
#include "os/file_descriptor.hpp"

namespace accel::track {

struct OutgoingBytes {
  uint64_t connection;
  std::string bytes;
  bool is_stream = false;  // a client that does not read it is given up
  bool is_last = false;
  bool is_abandoned = false;  // nobody will answer
};

class ConnectionOutbox {
 public:
  ConnectionOutbox();

  void put(OutgoingBytes outgoing);
  std::vector<OutgoingBytes> take();
  // Ready to read while there is something to take.
  int descriptor() const { return wake_.number(); }

  // Requests that are not answered yet, or whose answer is not sent.
  void count_request();
  void count_answered();
  bool wait_for_answers(std::chrono::milliseconds longest);

 private:
  const FileDescriptor wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<OutgoingBytes> outgoing_;
  size_t open_requests_ = 0;
};

// Whether the client of a reply has left.
class ClientPresence {
 public:
  void on_disconnect(std::function<void()> function);
  void leave();
  // The answer is complete: nobody is notified any more.
  void settle();

 private:
  std::mutex mutex_;
  bool has_left_ = false;
  std::function<void()> function_;
};

std::shared_ptr<HttpReply> make_reply(std::shared_ptr<ConnectionOutbox> outbox, std::shared_ptr<ClientPresence> client,
                                      uint64_t connection, bool is_version_1_0);

}  // namespace accel::track
