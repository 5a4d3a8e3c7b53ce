// SPDX-License-Identifier: Apache-2.0
// Generation: tokens that a decoder adds to sequences, one after the other, each from the scores that the model gives
// for the tokens so far.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "nn/generation/generation_settings.hpp"
#include "nn/module.hpp"

namespace accel::nn {

struct Generated {
  at::Tensor tokens;             // int64 [batch, length + new]
  at::Tensor log_probabilities;  // float32 [batch, new], 0 behind the end of a sequence
};

struct PromptCache;

// Keys and values that are there before, and room for those of this prompt, for which there must be one sequence. Null:
// none.
struct PromptCaches {
  const PromptCache* given = nullptr;
  PromptCache* made = nullptr;
};

// Called with the new tokens [batch] as soon as they are known; false ends all sequences.
using OnTokens = std::function<bool(const at::Tensor& tokens)>;

// An encoder-decoder (decoded_sequences.hpp) reads `tokens`, which may be features [batch, ...], with padding anywhere,
// and `Generated::tokens` are the decoder's. Any other `module` takes tokens and past_key_values, as decoders of this
// library do, in its evaluation mode. `tokens` are int64 [batch, length]; those whose `mask` [batch, length] is 0 are
// padding, on the left; undefined: there is none. Ends at the model's last position, too. Computes without gradients.
// On another device than the CPU the host waits for each token only where stops, draws or `on_tokens` need that.
// INVALID_STATE for scores that are not finite.
Generated generate(Module& module, const at::Tensor& tokens, const at::Tensor& mask, const GenerationSettings& settings,
                   const OnTokens& on_tokens = nullptr, const PromptCaches& prompts = {});

}  // namespace accel::nn
