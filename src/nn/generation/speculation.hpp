// SPDX-License-Identifier: Apache-2.0
// Speculation: guesses of the next tokens, and what the model makes of them (Leviathan et al., "Fast Inference from
// Transformers via Speculative Decoding", 2023). Guessed or not, tokens have the same probabilities.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "nn/generation/generation_settings.hpp"
#include "nn/generation/paged_decoder.hpp"

namespace accel::nn {

struct Guesses {
  std::vector<int64_t> tokens;
  at::Tensor probabilities;  // [tokens, vocabulary] by which they were drawn; undefined: they are the only ones
};

// Looks for what stood behind the latest tokens, `matched` of them at most, where they were last before; at most
// `count`.
Guesses look_up(const std::vector<int64_t>& tokens, int64_t matched, int64_t count);

// A smaller model that guesses the tokens of one sequence.
class DraftModel {
 public:
  explicit DraftModel(ModulePtr draft) : decoder_(std::move(draft)), sequence_(decoder_.new_sequence()) {}

  // The next `count` tokens behind these, which mostly continue those of the call before.
  Guesses guess(const std::vector<int64_t>& tokens, const TokenChoiceSettings& choice, int64_t count,
                const std::optional<at::Generator>& generator);

 private:
  PagedDecoder decoder_;
  std::unique_ptr<CachedSequence> sequence_;
  std::vector<int64_t> computed_;  // its tokens
};

struct NextTokens {
  std::vector<int64_t> tokens;  // the guesses that were right, and one more
  std::vector<double> log_probabilities;
};

// The tokens behind `tokens`, by scores [guesses + 1, vocabulary] of the last one and of each guess. INVALID_STATE for
// scores that are not finite.
NextTokens next_tokens(const at::Tensor& scores, const std::vector<int64_t>& tokens, const Guesses& guesses,
                       const TokenChoiceSettings& choice, const std::optional<at::Generator>& generator);

}  // namespace accel::nn
