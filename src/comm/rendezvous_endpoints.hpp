// Where the ranks of a job meet again when some of them are lost.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/file_descriptor.hpp"
#include "comm/rendezvous.hpp"
#include "comm/socket.hpp"
#include "comm/store_server.hpp"

namespace accel::comm {

// Every rank listens on a socket of its own for as long as it belongs to the job. Who cannot connect to it any more
// knows that the rank is gone; and when the process that served the job's store is gone, the first rank that is left
// serves another one there.
class RendezvousEndpoints {
 public:
  // Opens this rank's socket.
  explicit RendezvousEndpoints(const RendezvousOptions& options);
  const Address& own_address() const { return ranks_[static_cast<size_t>(rank_)]; }
  // Where those of all ranks are.
  void learn(std::vector<Address> ranks);
  // Those of a part of the ranks, who are numbered as they stand there. `name` tells parts of the same ranks apart.
  RendezvousEndpoints(const RendezvousEndpoints& whole, const std::vector<int64_t>& ranks, const std::string& name);

  // Whether the rank's process has ended, or left the job. False for one that is only silent.
  bool has_left(int64_t rank) const;

  // One store for all ranks that ask: the job's, or that of the first rank that has not left; its operations end within
  // `timeout`. A rank that neither answers nor has left is an Error(Status::kTimeout) by the deadline: on the other
  // side of a broken link there may be ranks that meet it.
  c10::intrusive_ptr<c10d::Store> meet(const Deadline& deadline, std::chrono::milliseconds timeout) const;

 private:
  struct Own {
    std::mutex mutex;
    FileDescriptor listener;
    std::unique_ptr<StoreServer> server;  // once this rank serves
  };

  std::shared_ptr<Own> own_;
  Address job_store_;
  int64_t rank_;
  std::string token_;
  std::vector<Address> ranks_;
  std::string name_;
};

}  // namespace accel::comm
