// SPDX-License-Identifier: Apache-2.0
// Parallel operators: what leads into and out of a region of a model whose tensors are split over a group of ranks.
// Each is one exchange forward and its adjoint backward, or nothing in one of the directions (Shoeybi et al.,
// "Megatron-LM", 2019; Korthikanti et al., "Reducing Activation Recomputation", 2022). A derivative of a derivative is
// taken by the same operators.
//
// All ranks of the group call the same operators in the same order, forward and backward. A dimension of size T is
// split so that sizes differ by at most one: the first T % n ranks have one more. `whole` is T where each rank passes a
// part; without it all parts are as large as this rank's. With one rank an operator returns its input.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "parallel/regions/exchange.hpp"

namespace accel::parallel {

// Before a layer whose outputs are split. Forward nothing, backward the sum of the gradients.
at::Tensor parallel_copy(const at::Tensor& input, const RankGroup& group);
// After a layer whose inputs are split. Forward the sum, backward nothing.
at::Tensor parallel_reduce(const at::Tensor& input, const RankGroup& group);
// The gradient of a gathered tensor on a rank.
enum class GatheredGradient {
  kReplicated,  // whole, since all ranks compute the same from the tensor: each takes its part of it
  kPartial,     // one term of a sum over the ranks: they reduce and scatter it
};
// Forward the whole along `dim`, backward the part of the gradient.
at::Tensor parallel_gather(const at::Tensor& part, int64_t dim, GatheredGradient gradient, const RankGroup& group,
                           std::optional<int64_t> whole = std::nullopt);
// Forward this rank's part along `dim`, without communication; backward the parts of the gradient are gathered.
at::Tensor parallel_scatter(const at::Tensor& input, int64_t dim, const RankGroup& group);
// Forward this rank's part of the sum along `dim`, backward the parts of the gradient are gathered.
at::Tensor parallel_reduce_scatter(const at::Tensor& input, int64_t dim, const RankGroup& group);
// Forward this rank's part along `split` and the whole along `join`, of which it has a part; backward the reverse.
at::Tensor parallel_all_to_all(const at::Tensor& input, int64_t split, int64_t join, const RankGroup& group,
                               std::optional<int64_t> whole = std::nullopt);

}  // namespace accel::parallel
