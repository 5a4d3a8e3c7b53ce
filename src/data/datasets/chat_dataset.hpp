// SPDX-License-Identifier: Apache-2.0
// Files with a chat on each line, as the rows of tokens that a language model is trained on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "data/datasets/row_dataset.hpp"
#include "text/tokenizer.hpp"

namespace accel::data {

// A line is an object with "messages", and where the template asks for them "tools" and "documents". An item is a list
// of two int64 tensors: the tokens of the chat by the tokenizer's template, of which the first `max_length` count, and
// the same shifted by one.
class ChatDataset final : public RowDataset {
 public:
  // Reads the files that find_files() finds.
  ChatDataset(const std::string& path, const std::optional<std::string>& suffix,
              std::shared_ptr<const tokenizers::Tokenizer> tokenizer, int64_t max_length, bool skips_malformed);

 protected:
  c10::IValue read_item(int64_t index) const override;

 private:
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  int64_t max_length_;
};

}  // namespace accel::data
