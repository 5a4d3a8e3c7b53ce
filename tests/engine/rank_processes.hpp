// Accelerators of ranks on a mesh that are processes: for what threads share, such as random generators, and for the
// death of one. The test must not have started threads.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <vector>

#include "launch/ranks/claimed_port.hpp"
#include "mesh_ranks.hpp"

namespace accel::tests {

// Runs `body` on the ranks of a job with such a mesh. Returns how each ended, as of waitpid(): 0 if its body returned
// without a failure. A rank waits for no other at its end.
inline std::vector<int> on_mesh_of_processes(const MeshSizes& sizes,
                                             const std::function<void(const AcceleratorPtr&)>& body) {
  const launch::ClaimedPort port;
  std::vector<pid_t> ranks;
  std::fflush(nullptr);
  for (int rank = 0; rank < sizes.ranks(); rank++) {
    ranks.push_back(fork());
    if (ranks.back() != 0) continue;
    try {
      body(accelerator_on(sizes, rank, port.number()));
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << ": " << error.what();
    }
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  std::vector<int> ends(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); rank++) waitpid(ranks[rank], &ends[rank], 0);
  return ends;
}

}  // namespace accel::tests
