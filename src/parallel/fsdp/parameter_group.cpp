#include "parallel/fsdp/parameter_group.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "parallel/fsdp/group_memory.hpp"
#include "tensor/file_memory.hpp"

namespace accel::parallel {
namespace {

std::vector<std::unique_ptr<ShardedParameter>> sharded(const nn::NamedTensors& parameters, const ShardOptions& options,
                                                       const comm::Communicator& ranks) {
  std::vector<std::unique_ptr<ShardedParameter>> made;
  for (const auto& [path, tensor] : parameters)
    made.push_back(std::make_unique<ShardedParameter>(path, tensor, options.param_dtype, ranks.rank(), ranks.size()));
  return made;
}

}  // namespace

ParameterGroup::ParameterGroup(std::string name, const nn::NamedTensors& parameters, const ShardOptions& options,
                               const ModelRanks& ranks)
    : name_(std::move(name)),
      options_(options),
      ranks_(ranks),
      parameters_(sharded(parameters, options, *ranks.shard)),
      gather_(name_, parameters_, options_, ranks_),
      gradients_(parameters_, options_, ranks_) {}

void ParameterGroup::shard(c10::Device device, const std::function<at::Tensor(size_t index)>& whole) {
  const at::NoGradGuard no_grad;
  const bool on_host = (options_.cpu_offload || options_.offload_optimizer) && !device.is_cpu();
  const std::string& folder = options_.offload_folder;
  GroupMemoryLayout own;
  std::vector<int64_t> offsets;
  for (const auto& parameter : parameters_)
    offsets.push_back(own.add(parameter->layout().elements_per_rank(), parameter->layout().dtype()));
  gather_.set_device(device, on_host);
  const at::TensorOptions bytes = at::TensorOptions().dtype(at::kByte);
  at::Tensor memory, gradients;
  if (options_.cpu_offload && !folder.empty())
    memory = tensor::file_zeros(folder, {own.bytes()}, at::kByte);
  else
    memory = on_host ? at::zeros({own.bytes()}, bytes) : ranks_.shard->zeros(own.bytes(), bytes.device(device));
  if (options_.offload_optimizer && !folder.empty() && gradients_.is_trained())
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
