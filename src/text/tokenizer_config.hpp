// SPDX-License-Identifier: Apache-2.0
// The files beside a tokenizer.json say: special tokens, sides, chat templates.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/generated/choices/padding_side.hpp"

namespace accel::tokenizers {

// A token that tokenizer_config.json or added_tokens.json adds to the vocabulary of tokenizer.json.
struct AddedToken {
  std::string content;
  bool special = true;
  bool single_word = false, lstrip = false, rstrip = false, normalized = false;
  std::optional<int64_t> id;  // by which they are added in order
};

struct TokenizerConfig {
  // "bos_token" and so on, in the order in which templates get them.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  std::vector<std::string> additional_special_tokens;
  std::vector<AddedToken> added_tokens;
  std::vector<int64_t> end_token_ids;  // by generation_config.json
  std::map<std::string, std::string> chat_templates;
  std::vector<std::string> model_input_names;
  std::string tokenizer_class;
  std::optional<int64_t> model_max_length;
  PaddingSide padding_side = PaddingSide::kRight, truncation_side = PaddingSide::kRight;
  bool clean_up_spaces = false;

  const std::string* special_token(std::string_view role) const;
};

// The files of a folder; those that are not there say nothing.
TokenizerConfig read_tokenizer_config(const std::string& folder);
// The content of a tokenizer_config.json. `source` names it in errors.
TokenizerConfig parse_tokenizer_config(std::string_view document, const std::string& source);

}  // namespace accel::tokenizers
