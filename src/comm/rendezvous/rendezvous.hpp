// SPDX-License-Identifier: Apache-2.0
// Rendezvous of the ranks of a job, through a key-value store that rank 0 serves.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>

#include "base/deadline.hpp"
#include "comm/rendezvous/rendezvous_options.hpp"

namespace c10d {
class Store;
}

namespace accel::comm {

class JobStart;
class RendezvousEndpoints;

// The job is starting until start->end().
struct RendezvousResult {
  c10::intrusive_ptr<c10d::Store> store;
  std::shared_ptr<RendezvousEndpoints> endpoints;
  std::shared_ptr<JobStart> start;
};

// Returns when all ranks have joined. A process with a rank that has joined already gets an error, and the group forms
// without it; one with another number of ranks ends the start of all. One without the job's secret gets an error, and
// the job does not notice it; where an agent of torchrun serves the store, it ends the start of all. The store has a
// prefix of its own: several groups of one process may use one address. [Note: one store server per address] The server
// that rank 0 starts lives until the process ends: a rank that already joins the next group of the same address must
// not reach the former group's server while that shuts down.
RendezvousResult rendezvous(const RendezvousOptions& options, const Deadline& deadline);

}  // namespace accel::comm
