// SPDX-License-Identifier: Apache-2.0
// Where the documents of a text begin.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "data/datasets/sequences/token_source.hpp"

namespace accel::data {

// Document i is tokens [offsets[i], offsets[i + 1]).
using DocumentOffsets = std::vector<int64_t>;

// Documents that end with a token each, which belongs to them; what follows the last one is a document too.
DocumentOffsets documents_ended_by(const TokenSource& tokens, int64_t end_of_document);

// From an int64 tensor [documents + 1] that begins with 0 and ends with the number of tokens.
DocumentOffsets documents_of_offsets(const TokenSource& tokens, const at::Tensor& offsets);

}  // namespace accel::data
