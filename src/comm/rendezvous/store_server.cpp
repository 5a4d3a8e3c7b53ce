// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/store_server.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "comm/rendezvous/store_requests.hpp"
#include "os/background_thread.hpp"

namespace accel::comm {
namespace {

constexpr int kMostEvents = 64;
constexpr size_t kFewNewcomers = 16;
constexpr int kMostPieces = 16;  // in which a client may introduce itself

// The rest of this process needs descriptors too.
size_t most_newcomers() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kFewNewcomers;
  return std::max<size_t>(limit.rlim_cur / 4, kFewNewcomers);
}

}  // namespace

class StoreServer::Loop {
 public:
  Loop(FileDescriptor listener, std::string secret, std::chrono::milliseconds introduction_time)
      : requests_(std::move(secret)),
        introduction_time_(introduction_time),
        listener_(std::move(listener)),
        events_(epoll_create1(EPOLL_CLOEXEC)),
        stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    require(events_.is_open() && stop_.is_open(), Status::kIo, "the store cannot be served: ", std::strerror(errno),
            "; raise the limit of file descriptors (ulimit -n)");
    fcntl(listener_.number(), F_SETFL, fcntl(listener_.number(), F_GETFL) | O_NONBLOCK);
    require(watch(EPOLL_CTL_ADD, listener_, EPOLLIN) && watch(EPOLL_CTL_ADD, stop_, EPOLLIN), Status::kIo,
            "the store cannot be served: ", std::strerror(errno));
  }

  void stop() {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = write(stop_.number(), &one, sizeof(one));
  }

  int64_t clients_without_memory() const { return clients_without_memory_.load(); }
  int64_t strangers() const { return strangers_.load(); }

  void run() {
    for (int patience = -1;;) {
      epoll_event events[kMostEvents];
      const int count = epoll_wait(events_.number(), events, kMostEvents, patience);
      for (int i = 0; i < count; i++) {
        const int descriptor = events[i].data.fd;
        if (descriptor == stop_.number()) return;
        if (descriptor == listener_.number())
          accept_client();
        else
          serve(descriptor, events[i].events);
      }
      // This process may have stood still: a client is silent only if nothing of it waits to be read.
      patience = count == kMostEvents ? 0 : remove_silent_clients();
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  struct Connection : StoreRequests::Client {
    FileDescriptor socket;
    Clock::time_point heard;  // until it belongs to the job
    int pieces = 0;
    uint32_t events = EPOLLIN;  // that are watched
  };

  bool watch(int operation, const FileDescriptor& descriptor, uint32_t events) const {
    epoll_event event{};
    event.events = events;
    event.data.fd = descriptor.number();
    return epoll_ctl(events_.number(), operation, descriptor.number(), &event) == 0;
  }

  // The connection of a client that cannot be served is closed.
  void accept_client() {
    FileDescriptor socket(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) {
      // Without a file descriptor the client stays in the queue. One that has not introduced itself gives its own, and
      // without such a one this loop must not spin.
      if ((errno == EMFILE || errno == ENFILE) && !remove_oldest_newcomer()) usleep(1000);
      return;
    }
    const int yes = 1;
    setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    const int number = socket.number();
    try {
      Connection& client = clients_[number];
      client.socket = std::move(socket);
      client.heard = Clock::now();
      newcomers_.emplace(client.heard, number);
      if (!watch(EPOLL_CTL_ADD, client.socket, EPOLLIN)) remove(number);
      if (newcomers_.size() > most_newcomers_) remove_oldest_newcomer();
    } catch (const std::exception&) {
      clients_without_memory_++;  // before its connection is closed, which may be this process's own
      if (clients_.count(number) != 0) remove(number);
    }
  }

  void remove(int descriptor) {
    const auto found = clients_.find(descriptor);
    newcomers_.erase({found->second.heard, descriptor});
    requests_.forget(found->second);
    clients_.erase(found);
  }

  // Returns whether there was one.
  bool remove_oldest_newcomer() {
    if (newcomers_.empty()) return false;
    strangers_++;
    remove(newcomers_.begin()->second);
    return true;
  }

  // Returns the milliseconds until it is to be called again; below 0: when another client has come.
  int remove_silent_clients() {
    while (!newcomers_.empty()) {
      const auto left = newcomers_.begin()->first + introduction_time_ - Clock::now();
      if (left > left.zero()) return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
      remove_oldest_newcomer();
    }
    return -1;
  }

  void serve(int descriptor, uint32_t events) {
    const auto found = clients_.find(descriptor);
    if (found == clients_.end()) return;
    Connection& client = found->second;
    bool stays = true;
    try {
      if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) stays = receive(client);
      flush(client);
    } catch (const std::exception&) {
      clients_without_memory_++;
      stays = false;
    }
    send_answers();
    if (!stays) remove(descriptor);
  }

  bool receive(Connection& client) {
    char bytes[16384];
    const ssize_t size = recv(client.socket.number(), bytes, sizeof(bytes), 0);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    if (size == 0) return false;
    const auto outcome = requests_.receive(client, bytes, static_cast<size_t>(size));
    if (outcome == StoreRequests::Outcome::kStranger) strangers_++;
    return outcome == StoreRequests::Outcome::kServed && (is_introduced(client) || client.pieces <= kMostPieces);
  }

  // A client that has not shown that it belongs to the job gets more time with each part of its message.
  bool is_introduced(Connection& client) {
    const int descriptor = client.socket.number();
    if (newcomers_.erase({client.heard, descriptor}) == 0 || client.belongs()) return true;
    client.heard = Clock::now();
    client.pieces++;
    newcomers_.emplace(client.heard, descriptor);
    return false;
  }

  // To clients that have waited. One that cannot be served is noticed when it is read.
  void send_answers() {
    for (StoreRequests::Client* const answered : requests_.answered()) {
      auto& client = static_cast<Connection&>(*answered);
      if (client.lacks_memory()) {
        clients_without_memory_++;
        shutdown(client.socket.number(), SHUT_RDWR);
      } else {
        flush(client);
      }
    }
    requests_.answered().clear();
  }

  // Sends what the socket accepts; the rest follows later. A disconnected client is detected when it is read.
  void flush(Connection& client) const {
    StoreAnswers& answers = client.answers;
    while (!answers.is_empty()) {
      const std::string& bytes = answers.next();
      const size_t left = bytes.size() - answers.offset();
      const ssize_t sent = send(client.socket.number(), bytes.data() + answers.offset(), left, MSG_NOSIGNAL);
      if (sent > 0) answers.take(static_cast<size_t>(sent));
      if (sent < static_cast<ssize_t>(left)) break;
    }
    const uint32_t events = answers.is_empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
    if (events == client.events) return;
    watch(EPOLL_CTL_MOD, client.socket, events);
    client.events = events;
  }

  StoreRequests requests_;
  const std::chrono::milliseconds introduction_time_;
  const size_t most_newcomers_ = most_newcomers();
  const FileDescriptor listener_, events_, stop_;
  std::map<int, Connection> clients_;
  std::set<std::pair<Clock::time_point, int>> newcomers_;  // those that do not belong to the job yet, by last message
  std::atomic<int64_t> clients_without_memory_{0}, strangers_{0};
};

StoreServer::StoreServer(FileDescriptor listener, std::string secret, std::chrono::milliseconds introduction_time)
    : loop_(std::make_unique<Loop>(std::move(listener), std::move(secret), introduction_time)),
      thread_(background_thread("accel-store", [loop = loop_.get()] { loop->run(); })) {}

int64_t StoreServer::clients_without_memory() const { return loop_->clients_without_memory(); }

int64_t StoreServer::strangers() const { return loop_->strangers(); }

StoreServer::~StoreServer() {
  loop_->stop();
  thread_.join();
}

}  // namespace accel::comm
