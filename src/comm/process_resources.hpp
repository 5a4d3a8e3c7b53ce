// File descriptors and threads, asked for before a library that ends the process when it gets none.
#pragma once

namespace accel::comm {

struct ProcessResources {
  int descriptors = 0;
  int threads = 0;
};

// To serve the store of a job, and to be one of its ranks.
ProcessResources resources_of_server(int ranks);
ProcessResources resources_of_rank(int ranks);

// Throws with what there is when that is less; `rank` and `purpose` stand in the message.
void require_resources(const ProcessResources& needed, int rank, const char* purpose);

}  // namespace accel::comm
