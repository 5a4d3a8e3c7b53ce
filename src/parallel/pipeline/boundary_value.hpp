// SPDX-License-Identifier: Apache-2.0
// Boundary value: what a stage of a pipeline passes to another one, a tree of tensors, numbers and texts. Its tensors
// are sent one by one; the rest is a description, which is sent again only when it changes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accel::parallel {

std::vector<at::Tensor> tensors_of(const c10::IValue& value);

// The dtype in which floating tensors of larger ones are sent, if there is one.
using BoundaryDtype = std::optional<at::ScalarType>;

// "bfloat16", "float16", "float32" in any of their names; none for an empty text. Throws INVALID_ARGUMENT for others.
BoundaryDtype read_boundary_dtype(const std::string& name);

// The tensor as it is sent.
at::Tensor sent_form(const at::Tensor& tensor, BoundaryDtype smaller);

// The elements that a rank sends of a tensor which as many ranks have: all, if it is small or cannot be split evenly.
int64_t sent_elements(int64_t elements, int64_t bytes, int64_t ranks);

// The structure with all that is not a tensor, and of each tensor the dtype, that in which it is sent, the shape, and
// whether its gradient is wanted.
std::string describe(const c10::IValue& value, BoundaryDtype smaller);

// An outline is equal only where the descriptions are, and costs little. Empty unless the value has tensors and
// sequences alone.
std::string outline_of(const c10::IValue& value);

class ValueLayout {
 public:
  // Reads a description of a value of which as many ranks send parts.
  explicit ValueLayout(std::string_view description, int64_t ranks = 1);

  // The bytes of each tensor as a rank sends it, and memory for them.
  const std::vector<int64_t>& sent_bytes() const { return sent_bytes_; }
  std::vector<at::Tensor> allocate(c10::Device device) const;
  // Memory for the tensors of all ranks.
  std::vector<at::Tensor> allocate_whole(c10::Device device) const;
  // The value with these tensors, which become leaves of a graph of their own where gradients are wanted.
  c10::IValue value_of(const std::vector<at::Tensor>& tensors) const;

 private:
  c10::IValue structure_;  // with an empty tensor in the place of each
  std::vector<std::vector<int64_t>> sizes_;
  std::vector<at::ScalarType> sent_dtypes_;
  std::vector<int64_t> sent_bytes_;
  const int64_t ranks_;
  std::vector<bool> wants_gradient_;
};

}  // namespace accel::parallel
