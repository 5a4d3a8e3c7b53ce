// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/shell_words.hpp"

#include <cstddef>
#include <optional>

#include "base/error.hpp"

namespace accel::launch {

std::vector<std::string> shell_words(const std::string& text) {
  std::vector<std::string> words;
  std::optional<std::string> word;
  char quote = '\0';
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    const bool is_blank = letter == ' ' || letter == '\t' || letter == '\n';
    if (quote == '\0' && is_blank) {
      if (word) words.push_back(*std::exchange(word, std::nullopt));
      continue;
    }
    if (!word) word.emplace();
    if (letter == quote) {
      quote = '\0';
    } else if (quote == '\0' && (letter == '\'' || letter == '"')) {
      quote = letter;
    } else if (letter == '\\' && quote != '\'' && i + 1 < text.size()) {
      *word += text[++i];
    } else {
      *word += letter;
    }
  }
  require(quote == '\0', Status::kInvalidArgument, "'", text, "' has a quote that does not end");
  if (word) words.push_back(*word);
  return words;
}

std::string shell_quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char letter : word) quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return quoted + "'";
}

}  // namespace accel::launch
