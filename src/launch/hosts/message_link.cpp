// SPDX-License-Identifier: Apache-2.0
#include "launch/hosts/message_link.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/authentication_code.hpp"
#include "base/error.hpp"

namespace accel::launch {
namespace {

constexpr size_t kMostUnsent = 1024 * 1024;
constexpr size_t kCodeDigits = 64;

std::string code_of(const std::string& key, uint64_t number, const std::string& line) {
  return authentication_code(key, std::to_string(number) + ' ' + line);
}

}  // namespace

Json message_of(const char* type, Json::Members members) {
  members.insert(members.begin(), {"type", Json(type)});
  return Json(std::move(members));
}

pollfd MessageLink::polled() const {
  return {socket_.number(), static_cast<short>(output_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
}

void MessageLink::protect(std::string own_key, std::string other_key) {
  own_key_ = std::move(own_key);
  other_key_ = std::move(other_key);
}

void MessageLink::send(const Json& message) {
  if (!is_open()) return;
  const std::string line = print_json(message);
  if (!own_key_.empty()) output_ += code_of(own_key_, sent_++, line) + ' ';
  output_ += line + '\n';
  flush();
  if (output_.size() > kMostUnsent) close();
}

void MessageLink::flush() {
  while (is_open() && !output_.empty()) {
    const ssize_t count = ::send(socket_.number(), output_.data(), output_.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      output_.erase(0, static_cast<size_t>(count));
    } else if (errno != EINTR) {
      // Messages that have come can still be read: the other side may have said why it closes.
      if (errno != EAGAIN) output_.clear();
      return;
    }
  }
}

void MessageLink::read() {
  std::array<char, 4096> block;
  // Whoever sends without end must not keep the launcher from its other work.
  while (input_.size() <= 4 * kLongestLine) {
    const ssize_t count = recv(socket_.number(), block.data(), block.size(), 0);
    if (count > 0) {
      input_.append(block.data(), static_cast<size_t>(count));
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      return close();
    } else if (errno == EAGAIN) {
      return;
    }
  }
}

void MessageLink::transfer(short events) {
  if (!is_open()) return;
  if ((events & POLLOUT) != 0) flush();
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) read();
}

std::optional<Json> MessageLink::next() {
  const size_t end = input_.find('\n');
  require(std::min(end, input_.size()) <= kLongestLine, Status::kInvalidArgument, "a line is longer than ",
          kLongestLine, " bytes");
  if (end == std::string::npos) return std::nullopt;
  const std::string line = input_.substr(0, end);
  input_.erase(0, end + 1);
  Json message = parse_json(other_key_.empty() ? line : verified(line), "message");
  require(message.members() != nullptr, Status::kInvalidArgument, "a message is not a JSON object");
  return message;
}

std::string MessageLink::verified(const std::string& line) {
  require(line.size() > kCodeDigits && line[kCodeDigits] == ' ', Status::kInvalidArgument, "a message has no code");
  std::string message = line.substr(kCodeDigits + 1);
  require(are_equal_codes(line.substr(0, kCodeDigits), code_of(other_key_, received_++, message)),
          Status::kInvalidArgument, "the code of a message is wrong");
  return message;
}

LinkPair make_link_pair() {
  std::array<int, 2> ends{};
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0, Status::kIo,
          "no pair of sockets can be made: ", std::strerror(errno));
  return {MessageLink(FileDescriptor(ends[0])), MessageLink(FileDescriptor(ends[1]))};
}

}  // namespace accel::launch
