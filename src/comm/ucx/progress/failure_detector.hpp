// SPDX-License-Identifier: Apache-2.0
// Failure detector of a group: notices that a call cannot end, because a rank is lost, has given up the group, or has
// not answered in time. See docs/faults.md.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "comm/ucx/algorithms/session.hpp"
#include "comm/ucx/transport/peers.hpp"
#include "comm/ucx/transport/transport.hpp"
#include "os/file_descriptor.hpp"

namespace accel::comm::ucx {

struct PointToPoint;

class FailureDetector {
 public:
  FailureDetector(Peers& peers, const Transport& transport);

  const Peers& peers() const { return peers_; }
  // Becomes readable when the process of a peer ends.
  int event_descriptor() const { return events_.number(); }
  void check_ended_processes(int timeout_ms);
  // Throws if a rank is lost or a deadline has passed: that of the session, which may be null, or those of messages.
  void check(Session* session, const std::vector<PointToPoint>& messages);
  // UCX's error about a lost peer is not the cause: that may be published, or the end of its process not yet noticed.
  Failure explain(Failure failure, const std::string& title);

 private:
  struct Loss {
    int rank;
    std::chrono::steady_clock::time_point since;
  };

  int rank() const { return peers_.job_ranks().own(); }  // for errors
  void check_peers(Session* session, const std::vector<PointToPoint>& messages);
  void check_deadlines(Session* session, const std::vector<PointToPoint>& messages);
  Failure from_peer(const Failure& failure) const;
  std::optional<Failure> failure_of_neighbour() const;
  // If a peer has failed.
  void throw_failure_of_others();
  // Empty if nothing is known of the others.
  std::string where_ranks_are();

  Peers& peers_;
  const Transport& transport_;
  const FileDescriptor events_;   // ends of processes
  std::vector<int> ended_peers_;  // ranks whose process has ended
  std::optional<Loss> loss_;      // the first of them that did not leave the group first
  std::chrono::steady_clock::time_point last_check_;
};

}  // namespace accel::comm::ucx
