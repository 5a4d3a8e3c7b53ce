// SPDX-License-Identifier: Apache-2.0
// Parameter group: the parameters of one wrapped module, which are gathered together and whose gradients are reduced
// together.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/module.hpp"
#include "parallel/fp8_gather.hpp"
#include "parallel/fsdp/gather/parameter_gather.hpp"
#include "parallel/fsdp/gradient_reduction.hpp"
#include "parallel/fsdp/mixed_precision_policy.hpp"
#include "parallel/fsdp/sharded_parameter.hpp"
#include "parallel/parallel_model.hpp"

namespace accel {
struct FsdpSettings;
}

namespace accel::parallel {

class ParameterGroup {
 public:
  // `name` is that of the module, for errors. The settings are the model's and are not copied. `fp8` may be null.
  ParameterGroup(std::string name, const nn::NamedTensors& parameters, const FsdpSettings& settings,
                 const MixedPrecisionPolicy& policy, const ModelRanks& ranks, const Fp8GatherPtr& fp8 = nullptr);
  ParameterGroup(const ParameterGroup&) = delete;  // its parts refer to each other
  ParameterGroup& operator=(const ParameterGroup&) = delete;

  const std::string& name() const { return name_; }
  const std::vector<std::unique_ptr<ShardedParameter>>& parameters() const { return parameters_; }
  const ModelRanks& ranks() const { return ranks_; }

  // Collective: `whole` returns parameter i on `device`, the same on all ranks; afterwards its data is the shard.
  void shard(c10::Device device, const std::function<at::Tensor(size_t index)>& whole);

  ParameterGather& gather() { return gather_; }
  const ParameterGather& gather() const { return gather_; }
  GradientReduction& gradients() { return gradients_; }
  const GradientReduction& gradients() const { return gradients_; }

 private:
  std::string name_;
  const FsdpSettings& settings_;
  MixedPrecisionPolicy policy_;
  ModelRanks ranks_;
  std::vector<std::unique_ptr<ShardedParameter>> parameters_;
  ParameterGather gather_;
  GradientReduction gradients_;
};

}  // namespace accel::parallel
