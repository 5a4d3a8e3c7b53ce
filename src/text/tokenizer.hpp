// SPDX-License-Identifier: Apache-2.0
// Tokenizers: text to token ids and back, and chats as text. The plugin libaccel_tokenizers.so does the work; what
// other files of a model's folder say beside tokenizer.json is read here. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/generated/settings/tokenizer/chat.hpp"
#include "config/generated/settings/tokenizer/decode.hpp"
#include "config/generated/settings/tokenizer/encode.hpp"
#include "json/json.hpp"
#include "text/tokenizer_config.hpp"

namespace accel::tokenizers {

class TokenizerPlugin;

// One text, or a pair of texts. UTF-8; may contain NUL.
struct EncodedText {
  std::string_view first;
  std::optional<std::string_view> second;
};

// Rows of ids, all of `length`; row-major.
struct EncodedBatch {
  int64_t rows = 0;
  int64_t length = 0;
  std::vector<int64_t> input_ids, attention_mask;
  bool has_token_types = false, has_offsets = false;
  std::vector<int64_t> token_type_ids;
  std::vector<int64_t> offsets;  // two for each id
};

// The inputs of a chat template beside its messages. JSON.
struct ChatInputs {
  Json messages;   // a list of objects
  Json tools;      // a list, or null
  Json documents;  // a list, or null
  Json variables;  // an object, or null
};

// Immutable: all threads may use one at once.
class Tokenizer {
 public:
  // A model's folder, or a tokenizer.json.
  static std::shared_ptr<const Tokenizer> load(const std::string& path);
  // `source` names the text in errors.
  static std::shared_ptr<const Tokenizer> from_json(std::string_view json, TokenizerConfig config,
                                                    const std::string& source = "the tokenizer's JSON");
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  ~Tokenizer();

  std::vector<int64_t> encode(const EncodedText& text, const EncodeSettings& settings = {}) const;
  // Uses up to `threads` threads, which have ended when this returns.
  EncodedBatch encode_batch(const std::vector<EncodedText>& texts, const EncodeSettings& settings, int threads) const;
  std::string decode(const int64_t* ids, size_t count, const DecodeSettings& settings = {}) const;

  std::optional<int64_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int64_t id) const;
  int64_t vocabulary_size() const { return vocabulary_size_; }
  // "BPE", "WordPiece", "Unigram", "WordLevel".
  const std::string& model() const { return model_; }
  // Special tokens, sides, templates.
  const TokenizerConfig& config() const { return config_; }
  // The id of a special token by its role: "bos_token", "eos_token", "pad_token", ...
  std::optional<int64_t> special_token_id(std::string_view role) const;
  // All ids that end an answer: eos_token's, and those of generation_config.json.
  std::vector<int64_t> end_token_ids() const;

  std::string chat_text(const ChatInputs& inputs, const ChatSettings& settings = {}) const;
  std::vector<int64_t> encode_chat(const ChatInputs& inputs, const ChatSettings& settings = {}) const;

 private:
  Tokenizer(std::string_view json, TokenizerConfig config, const std::string& source);

  // Whether models of this tokenizer take token_type_ids.
  bool has_token_types() const;

  TokenizerConfig config_;
  std::unique_ptr<TokenizerPlugin> plugin_;
  std::string model_;
  int64_t vocabulary_size_ = 0;
};

// Ids that become text one after another. One thread at a time.
class DecodeStream {
 public:
  explicit DecodeStream(std::shared_ptr<const Tokenizer> tokenizer, const DecodeSettings& settings = {});

  // The text that this id completes; empty as long as the last character is not whole.
  std::string step(int64_t id);
  // The rest. The next step begins another text.
  std::string finish();

 private:
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const DecodeSettings settings_;
  std::vector<int64_t> ids_;  // the ids that the next text depends on
  std::string prefix_;        // the text of the first prefix_ids_ of them, which is out
  size_t prefix_ids_ = 0;
};

}  // namespace accel::tokenizers
