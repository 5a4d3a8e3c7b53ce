// SPDX-License-Identifier: Apache-2.0
// Sharded parts: the parameters of a sharded model outside of its forwards and backwards, when each rank has some rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "config/generated/choices/state_dict_type.hpp"
#include "config/generated/settings/prepare/fsdp.hpp"
#include "parallel/fsdp/parameter_group.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/parameter_parts.hpp"

namespace accel::parallel {

class ShardedParts final : public ParameterParts {
 public:
  // `model` has this and the other arguments.
  ShardedParts(ParallelModel& model, const std::vector<std::unique_ptr<ParameterGroup>>& groups,
               const FsdpSettings& settings)
      : model_(model), groups_(groups), settings_(settings) {}

  // Null if the model does not shard it.
  ShardedParameter* find(const at::Tensor& parameter) const;
  // How many parameters gather_parameters() has gathered.
  size_t num_gathered() const { return num_gathered_; }

  std::vector<ShardedModule> sharded_modules() const override;
  void gather_into(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& memory) override;
  void gather_parameters(const std::vector<at::Tensor>& parameters) override;
  void release_parameters(const std::vector<at::Tensor>& parameters, std::optional<int> modifier) override;
  optim::StateMemory state_memory() const override;
  StateDictType state_dict_type() const override { return settings_.state_dict_type; }

 private:
  at::Tensor gather_rows(const ShardedParameter& parameter) const;
  const ModelRanks& ranks_of(const ShardedParameter& parameter) const;

  ParallelModel& model_;
  const std::vector<std::unique_ptr<ParameterGroup>>& groups_;
  const FsdpSettings& settings_;
  size_t num_gathered_ = 0;
};

}  // namespace accel::parallel
