// SPDX-License-Identifier: Apache-2.0
#include "nn/generation/paged_decoder.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "nn/cache/layer_cache.hpp"
#include "nn/module_walks.hpp"
#include "nn/split/split_sequence.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

std::vector<int64_t> windows_of(const Module& module) {
  std::vector<int64_t> windows;
  for (const auto& [name, part] : named_modules(module))
    if (const auto* const attention = dynamic_cast<const CachedAttention*>(part))
      windows.push_back(attention->window());
  return windows;
}

// Hooks move the tokens to where offloaded weights will be.
c10::Device device_of_tokens(const Module& module) {
  const NamedTensors parameters = named_parameters(module);
  return parameters.empty() || parameters[0].second.is_meta() ? c10::kCPU : parameters[0].second.device();
}

}  // namespace

PagedDecoder::PagedDecoder(ModulePtr module) : module_(std::move(module)) {
  require(is_paged(*module_), Status::kUnsupported, "a module of kind '", module_->kind(),
          "' has no attention with a paged cache; expected a decoder, as accel_module_from_config() makes them");
  cache_ = std::make_shared<PagedCache>(windows_of(*module_));
  max_positions_ = position_limit(*module_);
  device_ = device_of_tokens(*module_);
}

bool PagedDecoder::is_paged(const Module& module) {
  const std::vector<std::string> names = module.input_names();
  return std::find(names.begin(), names.end(), "past_key_values") != names.end() && !windows_of(module).empty() &&
         SplitSequence::current() == nullptr;
}

int64_t PagedDecoder::position_limit(const Module& module) {
  for (const auto& [name, part] : named_modules(module))
    if (const auto* const limited = dynamic_cast<const PositionLimit*>(part)) return limited->max_positions();
  return 0;
}

void PagedDecoder::require_positions(int64_t length) const {
  require(max_positions_ == 0 || length <= max_positions_, Status::kInvalidArgument, "a prompt has ", length,
          " tokens; expected at most the ", max_positions_, " positions of the model");
}

at::Tensor PagedDecoder::scores(const std::vector<Part>& parts) {
  std::vector<PagedCache::Row> rows;
  std::vector<at::Tensor> tokens;
  std::vector<int64_t> lengths;
  for (const Part& part : parts) {
    lengths.push_back(part.sequence->length());
    part.sequence->extend(part.tokens.size(0));
    rows.push_back({part.sequence, part.tokens.size(0), part.wanted});
    tokens.push_back(part.tokens);
  }
  try {
    const at::Tensor all = (tokens.size() == 1 ? tokens[0] : at::cat(tokens)).unsqueeze(0);
    const c10::IValue output = module_->call(Inputs{all, cache_->begin_call(rows, all.device())});
    return tree::sequence_items(output)[0].toTensor().select(0, 0);
  } catch (...) {
    for (size_t i = 0; i < parts.size(); i++) parts[i].sequence->truncate(lengths[i]);
    throw;
  }
}

at::Tensor tokens_tensor(const std::vector<int64_t>& tokens, c10::Device device) {
  return at::tensor(tokens, at::kLong).to(device);
}

}  // namespace accel::nn
