// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/sharded_parts.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/accumulate.h>

#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "comm/collective.hpp"
#include "tensor/file_memory.hpp"

namespace accel::parallel {

std::vector<ShardedModule> ShardedParts::sharded_modules() const {
  std::vector<ShardedModule> modules;
  for (const auto& group : groups_) {
    ShardedModule& module = modules.emplace_back();
    module.path = group->name();
    for (const auto& parameter : group->parameters()) {
      module.parameters.push_back(parameter->tensor());
      module.elements += c10::multiply_integers(parameter->layout().shape());
      module.shard_elements += parameter->shard().numel();
    }
  }
  return modules;
}

// Collective: all rows of a parameter, in its own dtype.
at::Tensor ShardedParts::gather_rows(const ShardedParameter& parameter) const {
  const at::NoGradGuard no_grad;
  const at::Tensor padded = parameter.padded_shard().detach();
  const at::Tensor all = at::empty({parameter.layout().padded_elements()}, padded.options());
  ranks_of(parameter).shard->all_gather(padded, all);
  return all.narrow(0, 0, c10::multiply_integers(parameter.layout().shape())).view(parameter.layout().shape());
}

ShardedParameter* ShardedParts::find(const at::Tensor& tensor) const {
  for (const auto& group : groups_)
    for (const auto& parameter : group->parameters())
      if (parameter->tensor().is_same(tensor)) return parameter.get();
  return nullptr;
}

const ModelRanks& ShardedParts::ranks_of(const ShardedParameter& parameter) const {
  for (const auto& group : groups_)
    for (const auto& own : group->parameters())
      if (own.get() == &parameter) return group->ranks();
  fail(Status::kInternal, "a sharded parameter that no group has");
}

// Parameters with as many rows on each rank are gathered where they are wanted, the others with their padding first.
void ShardedParts::gather_into(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& memory) {
  model_.finish_step();
  const at::NoGradGuard no_grad;
  std::unordered_map<const at::TensorImpl*, const at::Tensor*> wanted;
  for (size_t i = 0; i < parameters.size(); i++) wanted.emplace(parameters[i].unsafeGetTensorImpl(), &memory[i]);
  struct Padded {
    at::Tensor memory, whole;
  };
  struct Gathered {
    std::shared_ptr<comm::Work> work;
    std::vector<Padded> padded;
  };
  std::vector<Gathered> gathered;
  for (const auto& group : groups_) {
    std::vector<comm::Collective> collectives;
    std::vector<Padded> padded;
    for (const auto& parameter : group->parameters()) {
      const auto found = wanted.find(parameter->tensor().unsafeGetTensorImpl());
      if (found == wanted.end() || parameter->layout().padded_elements() == 0) continue;
      const at::Tensor& whole = *found->second;
      at::Tensor flat = whole.view({-1});
      if (whole.numel() != parameter->layout().padded_elements()) {
        flat = at::empty({parameter->layout().padded_elements()}, whole.options());
        padded.push_back({whole, flat});
      }
      collectives.push_back(comm::Collective::all_gather(parameter->padded_shard().to(whole.device()), flat));
    }
    if (!collectives.empty()) gathered.push_back({group->ranks().shard->start(collectives), std::move(padded)});
  }
  for (const Gathered& part : gathered) {
    part.work->synchronize();
    for (const Padded& padded : part.padded)
      padded.memory.view({-1}).copy_(padded.whole.narrow(0, 0, padded.memory.numel()));
  }
}

void ShardedParts::gather_parameters(const std::vector<at::Tensor>& parameters) {
  model_.finish_step();
  std::vector<ShardedParameter*> own;
  for (const at::Tensor& tensor : parameters)
    if (ShardedParameter* const parameter = find(tensor)) own.push_back(parameter);
  for (const ShardedParameter* const parameter : own)  // all, before one is changed
    require(!parameter->visible_whole().defined(), Status::kInvalidState, "parameter '", parameter->name(),
            "' is gathered already; expected the end of that scope first");
  for (ShardedParameter* const parameter : own) {
    if (parameter->visible_whole().defined()) continue;  // it is in the list twice
    parameter->show_whole(gather_rows(*parameter));
    num_gathered_++;
  }
}

void ShardedParts::release_parameters(const std::vector<at::Tensor>& parameters, std::optional<int> modifier) {
  for (const at::Tensor& tensor : parameters) {
    ShardedParameter* const parameter = find(tensor);
    if (parameter == nullptr || !parameter->visible_whole().defined()) continue;
    if (modifier) ranks_of(*parameter).gradient->broadcast(parameter->visible_whole(), *modifier);
    parameter->hide_whole(/*keep=*/modifier.has_value());
    num_gathered_--;
  }
  model_.finish_step();
}

optim::StateMemory ShardedParts::state_memory() const {
  if (!settings_.offload_optimizer || settings_.offload_folder.value.empty()) return {};
  return [folder = settings_.offload_folder.value](const at::Tensor& parameter, at::ScalarType dtype) {
    if (parameter.numel() * c10::elementSize(dtype) < tensor::kLeastFileBytes) return at::empty_like(parameter, dtype);
    return tensor::file_zeros(folder, parameter.sizes(), dtype);
  };
}

}  // namespace accel::parallel
