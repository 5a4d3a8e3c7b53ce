// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/store_client.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>
#include <utility>

#include "base/error.hpp"
#include "comm/rendezvous/store_proof.hpp"
#include "os/interruption.hpp"

namespace accel::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;
using c10d::detail::QueryType;

// The server ends a wait; its answer may take a moment, longer if all cores are busy.
constexpr auto kWayBack = Milliseconds(1000);
constexpr auto kLongestSleep = Milliseconds(50);  // until an interruption is seen
constexpr uint64_t kLongestValue = 1 << 28;       // a longer one was not written by a rank

}  // namespace

// Numbers are in host byte order; keys and values follow their length.
class StoreClient::Request {
 public:
  explicit Request(QueryType type) { add(type); }

  template <typename Number>
  Request& add(Number number) {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(&number);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(number));
    return *this;
  }
  template <typename Bytes>
  Request& add_bytes(const Bytes& bytes) {
    add(static_cast<uint64_t>(bytes.size()));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Request& add_keys(const std::vector<std::string>& keys) {
    add(static_cast<uint64_t>(keys.size()));
    for (const std::string& key : keys) add_bytes(key);
    return *this;
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

// One operation on a connection.
class StoreClient::Exchange {
 public:
  Exchange(const FileDescriptor& connection, const Address& address, const Deadline& deadline)
      : connection_(connection), address_(address), deadline_(deadline) {}

  void send(const Request& request) const {
    const uint8_t* rest = request.bytes().data();
    for (size_t left = request.bytes().size(); left > 0;) {
      const ssize_t sent = ::send(connection_.number(), rest, left, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) {
        wait_until(POLLOUT);
        continue;
      }
      rest += sent;
      left -= static_cast<size_t>(sent);
    }
  }

  template <typename Number>
  Number receive() const {
    Number number;
    read(&number, sizeof(number));
    return number;
  }

  std::vector<uint8_t> receive_bytes() const {
    const auto size = receive<uint64_t>();
    if (size > kLongestValue) answered_something_else();
    std::vector<uint8_t> bytes(size);
    read(bytes.data(), bytes.size());
    return bytes;
  }

  std::string receive_text() const {
    const std::vector<uint8_t> bytes = receive_bytes();
    return {bytes.begin(), bytes.end()};
  }

  // Whether there is something to receive before the deadline.
  bool is_answered(const Deadline& deadline) const {
    pollfd state{connection_.number(), POLLIN, 0};
    while (true) {
      const auto time = std::min(deadline.left(), kLongestSleep);
      if (poll(&state, 1, static_cast<int>(time.count())) > 0) return true;
      check_interruption();
      if (deadline.passed()) return false;
    }
  }

  [[noreturn]] void answered_something_else() const {
    fail(Status::kPeerLost, "the store of rank 0 at ", address_.host, ":", address_.port,
         " gave an answer that no store gives; see whether another program uses that port");
  }

 private:
  void read(void* to, size_t size) const {
    auto* place = static_cast<uint8_t*>(to);
    while (size > 0) {
      const ssize_t received = recv(connection_.number(), place, size, MSG_DONTWAIT);
      if (received == 0) lost();
      if (received < 0) {
        wait_until(POLLIN);
        continue;
      }
      place += received;
      size -= static_cast<size_t>(received);
    }
  }

  // After a failed or incomplete call.
  void wait_until(short event) const {
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) lost();
    require(!deadline_.passed(), Status::kTimeout, "the store of rank 0 at ", address_.host, ":", address_.port,
            " did not answer within ", deadline_.total().count(),
            " ms; see whether rank 0 runs and its host can be reached");
    pollfd state{connection_.number(), event, 0};
    poll(&state, 1, static_cast<int>(std::min(deadline_.left() + Milliseconds(1), kLongestSleep).count()));
    check_interruption();
  }

  void check_interruption() const {
    require(!interruption_.raised(), Status::kCancelled, "the program was interrupted while it waited for rank 0");
  }

  [[noreturn]] void lost() const {
    fail(Status::kPeerLost, "the store of rank 0 at ", address_.host, ":", address_.port,
         " is gone; see what rank 0 says");
  }

  const FileDescriptor& connection_;
  const Address& address_;
  const Deadline deadline_;
  const InterruptionFlag interruption_;
};

StoreClient::StoreClient(Address address, Milliseconds timeout, std::optional<StoreIdentity> identity)
    : Store(timeout), address_(std::move(address)), identity_(std::move(identity)) {
  getNumKeys();
}

void StoreClient::introduce(const Exchange& exchange) const {
  const auto nonce = static_cast<uint32_t>(getpid());
  exchange.send(Request(QueryType::VALIDATE).add(c10d::detail::validationMagicNumber));
  exchange.send(Request(QueryType::PING).add(nonce));
  if (exchange.receive<uint32_t>() != nonce) exchange.answered_something_else();
  if (!identity_) return;
  StoreChallenge challenge{identity_->who, random_digits(kChallengeBytes), {}};
  exchange.send(Request(kChallenge).add_bytes(challenge.who).add_bytes(challenge.client_number));
  challenge.server_number = exchange.receive_text();
  require(are_equal_codes(exchange.receive_text(), challenge.server_code(identity_->secret)), Status::kInvalidState,
          identity_->who, " belongs to another job: its ACCEL_JOB_TOKEN is not that of the store at ", address_.host,
          ":", address_.port, "; start all ranks with one token, and give each job a MASTER_PORT of its own");
  exchange.send(Request(kProof).add_bytes(challenge.client_code(identity_->secret)));
}

template <typename Answer>
auto StoreClient::ask(Milliseconds limit, const Request& request, const Answer& answer) {
  const Deadline deadline(limit);
  const std::unique_lock lock(mutex_, limit);
  require(lock.owns_lock(), Status::kTimeout, "another thread has waited for the store of rank 0 for ", limit.count(),
          " ms");
  const bool is_new = !connection_.is_open();
  FileDescriptor connection = std::move(connection_);
  if (is_new) {
    Connection made = connect_to(address_, deadline.left());
    require(made.socket.is_open(), made.refused ? Status::kPeerLost : Status::kTimeout, "the store of rank 0 at ",
            address_.host, ":", address_.port, made.refused ? " is gone" : " cannot be reached",
            "; see whether rank 0 runs");
    connection = std::move(made.socket);
    const int yes = 1;
    setsockopt(connection.number(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }
  const Exchange exchange(connection, address_, deadline);
  if (is_new) introduce(exchange);
  exchange.send(request);
  if constexpr (std::is_void_v<decltype(answer(exchange))>) {
    answer(exchange);
    connection_ = std::move(connection);
  } else {
    auto result = answer(exchange);
    connection_ = std::move(connection);
    return result;
  }
}

c10::intrusive_ptr<c10d::Store> StoreClient::clone() {
  return c10::make_intrusive<StoreClient>(address_, timeout_, identity_);
}

void StoreClient::set(const std::string& key, const std::vector<uint8_t>& value) {
  ask(timeout_, Request(QueryType::SET).add_bytes(key).add_bytes(value), [](const Exchange&) {});
}

std::vector<uint8_t> StoreClient::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                             const std::vector<uint8_t>& desired) {
  return ask(timeout_, Request(QueryType::COMPARE_SET).add_bytes(key).add_bytes(expected).add_bytes(desired),
             [](const Exchange& exchange) { return exchange.receive_bytes(); });
}

std::vector<uint8_t> StoreClient::get(const std::string& key) {
  wait({key});
  return ask(timeout_, Request(QueryType::GET).add_bytes(key),
             [](const Exchange& exchange) { return exchange.receive_bytes(); });
}

std::vector<std::vector<uint8_t>> StoreClient::multiGet(const std::vector<std::string>& keys) {
  wait(keys);
  return ask(timeout_, Request(QueryType::MULTI_GET).add_keys(keys), [&](const Exchange& exchange) {
    std::vector<std::vector<uint8_t>> values;
    for (size_t i = 0; i < keys.size(); i++) values.push_back(exchange.receive_bytes());
    return values;
  });
}

int64_t StoreClient::add(const std::string& key, int64_t value) {
  return ask(timeout_, Request(QueryType::ADD).add_bytes(key).add(value),
             [](const Exchange& exchange) { return exchange.receive<int64_t>(); });
}

void StoreClient::append(const std::string& key, const std::vector<uint8_t>& value) {
  ask(timeout_, Request(QueryType::APPEND).add_bytes(key).add_bytes(value), [](const Exchange&) {});
}

void StoreClient::multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<uint8_t>>& values) {
  Request request(QueryType::MULTI_SET);
  request.add(static_cast<uint64_t>(keys.size()));
  for (size_t i = 0; i < keys.size(); i++) request.add_bytes(keys[i]).add_bytes(values[i]);
  ask(timeout_, request, [](const Exchange&) {});
}

bool StoreClient::deleteKey(const std::string& key) {
  return ask(timeout_, Request(QueryType::DELETE_KEY).add_bytes(key),
             [](const Exchange& exchange) { return exchange.receive<int64_t>() == 1; });
}

bool StoreClient::check(const std::vector<std::string>& keys) {
  using c10d::detail::CheckResponseType;
  return ask(timeout_, Request(QueryType::CHECK).add_keys(keys), [](const Exchange& exchange) {
    return exchange.receive<CheckResponseType>() == CheckResponseType::READY;
  });
}

int64_t StoreClient::getNumKeys() {
  return ask(timeout_, Request(QueryType::GETNUMKEYS),
             [](const Exchange& exchange) { return exchange.receive<int64_t>(); });
}

void StoreClient::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void StoreClient::wait(const std::vector<std::string>& keys, const Milliseconds& timeout) {
  using c10d::detail::WaitResponseType;
  const auto came = [&](const Exchange& exchange) {
    if (exchange.is_answered(Deadline(timeout)))
      return exchange.receive<WaitResponseType>() == WaitResponseType::STOP_WAITING;
    exchange.send(Request(QueryType::CANCEL_WAIT));
    if (exchange.receive<WaitResponseType>() == WaitResponseType::WAIT_CANCELED) return false;
    exchange.receive<WaitResponseType>();  // it came just then; the answer to the cancellation follows
    return true;
  };
  require(ask(timeout + kWayBack, Request(QueryType::WAIT).add_keys(keys), came), Status::kTimeout,
          "what rank 0 keeps for the ranks was not complete within ", timeout.count(),
          " ms; see whether all ranks run");
}

}  // namespace accel::comm
