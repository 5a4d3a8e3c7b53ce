// SPDX-License-Identifier: Apache-2.0
// Tensors in chunks: how the state of a model or optimizer that is sharded over the ranks is saved and loaded.
//
// In a state that is saved, a tensor may be a TensorChunk: the part of a larger tensor that this rank stores. In a
// state that is loaded, it may be a SavedTensor, from which an object reads the boxes that it needs, whatever the boxes
// were when it was saved.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tensor/placement.hpp"

namespace accel::tensor {

// A view of the elements in this box.
at::Tensor narrow(const at::Tensor& tensor, const Box& box);

struct TensorChunk final : torch::CustomClassHolder {
  TensorChunk(at::Tensor data, PlacementPtr placement) : data(std::move(data)), placement(std::move(placement)) {}

  // The elements of `data` that are in this box of the placement.
  at::Tensor part(const PlacedBox& box) const;

  const at::Tensor data;
  const PlacementPtr placement;
};

class SavedTensor : public torch::CustomClassHolder {
 public:
  virtual at::ScalarType dtype() const = 0;
  virtual const std::vector<int64_t>& shape() const = 0;
  // A tensor on the CPU with these elements, which must be inside of the shape. Reads no others.
  virtual at::Tensor read(const Box& box) const = 0;
  // Throws what read() would.
  virtual void check(const Box& box) const = 0;
};

// `data` must fit the boxes of the placement. Where several ranks store the same part, one of them saves it; the others
// save None. Boxes that do not count are left out of files.
c10::IValue chunk_value(at::Tensor data, PlacementPtr placement);
// Null for a value of another kind.
const TensorChunk* chunk_of(const c10::IValue& value);

c10::IValue saved_tensor_value(c10::intrusive_ptr<SavedTensor> tensor);
const SavedTensor* saved_tensor_of(const c10::IValue& value);

// The shape of a tensor or a SavedTensor. Other values are a TYPE_MISMATCH that names `name`.
std::vector<int64_t> shape_of_saved(const c10::IValue& value, const std::string& name);
// The part of a tensor or a SavedTensor that a rank stores by this placement, which must have its shape.
at::Tensor read_part(const c10::IValue& value, const Placement& placement, const std::string& name);
// Throws what read_part() would.
void check_part(const c10::IValue& value, const Placement& placement, const std::string& name);

}  // namespace accel::tensor
