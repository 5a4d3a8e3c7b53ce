// SPDX-License-Identifier: Apache-2.0
// Answers of /v1/embeddings, and the lines of `accel embed`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.hpp"

namespace accel::program {

std::string embedding_answer(const std::string& model, const std::vector<std::vector<float>>& embeddings,
                             bool in_base64, int64_t prompt_tokens);

// Numbers with the digits that a float has. kInvalidArgument for one that is not finite.
Json embedding_json(const std::vector<float>& embedding);

// RFC 4648.
std::string base64_of(std::string_view bytes);

}  // namespace accel::program
