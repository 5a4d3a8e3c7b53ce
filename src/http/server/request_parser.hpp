// SPDX-License-Identifier: Apache-2.0
// Reads one request of HTTP/1.0 or HTTP/1.1 as its bytes come. It keeps no more than the limits allow, and refuses a
// body by its Content-Length before a byte of it has come.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "http/server/http_message.hpp"

namespace accel::track {

struct RequestLimits {
  size_t head_bytes = 16384;  // the request line and all headers
  size_t headers = 100;
  size_t body_bytes = 16384;
};

class RequestParser {
 public:
  explicit RequestParser(const RequestLimits& limits) : limits_(limits) {}

  // Takes bytes that have come; those behind the end of the request are dropped.
  void add(std::string_view bytes);

  bool is_complete() const { return state_ == State::kComplete; }
  bool has_failed() const { return state_ == State::kFailed; }
  bool has_begun() const { return !head_.empty() || state_ != State::kHead; }
  // Whether the head has come, and the client waits for a word before it sends the body (Expect: 100-continue).
  bool waits_for_continue() const { return state_ == State::kBody && waits_ && request_.body.empty(); }

  const HttpRequest& request() const { return request_; }
  HttpRequest take_request() { return std::move(request_); }
  // The answer to a request that has failed.
  const HttpAnswer& refusal() const { return refusal_; }

 private:
  enum class State { kHead, kBody, kComplete, kFailed };

  void parse_head();
  bool parse_request_line(std::string_view line);
  bool parse_header(std::string_view line);
  bool parse_body_size();
  bool refuse(int status, std::string message);

  const RequestLimits limits_;
  State state_ = State::kHead;
  std::string head_;
  size_t body_size_ = 0;
  bool waits_ = false;
  HttpRequest request_;
  HttpAnswer refusal_;
};

// "%2F" becomes "/"; what is no such pair of digits stays.
std::string decoded_path(std::string_view path);

}  // namespace accel::track
