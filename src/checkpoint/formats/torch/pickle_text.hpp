// SPDX-License-Identifier: Apache-2.0
// Text in the escapes of Python's pickles.
#pragma once

#include <string>
#include <string_view>

namespace accel::checkpoint {

// 'it\'s\n' or "..." as Python 2 printed strings: their bytes. kCorrupt if it is no such text.
std::string unquote_python_text(std::string_view text);

// Latin-1 with \uXXXX and \UXXXXXXXX, as UTF-8.
std::string unescape_python_text(std::string_view text);

// The bytes of a text whose characters are at most U+00FF; pickles of old protocols store bytes that way. kCorrupt for
// other characters.
std::string latin1_of(std::string_view text);
// The reverse.
std::string utf8_of_latin1(std::string_view bytes);

bool is_utf8(std::string_view text);

// For messages: at most 100 bytes, without control characters.
std::string printable(std::string_view text);

}  // namespace accel::checkpoint
