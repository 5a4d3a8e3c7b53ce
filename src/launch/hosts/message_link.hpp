// SPDX-License-Identifier: Apache-2.0
// A connection between two launchers: lines of JSON, never longer than kLongestLine. Nothing blocks. With a session key
// each line begins with its code, so that nobody else can write, repeat or leave out one.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "json/json.hpp"
#include "os/file_descriptor.hpp"

namespace accel::launch {

class MessageLink {
 public:
  static constexpr size_t kLongestLine = 16 * 1024;

  // `socket` must not block.
  explicit MessageLink(FileDescriptor socket) : socket_(std::move(socket)) {}

  bool is_open() const { return socket_.is_open(); }
  void close() { socket_.reset(); }
  pollfd polled() const;

  // Queues the message and sends what the socket takes.
  void send(const Json& message);
  // Sends what is queued and reads what has come. The link is closed if the other side has closed it, or does not read.
  void transfer(short events);

  // The next message that has come. One that cannot be is an Error with Status::kInvalidArgument.
  std::optional<Json> next();

  // From now on lines in both directions carry codes.
  void protect(std::string own_key, std::string other_key);

 private:
  void flush();
  void read();
  std::string verified(const std::string& line);

  FileDescriptor socket_;
  std::string input_, output_;
  std::string own_key_, other_key_;
  uint64_t sent_ = 0, received_ = 0;  // with codes
};

// {"type": type, ...}
Json message_of(const char* type, Json::Members members = {});

// A connected pair within this process.
struct LinkPair {
  MessageLink one, other;
};
LinkPair make_link_pair();

}  // namespace accel::launch
