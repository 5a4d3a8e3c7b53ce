// SPDX-License-Identifier: Apache-2.0
// The answer to one request, which any thread may give. What is written for a client that has left is dropped.
#pragma once

#include <functional>
#include <string>

#include "http/server/http_message.hpp"

namespace accel::track {

// Either send(), or begin(), any number of write() and end(). If the last owner lets go of it before, the connection
// ends.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  virtual void send(HttpAnswer answer) = 0;
  // The head of a streamed answer, and what is there of its body.
  virtual void begin(HttpAnswer head) = 0;
  virtual void write(std::string text) = 0;
  virtual void end() = 0;
  // The function is called once if the client leaves before its answer has ended, on the server's thread, or at once if
  // it has left.
  virtual void on_disconnect(std::function<void()> function) = 0;
};

}  // namespace accel::track
