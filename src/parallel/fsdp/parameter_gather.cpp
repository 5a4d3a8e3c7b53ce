#include "parallel/fsdp/parameter_gather.hpp"

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
    : module_(std::move(module)), parameters_(parameters), settings_(settings), ranks_(ranks) {
  for (const auto& parameter : parameters_) {
    const bool is_covered = fp8 != nullptr && fp8->covers(parameter->tensor());
    fp8_weights_.push_back(is_covered ? std::make_unique<Fp8Weight>(*parameter, fp8) : nullptr);
  }
}

void ParameterGather::set_device(c10::Device device, bool on_host) {
  device_ = device;
  on_host_ = on_host;
  parts_ = list_parts();
}

std::vector<Fp8Weight*> ParameterGather::fp8_weights() const {
  std::vector<Fp8Weight*> found;
  for (const auto& weight : fp8_weights_)
    if (weight != nullptr && uses_fp8_) found.push_back(weight.get());
  return found;
}

void ParameterGather::set_training(bool is_training) {
  const auto weight =
      std::find_if(fp8_weights_.begin(), fp8_weights_.end(), [](const auto& one) { return one != nullptr; });
  if (weight == fp8_weights_.end()) return;
  const bool uses_fp8 = is_training || (*weight)->is_for_evaluation();
  if (uses_fp8 == uses_fp8_) return;
  reshard();
  uses_fp8_ = uses_fp8;
  sent_parts_.clear();
  is_updated_ = true;
  parts_ = list_parts();
}

std::vector<ParameterGather::Part> ParameterGather::list_parts() const {
  std::vector<Part> parts;
  for (size_t i = 0; i < parameters_.size(); i++) {
    const ShardLayout& layout = parameters_[i]->layout();
    const Fp8Weight* const fp8 = uses_fp8_ ? fp8_weights_[i].get() : nullptr;
    parts.push_back(
        {i, layout.elements_per_rank(), fp8 != nullptr ? at::kByte : layout.compute_dtype(), fp8, /*is_scales=*/false});
    if (fp8 != nullptr && !fp8->has_one_scale())
      parts.push_back({i, fp8->scales_per_rank(), fp8->scales_dtype(), fp8, /*is_scales=*/true});
  }
  return parts;
}

int64_t ParameterGather::padded_elements(const Part& part) const {
  return part.elements_per_rank * ranks_.shard->size();
}

// Whether a copy of the shard is gathered, in another place or dtype, instead of the shard itself.
bool ParameterGather::is_copied(const Part& part) const {
  return on_host_ || part.fp8 != nullptr || parameters_[part.parameter]->layout().dtype() != part.dtype;
}

void ParameterGather::make_sent_parts() {
  GroupMemoryLayout layout;
  for (const Part& part : parts_)
    if (is_copied(part)) layout.add(part.elements_per_rank, part.dtype);
  at::Tensor memory;
  if (layout.bytes() > 0)
    memory = ranks_.shard->zeros(layout.bytes(), at::TensorOptions().dtype(at::kByte).device(device_));
  layout = {};
  for (const Part& part : parts_) {
    if (!is_copied(part)) {
      sent_parts_.push_back(parameters_[part.parameter]->padded_shard());
      continue;
    }
    const int64_t offset = layout.add(part.elements_per_rank, part.dtype);
    sent_parts_.push_back(part_of(memory, offset, part.elements_per_rank, part.dtype));
  }
}

void ParameterGather::update_sent_parts() {
  if (sent_parts_.empty()) make_sent_parts();
  if (!std::exchange(is_updated_, false)) return;
  for (size_t i = 0; i < parts_.size(); i++) {
    const Part& part = parts_[i];
    if (part.fp8 == nullptr && is_copied(part))
      sent_parts_[i].copy_(parameters_[part.parameter]->padded_shard());
    else if (part.fp8 != nullptr && !part.is_scales)
      part.fp8->cast_rows(sent_parts_[i], part.fp8->has_one_scale() ? at::Tensor() : sent_parts_[i + 1]);
  }
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
  update_sent_parts();
  return SentParts::kShards;
}

void ParameterGather::start_unshard() {
  const auto sent = prepare_unshard();
  if (!sent) return;
  const at::NoGradGuard no_grad;
  if (sent == SentParts::kShards)
    gather(sent_parts_, *ranks_.shard);
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
    for (const Part& part : parts_)
      parts.push_back(at::zeros({padded_elements(part) / ranks_.reshard->size()},
                                at::TensorOptions().dtype(part.dtype).device(device_)));
    gather(parts, *ranks_.reshard);
  }
  reshard();
}

// Parts in 8 bits have memory of their own, since it goes when the parameters are whole.
void ParameterGather::gather(const std::vector<at::Tensor>& sent, comm::Communicator& ranks) {
  GroupMemoryLayout plain, fp8;
  const auto add = [&](const Part& part) {
    return (part.fp8 == nullptr ? plain : fp8).add(padded_elements(part), part.dtype);
  };
  for (const Part& part : parts_) add(part);
  const auto options = at::TensorOptions().dtype(at::kByte).device(device_);
  const at::Tensor plain_memory = kernels::empty_cached({plain.bytes()}, options);
  const at::Tensor fp8_memory = kernels::empty_cached({fp8.bytes()}, options);
  plain = fp8 = {};
  std::vector<comm::Collective> collectives;
  for (size_t i = 0; i < parts_.size(); i++) {
    const Part& part = parts_[i];
    const int64_t offset = add(part), elements = padded_elements(part);
    gathered_.push_back(part_of(part.fp8 == nullptr ? plain_memory : fp8_memory, offset, elements, part.dtype));
    if (elements > 0) collectives.push_back(comm::Collective::all_gather(sent[i], gathered_.back()));
  }
  gathering_ = ranks.start(collectives);
}

void ParameterGather::take_gathered() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parts_.size(); i++) {
    const Part& part = parts_[i];
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
  if (on_host_ && !settings_.offload_optimizer) {  // the copies are of no use until the next time
    sent_parts_.clear();
    is_updated_ = true;
  }
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
  for (const Part& part : parts_)
    if (part.fp8 != nullptr && !part.is_scales) part.fp8->give({});
  for (const auto& parameter : parameters_) parameter->reshard();
}

bool ParameterGather::has_storage(const c10::StorageImpl* storage) const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [storage](const auto& parameter) { return parameter->has_storage(storage); });
}

}  // namespace accel::parallel
