// SPDX-License-Identifier: Apache-2.0
// Context split: the sequence split of context parallelism, as the program's settings say.
#pragma once

#include "parallel/context/context_attention.hpp"
#include "parallel/sequence_split.hpp"

namespace accel::parallel {

SequenceSplitPtr make_context_split(const ContextParallelSettings& settings, const RankGroup& group);

}  // namespace accel::parallel
