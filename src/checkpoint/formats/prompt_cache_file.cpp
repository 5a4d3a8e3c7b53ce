// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/prompt_cache_file.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "checkpoint/formats/safetensors.hpp"

namespace accel::checkpoint {
namespace {

constexpr const char* kPromptCacheFormat = "accel_prompt_cache";

std::string layer_name(size_t layer) { return text("layers.", layer); }

}  // namespace

void save_prompt_cache(const std::string& path, const nn::PromptCache& prompt) {
  NamedTensors tensors{{"tokens", at::tensor(prompt.tokens, at::kLong)}};
  for (size_t layer = 0; layer < prompt.layers.size(); layer++)
    tensors.emplace_back(layer_name(layer), prompt.layers[layer]);
  save_safetensors(path, tensors, {{"format", kPromptCacheFormat}, {"layers", text(prompt.layers.size())}});
}

nn::PromptCache load_prompt_cache(const std::string& path) {
  SafetensorsContents contents = load_safetensors(path);
  const auto has = [&](const std::pair<std::string, std::string>& entry) {
    return entry.first == "format" && entry.second == kPromptCacheFormat;
  };
  require(std::any_of(contents.metadata.begin(), contents.metadata.end(), has), Status::kCorrupt, path,
          ": its metadata have no \"format\": \"", kPromptCacheFormat,
          "\"; expected a file that save_prompt_cache wrote");
  const auto take = [&](const std::string& name) {
    const auto found = std::find_if(contents.tensors.begin(), contents.tensors.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    require(found != contents.tensors.end(), Status::kCorrupt, path, ": it has no tensor '", name,
            "'; expected a file that save_prompt_cache wrote");
    return found->second;
  };
  nn::PromptCache prompt;
  const at::Tensor tokens = take("tokens").contiguous();
  require(tokens.dim() == 1 && tokens.scalar_type() == at::kLong, Status::kCorrupt, path, ": its tokens are ",
          tokens.sizes(), "; expected int64 [tokens]");
  prompt.tokens.assign(tokens.const_data_ptr<int64_t>(), tokens.const_data_ptr<int64_t>() + tokens.numel());
  for (size_t layer = 0; layer + 1 < contents.tensors.size(); layer++) prompt.layers.push_back(take(layer_name(layer)));
  return prompt;
}

}  // namespace accel::checkpoint
