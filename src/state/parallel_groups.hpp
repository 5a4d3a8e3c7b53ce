// SPDX-License-Identifier: Apache-2.0
// Parallel groups: the device mesh of a state's ranks, and the groups along its axes that train one model together.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/mesh.hpp"

namespace accel {
struct StateSettings;
}

namespace accel::state {

class ParallelGroups {
 public:
  // Completes the sizes of the mesh: replicas are what the other axes leave.
  ParallelGroups(std::shared_ptr<comm::Communicator> ranks, StateSettings& settings);

  // The device mesh: axes pipeline, replicate, shard, context, tensor. The last axes vary fastest, so that ranks that
  // communicate most are neighbours. With expert_parallel_size above 1 it has a second grid, pipeline, replicate,
  // expert_shard, expert: ranks along the last axis have different experts of a layer.
  const std::shared_ptr<comm::Mesh>& mesh() const { return mesh_; }
  // The ranks that share out the data.
  const std::shared_ptr<comm::Communicator>& data_parallel() const { return data_parallel_; }
  // The coordinate of each rank among those that share out the data.
  std::vector<int64_t> data_parallel_indices() const;
  // The ranks whose gradients of the same parameters are averaged.
  const std::shared_ptr<comm::Communicator>& gradient_group() const { return gradient_group_; }
  // The random stream of this rank. Ranks that share the tensors of a layer have the same one, because their common
  // values must stay equal.
  int64_t random_stream() const;

 private:
  int num_ranks_;
  std::shared_ptr<comm::Mesh> mesh_;
  std::shared_ptr<comm::Communicator> data_parallel_;
  std::shared_ptr<comm::Communicator> gradient_group_;
};

}  // namespace accel::state
