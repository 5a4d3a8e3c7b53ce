// Where the ranks of a job meet, and which one this is.
#pragma once

#include <cstdint>
#include <string>

namespace accel::comm {

struct RendezvousOptions {
  std::string host;
  int port = 0;
  int rank = 0;
  int size = 1;
  bool serve = true;    // rank 0 serves the store; false if a launcher's agent already does
  int64_t attempt = 0;  // number of restarts of the job with the same address
  std::string token;    // identifies the job; may be empty
};

}  // namespace accel::comm
