// SPDX-License-Identifier: Apache-2.0
#include "state/parallel_groups.hpp"
#include "config/generated/settings/state/state.hpp"

#include <algorithm>
#include <iterator>

#include "base/error.hpp"

namespace accel::state {
namespace {

constexpr char kDataParallelAxes[] = "replicate,shard";
constexpr char kGradientAxes[] = "replicate,shard,context";
constexpr char kRandomStreamAxes[] = "pipeline,replicate,shard,context";

// The ranks of one copy of a model share its experts, neighbours different ones; where the layers of experts are split,
// those that have the same parts.
void add_expert_grids(comm::Mesh& mesh, const StateSettings& settings) {
  const int64_t experts = settings.expert_parallel_size;
  if (experts == 1) return;
  const int64_t shards = settings.data_parallel_shard_size, contexts = settings.context_parallel_size,
                tensors = settings.tensor_parallel_size, all = shards * contexts * tensors;
  require(all % experts == 0, Status::kInvalidArgument, "expert_parallel_size is ", experts,
          " and one copy of the model has ", all, " ranks (data_parallel_shard_size ", shards,
          " x context_parallel_size ", contexts, " x tensor_parallel_size ", tensors, "); expected a divisor");
  const comm::MeshAxis stages{"pipeline", settings.pipeline_parallel_size},
      replicas{"replicate", *settings.data_parallel_replicate_size.value};
  mesh.add_grid({stages, replicas, {"expert_shard", all / experts}, {"expert", experts}});
  if (tensors == 1 || shards * contexts % experts != 0) return;
  mesh.add_grid({stages,
                 replicas,
                 {"split_expert_shard", shards * contexts / experts},
                 {"split_expert", experts},
                 {"tensor", tensors}});
}

}  // namespace

ParallelGroups::ParallelGroups(std::shared_ptr<comm::Communicator> ranks, StateSettings& settings)
    : num_ranks_(ranks->size()) {
  auto& replicas = settings.data_parallel_replicate_size;
  const int64_t others[] = {settings.pipeline_parallel_size, settings.data_parallel_shard_size,
                            settings.context_parallel_size, settings.tensor_parallel_size};
  const bool all_are_one = std::all_of(std::begin(others), std::end(others), [](int64_t size) { return size == 1; }) &&
                           replicas.value.value_or(1) == 1;
  if (!replicas.value || all_are_one) {
    int64_t left = num_ranks_;
    for (const int64_t size : others) left /= size;
    replicas.value = std::max<int64_t>(left, 1);
  }
  mesh_ = std::make_shared<comm::Mesh>(std::move(ranks),
                                       std::vector<comm::MeshAxis>{{"pipeline", settings.pipeline_parallel_size},
                                                                   {"replicate", *replicas},
                                                                   {"shard", settings.data_parallel_shard_size},
                                                                   {"context", settings.context_parallel_size},
                                                                   {"tensor", settings.tensor_parallel_size}});
  add_expert_grids(*mesh_, settings);
  data_parallel_ = mesh_->group(kDataParallelAxes);
  gradient_group_ = mesh_->group(kGradientAxes);
}

std::vector<int64_t> ParallelGroups::data_parallel_indices() const {
  std::vector<int64_t> indices;
  for (int64_t rank = 0; rank < num_ranks_; rank++) indices.push_back(mesh_->coordinate(kDataParallelAxes, rank));
  return indices;
}

int64_t ParallelGroups::random_stream() const { return mesh_->coordinate(kRandomStreamAxes); }

}  // namespace accel::state
