// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/gather/gather_parts.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "parallel/fsdp/group_memory.hpp"

namespace accel::parallel {

GatherParts::GatherParts(const std::vector<std::unique_ptr<ShardedParameter>>& parameters, const ModelRanks& ranks,
                         const Fp8GatherPtr& fp8)
    : parameters_(parameters), ranks_(ranks) {
  for (const auto& parameter : parameters_) {
    const bool is_covered = fp8 != nullptr && fp8->covers(parameter->tensor());
    fp8_weights_.push_back(is_covered ? std::make_unique<Fp8Weight>(*parameter, fp8) : nullptr);
  }
}

void GatherParts::set_device(c10::Device device, bool on_host) {
  device_ = device;
  on_host_ = on_host;
  parts_ = make_list();
}

std::vector<Fp8Weight*> GatherParts::fp8_weights() const {
  std::vector<Fp8Weight*> found;
  for (const auto& weight : fp8_weights_)
    if (weight != nullptr && uses_fp8_) found.push_back(weight.get());
  return found;
}

const Fp8Weight* GatherParts::any_fp8_weight() const {
  for (const auto& weight : fp8_weights_)
    if (weight != nullptr) return weight.get();
  return nullptr;
}

bool GatherParts::change_with(bool is_training) const {
  const Fp8Weight* const weight = any_fp8_weight();
  return weight != nullptr && (is_training || weight->is_for_evaluation()) != uses_fp8_;
}

void GatherParts::set_training(bool is_training) {
  if (!change_with(is_training)) return;
  uses_fp8_ = !uses_fp8_;
  drop();
  parts_ = make_list();
}

std::vector<GatherPart> GatherParts::make_list() const {
  std::vector<GatherPart> parts;
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

int64_t GatherParts::padded_elements(const GatherPart& part) const {
  return part.elements_per_rank * ranks_.shard->size();
}

// Whether a copy of the shard is sent, in another place or dtype, instead of the shard itself.
bool GatherParts::is_copied(const GatherPart& part) const {
  return on_host_ || part.fp8 != nullptr || parameters_[part.parameter]->layout().dtype() != part.dtype;
}

void GatherParts::make_tensors() {
  GroupMemoryLayout layout;
  for (const GatherPart& part : parts_)
    if (is_copied(part)) layout.add(part.elements_per_rank, part.dtype);
  at::Tensor memory;
  if (layout.bytes() > 0)
    memory = ranks_.shard->zeros(layout.bytes(), at::TensorOptions().dtype(at::kByte).device(device_));
  layout = {};
  for (const GatherPart& part : parts_) {
    if (!is_copied(part)) {
      tensors_.push_back(parameters_[part.parameter]->padded_shard());
      continue;
    }
    const int64_t offset = layout.add(part.elements_per_rank, part.dtype);
    tensors_.push_back(part_of(memory, offset, part.elements_per_rank, part.dtype));
  }
}

const std::vector<at::Tensor>& GatherParts::update() {
  if (tensors_.empty()) make_tensors();
  if (!std::exchange(is_updated_, false)) return tensors_;
  for (size_t i = 0; i < parts_.size(); i++) {
    const GatherPart& part = parts_[i];
    if (part.fp8 == nullptr && is_copied(part))
      tensors_[i].copy_(parameters_[part.parameter]->padded_shard());
    else if (part.fp8 != nullptr && !part.is_scales)
      part.fp8->cast_rows(tensors_[i], part.fp8->has_one_scale() ? at::Tensor() : tensors_[i + 1]);
  }
  return tensors_;
}

void GatherParts::drop() {
  tensors_.clear();
  is_updated_ = true;
}

}  // namespace accel::parallel
