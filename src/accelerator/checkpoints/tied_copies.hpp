// SPDX-License-Identifier: Apache-2.0
// Tied copies: parameters that stages on several ranks have, of which a checkpoint holds the first one's values.
#pragma once

#include <vector>

#include "checkpoint/training_state.hpp"
#include "parallel/parallel_model.hpp"

namespace accel::accelerator {

// Collective among all ranks, where a model is in stages. Throws CORRUPT on all of them if copies of a parameter have
// other bits, with its name and two of the ranks: updates keep them equal.
void require_equal_copies(const std::vector<parallel::ParallelModelPtr>& models, const checkpoint::Ranks& ranks);

}  // namespace accel::accelerator
