// SPDX-License-Identifier: Apache-2.0
// Fully sharded data parallelism: each rank stores a part of each parameter, gradient and optimizer state; whole
// parameters exist group by group, while a forward or backward uses them (Rajbhandari et al., "ZeRO: Memory
// Optimizations Toward Training Trillion Parameter Models", 2020; Zhao et al., "PyTorch FSDP", VLDB 2023).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/generated/settings/prepare/fsdp.hpp"
#include "parallel/fp8_gather.hpp"
#include "parallel/fsdp/auto_wrap.hpp"
#include "parallel/fsdp/fixed_parameters.hpp"
#include "parallel/fsdp/mixed_precision_policy.hpp"
#include "parallel/fsdp/module_hooks.hpp"
#include "parallel/fsdp/parameter_group.hpp"
#include "parallel/fsdp/schedule_executor.hpp"
#include "parallel/fsdp/sharded_parts.hpp"
#include "parallel/parallel_model.hpp"

namespace accel::parallel {

class FullyShardedDataParallel final : public ParallelModel, public GradientExchange {
 public:
  // Collective: checks that all ranks have the same model, and shards rank 0's parameters. `fp8` may be null.
  static std::shared_ptr<FullyShardedDataParallel> create(nn::ModulePtr module, const ModelRanks& ranks,
                                                          const FsdpSettings& settings, c10::Device device,
                                                          const Fp8GatherPtr& fp8 = nullptr);

  GradientExchange* exchange() override { return this; }
  ParameterParts* parts() override { return &parts_; }
  CommunicatorPtr set_gradient_group(CommunicatorPtr group) override;
  void note_failed_backward(const std::string& error) override { executor_->note_failed_backward(error); }
  bool begin_micro_batches(MicroBatches kind) override;
  bool end_gathers() override { return executor_->end_gathers(); }
  void end_micro_batches(bool have_failed) override { executor_->end_micro_batches(have_failed); }
  void register_comm_hook(BucketCallback callback) override;
  std::vector<at::Tensor> gradients() const override;
  // A rank without inputs does not know which tokens the others send to experts.
  bool can_shadow() const override { return !has_experts_ && executor_->can_repeat(); }
  void shadow(const ForwardNotice& others, int source) override;
  void finish_step() override { executor_->finish_step(); }

  const std::vector<std::unique_ptr<ParameterGroup>>& groups() const { return groups_; }
  const ModelRanks& ranks() const { return ranks_; }

 protected:
  c10::IValue forward(const nn::Inputs& inputs) override;

 private:
  FullyShardedDataParallel(nn::ModulePtr module, const ModelRanks& ranks, const FsdpSettings& settings);
  void shard_model(c10::Device device, const Fp8GatherPtr& fp8);
  at::Tensor with_memory(const at::Tensor& tensor, const std::string& name, c10::Device device) const;
  void add_hooks(const std::vector<WrappedModule>& modules);
  void begin_forward(bool records);

  ModelRanks ranks_;
  bool has_experts_ = false;  // of which other ranks have others
  FsdpSettings settings_;
  MixedPrecisionPolicy policy_;
  std::vector<std::unique_ptr<ParameterGroup>> groups_;  // the root's last
  FixedParameters fixed_parameters_;
  ShardedParts parts_;
  std::optional<ScheduleExecutor> executor_;  // from shard_model() on
  ModuleHooks hooks_;
};

}  // namespace accel::parallel
