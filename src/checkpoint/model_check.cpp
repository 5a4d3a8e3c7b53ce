// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_check.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "tensor/tensor_chunk.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

std::string shape_text(c10::IntArrayRef shape) {
  std::string result = "[";
  for (const int64_t size : shape) result += (result.size() > 1 ? ", " : "") + std::to_string(size);
  return result + "]";
}

// The shape of a tensor of the model, or of the whole if the rank has a chunk.
std::vector<int64_t> whole_shape(const c10::IValue& tensor) {
  const auto* const chunk = tensor::chunk_of(tensor);
  return chunk != nullptr ? chunk->placement->shape : tensor.toTensor().sizes().vec();
}

// The tensors of a model that are one and the same as one that was saved: Accelerate saves only the first of them.
bool is_tied_to_saved(const at::Tensor& tensor, const c10::impl::GenericDict& current,
                      const c10::impl::GenericDict& saved) {
  return std::any_of(current.begin(), current.end(), [&](const auto& member) {
    const c10::IValue& other = member.value();
    return other.isTensor() && other.toTensor().is_alias_of(tensor) && other.toTensor().sizes() == tensor.sizes() &&
           other.toTensor().storage_offset() == tensor.storage_offset() && saved.contains(member.key());
  });
}

}  // namespace

void check_model(const c10::IValue& loaded, const c10::IValue& current, const std::string& path) {
  require(loaded.isGenericDict(), Status::kCorrupt, "'", path, "' holds a ", tree::kind_name(loaded),
          "; expected a map of tensors");
  const auto tensors = loaded.toGenericDict(), expected = current.toGenericDict();
  for (const auto& member : expected) {
    const std::string& name = member.key().toStringRef();
    const auto found = tensors.find(name);
    if (found == tensors.end() && member.value().isTensor() &&
        is_tied_to_saved(member.value().toTensor(), expected, tensors))
      continue;
    require(found != tensors.end(), Status::kNotFound, "'", path, "' has no tensor '", name, "', which the model has");
    const std::vector<int64_t> saved = tensor::shape_of_saved(found->value(), name), own = whole_shape(member.value());
    require(saved == own, Status::kShapeMismatch, "tensor '", name, "' in '", path, "' has the shape ",
            shape_text(saved), "; that of the model has ", shape_text(own));
  }
  for (const auto& member : tensors)
    require(expected.contains(member.key()), Status::kInvalidState, "'", path, "' has a tensor '",
            member.key().toStringRef(), "', which the model lacks");
}

}  // namespace accel::checkpoint
