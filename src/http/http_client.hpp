// SPDX-License-Identifier: Apache-2.0
// Requests over HTTP(S) through libcurl, which is loaded when the first client is made.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace accel::track {

struct HttpResponse {
  long status = 0;
  std::string body;
};

// One thread at a time.
class HttpClient {
 public:
  // Null if there is no libcurl, of which `why` then tells.
  static std::unique_ptr<HttpClient> load(std::string& why);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // For all requests: "Authorization: Bearer ...".
  void set_headers(std::vector<std::string> headers) { headers_ = std::move(headers); }
  void set_credentials(std::string user, std::string password);

  // kIo if there is no answer within the time.
  HttpResponse request(const char* method, const std::string& url, std::string_view body,
                       const std::string& content_type, std::chrono::milliseconds timeout);

 private:
  struct Library;

  HttpClient(const Library& library, void* handle) : library_(library), handle_(handle) {}

  const Library& library_;
  void* handle_;
  std::vector<std::string> headers_;
  std::string user_;
  std::string password_;
};

// Encodes each byte as %XX except those that a URL may have in a path or query. '/' stays if `keep_slashes`.
std::string percent_encoded(std::string_view text, bool keep_slashes);

}  // namespace accel::track
