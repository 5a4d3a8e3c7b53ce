// How the ranks of a job meet: a key-value store that rank 0 serves.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/deadline.hpp"

namespace c10d {
class Store;
}

namespace accel::comm {

class JobStart;
class RendezvousEndpoints;

struct RendezvousOptions {
  std::string host;
  int port = 0;
  int rank = 0;
  int size = 1;
  bool serve = true;    // rank 0 serves the store; false when a launcher's agent already does
  int64_t attempt = 0;  // of a job that is started again with the same address
  std::string token;    // the same in all ranks of a job, and in no other job; may be empty
};

// What ranks have once they have met. It is the start of the job until start->end().
struct Meeting {
  c10::intrusive_ptr<c10d::Store> store;
  std::shared_ptr<RendezvousEndpoints> places;
  std::shared_ptr<JobStart> start;
};

// Returns when all ranks are there. A rank that is there twice is turned away with an error, and the group forms
// without it; one that belongs to another job or was told of another number of ranks ends the start of all. The token
// keeps jobs apart, by mistake or chance; it is no secret, because the store speaks plain text. The store has its own
// name space: several groups of one process may use one address. [Note: one store server per address] The server that
// rank 0 starts lives until the process ends: a rank that is already in the next group of the same address must not
// meet the former group's server on its way out.
Meeting rendezvous(const RendezvousOptions& options, const Deadline& deadline);

}  // namespace accel::comm
