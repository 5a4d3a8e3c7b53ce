// SPDX-License-Identifier: Apache-2.0
#include "http/server/http_server.hpp"

#include <arpa/inet.h>
#include <event2/listener.h>
#include <event2/util.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "http/server/server_connection.hpp"
#include "os/background_thread.hpp"
#include "os/file_descriptor.hpp"

namespace accel::track {
namespace {

constexpr int kBacklog = 128;
constexpr timeval kPauseWithoutDescriptors{0, 100000};

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  require(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0, Status::kIo,
          "getsockname: ", std::strerror(errno));
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

FileDescriptor listen_at(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  const Owned<addrinfo, freeaddrinfo> addresses(found);
  const char* reason = code == 0 ? "no such address" : gai_strerror(code);
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    FileDescriptor socket(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (socket.is_open() && setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(socket.number(), address->ai_addr, address->ai_addrlen) == 0 && listen(socket.number(), kBacklog) == 0)
      return socket;
    reason = std::strerror(errno);
  }
  fail(Status::kIo, "cannot listen at ", host, ":", port, ": ", reason, "; choose another port, or 0 for a free one");
}

// Requests for another name than those of this host are refused before anybody sees them.
class EventHttpServer final : public HttpServer {
 public:
  EventHttpServer(const HttpServerOptions& options, HttpRequestHandler handler)
      : options_(options),
        handler_(std::move(handler)),
        outbox_(std::make_shared<ConnectionOutbox>()),
        stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        base_(event_base_new()) {
    require(base_ != nullptr && stop_.is_open(), Status::kOutOfMemory, "no event loop for the HTTP server at ",
            options.host);
    limits_.timeout_seconds = options.timeout_seconds;
    limits_.request.body_bytes = options.most_body_bytes;
    events_.on_request = [this](uint64_t connection, HttpRequest request,
                                const std::shared_ptr<ClientPresence>& client) {
      const std::shared_ptr<HttpReply> reply = make_reply(outbox_, client, connection, request.is_version_1_0);
      answer(std::move(request), reply);
    };
    events_.on_end = [this](uint64_t connection) { connections_.erase(connection); };
    FileDescriptor socket = listen_at(options.host, options.port);
    port_ = port_of(socket.number());
    listener_.reset(evconnlistener_new(base_.get(), accept, this, LEV_OPT_CLOSE_ON_FREE, 0, socket.number()));
    require(listener_ != nullptr, Status::kOutOfMemory, "no memory for the HTTP server at ", options.host);
    socket.release();
    evconnlistener_set_error_cb(listener_.get(), pause);
    stop_event_.reset(event_new(base_.get(), stop_.number(), EV_READ, end_loop, base_.get()));
    outbox_event_.reset(event_new(base_.get(), outbox_->descriptor(), EV_READ | EV_PERSIST, send, this));
    pause_event_.reset(event_new(base_.get(), -1, 0, go_on, listener_.get()));
    require(stop_event_ != nullptr && outbox_event_ != nullptr && pause_event_ != nullptr &&
                event_add(stop_event_.get(), nullptr) == 0 && event_add(outbox_event_.get(), nullptr) == 0,
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
  bool wait_for_answers(std::chrono::milliseconds longest) override { return outbox_->wait_for_answers(longest); }

 private:
  static void end_loop(evutil_socket_t /*descriptor*/, short /*events*/, void* base) {  // NOLINT(google-runtime-int)
    event_base_loopbreak(static_cast<event_base*>(base));
  }

  static void accept(evconnlistener* /*listener*/, evutil_socket_t socket, sockaddr* /*address*/, int /*size*/,
                     void* self) {
    auto& server = *static_cast<EventHttpServer*>(self);
    FileDescriptor owned(socket);
    if (server.connections_.size() >= static_cast<size_t>(server.options_.most_connections)) return;
    const uint64_t number = server.next_connection_++;
    try {
      server.connections_.emplace(
          number, std::make_unique<ServerConnection>(server.base_.get(), std::move(owned), number, server.limits_,
                                                     server.events_, *server.outbox_));
    } catch (const std::exception&) {
      // Without memory the client sees its connection end.
    }
  }

  // accept() fails without file descriptors, and would again at once.
  static void pause(evconnlistener* listener, void* self) {
    evconnlistener_disable(listener);
    event_add(static_cast<EventHttpServer*>(self)->pause_event_.get(), &kPauseWithoutDescriptors);
  }
  static void go_on(evutil_socket_t /*descriptor*/, short /*events*/, void* listener) {  // NOLINT(google-runtime-int)
    evconnlistener_enable(static_cast<evconnlistener*>(listener));
  }

  static void send(evutil_socket_t /*descriptor*/, short /*events*/, void* self) {  // NOLINT(google-runtime-int)
    auto& server = *static_cast<EventHttpServer*>(self);
    for (const OutgoingBytes& outgoing : server.outbox_->take())
      if (const auto found = server.connections_.find(outgoing.connection); found != server.connections_.end())
        found->second->send(outgoing);
  }

  void answer(HttpRequest request, const std::shared_ptr<HttpReply>& reply) const {
    const std::string* const host = request.header("host");
    if (host == nullptr || !is_own_name(*host, options_.host)) {
      reply->send({403, "text/plain; charset=utf-8", "the Host of the request is not a name of this server\n"});
      return;
    }
    try {
      handler_(std::move(request), reply);
    } catch (const std::exception& error) {
      reply->send({500, "text/plain; charset=utf-8", std::string(error.what()) + "\n"});
    }
  }

  const HttpServerOptions options_;
  const HttpRequestHandler handler_;
  const std::shared_ptr<ConnectionOutbox> outbox_;
  const FileDescriptor stop_;
  const Owned<event_base, event_base_free> base_;
  ConnectionLimits limits_;
  ConnectionEvents events_;
  Owned<evconnlistener, evconnlistener_free> listener_;
  Owned<event, event_free> stop_event_, outbox_event_, pause_event_;
  std::map<uint64_t, std::unique_ptr<ServerConnection>> connections_;
  uint64_t next_connection_ = 0;
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
  HttpRequestHandler answer = [handler = std::move(handler)](const HttpRequest& request,
                                                             const std::shared_ptr<HttpReply>& reply) {
    if (request.method == "GET")
      reply->send(handler(request.path, request.query));
    else
      reply->send({405, "text/plain; charset=utf-8", "expected GET\n", {{"Allow", "GET"}}});
  };
  return make_http_server(options, std::move(answer));
}

std::unique_ptr<HttpServer> make_http_server(const HttpServerOptions& options, HttpRequestHandler handler) {
  return std::make_unique<EventHttpServer>(options, std::move(handler));
}

}  // namespace accel::track
