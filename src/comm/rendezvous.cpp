#include "comm/rendezvous.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/interruption.hpp"
#include "base/log.hpp"
#include "comm/socket.hpp"
#include "comm/tcp_store.hpp"

namespace accel::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr auto kConnectPause = Milliseconds(2);

// What this process knows of an address: its server, and how many groups each rank has joined there.
struct Meeting {
  c10::intrusive_ptr<c10d::Store> server;
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

// Serves if this rank has to, and counts the group. Returns the number of groups that this rank joined here before.
int64_t enter(const RendezvousOptions& options, const std::string& host, const Deadline& deadline) {
  Meetings& all = meetings();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Meeting& meeting = all.by_address[{host, options.port}];
  if (options.serve && options.rank == 0 && !meeting.server) {
    meeting.server = serve_store({host, options.port}, listen_on(host, options.port), deadline.left());
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
  const InterruptionFlag interruption;
  while (!connect_to({host, options.port}, deadline.left()).socket.is_open()) {
    require(!interruption.raised(), Status::kCancelled, "the program was interrupted while rank ", options.rank,
            " waited for rank 0 at ", host, ":", options.port);
    require(!deadline.passed(), Status::kTimeout, "rank ", options.rank, " of ", options.size,
            " cannot reach rank 0 at ", host, ":", options.port, " within ", deadline.total().count(),
            " ms; see whether rank 0 runs and MASTER_ADDR is right");
    std::this_thread::sleep_for(kConnectPause);
  }
  const std::string prefix = "accel/" + std::to_string(options.attempt) + "/" + std::to_string(former_groups);
  auto store = c10::make_intrusive<c10d::PrefixStore>(prefix, reach_store({host, options.port}, deadline.left()));
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
