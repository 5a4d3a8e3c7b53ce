// SPDX-License-Identifier: Apache-2.0
// Peers: the ranks of a group, with what each published in the store about itself, whether its process is alive, and
// the failure that any of them reported.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "comm/ucx/host/status_page.hpp"
#include "comm/ucx/transport/hosts.hpp"
#include "comm/ucx/transport/job_ranks.hpp"
#include "os/file_descriptor.hpp"

namespace accel::comm::ucx {

class Peers {
 public:
  // Publishes this rank's info with `address`, its number in the job, and the `number` by which its process knows the
  // group, and waits for that of all others. If one of them says `is_numbered_anew`, this group is the job.
  Peers(const c10::intrusive_ptr<c10d::Store>& store, const std::string& group, int rank, int size, int job_rank,
        bool is_numbered_anew, const std::string& version, const std::string& address, uint32_t number,
        const Deadline& deadline);

  Peers(Peers&&) noexcept;
  ~Peers();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  // By which errors name ranks.
  const JobRanks& job_ranks() const { return job_ranks_; }
  // The address of the peer's process, and the number by which that knows the group.
  std::pair<const std::string&, uint32_t> address(int peer) const {
    return {peers_[peer].address, peers_[peer].group_number};
  }
  bool same_host(int peer) const { return peers_[peer].same_host; }
  bool has_other_hosts() const;
  // Whether each rank of this host has a core of its own, so that spinning takes no time from others.
  bool cores_suffice() const { return cores_suffice_; }

  // Becomes readable when the peer's process ends; below 0 if unavailable (on other hosts, and for this process).
  int process_descriptor(int peer) const { return peers_[peer].process_end.number(); }

  const Hosts& hosts() const { return hosts_; }
  // Whether the ranks of this host can open each other's files through /proc, which was tried.
  bool reaches_neighbours() const { return reach_.files; }
  int process(int peer) const { return peers_[peer].process; }  // its id
  // Whether a rank reads what this one sends it itself, out of this process's memory. The same on both, which then have
  // each other's status_page().
  bool reads_memory(int peer) const { return reach_.memory && peers_[peer].same_host; }
  // The page of this rank or of one on its host; null where it cannot be mapped.
  StatusPage* status_page(int peer) const { return peers_[peer].status_page.get(); }
  // The files of the host segments of all neighbours, if it reaches_neighbours(): zeros after the nonce, see
  // host_segment.hpp. Open until all are connected. Opened once: later the number may be that of another file.
  std::vector<int> regions() const;

  // Waits until all ranks are connected, because a rank that leaves frees its memory, and learns whether all of them
  // can read the memory of their neighbours. Returns whether all ranks have a host segment; otherwise none uses one,
  // and each rank counts as a host of its own.
  bool wait_until_all_connected(bool has_segment, const Deadline& deadline);

  // The first failure that any rank published. Asks the store: not for the fast path.
  std::optional<Failure> published_failure();
  void publish_failure(const Failure& failure);
  // The call that each rank is in, as far as known: ranks of other hosts publish theirs when they call this too.
  std::map<int, std::string> calls();

 private:
  struct Peer {
    std::string address;
    uint32_t group_number = 0;
    bool same_host = false;
    int process = 0;  // its id
    FileDescriptor region;
    FileDescriptor process_end;
    std::unique_ptr<StatusPage> status_page;
  };
  int rank_;
  JobRanks job_ranks_;
  std::string prefix_;
  // A connection of its own: another thread may block the original one while it waits for a key.
  c10::intrusive_ptr<c10d::Store> store_;
  std::vector<Peer> peers_;
  bool cores_suffice_ = false;
  Hosts hosts_;
  struct {
    bool files = true;   // of all neighbours
    bool memory = true;  // of all neighbours, and when all are connected, of those of every rank
  } reach_;
  struct {  // which the neighbours open, and read
    FileDescriptor region, status_page;
    std::unique_ptr<const uint64_t> nonce;
  } own_;
};

}  // namespace accel::comm::ucx
