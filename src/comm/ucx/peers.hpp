// The ranks of a group: what they published about themselves in the store, whether their processes live, and who
// failed.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/deadline.hpp"
#include "base/file_descriptor.hpp"
#include "comm/collective_error.hpp"
#include "comm/ucx/hosts.hpp"

namespace accel::comm::ucx {

struct Failure {
  CollectiveFailure kind;
  int rank;  // that reports it
  std::string message;

  CollectiveError error() const { return CollectiveError(kind, rank, message); }
};

class Bulletin;

class Peers {
 public:
  // Publishes this rank's facts with `address` and the `number` by which its process knows the group, and waits for
  // those of all others.
  Peers(const c10::intrusive_ptr<c10d::Store>& store, const std::string& group, int rank, int size,
        const std::string& version, const std::string& address, uint32_t number, const Deadline& deadline);

  Peers(Peers&&) noexcept;
  ~Peers();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  const std::string& address(int peer) const { return peers_[peer].address; }
  // By which the peer's process knows the group.
  uint32_t number(int peer) const { return peers_[peer].group_number; }
  bool same_host(int peer) const { return peers_[peer].same_host; }
  // Ranks on this host, this one included, have a core each: spinning for a moment takes nothing from anybody.
  bool cores_suffice() const { return cores_suffice_; }

  // Readable once the peer's process has ended; below 0 where that cannot be known (other hosts, this process itself).
  int process_descriptor(int peer) const { return peers_[peer].process.number(); }

  const Hosts& hosts() const { return hosts_; }
  // The ranks of this host may open each other's files through /proc, and have tried it.
  bool reaches_neighbours() const { return reaches_neighbours_; }
  FileDescriptor open_file(int peer, int descriptor) const;
  // This rank's own, and those of its neighbours; null where it cannot be reached.
  Bulletin* bulletin(int peer) const { return peers_[peer].bulletin.get(); }
  // The file that the peer keeps for the group: zeros behind the nonce, see host_segment.hpp.
  FileDescriptor open_region(int peer) const { return open_file(peer, peers_[peer].region); }

  // A rank that leaves takes its memory with it, so none goes on before all have connected to it. Returns whether all
  // ranks have a segment with their neighbours; otherwise nobody uses one, and each is a host of its own.
  bool wait_until_all_connected(bool has_segment, const Deadline& deadline);

  // The first failure that any rank published. Talks to the store: not for the fast path.
  std::optional<Failure> published_failure();
  void publish_failure(const Failure& failure);
  // What the ranks are in, as far as it can be known: those of other hosts tell it when they, too, ask.
  std::map<int, std::string> calls();

 private:
  struct Peer {
    std::string address;
    uint32_t group_number = 0;
    bool same_host = false;
    int number = 0;   // of its process
    int region = -1;  // a descriptor there
    FileDescriptor process;
    std::unique_ptr<Bulletin> bulletin;
  };
  int rank_;
  std::string prefix_;
  // Its own connection: another thread may hold the engine's for as long as it waits for a key.
  c10::intrusive_ptr<c10d::Store> store_;
  std::vector<Peer> peers_;
  bool cores_suffice_ = false;
  Hosts hosts_;
  bool reaches_neighbours_ = true;
  FileDescriptor region_, bulletin_;  // what the peers open
};

}  // namespace accel::comm::ucx
