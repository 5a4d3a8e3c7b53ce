// SPDX-License-Identifier: Apache-2.0
// Accelerators of ranks on a mesh that are processes: for what threads share, such as random generators, and for the
// death of one. The test must not have started threads.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <new>
#include <thread>
#include <vector>

#include "launch/ranks/claimed_port.hpp"
#include "mesh_ranks.hpp"

namespace accel::tests {

// Runs `body` on the ranks of a job with such a mesh. Returns how each ended, as of waitpid(): 0 if its body returned
// without a failure. A rank stays until the bodies of all others are over, for who leaves is lost to them.
inline std::vector<int> on_mesh_of_processes(const MeshSizes& sizes,
                                             const std::function<void(const AcceleratorPtr&)>& body,
                                             const RankSettings& change = {}) {
  const launch::ClaimedPort port;
  void* const memory =
      mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& over = *new (memory) std::atomic<int>(0);
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  std::vector<pid_t> ranks;
  std::fflush(nullptr);
  for (int rank = 0; rank < sizes.ranks(); rank++) {
    ranks.push_back(fork());
    if (ranks.back() != 0) continue;
    AcceleratorPtr accelerator;
    try {
      accelerator = accelerator_on(sizes, rank, port.number(), change);
      body(accelerator);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << ": " << error.what();
    }
    for (over++; over < sizes.ranks();) pause();
    accelerator.reset();
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  std::vector<int> ends(ranks.size());
  for (size_t left = ranks.size(); left > 0; pause())
    for (size_t rank = 0; rank < ranks.size(); rank++) {
      if (ranks[rank] == 0 || waitpid(ranks[rank], &ends[rank], WNOHANG) != ranks[rank]) continue;
      ranks[rank] = 0;
      left--;
      if (WIFSIGNALED(ends[rank])) over++;
    }
  munmap(memory, sizeof(std::atomic<int>));
  return ends;
}

}  // namespace accel::tests
