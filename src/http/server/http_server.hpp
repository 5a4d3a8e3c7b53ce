// A small HTTP server for people and programs on this host: answers GET requests from a thread of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace accel::track {

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};  // more of them
};

// Called on the server's thread, with the decoded path and the query behind "?" as it came. An exception becomes answer
// 500.
using HttpHandler = std::function<HttpAnswer(const std::string& path, const std::string& query)>;

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;               // 0: a free one
  int timeout_seconds = 10;   // that a connection lasts, with its one request
  int most_connections = 16;  // at a time; more are closed at once
};

// Listens until it is destroyed. Requests whose Host is neither an address nor a name of this host are refused: else a
// page of another site, whose name leads here (DNS rebinding), could read it through a browser.
class HttpServer {
 public:
  virtual ~HttpServer() = default;
  virtual int port() const = 0;
};

// Whether a request with this Host header is meant for a server that listens at `host`.
bool is_own_name(std::string_view header, const std::string& host);

// kIo for an address or a port that cannot be used.
std::unique_ptr<HttpServer> make_http_server(const HttpServerOptions& options, HttpHandler handler);

// The function that the plugin libaccel_http.so exports. It makes a server, or returns null and writes one line to
// `error` (cut at `error_size`).
using CreateHttpServer = HttpServer* (*)(const HttpServerOptions* options, HttpHandler* handler, char* error,
                                         size_t error_size);
inline constexpr char kCreateHttpServerSymbol[] = "accel_create_http_server";

}  // namespace accel::track
