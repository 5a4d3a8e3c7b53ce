#include "comm/rendezvous.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/timed_store.hpp"

namespace accel::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr int kBacklog = 1024;
constexpr auto kRetryPause = Milliseconds(2);

class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }
  int take() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

bool is_loopback(const std::string& host) { return host == "localhost" || host.rfind("127.", 0) == 0; }

// The store speaks plain text and asks for no password: on one host it listens on the loopback address only.
int listen_on(const std::string& host, int port) {
  FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  require(listener.get() >= 0, Status::kIo, "no socket for the store: ", std::strerror(errno));
  const int yes = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(is_loopback(host) ? INADDR_LOOPBACK : INADDR_ANY);
  const bool bound = bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                     listen(listener.get(), kBacklog) == 0;
  require(bound, Status::kIo, "port ", port, " of ", host, " cannot be used: ", std::strerror(errno),
          "; set MASTER_PORT to a free port");
  return listener.take();
}

struct AddressDelete {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

// A host that cannot be reached does not even refuse.
void limit_connect(const FileDescriptor& connection, Milliseconds limit) {
  const auto count = std::max(limit, Milliseconds(1)).count();
  timeval time{};
  time.tv_sec = count / 1000;
  time.tv_usec = count % 1000 * 1000;
  setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

bool can_connect(const std::string& host, int port, const Deadline& deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, AddressDelete> list(found);
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    const FileDescriptor probe(socket(entry->ai_family, entry->ai_socktype | SOCK_CLOEXEC, entry->ai_protocol));
    limit_connect(probe, deadline.left());
    if (probe.get() >= 0 && connect(probe.get(), entry->ai_addr, entry->ai_addrlen) == 0) return true;
  }
  return false;
}

struct Address {
  std::string host;
  int port;
  bool operator<(const Address& other) const { return std::tie(host, port) < std::tie(other.host, other.port); }
};

// What this process knows of an address: its server, and how many groups each rank has joined there.
struct Meeting {
  c10::intrusive_ptr<c10d::TCPStore> server;
  std::map<int, int64_t> joined;
};

struct Meetings {
  std::mutex mutex;
  std::map<Address, Meeting> by_address;
};

Meetings& meetings() {
  static Meetings* const instance = std::make_unique<Meetings>().release();  // see [Note: one store server per address]
  return *instance;
}

c10d::TCPStoreOptions store_options(int port, Milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;  // we wait ourselves, to be able to name who is missing
  options.timeout = std::max(timeout, Milliseconds(1));
  return options;
}

// Serves if this rank has to, and counts the group. Returns the number of groups that this rank joined here before.
int64_t enter(const RendezvousOptions& options, const std::string& host, const Deadline& deadline) {
  Meetings& all = meetings();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Meeting& meeting = all.by_address[{host, options.port}];
  if (options.serve && options.rank == 0 && !meeting.server) {
    c10d::TCPStoreOptions server = store_options(options.port, deadline.left());
    server.isServer = true;
    server.masterListenFd = listen_on(host, options.port);
    meeting.server = c10::make_intrusive<c10d::TCPStore>(host, server);
  }
  return meeting.joined[options.rank]++;
}

std::string rank_key(int rank) { return "present/" + std::to_string(rank); }
std::string refusal_key(int64_t number) { return "refusal/" + std::to_string(number); }

// Tells rank 0, whose log is the one that is read, and fails.
[[noreturn]] void refuse(c10d::Store& store, Status status, const std::string& who, const std::string& what_to_do) {
  store.set(refusal_key(store.add("refusals", 1)), who);
  fail(status, who, "; ", what_to_do);
}

std::vector<std::string> refusals(c10d::Store& store) {
  std::vector<std::string> found;
  const int64_t count = store.add("refusals", 0);
  for (int64_t number = 1; number <= count; number++) found.push_back(store.get_to_str(refusal_key(number)));
  return found;
}

// Rank 0 says which job this is; the others compare.
void sign_in(c10d::Store& store, const RendezvousOptions& options) {
  const std::string size = std::to_string(options.size);
  const std::string rank = text("rank ", options.rank, " of ", options.size);
  if (options.rank == 0) {
    store.set("token", options.token);
    store.set("size", size);
  } else {
    if (store.get_to_str("token") != options.token)
      refuse(store, Status::kInvalidState, rank + " belongs to another job: its ACCEL_JOB_TOKEN is not that of rank 0",
             text("give each job a MASTER_PORT of its own; that of this one is ", options.port));
    const std::string size_of_0 = store.get_to_str("size");
    if (size_of_0 != size)
      refuse(store, Status::kInvalidArgument, rank + " came to a job of " + size_of_0 + " ranks",
             "start all ranks with the same number of processes (WORLD_SIZE)");
  }
  if (store.add(rank_key(options.rank), 1) > 1)
    refuse(store, Status::kInvalidState, rank + " is there twice", "give each process a rank of its own (RANK)");
}

std::string missing_ranks(c10d::Store& store, int size) {
  std::string missing;
  for (int rank = 0; rank < size; rank++)
    if (!store.check({rank_key(rank)})) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  return missing;
}

void wait_for_all(c10d::Store& store, const RendezvousOptions& options, const Deadline& deadline) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < options.size; rank++) keys.push_back(rank_key(rank));
  try {
    store.wait(keys, std::max(deadline.left(), Milliseconds(1)));
    return;
  } catch (const c10::Error&) {
    // Out of time, or the server is gone: the check below tells which.
  }
  std::string turned_away;
  for (const std::string& who : refusals(store)) turned_away += "; turned away: " + who;
  fail(Status::kTimeout, "of ", options.size, " ranks these did not come within ", deadline.total().count(),
       " ms: ", missing_ranks(store, options.size), turned_away,
       "; see whether they were started, and with MASTER_ADDR=", options.host, " MASTER_PORT=", options.port);
}

c10::intrusive_ptr<c10d::Store> meet(const RendezvousOptions& options, const Deadline& deadline) {
  const std::string host = is_loopback(options.host) ? "127.0.0.1" : options.host;
  const int64_t former_groups = enter(options, host, deadline);
  // LibTorch's client pauses up to a second between attempts; ours notices at once that the server is up.
  while (!can_connect(host, options.port, deadline)) {
    require(!deadline.passed(), Status::kTimeout, "rank ", options.rank, " of ", options.size,
            " cannot reach rank 0 at ", host, ":", options.port, " within ", deadline.total().count(),
            " ms; see whether rank 0 runs and MASTER_ADDR is right");
    std::this_thread::sleep_for(kRetryPause);
  }
  const std::string prefix = "accel/" + std::to_string(options.attempt) + "/" + std::to_string(former_groups);
  const auto timeout = std::max(deadline.left(), Milliseconds(1));
  auto client = c10::make_intrusive<TimedStore>(
      [=]() -> c10::intrusive_ptr<c10d::Store> {
        return c10::make_intrusive<c10d::TCPStore>(host, store_options(options.port, timeout));
      },
      timeout);
  auto store = c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(client));
  sign_in(*store, options);
  wait_for_all(*store, options, deadline);
  if (options.rank == 0)
    for (const std::string& who : refusals(*store)) log(LogLevel::kWarning, "turned away: ", who);
  return store;
}

}  // namespace

c10::intrusive_ptr<c10d::Store> rendezvous(const RendezvousOptions& options, const Deadline& deadline) {
  try {
    return meet(options, deadline);
  } catch (const c10::Error&) {  // LibTorch's words are about sockets
    fail(Status::kPeerLost, "rank ", options.rank, " lost the store of rank 0 at ", options.host, ":", options.port,
         " before all ", options.size,
         " ranks had come; see what rank 0 says, and whether another program uses that port");
  }
}

}  // namespace accel::comm
