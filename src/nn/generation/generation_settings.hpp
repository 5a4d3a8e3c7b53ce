// SPDX-License-Identifier: Apache-2.0
// Generation settings: how the tokens of a sequence are chosen and guessed, and when it ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/generation/token_choice.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// Next tokens are guessed, and checked in one call of the model (Leviathan et al., 2023).
struct SpeculationSettings {
  int64_t tokens = 5;         // guesses of one call
  int64_t lookup_tokens = 0;  // guesses follow the latest so many tokens, at most, where they were before; 0: none do
  ModulePtr draft;            // guesses with a model of the same vocabulary; null: none

  bool guesses() const { return lookup_tokens > 0 || draft != nullptr; }
};

struct GenerationSettings {
  int64_t max_new_tokens = 20;
  std::vector<int64_t> stop_tokens;                  // end the sequence that gets one
  std::vector<std::vector<int64_t>> stop_sequences;  // end the sequence whose new tokens end with one
  int64_t pad_token = 0;                             // stands behind the end of a sequence
  // The first tokens of an encoder-decoder's decoder; empty for other models.
  std::vector<int64_t> decoder_tokens = {};
  std::vector<int64_t> suppress_tokens = {};        // are never chosen
  std::vector<int64_t> begin_suppress_tokens = {};  // are not chosen first
  TokenChoiceSettings choice;
  std::optional<uint64_t> seed;  // nothing: tokens are drawn from the default generator
  SpeculationSettings speculation;
};

// INVALID_STATE for a model in training.
void require_evaluation(const Module& module);

// INVALID_ARGUMENT that names the setting.
void check_generation(const GenerationSettings& settings);

// UNSUPPORTED if some tokens may not be chosen, or the settings are for an encoder-decoder.
void check_unsuppressed(const GenerationSettings& settings);

// The number of first tokens in which both agree.
int64_t common_length(const std::vector<int64_t>& a, const std::vector<int64_t>& b);

// Whether the tokens behind the first `prompt_length` end with a stop token or sequence.
bool ends_with_stop(const std::vector<int64_t>& tokens, size_t prompt_length, const GenerationSettings& settings);

}  // namespace accel::nn
