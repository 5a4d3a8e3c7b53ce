// SPDX-License-Identifier: Apache-2.0
// Start of a job: detects ranks that fail or end before all have joined, so that no rank waits for them.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "base/deadline.hpp"
#include "comm/collective_error.hpp"
#include "comm/rendezvous/socket.hpp"
#include "comm/rendezvous/store_server.hpp"
#include "os/file_descriptor.hpp"

namespace accel::comm {

// Rank 0 keeps a connection to the listening socket of each rank that has joined, and the others keep one to that of
// rank 0, which the kernel closes when the process ends. A rank whose start fails reports it in the store. Both end the
// start of all ranks.
class JobStart {
 public:
  // If this process serves the store: its server, and the numbers of clients that it had no memory for, and that it had
  // turned away, before this start.
  struct Server {
    const StoreServer* server = nullptr;
    int64_t unserved = 0;
    int64_t strangers = 0;  // likewise

    // Throws std::bad_alloc if this process had no memory to serve a rank, whose failure is a consequence.
    void check() const;
  };

  JobStart(c10::intrusive_ptr<c10d::Store> store, int rank, int size, const Deadline& deadline, const Server& served);

  // Announces this rank, which listens at `address`.
  void arrive(const Address& address);
  // Tells all ranks that everybody has joined, and their addresses.
  std::vector<Address> wait_for_all();
  std::string missing_ranks();
  // Returns what to add to an error if the server has turned clients away that do not know the secret; else nothing.
  std::string strangers_turned_away() const;

  // Throws a CollectiveError if the start of the job cannot succeed any more.
  void check();
  // Reports a failure to all ranks; the first report counts.
  void fail(CollectiveFailure failure, const std::string& reason);
  // Fails with the exception that is being handled on this rank: rethrows it, or the lack of memory that caused it.
  [[noreturn]] void give_up(const std::exception& error);
  // This rank has started, and may end from now on. The one that serves the store returns when all have.
  // Throws where there is no memory to say so.
  void end();
  bool is_over() const { return over_.load(); }
  const Deadline& deadline() const { return deadline_; }

 private:
  void publish(const std::exception& error) noexcept;
  void wait_for_readers();
  void limit_store();
  void watch(int rank, const Address& address);
  void watch_arrivals();
  int ended_rank() const;  // below 0: none

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, size_;
  const Deadline deadline_;
  const Server served_;
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  int64_t arrivals_seen_ = 0;
  struct Link {
    FileDescriptor connection;
    bool stays_on_host;
  };
  std::map<int, Link> watched_;  // by rank
};

// The store for the backends. While the job starts, its waits end as soon as check() throws.
class StartingStore final : public c10d::PrefixStore {
 public:
  StartingStore(std::string prefix, c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<JobStart> start)
      : PrefixStore(std::move(prefix), std::move(store)), start_(std::move(start)) {}

  c10::intrusive_ptr<c10d::Store> clone() override;
  std::vector<uint8_t> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  const std::shared_ptr<JobStart> start_;
};

}  // namespace accel::comm
