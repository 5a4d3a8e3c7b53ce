// SPDX-License-Identifier: Apache-2.0
// Tokenizer of a model's folder or file.
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer.hpp"

namespace accel::bigmodel {

// A folder, a tokenizer.json, or a GGUF file, whose vocabulary, templates and settings become a tokenizer. kCorrupt for
// a GGUF file with more tokens than rows in its table of tokens.
std::shared_ptr<const tokenizers::Tokenizer> load_model_tokenizer(const std::string& path);

}  // namespace accel::bigmodel
