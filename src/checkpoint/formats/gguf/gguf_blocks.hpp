// SPDX-License-Identifier: Apache-2.0
// Blocks of the quantized types of GGUF, whose scales are among the codes, as the codes, scales and offsets of a
// kernels::WeightFormat. No number changes: the scales of sub-blocks are multiplied out in float32, as ggml does.
#pragma once

#include <cstdint>

#include "checkpoint/formats/gguf/gguf_header.hpp"
#include "kernels/quantized/weight_format.hpp"

namespace accel::checkpoint {

bool is_quantized(GgufType type);
// Throws kInvalidArgument for a type that is not quantized.
kernels::WeightFormat weight_format(GgufType type);

// Whole blocks that lie one behind the other. `codes`, `scales` and `offsets` have the sizes that the format needs for
// a row of blocks * block_of(type).numbers columns; offsets may be null where the format has none.
void split_blocks(GgufType type, const uint8_t* blocks, int64_t count, uint8_t* codes, float* scales, float* offsets);

}  // namespace accel::checkpoint
