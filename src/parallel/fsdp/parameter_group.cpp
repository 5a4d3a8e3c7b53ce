// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/parameter_group.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <utility>

#include "config/generated/settings/prepare/fsdp.hpp"
#include "parallel/fsdp/group_memory.hpp"
#include "tensor/file_memory.hpp"

namespace accel::parallel {
namespace {

std::vector<std::unique_ptr<ShardedParameter>> sharded(const nn::NamedTensors& parameters,
                                                       std::optional<at::ScalarType> dtype,
                                                       const comm::Communicator& ranks) {
  std::vector<std::unique_ptr<ShardedParameter>> made;
  for (const auto& [path, tensor] : parameters)
    made.push_back(std::make_unique<ShardedParameter>(path, tensor, dtype, ranks.rank(), ranks.size()));
  return made;
}

}  // namespace

ParameterGroup::ParameterGroup(std::string name, const nn::NamedTensors& parameters, const FsdpSettings& settings,
                               const MixedPrecisionPolicy& policy, const ModelRanks& ranks, const Fp8GatherPtr& fp8)
    : name_(std::move(name)),
      settings_(settings),
      policy_(policy),
      ranks_(ranks),
      parameters_(sharded(parameters, policy_.param_dtype, *ranks.shard)),
      gather_(name_, parameters_, settings_, ranks_, fp8),
      gradients_(parameters_, policy_, ranks_) {}

void ParameterGroup::shard(c10::Device device, const std::function<at::Tensor(size_t index)>& whole) {
  const at::NoGradGuard no_grad;
  const bool on_host = (settings_.cpu_offload || settings_.offload_optimizer) && !device.is_cpu();
  const std::string& folder = settings_.offload_folder;
  GroupMemoryLayout own;
  std::vector<int64_t> offsets;
  for (const auto& parameter : parameters_)
    offsets.push_back(own.add(parameter->layout().elements_per_rank(), parameter->layout().dtype()));
  gather_.set_device(device, on_host);
  const at::TensorOptions bytes = at::TensorOptions().dtype(at::kByte);
  at::Tensor memory, gradients;
  if (settings_.cpu_offload && !folder.empty())
    memory = tensor::file_zeros(folder, {own.bytes()}, at::kByte);
  else
    memory = on_host ? at::zeros({own.bytes()}, bytes) : ranks_.shard->zeros(own.bytes(), bytes.device(device));
  if (settings_.offload_optimizer && !folder.empty() && gradients_.is_trained())
    gradients = tensor::file_zeros(folder, {own.bytes()}, at::kByte);
  for (size_t i = 0; i < parameters_.size(); i++) {
    ShardedParameter& parameter = *parameters_[i];
    const int64_t elements = parameter.layout().elements_per_rank();
    parameter.set_shard_memory(part_of(memory, offsets[i], elements, parameter.layout().dtype()), whole(i), device);
    if (!gradients.defined() || !parameter.is_trained()) continue;
    const at::Tensor& shard = parameter.shard();
    parameter.gradient().set_memory(
        part_of(gradients, offsets[i], shard.numel(), parameter.layout().dtype()).view(shard.sizes()));
  }
}

}  // namespace accel::parallel
