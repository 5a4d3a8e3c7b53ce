// SPDX-License-Identifier: Apache-2.0
// Embeddings of texts by an encoder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <accel.hpp>
#include "cli/models/loaded_model.hpp"

namespace accel::program {

struct Embeddings {
  std::vector<std::vector<float>> rows;
  std::int64_t tokens = 0;  // of all texts
};

class TextEmbedder {
 public:
  // Texts with more tokens than the model takes are cut, or cpp::Error INVALID_ARGUMENT.
  TextEmbedder(LoadedModel model, std::int64_t batch_size, bool truncates)
      : model_(std::move(model)), batch_size_(batch_size), truncates_(truncates) {}

  // One thread at a time. Errors count texts from `first`.
  Embeddings embed(const std::vector<std::string>& texts, std::size_t first = 0);
  Embeddings embed_tokens(const std::vector<std::vector<std::int64_t>>& sequences);

 private:
  void embed_batch(const cpp::Value& inputs, Embeddings& embeddings);

  LoadedModel model_;
  const std::int64_t batch_size_;
  const bool truncates_;
};

}  // namespace accel::program
