// SPDX-License-Identifier: Apache-2.0
// Token choice: the next token of each sequence, from the scores of the vocabulary.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace accel::nn {

// In this order: the penalty, then, where tokens are drawn, the temperature and the three limits.
struct TokenChoiceSettings {
  bool samples = false;  // false: the token with the largest score
  double temperature = 1;
  int64_t top_k = 0;  // only so many tokens with the largest scores; 0: all
  double top_p = 1;   // only the most likely tokens that have this probability together (Holtzman et al., 2020)
  double min_p = 0;   // only tokens with this part of the probability of the most likely one (Nguyen et al., 2024)
  // Scores of tokens that a sequence has are divided by it, and multiplied if they are negative (Keskar et al., 2019).
  double repetition_penalty = 1;
};

// INVALID_ARGUMENT that names the setting.
void check_token_choice(const TokenChoiceSettings& settings);

// The probabilities by which tokens are drawn, float32 [batch, vocabulary], of `scores` [batch, vocabulary]. `earlier`
// int64 [batch, length] are the tokens of each sequence so far, of which those with `is_token` count; undefined: all
// do.
at::Tensor token_probabilities(const at::Tensor& scores, const at::Tensor& earlier, const at::Tensor& is_token,
                               const TokenChoiceSettings& settings);

// The logarithms of the probabilities after the penalty and before the other settings. Arguments as above.
at::Tensor token_log_probabilities(const at::Tensor& scores, const at::Tensor& earlier, const at::Tensor& is_token,
                                   const TokenChoiceSettings& settings);

// INVALID_STATE if one of the rows [..., vocabulary], or of the tokens' log-probabilities, comes from scores that are
// not finite.
void require_finite(const at::Tensor& log_probabilities);

struct ChosenTokens {
  at::Tensor tokens;             // int64 [batch]
  at::Tensor log_probabilities;  // float32 [batch], by the scores after the penalty and before the other settings
};

// Arguments as above. Draws from `generator`, or from the default one. INVALID_STATE for scores that are not finite,
// where the host needs not wait for the device to see it: on a CPU, or where tokens are drawn.
ChosenTokens choose_tokens(const at::Tensor& scores, const at::Tensor& earlier, const at::Tensor& is_token,
                           const TokenChoiceSettings& settings, const std::optional<at::Generator>& generator);

}  // namespace accel::nn
