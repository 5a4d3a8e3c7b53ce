// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/gather/parameter_gather.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "comm/collective.hpp"
#include "config/generated/settings/prepare/fsdp.hpp"
#include "kernels/memory/cpu_allocator.hpp"
#include "parallel/fsdp/group_memory.hpp"

namespace accel::parallel {

ParameterGather::ParameterGather(std::string module, const std::vector<std::unique_ptr<ShardedParameter>>& parameters,
                                 const FsdpSettings& settings, const ModelRanks& ranks, const Fp8GatherPtr& fp8)
    : module_(std::move(module)),
      parameters_(parameters),
      settings_(settings),
      ranks_(ranks),
      parts_(parameters, ranks, fp8) {}

void ParameterGather::set_training(bool is_training) {
  if (!parts_.change_with(is_training)) return;
  reshard();
  parts_.set_training(is_training);
}

void ParameterGather::check_data() const {
  for (const auto& parameter : parameters_)
    require(
        parameter->has_shard(), Status::kInvalidState, "the data of '", parameter->name(), "' of ",
        module_.empty() ? std::string("the model") : text("the module '", module_, "'"),
        " are not those of its shard any more: they are ", parameter->tensor().scalar_type(),
        parameter->tensor().sizes(), " and the shard is ", parameter->layout().dtype(), parameter->shard().sizes(),
        "; expected that a sharded parameter changes in place only, without another shape, dtype, device or memory");
}

std::optional<SentParts> ParameterGather::prepare_unshard() {
  if (unsharded_ || gathering_ != nullptr || parameters_.empty()) return std::nullopt;
  const at::NoGradGuard no_grad;
  check_data();
  if (!kept_parts_.empty()) return SentParts::kKept;
  parts_.update();
  return SentParts::kShards;
}

void ParameterGather::start_unshard() {
  const auto sent = prepare_unshard();
  if (!sent) return;
  const at::NoGradGuard no_grad;
  if (sent == SentParts::kShards)
    gather(parts_.tensors(), *ranks_.shard);
  else
    gather(kept_parts_, *ranks_.reshard);
}

void ParameterGather::gather_for_others(SentParts sent) {
  reshard();
  if (sent == SentParts::kShards) {
    start_unshard();
  } else {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> parts;
    for (const GatherPart& part : parts_.list())
      parts.push_back(at::zeros({parts_.padded_elements(part) / ranks_.reshard->size()},
                                at::TensorOptions().dtype(part.dtype).device(device())));
    gather(parts, *ranks_.reshard);
  }
  reshard();
}

// Parts in 8 bits have memory of their own, since it goes when the parameters are whole.
void ParameterGather::gather(const std::vector<at::Tensor>& sent, comm::Communicator& ranks) {
  GroupMemoryLayout plain, fp8;
  const auto add = [&](const GatherPart& part) {
    return (part.fp8 == nullptr ? plain : fp8).add(parts_.padded_elements(part), part.dtype);
  };
  for (const GatherPart& part : parts_.list()) add(part);
  const auto options = at::TensorOptions().dtype(at::kByte).device(device());
  const at::Tensor plain_memory = kernels::empty_cached({plain.bytes()}, options);
  const at::Tensor fp8_memory = kernels::empty_cached({fp8.bytes()}, options);
  plain = fp8 = {};
  std::vector<comm::Collective> collectives;
  for (size_t i = 0; i < parts_.list().size(); i++) {
    const GatherPart& part = parts_.list()[i];
    const int64_t offset = add(part), elements = parts_.padded_elements(part);
    gathered_.push_back(part_of(part.fp8 == nullptr ? plain_memory : fp8_memory, offset, elements, part.dtype));
    if (elements > 0) collectives.push_back(comm::Collective::all_gather(sent[i], gathered_.back()));
  }
  gathering_ = ranks.start(collectives);
}

void ParameterGather::take_gathered() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parts_.list().size(); i++) {
    const GatherPart& part = parts_.list()[i];
    if (part.is_scales) continue;
    ShardedParameter& parameter = *parameters_[part.parameter];
    if (part.fp8 == nullptr) {
      parameter.unshard(gathered_[i]);
      continue;
    }
    const kernels::Fp8Matrix matrix =
        part.fp8->whole(gathered_[i], part.fp8->has_one_scale() ? at::Tensor() : gathered_[i + 1]);
    parameter.unshard(part.fp8->numbers_of(matrix));
    part.fp8->give(matrix);
  }
  if (ranks_.reshard == nullptr) gathered_.clear();
}

void ParameterGather::unshard() {
  if (unsharded_) return;
  start_unshard();
  if (const auto gathering = std::exchange(gathering_, nullptr)) gathering->synchronize();
  take_gathered();
  if (parts_.on_host() && !settings_.offload_optimizer) parts_.drop();  // of no use until the next time
  unsharded_ = true;
}

void ParameterGather::reshard_for_backward() {
  if (ranks_.reshard == nullptr || !unsharded_) return reshard();
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& gathered : gathered_) {
    const int64_t elements = gathered.numel() / ranks_.reshard->size();
    parts.push_back(gathered.narrow(0, elements * ranks_.reshard->rank(), elements).clone());
  }
  reshard();
  kept_parts_ = std::move(parts);
}

void ParameterGather::reshard() {
  if (const auto gathering = std::exchange(gathering_, nullptr)) gathering->wait();
  gathered_.clear();
  kept_parts_.clear();
  if (!std::exchange(unsharded_, false)) return;
  for (const GatherPart& part : parts_.list())
    if (part.fp8 != nullptr && !part.is_scales) part.fp8->give({});
  for (const auto& parameter : parameters_) parameter->reshard();
}

bool ParameterGather::has_storage(const c10::StorageImpl* storage) const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [storage](const auto& parameter) { return parameter->has_storage(storage); });
}

}  // namespace accel::parallel
