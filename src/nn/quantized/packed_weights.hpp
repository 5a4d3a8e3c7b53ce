// SPDX-License-Identifier: Apache-2.0
// Packed weights: the codes, zeros and scales that files of GPTQ and AWQ have for a linear layer, as weights of the
// kinds int4 and int8_grouped. No number changes.
//
// In files   GPTQ                             AWQ
// qweight    int32 [inputs / w, outputs]      int32 [inputs, outputs / w], w codes in a word
// qzeros     int32 [groups, outputs / w]      likewise, in AWQ's order of outputs
// scales     floating [groups, outputs]       likewise
// g_idx      int32 [inputs]: the groups       none: groups of neighbours
#pragma once

#include "nn/module.hpp"
#include "nn/quantized/packed_format.hpp"

namespace accel::nn {

// Prepares a model without memory for the tensors of files, and returns these with the packed weights exchanged for
// quantized ones, under their names in files. kNotFound if files have no packed weight, kUnsupported for one that
// belongs to no linear layer or whose groups are none of neighbours in any order, and kInvalidArgument, by name, for
// tensors that are missing or do not fit. Biases of zeros, which layers without one have in some files, are left out.
NamedTensors unpack_weights(Module& model, const NamedTensors& files, const PackedFormat& format);

}  // namespace accel::nn
