// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor_chunk.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <string>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::tensor {
namespace {

template <typename Holder>
const Holder* holder_of(const c10::IValue& value) {
  return value.isCapsule() ? dynamic_cast<const Holder*>(value.toCapsule().get()) : nullptr;
}

}  // namespace

at::Tensor narrow(const at::Tensor& tensor, const Box& box) {
  at::Tensor result = tensor;
  for (size_t i = 0; i < box.sizes.size(); i++)
    result = result.narrow(static_cast<int64_t>(i), box.offset[i], box.sizes[i]);
  return result;
}

at::Tensor TensorChunk::part(const PlacedBox& box) const { return narrow(data, {box.local, box.whole.sizes}); }

c10::IValue chunk_value(at::Tensor data, PlacementPtr placement) {
  int64_t elements = 0;
  for (const PlacedBox& box : placement->boxes) {
    bool fits = data.dim() == static_cast<int64_t>(placement->shape.size());
    for (size_t i = 0; fits && i < placement->shape.size(); i++)
      fits = box.local[i] <= data.size(static_cast<int64_t>(i)) - box.whole.sizes[i];
    require(fits, Status::kShapeMismatch, "a part of shape ", data.sizes(), " does not have the elements ",
            c10::IntArrayRef(box.local), " to ", c10::IntArrayRef(box.whole.sizes), " of its placement in ",
            c10::IntArrayRef(placement->shape));
    elements += c10::multiply_integers(box.whole.sizes);
  }
  require(elements == data.numel(), Status::kShapeMismatch, "a part of shape ", data.sizes(), " has ", data.numel(),
          " elements; its placement in ", c10::IntArrayRef(placement->shape), " has ", elements);
  return c10::IValue::make_capsule(c10::make_intrusive<TensorChunk>(std::move(data), std::move(placement)));
}

const TensorChunk* chunk_of(const c10::IValue& value) { return holder_of<TensorChunk>(value); }

c10::IValue saved_tensor_value(c10::intrusive_ptr<SavedTensor> tensor) {
  return c10::IValue::make_capsule(std::move(tensor));
}

const SavedTensor* saved_tensor_of(const c10::IValue& value) { return holder_of<SavedTensor>(value); }

std::vector<int64_t> shape_of_saved(const c10::IValue& value, const std::string& name) {
  if (const SavedTensor* const saved = saved_tensor_of(value)) return saved->shape();
  require(value.isTensor() && value.toTensor().defined(), Status::kTypeMismatch, "'", name, "' is of kind ",
          tree::kind_name(value), "; expected a tensor");
  return value.toTensor().sizes().vec();
}

namespace {

at::Tensor whole_tensor(const c10::IValue& value, const Placement& placement, const std::string& name) {
  const std::vector<int64_t> shape = shape_of_saved(value, name);
  require(shape == placement.shape, Status::kShapeMismatch, "'", name, "' has the shape ", c10::IntArrayRef(shape),
          "; expected ", c10::IntArrayRef(placement.shape));
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

}  // namespace

void check_part(const c10::IValue& value, const Placement& placement, const std::string& name) {
  whole_tensor(value, placement, name);
  if (const SavedTensor* const saved = saved_tensor_of(value))
    for (const PlacedBox& box : placement.boxes) saved->check(box.whole);
}

at::Tensor read_part(const c10::IValue& value, const Placement& placement, const std::string& name) {
  const at::Tensor whole = whole_tensor(value, placement, name);
  const SavedTensor* const saved = saved_tensor_of(value);
  const auto read = [&](const PlacedBox& box) {
    return saved != nullptr ? saved->read(box.whole) : narrow(whole, box.whole);
  };
  if (placement.boxes.size() == 1) return read(placement.boxes.front());
  at::Tensor part;
  const std::vector<int64_t> sizes = placement.stored_sizes();
  for (const PlacedBox& box : placement.boxes) {
    const at::Tensor elements = read(box);
    if (!part.defined()) part = at::empty(sizes, elements.options());
    narrow(part, {box.local, box.whole.sizes}).copy_(elements);
  }
  return part;
}

}  // namespace accel::tensor
