// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a job meet, and which one this is.
#pragma once

#include <cstdint>
#include <string>

#include "comm/rendezvous/store_identity.hpp"

namespace accel::comm {

struct RendezvousOptions {
  std::string host;
  int port = 0;
  int rank = 0;
  int size = 1;
  bool serve = true;    // rank 0 serves the store; false if a launcher's agent already does
  int64_t attempt = 0;  // number of restarts of the job with the same address
  std::string token;    // the secret of the job; may be empty

  std::string who() const { return "rank " + std::to_string(rank) + " of " + std::to_string(size); }
  StoreIdentity identity() const { return {who(), token}; }
};

}  // namespace accel::comm
