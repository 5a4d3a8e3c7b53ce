// SPDX-License-Identifier: Apache-2.0
// Decoder layer: attention with rotary positions and a gated network, for Llama and its relatives.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/architectures/decoder_config.hpp"
#include "nn/module.hpp"

namespace accel::nn {

ModulePtr decoder_norm(int64_t size, const DecoderConfig& config);
ModulePtr decoder_linear(int64_t in_features, int64_t out_features, bool bias, const DecoderConfig& config);

// Inputs: hidden states [batch, length, hidden_size]; (cosines, sines); keys and values of earlier tokens, or nothing;
// a mask as AttentionRule has it, or nothing. Gives the hidden states; with earlier tokens [hidden states, [key,
// value]]; with experts that give their scores [hidden states, the latter or nothing, scores].
ModulePtr decoder_layer(const DecoderConfig& config, int64_t layer);

}  // namespace accel::nn
