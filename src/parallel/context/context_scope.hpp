// SPDX-License-Identifier: Apache-2.0
// Context scope: in it, attention on this thread is of the whole sequence of which each rank of the group has a part,
// positions are those in it, and means of cross entropy are over all ranks (nn/split/split_operators.hpp). A backward
// may come later, outside.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

#include "nn/split/split_sequence.hpp"
#include "parallel/context/context_attention.hpp"
#include "parallel/sequence_split.hpp"
#include "tensor/autograd/saved_tensor_hooks.hpp"

namespace accel::parallel {

// Bound to its thread; scopes end in reverse order. With one rank nothing changes.
class ContextScope {
 public:
  // Throws, and changes nothing: kInvalidArgument for buffers of other lengths than the first, a length that cannot be
  // split, or a tensor that needs a gradient.
  ContextScope(const ContextParallelism& split, std::vector<SplitBuffer> buffers);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const nn::SplitSequence::Scope scope_;
  std::optional<tensor::SavedTensorHooks> saved_parts_;
  std::vector<std::pair<at::Tensor, at::Tensor>> wholes_;  // buffers with their former data
};

}  // namespace accel::parallel
