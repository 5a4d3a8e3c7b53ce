// Generation: tokens that a decoder adds to sequences, one after the other, each from the scores that the model gives
// for the tokens so far.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "nn/generation/token_choice.hpp"
#include "nn/module.hpp"

namespace accel::nn {

struct GenerationSettings {
  int64_t max_new_tokens = 20;
  std::vector<int64_t> stop_tokens;  // end the sequence that gets one
  int64_t pad_token = 0;             // stands behind the end of a sequence
  // What the decoder of an encoder-decoder begins with; empty for other models.
  std::vector<int64_t> decoder_tokens = {};
  std::vector<int64_t> suppress_tokens = {};        // are never chosen
  std::vector<int64_t> begin_suppress_tokens = {};  // are not chosen first
  TokenChoiceSettings choice;
  std::optional<uint64_t> seed;  // nothing: tokens are drawn from the default generator
};

struct Generated {
  at::Tensor tokens;             // int64 [batch, length + new]
  at::Tensor log_probabilities;  // float32 [batch, new], 0 behind the end of a sequence
};

// Called with the new tokens [batch] as soon as they are known; false ends all sequences.
using OnTokens = std::function<bool(const at::Tensor& tokens)>;

// An encoder-decoder (decoded_sequences.hpp) reads `tokens`, which may be features [batch, ...], with padding anywhere,
// and `Generated::tokens` are the decoder's. Any other `module` takes tokens and past_key_values, as decoders of this
// library do, in its evaluation mode. `tokens` are int64 [batch, length]; those whose `mask` [batch, length] is 0 are
// padding, on the left; undefined: there is none. Computes without gradients. The host waits for each token only where
// stop tokens or `on_tokens` need that.
Generated generate(Module& module, const at::Tensor& tokens, const at::Tensor& mask, const GenerationSettings& settings,
                   const OnTokens& on_tokens = nullptr);

}  // namespace accel::nn
