#include "http/server/http_server.hpp"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "os/background_thread.hpp"
#include "os/file_descriptor.hpp"

namespace accel::track {
namespace {

constexpr int kMostRequestBytes = 16384;

template <auto function>
struct FreeBy {
  template <typename T>
  void operator()(T* object) const {
    function(object);
  }
};
template <typename T, auto function>
using Owned = std::unique_ptr<T, FreeBy<function>>;

// The connections of a server, of which evhttp tells neither their number nor their end. So each one has a second owner
// here: without callbacks it is one that evhttp has given up.
class Connections {
 public:
  using Clock = std::chrono::steady_clock;

  Connections(size_t most, std::chrono::seconds timeout) : most_(most), timeout_(timeout) {}
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;
  ~Connections() {
    for (const Connection& connection : connections_) bufferevent_decref(connection.buffer);
  }

  void add(bufferevent* buffer) {
    remove_ended();
    bufferevent_incref(buffer);
    const Clock::time_point now = Clock::now();
    connections_.push_back({buffer, connections_.size() < most_ ? now + timeout_ : now});
  }
  // Ends those that have had their time; one too many has none.
  void end_overdue() {
    remove_ended();
    const Clock::time_point now = Clock::now();
    for (const Connection& connection : connections_)
      if (now >= connection.end) shutdown(bufferevent_getfd(connection.buffer), SHUT_RDWR);
  }

 private:
  struct Connection {
    bufferevent* buffer;
    Clock::time_point end;
  };

  void remove_ended() {
    const auto ended = [](const Connection& connection) {
      bufferevent_data_cb on_read = nullptr, on_write = nullptr;
      bufferevent_event_cb on_event = nullptr;
      void* context = nullptr;
      bufferevent_getcb(connection.buffer, &on_read, &on_write, &on_event, &context);
      if (on_read != nullptr || on_write != nullptr || on_event != nullptr) return false;
      bufferevent_decref(connection.buffer);
      return true;
    };
    connections_.erase(std::remove_if(connections_.begin(), connections_.end(), ended), connections_.end());
  }

  const size_t most_;
  const std::chrono::seconds timeout_;
  std::vector<Connection> connections_;
};

class EventHttpServer final : public HttpServer {
 public:
  EventHttpServer(const HttpServerOptions& options, HttpHandler handler)
      : options_(options),
        handler_(std::move(handler)),
        stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        base_(event_base_new()),
        connections_(static_cast<size_t>(options.most_connections), std::chrono::seconds(options.timeout_seconds)) {
    require(base_ != nullptr && stop_.is_open(), Status::kOutOfMemory, "no event loop for the HTTP server at ",
            options.host);
    http_.reset(evhttp_new(base_.get()));
    require(http_ != nullptr, Status::kOutOfMemory, "no memory for the HTTP server at ", options.host);
    evhttp_set_allowed_methods(http_.get(), EVHTTP_REQ_GET);
    evhttp_set_timeout(http_.get(), options.timeout_seconds);
    evhttp_set_max_headers_size(http_.get(), kMostRequestBytes);
    evhttp_set_max_body_size(http_.get(), kMostRequestBytes);
    evhttp_set_bevcb(http_.get(), new_connection, this);
    evhttp_set_gencb(http_.get(), answer, this);
    errno = 0;
    evhttp_bound_socket* const socket =
        evhttp_bind_socket_with_handle(http_.get(), options.host.c_str(), static_cast<ev_uint16_t>(options.port));
    require(socket != nullptr, Status::kIo, "cannot listen at ", options.host, ":", options.port, ": ",
            errno == 0 ? "no such address" : std::strerror(errno), "; choose another port, or 0 for a free one");
    port_ = port_of(evhttp_bound_socket_get_fd(socket));
    stop_event_.reset(event_new(base_.get(), stop_.number(), EV_READ, end_loop, base_.get()));
    watch_event_.reset(event_new(base_.get(), -1, EV_PERSIST, end_overdue, &connections_));
    const timeval second{1, 0};
    require(stop_event_ != nullptr && watch_event_ != nullptr && event_add(stop_event_.get(), nullptr) == 0 &&
                event_add(watch_event_.get(), &second) == 0,
            Status::kOutOfMemory, "no memory for the HTTP server at ", options.host);
    thread_ = background_thread("accel-http", [this] { event_base_dispatch(base_.get()); });
  }
  EventHttpServer(const EventHttpServer&) = delete;
  EventHttpServer& operator=(const EventHttpServer&) = delete;

  ~EventHttpServer() override {
    eventfd_write(stop_.number(), 1);
    thread_.join();
  }

  int port() const override { return port_; }

 private:
  static int port_of(evutil_socket_t socket) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    require(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0, Status::kIo,
            "getsockname: ", std::strerror(errno));
    return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                                               : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  }

  static void end_loop(evutil_socket_t /*descriptor*/, short /*events*/, void* base) {  // NOLINT(google-runtime-int)
    event_base_loopbreak(static_cast<event_base*>(base));
  }

  static void end_overdue(evutil_socket_t /*descriptor*/, short /*events*/, void* all) {  // NOLINT(google-runtime-int)
    static_cast<Connections*>(all)->end_overdue();
  }

  // evhttp gives it the socket, and callbacks, when this has returned; one too many ends right afterwards.
  static bufferevent* new_connection(event_base* base, void* self) {
    auto& server = *static_cast<EventHttpServer*>(self);
    bufferevent* const buffer = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    if (buffer == nullptr) return nullptr;
    server.connections_.add(buffer);
    event_active(server.watch_event_.get(), EV_TIMEOUT, 0);
    return buffer;
  }

  static void answer(evhttp_request* request, void* self) {
    const auto& server = *static_cast<EventHttpServer*>(self);
    HttpAnswer result;
    try {
      result = server.answer_to(request);
    } catch (const std::exception& error) {
      result = {500, "text/plain; charset=utf-8", std::string(error.what()) + "\n"};
    }
    evkeyvalq* const headers = evhttp_request_get_output_headers(request);
    evhttp_add_header(headers, "Content-Type", result.content_type.c_str());
    evhttp_add_header(headers, "Connection", "close");
    evhttp_add_header(headers, "Cache-Control", "no-store");
    evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
    for (const auto& [name, value] : result.headers) evhttp_add_header(headers, name.c_str(), value.c_str());
    evbuffer_add(evhttp_request_get_output_buffer(request), result.body.data(), result.body.size());
    evhttp_send_reply(request, result.status, nullptr, nullptr);
  }

  HttpAnswer answer_to(evhttp_request* request) const {
    const char* const host = evhttp_find_header(evhttp_request_get_input_headers(request), "Host");
    if (host == nullptr || !is_own_name(host, options_.host))
      return {403, "text/plain; charset=utf-8", "the Host of the request is not a name of this server\n"};
    const evhttp_uri* const uri = evhttp_request_get_evhttp_uri(request);
    const char* const path = evhttp_uri_get_path(uri);
    const char* const query = evhttp_uri_get_query(uri);
    size_t size = 0;
    const Owned<char, std::free> decoded(evhttp_uridecode(path == nullptr ? "/" : path, 0, &size));
    return handler_(decoded == nullptr ? "/" : std::string(decoded.get(), size), query == nullptr ? "" : query);
  }

  const HttpServerOptions options_;
  const HttpHandler handler_;
  const FileDescriptor stop_;
  const Owned<event_base, event_base_free> base_;
  Connections connections_;
  Owned<evhttp, evhttp_free> http_;
  Owned<event, event_free> stop_event_, watch_event_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace

bool is_own_name(std::string_view header, const std::string& host) {
  const bool has_brackets = !header.empty() && header.front() == '[' && header.find(']') != std::string_view::npos;
  const std::string name(has_brackets ? header.substr(1, header.find(']') - 1) : header.substr(0, header.find(':')));
  if (name.empty()) return false;
  std::array<unsigned char, sizeof(in6_addr)> address{};
  if (inet_pton(AF_INET, name.c_str(), address.data()) == 1 || inet_pton(AF_INET6, name.c_str(), address.data()) == 1)
    return true;
  std::array<char, 256> of_host{};
  gethostname(of_host.data(), of_host.size() - 1);
  for (const char* own : {"localhost", host.c_str(), static_cast<const char*>(of_host.data())})
    if (evutil_ascii_strcasecmp(name.c_str(), own) == 0) return true;
  return false;
}

std::unique_ptr<HttpServer> make_http_server(const HttpServerOptions& options, HttpHandler handler) {
  return std::make_unique<EventHttpServer>(options, std::move(handler));
}

}  // namespace accel::track
