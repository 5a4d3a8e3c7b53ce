// SPDX-License-Identifier: Apache-2.0
// Loss parallel: the scores of a language model's head stay split over its vocabulary, and the cross entropy is
// computed of the parts (nn/split/split_cross_entropy.hpp, nn/linear_cross_entropy.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nn/split/split_classes.hpp"
#include "parallel/regions/parallel_operators.hpp"

namespace accel::parallel {

// The `whole` classes that the ranks of a group share as a dimension of split layers. `splits_sequence`: ranks have
// their positions of the sequence of what the head reads.
nn::SplitClassesPtr split_classes(const RankGroup& group, int64_t whole, bool splits_sequence);

// Class scores [..., classes of this rank], as a head returns them: they stay split for a loss that is differentiated;
// where no graph is recorded, they are gathered, as argmax or generation need them.
at::Tensor class_scores(const at::Tensor& own, const nn::SplitClassesPtr& classes, const RankGroup& group);

}  // namespace accel::parallel
