// SPDX-License-Identifier: Apache-2.0
// Paged decoder: a model that computes new tokens of many sequences in one call, with their keys and values in a paged
// cache. The tokens stand behind each other, so that nothing is padded.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/cache/paged_cache.hpp"
#include "nn/module.hpp"

namespace accel::nn {

class PagedDecoder {
 public:
  // UNSUPPORTED for a module that is_paged() denies.
  explicit PagedDecoder(ModulePtr module);

  // Whether its attention layers can use the cache.
  static bool is_paged(const Module& module);
  static int64_t position_limit(const Module& module);  // 0: any number

  std::unique_ptr<CachedSequence> new_sequence() const { return std::make_unique<CachedSequence>(cache_); }
  PagedCache& cache() const { return *cache_; }
  int64_t max_positions() const { return max_positions_; }  // 0: any number
  c10::Device device() const { return device_; }            // of the tokens
  // INVALID_ARGUMENT unless the model has so many positions.
  void require_positions(int64_t length) const;

  // Tokens behind those of a sequence, which is extended by them.
  struct Part {
    CachedSequence* sequence;
    at::Tensor tokens;   // int64 [n]
    int64_t wanted = 1;  // the last of them whose scores are needed
  };
  // [wanted tokens of all parts, vocabulary]. If the model fails, the sequences are as they were.
  at::Tensor scores(const std::vector<Part>& parts);

 private:
  ModulePtr module_;
  std::shared_ptr<PagedCache> cache_;
  int64_t max_positions_ = 0;
  c10::Device device_ = c10::kCPU;
};

// The tokens as a tensor on the device.
at::Tensor tokens_tensor(const std::vector<int64_t>& tokens, c10::Device device);

}  // namespace accel::nn
