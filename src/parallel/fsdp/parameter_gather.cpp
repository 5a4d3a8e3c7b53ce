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
                                 const FsdpSettings& settings, const ModelRanks& ranks)
    : module_(std::move(module)), parameters_(parameters), settings_(settings), ranks_(ranks) {}

void ParameterGather::set_device(c10::Device device, bool on_host) {
  device_ = device;
  on_host_ = on_host;
  GroupMemoryLayout layout;
  for (const auto& parameter : parameters_)
    layout.add(parameter->layout().padded_elements(), parameter->layout().compute_dtype());
  whole_bytes_ = layout.bytes();
}

// Whether a copy of the shard is gathered, in another place or dtype, instead of the shard itself.
bool ParameterGather::is_copied(const ShardLayout& layout) const {
  return on_host_ || layout.dtype() != layout.compute_dtype();
}

void ParameterGather::make_sent_shards() {
  GroupMemoryLayout layout;
  for (const auto& parameter : parameters_)
    if (is_copied(parameter->layout()))
      layout.add(parameter->layout().elements_per_rank(), parameter->layout().compute_dtype());
  at::Tensor memory;
  if (layout.bytes() > 0)
    memory = ranks_.shard->zeros(layout.bytes(), at::TensorOptions().dtype(at::kByte).device(device_));
  layout = {};
  for (const auto& parameter : parameters_) {
    if (!is_copied(parameter->layout())) {
      sent_shards_.push_back(parameter->padded_shard());
      continue;
    }
    const int64_t offset = layout.add(parameter->layout().elements_per_rank(), parameter->layout().compute_dtype());
    sent_shards_.push_back(
        part_of(memory, offset, parameter->layout().elements_per_rank(), parameter->layout().compute_dtype()));
  }
}

void ParameterGather::update_sent_shards() {
  if (sent_shards_.empty()) make_sent_shards();
  if (!std::exchange(is_updated_, false)) return;
  for (size_t i = 0; i < parameters_.size(); i++)
    if (is_copied(parameters_[i]->layout())) sent_shards_[i].copy_(parameters_[i]->padded_shard());
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
  update_sent_shards();
  return SentParts::kShards;
}

void ParameterGather::start_unshard() {
  const auto sent = prepare_unshard();
  if (!sent) return;
  const at::NoGradGuard no_grad;
  if (sent == SentParts::kShards)
    gather(sent_shards_, *ranks_.shard);
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
    for (const auto& parameter : parameters_)
      parts.push_back(at::zeros({parameter->layout().padded_elements() / ranks_.reshard->size()},
                                at::TensorOptions().dtype(parameter->layout().compute_dtype()).device(device_)));
    gather(parts, *ranks_.reshard);
  }
  reshard();
}

void ParameterGather::gather(const std::vector<at::Tensor>& sent, comm::Communicator& ranks) {
  const at::Tensor memory = kernels::empty_cached({whole_bytes_}, at::TensorOptions().dtype(at::kByte).device(device_));
  GroupMemoryLayout layout;
  std::vector<comm::Collective> collectives;
  for (size_t i = 0; i < parameters_.size(); i++) {
    const ShardedParameter& parameter = *parameters_[i];
    const int64_t offset = layout.add(parameter.layout().padded_elements(), parameter.layout().compute_dtype());
    whole_.push_back(part_of(memory, offset, parameter.layout().padded_elements(), parameter.layout().compute_dtype()));
    if (parameter.layout().padded_elements() > 0)
      collectives.push_back(comm::Collective::all_gather(sent[i], whole_.back()));
  }
  gathering_ = ranks.start(collectives);
}

void ParameterGather::unshard() {
  if (unsharded_) return;
  start_unshard();
  if (const auto gathering = std::exchange(gathering_, nullptr)) gathering->synchronize();
  for (size_t i = 0; i < parameters_.size(); i++) parameters_[i]->unshard(whole_[i]);
  if (on_host_ && !settings_.offload_optimizer) {  // the copies are of no use until the next time
    sent_shards_.clear();
    is_updated_ = true;
  }
  unsharded_ = true;
}

void ParameterGather::reshard_for_backward() {
  if (ranks_.reshard == nullptr || !unsharded_) return reshard();
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& whole : whole_) {
    const int64_t elements = whole.numel() / ranks_.reshard->size();
    parts.push_back(whole.narrow(0, elements * ranks_.reshard->rank(), elements).clone());
  }
  reshard();
  kept_parts_ = std::move(parts);
}

void ParameterGather::reshard() {
  if (const auto gathering = std::exchange(gathering_, nullptr)) gathering->wait();
  whole_.clear();
  kept_parts_.clear();
  if (!std::exchange(unsharded_, false)) return;
  for (const auto& parameter : parameters_) parameter->reshard();
}

bool ParameterGather::has_storage(const c10::StorageImpl* storage) const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [storage](const auto& parameter) { return parameter->has_storage(storage); });
}

}  // namespace accel::parallel
