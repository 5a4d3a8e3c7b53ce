// SPDX-License-Identifier: Apache-2.0
// Text files as the tokens of a tokenizer.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/datasets/sequences/token_source.hpp"
#include "text/tokenizer.hpp"

namespace accel::data {

// The files that find_files() finds, one behind the other; each has the special tokens of a text of its own.
std::unique_ptr<const TokenSource> encoded_text(const std::string& path, const std::optional<std::string>& suffix,
                                                const tokenizers::Tokenizer& tokenizer);

}  // namespace accel::data
