// SPDX-License-Identifier: Apache-2.0
#include "http/server/http_message.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace accel::track {
namespace {

struct Reason {
  int status;
  const char* words;
};

constexpr std::array<Reason, 16> kReasons{{{200, "OK"},
                                           {400, "Bad Request"},
                                           {401, "Unauthorized"},
                                           {403, "Forbidden"},
                                           {404, "Not Found"},
                                           {405, "Method Not Allowed"},
                                           {408, "Request Timeout"},
                                           {411, "Length Required"},
                                           {413, "Content Too Large"},
                                           {414, "URI Too Long"},
                                           {415, "Unsupported Media Type"},
                                           {429, "Too Many Requests"},
                                           {431, "Request Header Fields Too Large"},
                                           {500, "Internal Server Error"},
                                           {503, "Service Unavailable"},
                                           {505, "HTTP Version Not Supported"}}};

const char* reason_of(int status) {
  const auto found =
      std::find_if(kReasons.begin(), kReasons.end(), [status](const Reason& one) { return one.status == status; });
  return found == kReasons.end() ? "Unknown" : found->words;
}

}  // namespace

const std::string* HttpRequest::header(std::string_view name) const {
  const auto found =
      std::find_if(headers.begin(), headers.end(), [name](const auto& header) { return header.first == name; });
  return found == headers.end() ? nullptr : &found->second;
}

std::string head_of_answer(const HttpAnswer& answer, bool is_streamed, bool is_version_1_0) {
  std::string head = "HTTP/1.1 " + std::to_string(answer.status) + " " + reason_of(answer.status) + "\r\n";
  const auto add = [&head](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  add("Content-Type", answer.content_type);
  add("Connection", "close");
  add("Cache-Control", "no-store");
  add("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : answer.headers) add(name, value);
  if (!is_streamed)
    add("Content-Length", std::to_string(answer.body.size()));
  else if (!is_version_1_0)  // the end of the connection is that of the body for clients that know no chunks
    add("Transfer-Encoding", "chunked");
  return head + "\r\n";
}

std::string chunk_of_answer(std::string_view bytes) {
  std::array<char, 20> size{};
  std::snprintf(size.data(), size.size(), "%zx\r\n", bytes.size());
  return std::string(size.data()).append(bytes).append("\r\n");
}

}  // namespace accel::track
