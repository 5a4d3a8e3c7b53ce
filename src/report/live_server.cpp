#include "report/live_server.hpp"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "report/page.hpp"
#include "report/page_data.hpp"

namespace accel::report {
namespace {

constexpr int kSecondsOfConnection = 60;
constexpr ev_ssize_t kMostBytesOfHeaders = 16 << 10, kMostBytesOfBody = 1 << 10;
// Files are looked at so often at most, however many pages are open.
constexpr std::chrono::milliseconds kShortestPause{100};

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};

bool is_address(const std::string& name) {
  in6_addr parsed;
  return ::inet_pton(AF_INET, name.c_str(), &parsed) == 1 || ::inet_pton(AF_INET6, name.c_str(), &parsed) == 1;
}

uint32_t since_of(const evhttp_uri* uri) {
  constexpr std::string_view kSince = "since=";
  const char* const query = evhttp_uri_get_query(uri);
  const std::string_view given = query == nullptr ? "" : query;
  uint32_t since = 0;
  if (given.substr(0, kSince.size()) == kSince)
    std::from_chars(given.data() + kSince.size(), given.data() + given.size(), since);
  return since;
}

}  // namespace

bool is_own_name(const std::string& host_header, const std::string& host) {
  std::string name = host_header;
  if (!name.empty() && name.front() == '[') {
    name = name.substr(1, name.find(']') - 1);
  } else if (const size_t colon = name.rfind(':'); colon != std::string::npos) {
    name.resize(colon);
  }
  return is_address(name) || ::strcasecmp(name.c_str(), "localhost") == 0 ||
         (!name.empty() && ::strcasecmp(name.c_str(), host.c_str()) == 0);
}

class LiveServer::Events {
 public:
  Events(Report& report, LiveOptions options) : report_(report), options_(std::move(options)) {
    require(base_ != nullptr && http_ != nullptr, Status::kIo, "the events of the server cannot be set up");
    evhttp_set_allowed_methods(http_.get(), EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
    evhttp_set_timeout(http_.get(), kSecondsOfConnection);
    evhttp_set_max_headers_size(http_.get(), kMostBytesOfHeaders);
    evhttp_set_max_body_size(http_.get(), kMostBytesOfBody);
    evhttp_set_gencb(
        http_.get(), [](evhttp_request* request, void* self) { static_cast<Events*>(self)->answer(request); }, this);
    errno = 0;
    socket_ =
        evhttp_bind_socket_with_handle(http_.get(), options_.host.c_str(), static_cast<ev_uint16_t>(options_.port));
    require(socket_ != nullptr, Status::kIo, "cannot listen at ", options_.host, " port ", options_.port, ": ",
            errno == 0 ? "it is no address of this machine" : std::strerror(errno));
    for (const int number : {SIGINT, SIGTERM}) {
      const auto end = [](evutil_socket_t, short, void* base) { event_base_loopbreak(static_cast<event_base*>(base)); };
      signals_.emplace_back(evsignal_new(base_.get(), number, end, base_.get()));
      require(signals_.back() != nullptr && event_add(signals_.back().get(), nullptr) == 0, Status::kIo,
              "signals cannot be received");
    }
  }

  std::string address() const {
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    ::getsockname(evhttp_bound_socket_get_fd(socket_), reinterpret_cast<sockaddr*>(&bound), &size);
    const in_port_t port = bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                                       : reinterpret_cast<const sockaddr_in&>(bound).sin_port;
    const bool has_brackets = options_.host.find(':') != std::string::npos;
    return text("http://", has_brackets ? "[" : "", options_.host, has_brackets ? "]" : "", ':', ntohs(port), '/');
  }

  void run() { event_base_dispatch(base_.get()); }

 private:
  // No exception may pass through the library.
  void answer(evhttp_request* request) {
    try {
      answer_or_throw(request);
    } catch (const std::exception& error) {
      evhttp_send_error(request, HTTP_INTERNAL, nullptr);
    }
  }

  void answer_or_throw(evhttp_request* request) {
    const char* const host = evhttp_find_header(evhttp_request_get_input_headers(request), "Host");
    const evhttp_uri* const uri = evhttp_request_get_evhttp_uri(request);
    const char* const given = uri == nullptr ? nullptr : evhttp_uri_get_path(uri);
    const std::string path = given == nullptr || *given == '\0' ? "/" : given;
    if (host == nullptr || !is_own_name(host, options_.host))
      return send(request, 403, "text/plain", "This server answers to its address only.\n");
    if (path != "/" && path != "/data") return send(request, HTTP_NOTFOUND, "text/plain", "There is no such page.\n");
    look();
    if (path == "/data") return send(request, HTTP_OK, "application/json", page_data(report_, since_of(uri)));
    send(request, HTTP_OK, "text/html", page(page_data(report_, 0), options_.interval));
  }

  void look() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_look_ < kShortestPause) return;
    report_.update();
    last_look_ = std::chrono::steady_clock::now();
  }

  void send(evhttp_request* request, int status, const char* type, const std::string& body) {
    const std::pair<const char*, std::string> headers[] = {
        {"Content-Type", std::string(type) + "; charset=utf-8"},
        {"Cache-Control", "no-store"},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Content-Security-Policy", content_security_policy(true) + "; frame-ancestors 'none'"},
    };
    for (const auto& [name, value] : headers)
      evhttp_add_header(evhttp_request_get_output_headers(request), name, value.c_str());
    evbuffer_add(evhttp_request_get_output_buffer(request), body.data(), body.size());
    evhttp_send_reply(request, status, nullptr, nullptr);
  }

  Report& report_;
  const LiveOptions options_;
  // Destroyed in the opposite order.
  const std::unique_ptr<event_base, Free<event_base_free>> base_{event_base_new()};
  const std::unique_ptr<evhttp, Free<evhttp_free>> http_{base_ != nullptr ? evhttp_new(base_.get()) : nullptr};
  std::vector<std::unique_ptr<event, Free<event_free>>> signals_;
  evhttp_bound_socket* socket_ = nullptr;
  std::chrono::steady_clock::time_point last_look_{};
};

LiveServer::LiveServer(Report& report, LiveOptions options)
    : events_(std::make_unique<Events>(report, std::move(options))) {}

LiveServer::~LiveServer() = default;

std::string LiveServer::address() const { return events_->address(); }

void LiveServer::run() { events_->run(); }

}  // namespace accel::report
