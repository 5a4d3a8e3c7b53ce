// SPDX-License-Identifier: Apache-2.0
// Accelerators of ranks on a mesh, which run as threads of one process.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "accelerator_ranks.hpp"
#include "config/generated/settings/state/state.hpp"
#include "launch/ranks/claimed_port.hpp"

namespace accel::tests {

struct MeshSizes {
  int64_t replicas, shards, parts;  // of the axes replicate, shard and tensor
  int64_t contexts = 1;             // of the axis context
  int64_t experts = 1;              // of the axis expert, which is one of another grid
  int64_t stages = 1;               // of the axis pipeline
  int ranks() const { return static_cast<int>(replicas * shards * parts * contexts * stages); }
};

// Settings of a rank besides those of its mesh.
using RankSettings = std::function<void(StateSettings& settings, int rank)>;

// That of a rank of a job which meets at this port.
inline AcceleratorPtr accelerator_on(const MeshSizes& sizes, int rank, int port, const RankSettings& change = {}) {
  StateSettings settings;
  settings.cpu = true;
  settings.process_index = settings.local_process_index = rank;
  settings.num_processes = settings.local_num_processes = sizes.ranks();
  settings.main_process_port = port;
  settings.pipeline_parallel_size = sizes.stages;
  settings.data_parallel_replicate_size = sizes.replicas;
  settings.data_parallel_shard_size = sizes.shards;
  settings.context_parallel_size = sizes.contexts;
  settings.tensor_parallel_size = sizes.parts;
  settings.expert_parallel_size = sizes.experts;
  if (change) change(settings, rank);
  return std::make_shared<accelerator::Accelerator>(settings);
}

// Runs `body` on the ranks of a job with such a mesh.
inline void on_mesh(const MeshSizes& sizes, const std::function<void(const AcceleratorPtr&)>& body,
                    const RankSettings& change = {}) {
  const launch::ClaimedPort port;
  std::vector<std::exception_ptr> failures(static_cast<size_t>(sizes.ranks()));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < sizes.ranks(); rank++)
    ranks.emplace_back([&, rank] {
      try {
        const AcceleratorPtr accelerator = accelerator_on(sizes, rank, port.number(), change);
        body(accelerator);
        accelerator->end_training();
      } catch (...) {
        failures[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& rank : ranks) rank.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace accel::tests
