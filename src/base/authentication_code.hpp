// SPDX-License-Identifier: Apache-2.0
// Codes by which two sides prove that they know a secret, which is never sent itself.
#pragma once

#include <cstddef>
#include <string>

namespace accel {

// Random bytes of the system as hexadecimal digits, two a byte.
std::string random_digits(size_t bytes);

// HMAC-SHA256 (RFC 2104) of `text` in hexadecimal digits.
std::string authentication_code(const std::string& key, const std::string& text);

// In a time that does not tell where they differ.
bool are_equal_codes(const std::string& one, const std::string& other);

}  // namespace accel
