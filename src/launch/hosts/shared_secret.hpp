// The secret that the launchers of a job share, and what is derived from it. It is never sent.
#pragma once

#include <cstddef>
#include <string>

namespace accel::launch {

// The content of the file without white space around it. The file must be readable by its owner alone, and have at
// least 16 characters.
std::string read_secret_file(const std::string& path);

// Random bytes as hexadecimal digits, two a byte.
std::string random_digits(size_t bytes);

// HMAC-SHA256 of `text` in hexadecimal digits.
std::string authentication_code(const std::string& key, const std::string& text);

// In a time that does not tell where they differ.
bool are_equal_codes(const std::string& one, const std::string& other);

}  // namespace accel::launch
