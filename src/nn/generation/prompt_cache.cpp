// SPDX-License-Identifier: Apache-2.0
#include "nn/generation/prompt_cache.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <utility>

#include "base/error.hpp"

namespace accel::nn {
namespace {

// The part of their size by which keys and values of two computations differ, for other numbers of tokens have other
// kernels; bfloat16 has eight bits.
constexpr double kTolerance = 1e-3, kHalfTolerance = 5e-2;

bool is_close(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  const at::Tensor expected = b.to(a.device(), at::kFloat);
  const double tolerance = a.element_size() > 2 && b.element_size() > 2 ? kTolerance : kHalfTolerance;
  const at::Tensor distance = (a.to(at::kFloat) - expected).norm();
  return distance.item<double>() <= tolerance * expected.norm().item<double>() + 1e-6;
}

}  // namespace

void check_prompt_cache(const PromptCache& prompt, size_t layers) {
  require(prompt.layers.size() == layers, Status::kInvalidArgument, "a prompt cache has ", prompt.layers.size(),
          " layers; expected ", layers, ", those of the model");
  require(!prompt.tokens.empty(), Status::kInvalidArgument, "a prompt cache has no token; expected one or more");
  for (const at::Tensor& layer : prompt.layers)
    require(layer.dim() == 4 && layer.size(0) == 2 && layer.size(2) == static_cast<int64_t>(prompt.tokens.size()),
            Status::kInvalidArgument, "a prompt cache has a layer of shape ", layer.sizes(),
            "; expected [2, key heads, ", prompt.tokens.size(), ", size]");
}

PromptCache read_prompt(const PagedDecoder& decoder, const CachedSequence& sequence, std::vector<int64_t> tokens) {
  PromptCache prompt{std::move(tokens), {}};
  for (size_t layer = 0; layer < decoder.cache().num_layers(); layer++)
    prompt.layers.push_back(decoder.cache().read(layer, sequence, 0));
  return prompt;
}

std::unique_ptr<CachedSequence> restore_prompt(PagedDecoder& decoder, const PromptCache& prompt) {
  PagedCache& cache = decoder.cache();
  check_prompt_cache(prompt, cache.num_layers());
  const auto length = static_cast<int64_t>(prompt.tokens.size());
  decoder.require_positions(length);
  // The model computes first, so that the cache has its shapes, dtype and device.
  const auto probe = decoder.new_sequence();
  decoder.scores({{probe.get(), tokens_tensor({prompt.tokens[0]}, decoder.device())}});
  auto restored = decoder.new_sequence();
  restored->extend(length);
  for (size_t layer = 0; layer < cache.num_layers(); layer++) {
    const at::Tensor own = cache.read(layer, *probe, 0);
    const at::Tensor& given = prompt.layers[layer];
    require(own.size(1) == given.size(1) && own.size(3) == given.size(3), Status::kInvalidArgument,
            "a prompt cache has keys and values ", given.sizes(), " of layer ", layer, "; expected [2, ", own.size(1),
            ", ", length, ", ", own.size(3), "] of this model");
    cache.write(layer, *restored, 0, given.to(own.options()));
  }
  const auto last = restored->fork(length - 1);
  require(last != nullptr, Status::kInternal, "a restored prompt cannot be forked");
  decoder.scores({{last.get(), tokens_tensor({prompt.tokens.back()}, decoder.device())}});
  for (size_t layer = 0; layer < cache.num_layers(); layer++)
    require(is_close(cache.read(layer, *last, length - 1), prompt.layers[layer].narrow(2, length - 1, 1)),
            Status::kInvalidArgument, "a prompt cache has keys and values of another model, in layer ", layer,
            "; expected one that this model has saved");
  return restored;
}

}  // namespace accel::nn
