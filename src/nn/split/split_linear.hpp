// SPDX-License-Identifier: Apache-2.0
// The operator accel::split_linear: a linear layer of another library with a weight of which each rank of a group has a
// part. A plan has cut the weight, and said who computes the product with the other ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "nn/layers/projection.hpp"

namespace accel::nn {

inline constexpr const char* kSplitLinearSchema =
    "split_linear(Tensor input, Tensor weight, Tensor? bias=None, *, bool is_transposed=False, "
    "bool splits_sequence=False, int readers=1) -> Tensor";

// How the layer is called, which only the other library knows.
struct SplitLinearCall {
  Product product;
  bool splits_sequence;  // what is not split by features is split by positions
  int64_t readers;       // layers with split outputs that read the same input
};

class SplitLinear {
 public:
  virtual ~SplitLinear() = default;
  virtual at::Tensor multiply(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                              const SplitLinearCall& call) const = 0;
};

// For as long as something else owns `linear`.
void mark_split_linear(const at::Tensor& weight, const std::shared_ptr<const SplitLinear>& linear);

// A weight that is cut by its outputs: this rank's features of the output, of a whole input. By its inputs: the sum
// over the ranks, to which the bias is added, of a split input. A weight that no plan has cut is multiplied as a whole.
at::Tensor split_linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                        bool is_transposed, bool splits_sequence, int64_t readers);

}  // namespace accel::nn
