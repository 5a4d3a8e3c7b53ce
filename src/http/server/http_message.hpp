// SPDX-License-Identifier: Apache-2.0
// Requests and answers of HTTP, as handlers see them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace accel::track {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   // "POST"
  std::string path;     // decoded
  std::string query;    // what is behind "?", as it came
  HttpHeaders headers;  // names in lower case
  std::string body;
  bool is_version_1_0 = false;

  // Null if there is no such header. `name` is in lower case.
  const std::string* header(std::string_view name) const;
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  HttpHeaders headers = {};  // more of them
};

// The status line and the headers, of an answer whose body is all there, or comes in chunks.
std::string head_of_answer(const HttpAnswer& answer, bool is_streamed, bool is_version_1_0);

// A chunk of a streamed answer; the last one is empty.
std::string chunk_of_answer(std::string_view bytes);

}  // namespace accel::track
