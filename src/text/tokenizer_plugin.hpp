// SPDX-License-Identifier: Apache-2.0
// A vocabulary of the plugin libaccel_tokenizers.so, which is loaded when the first one is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/plugin_functions.hpp"

namespace accel::tokenizers {

class TokenizerPlugin {
 public:
  // kUnsupported without the plugin; kInvalidArgument for JSON that is not a tokenizer's. `source` names it in errors.
  TokenizerPlugin(std::string_view json, const std::string& source);

  // `json` is a list of tokens.
  void add_tokens(const std::string& json);
  std::string describe() const;

  // Gets the rows in order; `offsets` is null unless wanted.
  using OnRow = std::function<void(size_t count, const uint32_t* ids, const uint32_t* type_ids, const size_t* offsets)>;
  void encode(const std::vector<PluginTexts>& texts, const PluginEncodeOptions& options, const OnRow& on_row) const;
  std::string decode(const int64_t* ids, size_t count, bool skip_special_tokens) const;
  std::optional<int64_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int64_t id) const;

  // The text of a template in Jinja with an object of variables in JSON.
  static std::string render(std::string_view chat_template, std::string_view variables);

 private:
  struct Destroy {
    void operator()(PluginVocabulary* vocabulary) const;
  };
  std::string source_;
  std::unique_ptr<PluginVocabulary, Destroy> vocabulary_;
};

}  // namespace accel::tokenizers
