// SPDX-License-Identifier: Apache-2.0
// Checks that file descriptors and threads are available before calling a library that ends the process without them.
#pragma once

namespace accel::comm {

struct ProcessResources {
  int descriptors = 0;
  int threads = 0;
};

// Needed to serve the store of a job, and to be one of its ranks.
ProcessResources resources_of_server(int ranks);
ProcessResources resources_of_rank(int ranks);

// Throws if less is available; the message has `rank` and `purpose`.
void require_resources(const ProcessResources& needed, int rank, const char* purpose);

}  // namespace accel::comm
