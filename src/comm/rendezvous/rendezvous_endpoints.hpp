// SPDX-License-Identifier: Apache-2.0
// Endpoints for the recovery rendezvous of a job's ranks after some of them are lost.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "comm/rendezvous/rendezvous_options.hpp"
#include "comm/rendezvous/socket.hpp"
#include "comm/rendezvous/store_identity.hpp"
#include "comm/rendezvous/store_server.hpp"
#include "os/file_descriptor.hpp"

namespace c10d {
class Store;
}

namespace accel::comm {

// Every rank listens on a socket while it belongs to the job. A refused connection to it means that the rank is gone.
// If the process that served the job's store is gone, the lowest remaining rank serves a new one on its socket.
class RendezvousEndpoints {
 public:
  // Opens this rank's socket.
  explicit RendezvousEndpoints(const RendezvousOptions& options);
  const Address& own_address() const { return ranks_[static_cast<size_t>(rank_)]; }
  // Sets the addresses of all ranks.
  void learn(std::vector<Address> ranks);
  // Whether all ranks are on this host, as their addresses say.
  bool stay_on_host() const;
  // The endpoints of a subgroup, whose ranks are numbered in the given order. `name` distinguishes subgroups of the
  // same ranks.
  RendezvousEndpoints(const RendezvousEndpoints& whole, const std::vector<int64_t>& ranks, const std::string& name);

  // Whether the rank's process has ended or left the job. False if it only does not answer.
  bool has_left(int64_t rank) const;

  // All ranks that call this get the same store: the job's, or that of the lowest rank that has not left. Its
  // operations end within `timeout`. Error(Status::kTimeout) if a rank neither answers nor has left by the deadline:
  // ranks on the other side of a broken link might use it.
  c10::intrusive_ptr<c10d::Store> find_store(const Deadline& deadline, std::chrono::milliseconds timeout) const;

 private:
  struct Own {
    std::mutex mutex;
    FileDescriptor listener;
    std::unique_ptr<StoreServer> server;  // once this rank serves a store
  };

  std::shared_ptr<Own> own_;
  Address job_store_;
  int64_t rank_;
  StoreIdentity identity_;
  bool proves_to_job_store_;  // which a process of this library serves
  std::vector<Address> ranks_;
  std::string name_;
};

}  // namespace accel::comm
