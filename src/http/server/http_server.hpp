// SPDX-License-Identifier: Apache-2.0
// A small HTTP server: requests are answered by a function of the program, at once or later, whole or as a stream.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "http/server/http_message.hpp"
#include "http/server/http_reply.hpp"

namespace accel::track {

// Answers GET alone. Called on the server's thread, with the decoded path and the query behind "?" as it came. An
// exception becomes answer 500.
using HttpHandler = std::function<HttpAnswer(const std::string& path, const std::string& query)>;

// Gets every request. Called on the server's thread, which serves all connections, so that long work belongs to another
// thread: the reply may be answered from there. An exception becomes answer 500, if there is no other answer yet.
using HttpRequestHandler = std::function<void(HttpRequest request, std::shared_ptr<HttpReply> reply)>;

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: a free one
  // The time that a client may take to send its request, that it may read nothing of a stream, and that it may take to
  // read what is left of an answer. Work on the answer does not count.
  int timeout_seconds = 10;
  int most_connections = 16;       // at a time, each with one request; more are closed at once
  size_t most_body_bytes = 16384;  // longer requests are refused before they are read
};

// Listens until it is destroyed. Requests whose Host is neither an address nor a name of this host are refused: else a
// page of another site, whose name leads here (DNS rebinding), could read it through a browser.
class HttpServer {
 public:
  virtual ~HttpServer() = default;
  virtual int port() const = 0;
  // Waits until all requests that have come are answered and their answers sent; false: not in this time.
  virtual bool wait_for_answers(std::chrono::milliseconds longest) = 0;
};

// Whether a request with this Host header is meant for a server that listens at `host`.
bool is_own_name(std::string_view header, const std::string& host);

// kIo for an address or a port that cannot be used.
std::unique_ptr<HttpServer> make_http_server(const HttpServerOptions& options, HttpHandler handler);
std::unique_ptr<HttpServer> make_http_server(const HttpServerOptions& options, HttpRequestHandler handler);

// The function that the plugin libaccel_http.so exports. It makes a server, or returns null and writes one line to
// `error` (cut at `error_size`).
using CreateHttpServer = HttpServer* (*)(const HttpServerOptions* options, HttpHandler* handler, char* error,
                                         size_t error_size);
inline constexpr char kCreateHttpServerSymbol[] = "accel_create_http_server";

}  // namespace accel::track
