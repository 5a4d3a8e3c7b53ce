// SPDX-License-Identifier: Apache-2.0
// Prompt cache: the keys and values of a prompt outside of a model, so that another call, or another process, begins
// behind it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/generation/paged_decoder.hpp"

namespace accel::nn {

struct PromptCache {
  std::vector<int64_t> tokens;
  std::vector<at::Tensor> layers;  // keys and values [2, key heads, tokens, size] of each
};

// INVALID_ARGUMENT unless it has the tokens' keys and values of each of so many layers.
void check_prompt_cache(const PromptCache& prompt, size_t layers);

PromptCache read_prompt(const PagedDecoder& decoder, const CachedSequence& sequence, std::vector<int64_t> tokens);

// A sequence with these keys and values. The model computes those of the last token again: INVALID_ARGUMENT if they
// differ, for then they come from another model.
std::unique_ptr<CachedSequence> restore_prompt(PagedDecoder& decoder, const PromptCache& prompt);

}  // namespace accel::nn
