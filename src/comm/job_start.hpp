// What the ranks of a job know of each other while it starts, so that none waits for one that will not come.
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
#include "base/file_descriptor.hpp"
#include "comm/collective_error.hpp"
#include "comm/socket.hpp"
#include "comm/store_server.hpp"

namespace accel::comm {

// Rank 0 holds a connection to the listening socket of each rank that has come, and the others hold one to that of
// rank 0: the kernel ends it when the process ends. A rank whose start fails says so in the store. Both end the start
// of all ranks.
class JobStart {
 public:
  // Where this process serves the store: its server, and the clients that it had no memory for before this start.
  struct Server {
    const StoreServer* server = nullptr;
    int64_t unserved = 0;
  };

  JobStart(c10::intrusive_ptr<c10d::Store> store, int rank, int size, const Deadline& deadline, const Server& served);

  // This rank is there, and listens at `address`.
  void arrive(const Address& address);
  // All ranks have arrived; where they listen.
  std::vector<Address> wait_for_all();
  std::string missing_ranks();

  // Throws a CollectiveError when the start of the job cannot succeed any more.
  void check();
  // Says so to all ranks; what was said first counts.
  void fail(CollectiveFailure failure, const std::string& reason);
  // The same of this rank's own failure, which is being caught: throws it on, or the lack of memory that it comes of.
  [[noreturn]] void give_up(const std::exception& error);
  // From now on a rank may end: the job has started.
  void end();
  bool is_over() const { return over_.load(); }
  const Deadline& deadline() const { return deadline_; }

 private:
  // Throws std::bad_alloc when this process could not serve the store to a rank: what that one lost comes of it.
  void check_server() const;
  void tell(const std::exception& error) noexcept;
  void limit_store();
  void watch(int rank, const Address& address);
  void watch_arrivals();
  int ended_rank() const;  // below 0 when there is none

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

// The store as the backends get it. While the job starts, what waits in it ends when check() says so.
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
