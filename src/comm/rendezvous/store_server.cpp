#include "comm/rendezvous/store_server.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "os/background_thread.hpp"

namespace accel::comm {
namespace {

using c10d::detail::CheckResponseType;
using c10d::detail::QueryType;
using c10d::detail::WaitResponseType;

constexpr size_t kLongestRequest = 1 << 28;
constexpr size_t kMostKeys = 1 << 20;  // of one request

// A value is shared by the table and the answers that wait to be sent: thousands of clients may ask for the same one.
using Value = std::shared_ptr<const std::string>;
constexpr size_t kCopied = 4096;  // a value up to this size is sent in one chunk with what is around it

struct Incomplete {};  // the rest of a request has not come yet
struct Nonsense {};    // what no client of a store sends

// The parts of a request, one after the other.
class RequestReader {
 public:
  explicit RequestReader(const std::string& bytes) : bytes_(bytes) {}

  template <typename Number>
  Number number() {
    Number number;
    if (bytes_.size() - offset_ < sizeof(number)) throw Incomplete();
    std::memcpy(&number, bytes_.data() + offset_, sizeof(number));
    offset_ += sizeof(number);
    return number;
  }
  std::string text() {
    const auto size = number<uint64_t>();
    if (size > kLongestRequest) throw Nonsense();
    if (bytes_.size() - offset_ < size) throw Incomplete();
    offset_ += size;
    return bytes_.substr(offset_ - size, size);
  }
  size_t count() {
    const auto count = number<uint64_t>();
    if (count > kMostKeys) throw Nonsense();
    return count;
  }
  std::vector<std::string> texts() {
    std::vector<std::string> texts(count());
    for (std::string& one : texts) one = text();
    return texts;
  }
  size_t offset() const { return offset_; }

 private:
  const std::string& bytes_;
  size_t offset_ = 0;
};

}  // namespace

class StoreServer::Loop {
 public:
  explicit Loop(FileDescriptor listener)
      : listener_(std::move(listener)),
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

  void run() {
    while (true) {
      epoll_event events[64];
      const int count = epoll_wait(events_.number(), events, 64, -1);
      for (int i = 0; i < count; i++) {
        const int descriptor = events[i].data.fd;
        if (descriptor == stop_.number()) return;
        if (descriptor == listener_.number())
          accept_client();
        else
          serve(descriptor, events[i].events);
      }
    }
  }

 private:
  // Bytes that a socket has not accepted yet.
  class Output {
   public:
    bool is_empty() const { return chunks_.empty(); }

    void add(const char* bytes, size_t size) {
      if (chunks_.empty() || chunks_.back().shared) chunks_.emplace_back();
      chunks_.back().own.append(bytes, size);
    }
    void add(const Value& value) {
      if (value->size() > kCopied)
        chunks_.push_back({{}, value});
      else
        add(value->data(), value->size());
    }

    void send_to(const FileDescriptor& socket) {
      while (!chunks_.empty()) {
        const Chunk& chunk = chunks_.front();
        const std::string& bytes = chunk.shared ? *chunk.shared : chunk.own;
        const ssize_t sent = send(socket.number(), bytes.data() + sent_, bytes.size() - sent_, MSG_NOSIGNAL);
        if (sent > 0) sent_ += static_cast<size_t>(sent);
        if (sent_ < bytes.size()) return;
        sent_ = 0;
        chunks_.pop_front();
      }
    }

   private:
    struct Chunk {
      std::string own;
      Value shared;  // instead, if it is there
    };

    std::deque<Chunk> chunks_;
    size_t sent_ = 0;  // of the first chunk
  };

  struct Client {
    FileDescriptor socket;
    bool is_known = false;  // it has sent the number with which clients of a store begin
    std::string input;
    Output output;
    uint32_t events = EPOLLIN;         // that are watched
    std::vector<std::string> awaited;  // keys that were not there when it asked
    size_t missing = 0;                // of them
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
      // Without a file descriptor the client stays in the queue, and this loop must not spin for it.
      if (errno == EMFILE || errno == ENFILE) usleep(1000);
      return;
    }
    const int yes = 1;
    setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    const int number = socket.number();
    try {
      Client& client = clients_[number];
      client.socket = std::move(socket);
      if (!watch(EPOLL_CTL_ADD, client.socket, EPOLLIN)) clients_.erase(number);
    } catch (const std::exception&) {
      clients_without_memory_++;  // before its connection is closed, which may be this process's own
    }
  }

  void serve(int descriptor, uint32_t events) {
    const auto found = clients_.find(descriptor);
    if (found == clients_.end()) return;
    bool stays = true;
    try {
      if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) stays = receive(found->second);
      flush(found->second);
    } catch (const Nonsense&) {
      stays = false;
    } catch (const std::exception&) {
      clients_without_memory_++;
      stays = false;
    }
    if (stays) return;
    stop_waiting(found->second);
    clients_.erase(descriptor);
  }

  bool receive(Client& client) {
    char bytes[16384];
    const ssize_t size = recv(client.socket.number(), bytes, sizeof(bytes), 0);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    if (size == 0) return false;
    client.input.append(bytes, static_cast<size_t>(size));
    if (client.input.size() > 2 * kLongestRequest) throw Nonsense();
    try {
      while (!client.input.empty()) {
        RequestReader request(client.input);
        answer(client, request);
        client.input.erase(0, request.offset());
      }
    } catch (const Incomplete&) {
    }
    return true;
  }

  // A request may be incomplete: all its parts are read before it is executed.
  void answer(Client& client, RequestReader& request) {
    const auto type = request.number<QueryType>();
    if (client.is_known == (type == QueryType::VALIDATE)) throw Nonsense();
    switch (type) {
      case QueryType::VALIDATE:
        client.is_known = request.number<uint32_t>() == c10d::detail::validationMagicNumber;
        if (!client.is_known) throw Nonsense();
        return;
      case QueryType::PING:
        return send_number(client, request.number<uint32_t>());
      case QueryType::SET: {
        const std::string key = request.text();
        return set(key, request.text());
      }
      case QueryType::APPEND: {
        const std::string key = request.text();
        const std::string value = request.text();
        return set(key, *value_of(key) + value);
      }
      case QueryType::COMPARE_SET: {
        const std::string key = request.text(), expected = request.text(), desired = request.text();
        const auto found = values_.find(key);
        const bool is_expected = found == values_.end() ? expected.empty() : *found->second == expected;
        const Value present = found == values_.end() ? shared(expected) : found->second;
        if (is_expected) set(key, desired);
        return send_value(client, is_expected ? shared(desired) : present);
      }
      case QueryType::GET:
        return send_value(client, value_of(request.text()));
      case QueryType::MULTI_GET:
        for (const std::string& key : request.texts()) send_value(client, value_of(key));
        return;
      case QueryType::MULTI_SET: {
        std::vector<std::pair<std::string, std::string>> entries(request.count());
        for (auto& [key, value] : entries) {
          key = request.text();
          value = request.text();
        }
        for (const auto& [key, value] : entries) set(key, value);
        return;
      }
      case QueryType::ADD: {
        const std::string key = request.text();
        const int64_t sum = std::strtoll(value_of(key)->c_str(), nullptr, 10) + request.number<int64_t>();
        set(key, std::to_string(sum));
        return send_number(client, sum);
      }
      case QueryType::CHECK: {
        const auto keys = request.texts();
        const bool all = std::all_of(keys.begin(), keys.end(), [this](const auto& key) { return is_there(key); });
        return send_number(client, all ? CheckResponseType::READY : CheckResponseType::NOT_READY);
      }
      case QueryType::WAIT:
        return wait(client, request.texts());
      case QueryType::CANCEL_WAIT:
        stop_waiting(client);
        return send_number(client, WaitResponseType::WAIT_CANCELED);
      case QueryType::GETNUMKEYS:
        return send_number(client, static_cast<int64_t>(values_.size()));
      case QueryType::DELETE_KEY:
        return send_number(client, static_cast<int64_t>(values_.erase(request.text())));
      default:
        throw Nonsense();
    }
  }

  bool is_there(const std::string& key) const { return values_.count(key) != 0; }

  static Value shared(std::string bytes) { return std::make_shared<const std::string>(std::move(bytes)); }

  Value value_of(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? shared({}) : found->second;
  }

  void set(const std::string& key, std::string value) {
    values_[key] = shared(std::move(value));
    const auto waiting = waiting_.find(key);
    if (waiting == waiting_.end()) return;
    const std::vector<int> descriptors = std::move(waiting->second);
    waiting_.erase(waiting);
    for (const int descriptor : descriptors) {
      Client& client = clients_.at(descriptor);
      if (--client.missing > 0) continue;
      client.awaited.clear();
      try {
        send_number(client, WaitResponseType::STOP_WAITING);
        flush(client);
      } catch (const std::exception&) {
        clients_without_memory_++;
        shutdown(client.socket.number(), SHUT_RDWR);
      }
    }
  }

  void wait(Client& client, std::vector<std::string> keys) {
    keys.erase(std::remove_if(keys.begin(), keys.end(), [this](const auto& key) { return is_there(key); }), keys.end());
    if (keys.empty()) return send_number(client, WaitResponseType::STOP_WAITING);
    stop_waiting(client);
    for (const std::string& key : keys) waiting_[key].push_back(client.socket.number());
    client.missing = keys.size();
    client.awaited = std::move(keys);
  }

  void stop_waiting(Client& client) {
    for (const std::string& key : client.awaited) {
      const auto waiting = waiting_.find(key);
      if (waiting == waiting_.end()) continue;  // it came, or stands there twice
      auto& clients = waiting->second;
      clients.erase(std::remove(clients.begin(), clients.end(), client.socket.number()), clients.end());
      if (clients.empty()) waiting_.erase(waiting);
    }
    client.awaited.clear();
    client.missing = 0;
  }

  template <typename Number>
  static void send_number(Client& client, Number number) {
    client.output.add(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  static void send_value(Client& client, const Value& value) {
    send_number(client, static_cast<uint64_t>(value->size()));
    client.output.add(value);
  }

  // Sends what the socket accepts; the rest follows later. A disconnected client is detected when it is read.
  void flush(Client& client) const {
    client.output.send_to(client.socket);
    const uint32_t events = client.output.is_empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
    if (events == client.events) return;
    watch(EPOLL_CTL_MOD, client.socket, events);
    client.events = events;
  }

  const FileDescriptor listener_, events_, stop_;
  std::map<int, Client> clients_;
  std::unordered_map<std::string, Value> values_;
  std::unordered_map<std::string, std::vector<int>> waiting_;  // clients by key
  std::atomic<int64_t> clients_without_memory_{0};
};

StoreServer::StoreServer(FileDescriptor listener)
    : loop_(std::make_unique<Loop>(std::move(listener))),
      thread_(background_thread("accel-store", [loop = loop_.get()] { loop->run(); })) {}

int64_t StoreServer::clients_without_memory() const { return loop_->clients_without_memory(); }

StoreServer::~StoreServer() {
  loop_->stop();
  thread_.join();
}

}  // namespace accel::comm
