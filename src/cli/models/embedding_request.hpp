// SPDX-License-Identifier: Apache-2.0
// Requests of /v1/embeddings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accel::program {

struct EmbeddingRequest {
  std::string model;  // "": any
  // Texts, or token ids.
  std::vector<std::string> texts;
  std::vector<std::vector<int64_t>> tokens;
  bool in_base64 = false;  // else lists of numbers
  std::optional<int64_t> dimensions;
};

// ApiError 400 names the field that is wrong.
EmbeddingRequest parse_embedding(std::string_view body);

}  // namespace accel::program
