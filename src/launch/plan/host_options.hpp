// SPDX-License-Identifier: Apache-2.0
// How the launchers of several hosts find each other, and what they may do.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace accel::launch {

// A line of a hostfile.
struct ListedHost {
  std::string name;
  int slots = 0;  // ranks; 0: as many as the other hosts
};

struct HostOptions {
  // The number of hosts may change while the job runs, and the coordinator numbers them.
  bool is_elastic = false;
  int min_hosts = 1, max_hosts = 1;
  std::string coordinator;  // its host, which the launchers connect to; empty: there is one host
  int coordinator_port = 0;
  std::chrono::milliseconds join_timeout{600000};
  std::chrono::milliseconds last_call{30000};  // for more hosts, once there are enough
  std::chrono::milliseconds silence{5000};     // after which a host is lost
  int max_restarts = 0;
  std::string own_address;         // of the interface of the job; empty: all
  std::string secret;              // what both sides must know; empty: nothing
  int slots = 0;                   // ranks of this host; 0: as many as the other hosts have
  std::vector<ListedHost> listed;  // the hosts that are reached by ssh; the first one is this
  std::string version;             // of this library
  bool is_remote = false;          // started by the launcher of host 0, which shows what this one says
  int lifeline = -1;               // then: a descriptor that is closed when the connection to it ends
};

}  // namespace accel::launch
