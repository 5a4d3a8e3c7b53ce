// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/rendezvous.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/authentication_code.hpp"
#include "base/error.hpp"
#include "comm/rendezvous/job_start.hpp"
#include "comm/rendezvous/process_resources.hpp"
#include "comm/rendezvous/rendezvous_endpoints.hpp"
#include "comm/rendezvous/socket.hpp"
#include "comm/rendezvous/store_client.hpp"
#include "comm/rendezvous/store_server.hpp"
#include "os/interruption.hpp"
#include "os/socket_address.hpp"

namespace accel::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr auto kConnectPause = Milliseconds(2);

// The state of an address in this process: its server, and the number of groups that each rank has joined there.
struct KnownAddress {
  std::unique_ptr<StoreServer> server;
  std::map<int, int64_t> joined;
};

struct KnownAddresses {
  std::mutex mutex;
  std::map<Address, KnownAddress> all;
};

KnownAddresses& known_addresses() {
  // See [Note: one store server per address].
  static KnownAddresses* const instance = std::make_unique<KnownAddresses>().release();
  return *instance;
}

struct Entry {
  int64_t former_groups;  // that this rank joined here before
  JobStart::Server served;
};

// Serves if this rank has to, and counts the group.
Entry enter(const RendezvousOptions& options, const std::string& host) {
  KnownAddresses& known = known_addresses();
  const std::lock_guard<std::mutex> lock(known.mutex);
  KnownAddress& address = known.all[{host, options.port}];
  if (options.serve && options.rank == 0 && !address.server) {
    require_resources(resources_of_server(options.size), options.rank, "to serve the store of the job");
    address.server = std::make_unique<StoreServer>(listen_on(host, options.port), options.token);
  }
  const StoreServer* const server = address.server.get();
  JobStart::Server served;
  if (server != nullptr) served = {server, server->clients_without_memory(), server->strangers()};
  return {address.joined[options.rank]++, served};
}

std::string rank_key(int rank) { return "present/" + std::to_string(rank); }

// A rank with other settings ends the start of all, because the right one would be missing.
[[noreturn]] void refuse(JobStart& start, Status status, const std::string& who, const std::string& what_to_do) {
  start.fail(CollectiveFailure::kAborted, text("turned away: ", who, "; ", what_to_do));
  fail(status, who, "; ", what_to_do);
}

// Rank 0 publishes the identity of the job; the others compare. A store of a launcher's agent knows no secret.
void sign_in(c10d::Store& store, JobStart& start, const RendezvousOptions& options) {
  const std::string size = std::to_string(options.size), rank = options.who();
  const std::string job = authentication_code(options.token, "job");
  if (options.rank == 0) {
    store.set("job", job);
    store.set("size", size);
  } else {
    if (store.get_to_str("job") != job)
      refuse(start, Status::kInvalidState, rank + " belongs to another job: its ACCEL_JOB_TOKEN is not that of rank 0",
             text("give each job a MASTER_PORT of its own; that of this one is ", options.port));
    const std::string size_of_0 = store.get_to_str("size");
    if (size_of_0 != size)
      refuse(start, Status::kInvalidArgument, rank + " came to a job of " + size_of_0 + " ranks",
             "start all ranks with the same number of processes (WORLD_SIZE)");
  }
  require(store.add(rank_key(options.rank), 1) == 1, Status::kInvalidState, rank,
          " is there twice; give each process a rank of its own (RANK)");
}

std::vector<Address> wait_for_all(JobStart& start, const RendezvousOptions& options) {
  try {
    return start.wait_for_all();
  } catch (const Error& error) {
    if (error.status() != Status::kTimeout) throw;
  }
  fail(Status::kTimeout, "of ", options.size, " ranks these did not come within ", start.deadline().total().count(),
       " ms: ", start.missing_ranks(), "; see whether they were started, and with MASTER_ADDR=", options.host,
       " MASTER_PORT=", options.port, start.strangers_turned_away());
}

RendezvousResult join_job(const RendezvousOptions& options, const std::string& host, const Entry& entry,
                          const Deadline& deadline) {
  const InterruptionFlag interruption;
  while (!connect_to({host, options.port}, deadline.left()).socket.is_open()) {
    require(!interruption.raised(), Status::kCancelled, "the program was interrupted while rank ", options.rank,
            " waited for rank 0 at ", host, ":", options.port);
    require(!deadline.passed(), Status::kTimeout, "rank ", options.rank, " of ", options.size,
            " cannot reach rank 0 at ", host, ":", options.port, " within ", deadline.total().count(),
            " ms; see whether rank 0 runs and MASTER_ADDR is right");
    std::this_thread::sleep_for(kConnectPause);
  }
  const std::string prefix = "accel/" + std::to_string(options.attempt) + "/" + std::to_string(entry.former_groups);
  const auto client =
      c10::make_intrusive<StoreClient>(Address{host, options.port}, deadline.left() + Milliseconds(1),
                                       options.serve ? std::optional(options.identity()) : std::nullopt);
  const auto start = std::make_shared<JobStart>(c10::make_intrusive<c10d::PrefixStore>(prefix, client), options.rank,
                                                options.size, deadline, entry.served);
  const auto store = c10::make_intrusive<StartingStore>(prefix, client, start);
  sign_in(*store, *start, options);
  try {
    ProcessResources needed = resources_of_rank(options.size);
    if (options.serve && options.rank == 0) needed.descriptors += resources_of_server(options.size).descriptors;
    require_resources(needed, options.rank, "to start");
    const auto endpoints = std::make_shared<RendezvousEndpoints>(options);
    start->arrive(endpoints->own_address());
    endpoints->learn(wait_for_all(*start, options));
    return {store, endpoints, start};
  } catch (const std::exception& error) {
    start->give_up(error);
  }
}

}  // namespace

RendezvousResult rendezvous(const RendezvousOptions& options, const Deadline& deadline) {
  const std::string host = loopback_address(options.host);
  const Entry entry = enter(options, host);
  try {
    return join_job(options, host, entry, deadline);
  } catch (const Error& error) {
    if (error.status() != Status::kPeerLost) throw;
    entry.served.check();
    fail(Status::kPeerLost, "rank ", options.rank, " lost the store of rank 0 at ", options.host, ":", options.port,
         " before all ", options.size,
         " ranks had come; see what rank 0 says, and whether another program uses that port");
  }
}

}  // namespace accel::comm
