// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/fully_sharded_data_parallel.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <c10/util/ScopeExit.h>

#include <utility>

#include "base/error.hpp"
#include "comm/group.hpp"
#include "nn/module_walks.hpp"
#include "nn/placements.hpp"
#include "parallel/fsdp/calls_outside.hpp"
#include "parallel/sync_module_states.hpp"
#include "parallel/uneven_inputs.hpp"
#include "tensor/set_data.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

c10::IValue cast_floating(const c10::IValue& value, at::ScalarType dtype) {
  return tree::map_tensors(value, [dtype](const at::Tensor& tensor) {
    return tensor.defined() && tensor.is_floating_point() ? tensor.to(dtype) : tensor;
  });
}

std::optional<nn::Inputs> cast_inputs(const nn::Inputs& inputs, const std::optional<at::ScalarType>& dtype) {
  if (!dtype) return std::nullopt;
  nn::Inputs cast;
  for (const c10::IValue& input : inputs) cast.push_back(cast_floating(input, *dtype));
  return cast;
}

// Throws if parameters are parts along these axes already.
void require_unsharded(const nn::Module& module, const std::string& axes) {
  const nn::Placements former = nn::placements(module);
  for (const auto& [name, parameter] : nn::named_parameters(module)) {
    const tensor::PlacementPtr placed = former.find(parameter);
    require(placed == nullptr || !tensor::has_any_axis(placed->axes, axes), Status::kInvalidState, "parameter '", name,
            "' is a part that a sharded model left behind, which exists no more; expected a model whose parameters are "
            "whole: make it again");
  }
}

// A parameter that another kind of parallelism has cut is cut once more.
void place_parameters(nn::Module& module, const std::vector<std::unique_ptr<ParameterGroup>>& groups) {
  nn::Placements former = nn::placements(module);
  former.add(nn::summed_placements(module));
  nn::Placements placements;
  for (const auto& group : groups) {
    const std::string& axes = group->ranks().shard_axes;
    for (const auto& parameter : group->parameters()) {
      tensor::Box rows{tensor::whole_offset(parameter->layout().shape().size()), parameter->layout().shape()};
      rows.offset[0] = parameter->layout().rows().begin;
      rows.sizes[0] = parameter->layout().rows().size();
      const tensor::PlacementPtr placed = former.find(parameter->tensor());
      placements.set(parameter->tensor(), placed == nullptr
                                              ? tensor::box_placement(parameter->layout().shape(), rows, axes)
                                              : std::make_shared<const tensor::Placement>(placed->cut(rows, axes)));
    }
  }
  nn::set_placements(module, placements);
}

// Whether other ranks have other experts. The parameters of a group are all of experts, or none is.
bool has_experts(const nn::NamedTensors& parameters, const nn::Placements& placements) {
  size_t number = 0;
  for (const auto& [name, parameter] : parameters) {
    const tensor::PlacementPtr placed = placements.find(parameter);
    number += placed != nullptr && tensor::has_any_axis(placed->axes, kExpertAxes) ? 1 : 0;
  }
  require(number == 0 || number == parameters.size(), Status::kUnsupported,
          "a sharded module shares parameters with experts, which other ranks do not have; expected experts with "
          "parameters of their own");
  return number > 0;
}

}  // namespace

FullyShardedDataParallel::FullyShardedDataParallel(nn::ModulePtr module, const ModelRanks& ranks,
                                                   const FsdpSettings& settings)
    : ParallelModel("FullyShardedDataParallel", std::move(module)),
      ranks_(ranks),
      settings_(settings),
      policy_(mixed_precision_policy(settings)),
      parts_(*this, groups_, settings_) {
  add_child("module", this->module());
}

std::shared_ptr<FullyShardedDataParallel> FullyShardedDataParallel::create(nn::ModulePtr module,
                                                                           const ModelRanks& ranks,
                                                                           const FsdpSettings& settings,
                                                                           c10::Device device,
                                                                           const Fp8GatherPtr& fp8) {
  ModelRanks with_reshard = ranks;
  if (settings.reshard_group_size > 1) {
    const int64_t size = settings.reshard_group_size;
    require(ranks.shard->size() % size == 0, Status::kInvalidArgument, "reshard_group_size is ", size, " of ",
            ranks.shard->size(), " ranks; expected a divisor of their number");
    if (size < ranks.shard->size())
      with_reshard.reshard =
          comm::split_group(*ranks.shard, ranks.shard->rank() / static_cast<int>(size), ranks.shard->rank());
  }
  std::shared_ptr<FullyShardedDataParallel> model(
      new FullyShardedDataParallel(std::move(module), with_reshard, settings));
  model->shard_model(device, fp8);
  return model;
}

// The tensor, or memory for one without that rank 0 has.
at::Tensor FullyShardedDataParallel::with_memory(const at::Tensor& tensor, const std::string& name,
                                                 c10::Device device) const {
  if (!tensor.is_meta()) return tensor;
  require(settings_.sync_module_states && settings_.cpu_ram_efficient_loading && ranks_.gradient->rank() != 0,
          Status::kInvalidState, "'", name, "' has no memory on rank ", ranks_.gradient->rank(),
          "; expected weights on rank 0, and elsewhere too unless cpu_ram_efficient_loading is 1, or zero3_init_flag "
          "of DeepSpeed's settings");
  return at::empty(tensor.sizes(), tensor.options().device(device).requires_grad(false));
}

void FullyShardedDataParallel::shard_model(c10::Device device, const Fp8GatherPtr& fp8) {
  const at::NoGradGuard no_grad;
  require_unsharded(*module(), ranks_.shard_axes);
  const std::vector<WrappedModule> modules = wrap_modules(module(), settings_, kExpertAxes);
  const nn::Placements summed = nn::summed_placements(*module()), placements = nn::placements(*module());
  for (const WrappedModule& wrapped : modules) {
    const bool is_of_experts = ranks_.experts != nullptr && has_experts(wrapped.parameters, placements);
    has_experts_ = has_experts_ || is_of_experts;
    groups_.push_back(std::make_unique<ParameterGroup>(wrapped.path, wrapped.parameters, settings_, policy_,
                                                       is_of_experts ? *ranks_.experts : ranks_, fp8));
    for (const auto& parameter : groups_.back()->parameters())
      parameter->gradient().set_summed(summed.find(parameter->tensor()) != nullptr);
  }
  FsdpSettings scheduled = settings_;
  // A gather begins behind what is queued on the stream, so only one that is queued ahead runs beside a forward.
  if (!device.is_cpu()) scheduled.forward_prefetch = true;
  executor_.emplace(*this, groups_, ShardingSchedule(registration_order(*module(), modules), scheduled), ranks_.shard);
  check_same_model(*module(), *ranks_.gradient);
  const bool sync = settings_.sync_module_states;
  for (const auto& group : groups_) {
    // One parameter after the other, so that memory for one more is enough.
    group->shard(device, [&](size_t index) {
      const ShardedParameter& parameter = *group->parameters()[index];
      at::Tensor whole = with_memory(parameter.tensor(), parameter.name(), device);
      if (sync) group->ranks().gradient->broadcast(whole, /*from=*/0);
      return whole;
    });
  }
  place_parameters(*module(), groups_);
  nn::NamedTensors others = nn::named_buffers(*module());
  for (const auto& [name, parameter] : nn::named_parameters(*module()))
    if (parts_.find(parameter) == nullptr) others.emplace_back(name, parameter);
  std::vector<at::Tensor> sent;
  for (const auto& [name, tensor] : others) {
    if (tensor.is_meta()) tensor::set_data(tensor, with_memory(tensor, name, device));
    sent.push_back(tensor);
  }
  if (sync) broadcast_tensors(sent, /*from=*/0, *ranks_.gradient);
  fixed_parameters_ = FixedParameters(*module());
  add_hooks(modules);
  watch_calls_outside(*module(), modules, groups_, *executor_, hooks_);
}

void FullyShardedDataParallel::add_hooks(const std::vector<WrappedModule>& modules) {
  using nn::HookOrder;
  ScheduleExecutor& executor = *executor_;
  const auto input_dtype = settings_.cast_forward_inputs ? policy_.param_dtype : std::nullopt;
  for (size_t i = 0; i < modules.size(); i++) {
    const nn::ModulePtr& wrapped = modules[i].module;
    hooks_.add(wrapped, wrapped->hooks().add_pre_hook(
                            [&executor, i, input_dtype](nn::Module&, const nn::Inputs& inputs) {
                              executor.before_forward(i);
                              return cast_inputs(inputs, input_dtype);
                            },
                            HookOrder::kPlacement));
    hooks_.add(wrapped, wrapped->hooks().add_post_hook(
                            [&executor, i](nn::Module&, const nn::Inputs&, const c10::IValue& output) {
                              executor.after_forward(i, output);
                              return std::nullopt;
                            },
                            HookOrder::kPlacement));
    if (groups_[i]->gradients().has_frozen())
      hooks_.add(wrapped, wrapped->hooks().add_backward_hook([&executor, i](nn::Module&, const nn::Inputs& gradients) {
        if (!gradients.empty()) executor.inputs_arrived(i);  // without any the module's backward only begins now
        return std::nullopt;
      }));
    groups_[i]->gradients().watch([&executor, i](size_t parameter) { executor.gradient_arrived(i, parameter); });
  }
}

CommunicatorPtr FullyShardedDataParallel::set_gradient_group(CommunicatorPtr /*group*/) {
  fail(Status::kUnsupported,
       "the ranks of a sharded model cannot train apart, because each has a part of the parameters; expected a model "
       "without sharding for local SGD and for LOMO");
}

void FullyShardedDataParallel::register_comm_hook(BucketCallback /*callback*/) {
  fail(Status::kUnsupported,
       "a sharded model has no buckets of gradients for a communication hook; expected a model without sharding");
}

void FullyShardedDataParallel::begin_forward(bool records) {
  executor_->require_intact();
  require(parts_.num_gathered() == 0, Status::kInvalidState, parts_.num_gathered(),
          " parameters of the model are gathered; expected the end of that scope before a forward");
  fixed_parameters_.check(*module());
  executor_->begin_forward(records);
}

bool FullyShardedDataParallel::begin_micro_batches(MicroBatches kind) {
  const bool releases = reshards_after_forward(settings_);
  executor_->begin_micro_batches(kind, /*announces=*/releases);
  return !releases;
}

c10::IValue FullyShardedDataParallel::forward(const nn::Inputs& inputs) {
  const bool records = at::GradMode::is_enabled();
  if (has_uneven_inputs()) uneven_inputs()->announce(*this, {records, records && gradient_sync()});
  begin_forward(records);
  c10::IValue output = module()->call(inputs);
  return policy_.output_dtype ? cast_floating(output, *policy_.output_dtype) : output;
}

void FullyShardedDataParallel::shadow(const ForwardNotice& others, int /*source*/) {
  const bool former_sync = set_gradient_sync(others.exchanges);
  const auto restored = c10::make_scope_exit([&] { set_gradient_sync(former_sync); });
  executor_->repeat(others.records, [&] { begin_forward(others.records); });
}

std::vector<at::Tensor> FullyShardedDataParallel::gradients() const {
  std::vector<at::Tensor> gradients = ParallelModel::gradients();
  for (const auto& group : groups_)
    for (const auto& parameter : group->parameters())
      if (const at::Tensor& kept = parameter->gradient().kept_whole(); kept.defined()) gradients.push_back(kept);
  return gradients;
}

}  // namespace accel::parallel
