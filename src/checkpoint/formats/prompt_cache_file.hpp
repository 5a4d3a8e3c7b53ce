// SPDX-License-Identifier: Apache-2.0
// Prompt cache file: a safetensors file with the tokens of a prompt, and keys and values of each layer.
#pragma once

#include <string>

#include "nn/generation/prompt_cache.hpp"

namespace accel::checkpoint {

void save_prompt_cache(const std::string& path, const nn::PromptCache& prompt);
// kCorrupt for a file that is none. Whether it is one of the model, restore_prompt() finds out.
nn::PromptCache load_prompt_cache(const std::string& path);

}  // namespace accel::checkpoint
