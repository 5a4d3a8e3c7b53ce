// SPDX-License-Identifier: Apache-2.0
// Rows of comma-separated values, as RFC 4180 has them. Ours, and not a library's: libcsv, the one that Debian has for
// C, pushes each cell of a whole file through callbacks and says neither where a row begins nor what is wrong with one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace accel::data {

// Finds the end of a row, a RowEnd; newlines inside quotes do not end a row. Quotes that are not closed reach to the
// end of the text.
size_t csv_row_end(std::string_view text, size_t begin, char delimiter);

// The cells of a row without their quotes. Throws kCorrupt for quotes that are not closed, and for text beside quotes;
// the message begins with the cell: "cell 3 ...".
void split_csv_row(std::string_view row, char delimiter, std::vector<std::string>& cells);

}  // namespace accel::data
