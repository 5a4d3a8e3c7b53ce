// SPDX-License-Identifier: Apache-2.0
// Decoded sequences: what the decoder of an encoder-decoder has added so far, for generation.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "nn/module.hpp"

namespace accel::nn {

// Whether its inputs are those of EncoderDecoder (nn/architectures/encoder_decoders/encoder_decoder.hpp).
bool is_encoder_decoder(const Module& module);

// The model's encoder is called for the first scores alone: its keys and values are in past_key_values.
class DecodedSequences {
 public:
  // `input` is the encoder's, tokens [batch, length] or features; `mask` [batch, length] may be undefined. Each
  // sequence begins with `first_tokens`.
  DecodedSequences(Module& module, const at::Tensor& input, const at::Tensor& mask,
                   const std::vector<int64_t>& first_tokens);

  // The scores of the next token, [batch, vocabulary].
  at::Tensor scores();
  void add(const at::Tensor& tokens);

  const at::Tensor& tokens() const { return tokens_; }
  // No token is padding.
  const at::Tensor& mask() const { return no_mask_; }

 private:
  Module& module_;
  at::Tensor input_, mask_, tokens_, added_, no_mask_;
  c10::IValue past_;
};

}  // namespace accel::nn
