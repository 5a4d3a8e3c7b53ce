// SPDX-License-Identifier: Apache-2.0
// The sides of encoder-decoders whose configurations and names of modules come from fairseq: BART, mBART, Whisper.
#pragma once

#include "json/json.hpp"
#include "nn/architectures/sequence_layer.hpp"

namespace accel::nn {

// Values of keys that a configuration leaves out.
struct FairseqDefaults {
  const char* prefix;  // of the modules' kinds
  int64_t model_size, num_heads, inner_size;
  double dropout;
};

// Reads d_model, encoder_attention_heads, encoder_ffn_dim and so on; normalization is before the branches.
SequenceConfig read_fairseq_side(const Json& config, const FairseqDefaults& defaults, bool is_decoder);

SequenceLayerNames fairseq_layer_names(const std::string& prefix, bool is_decoder);

}  // namespace accel::nn
