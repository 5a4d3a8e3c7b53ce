// SPDX-License-Identifier: Apache-2.0
// Llama (Touvron et al., 2023) with its language modelling head, its later versions and its relatives, which
// decoder_config.hpp describes.
#pragma once

#include "json/json.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// With experts, as Mixtral has them, and output_router_logits the output is a list, whose last is the loss of the
// routers. Names, shapes, kinds and initial distributions are those of transformers. Inputs: token ids
// [batch, length], and the keys and values of earlier tokens for generation. Without those the output is the logits
// [batch, length, vocabulary]. With a list of a [key, value] for each layer, each [batch, key heads, earlier length,
// head size], or an empty list at the beginning, it is [logits, such a list with the new tokens too]. Then come
// a mask of padding [batch, earlier length + length] and positions [batch, length].
ModulePtr build_llama(const Json& config);

}  // namespace accel::nn
