// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/csv_row.hpp"

#include <cstring>

#include "base/error.hpp"

namespace accel::data {
namespace {

constexpr char kQuote = '"';

size_t find(std::string_view text, char byte, size_t begin) {
  const void* const found = std::memchr(text.data() + begin, byte, text.size() - begin);
  return found == nullptr ? text.size() : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

// The closing quote of the cell whose opening quote is at `begin`; a doubled one stands for itself.
size_t closing_quote(std::string_view text, size_t begin) {
  for (size_t at = find(text, kQuote, begin + 1); at < text.size(); at = find(text, kQuote, at + 2)) {
    if (at + 1 >= text.size() || text[at + 1] != kQuote) return at;
    if (at + 2 >= text.size()) break;
  }
  return text.size();
}

std::string unquoted(std::string_view cell) {
  std::string plain;
  plain.reserve(cell.size());
  for (size_t i = 0; i < cell.size(); ++i) {
    plain.push_back(cell[i]);
    if (cell[i] == kQuote) ++i;
  }
  return plain;
}

}  // namespace

size_t csv_row_end(std::string_view text, size_t begin, char delimiter) {
  const size_t newline = find(text, '\n', begin);
  if (find(text.substr(0, newline), kQuote, begin) == newline) return newline;
  for (size_t at = begin; at < text.size(); ++at) {  // at the start of a cell
    if (text[at] == kQuote) at = closing_quote(text, at);
    while (at < text.size() && text[at] != delimiter && text[at] != '\n') ++at;
    if (at >= text.size() || text[at] == '\n') return at;
  }
  return text.size();
}

void split_csv_row(std::string_view row, char delimiter, std::vector<std::string>& cells) {
  cells.clear();
  for (size_t at = 0;; ++at) {
    if (at < row.size() && row[at] == kQuote) {
      const size_t close = closing_quote(row, at);
      require(close < row.size(), Status::kCorrupt, "cell ", cells.size() + 1,
              " has quotes that are not closed; expected a second one at its end");
      require(close + 1 == row.size() || row[close + 1] == delimiter, Status::kCorrupt, "cell ", cells.size() + 1,
              " has text behind its quotes; expected a delimiter there, and quotes inside of a cell doubled");
      cells.push_back(unquoted(row.substr(at + 1, close - at - 1)));
      at = close + 1;
    } else {
      const size_t end = find(row, delimiter, at);
      const std::string_view cell = row.substr(at, end - at);
      require(cell.find(kQuote) == std::string_view::npos, Status::kCorrupt, "cell ", cells.size() + 1,
              " has a quote inside text without quotes; expected quotes around it, and the ones inside doubled");
      cells.emplace_back(cell);
      at = end;
    }
    if (at >= row.size()) return;
  }
}

}  // namespace accel::data
