// SPDX-License-Identifier: Apache-2.0
#include "base/authentication_code.hpp"

#include <sodium/crypto_auth_hmacsha256.h>
#include <sodium/utils.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.hpp"

namespace accel {
namespace {

std::string digits_of(const unsigned char* bytes, size_t count) {
  std::string digits(2 * count + 1, '\0');
  sodium_bin2hex(digits.data(), digits.size(), bytes, count);
  digits.pop_back();
  return digits;
}

}  // namespace

std::string random_digits(size_t bytes) {
  std::vector<unsigned char> random(bytes);
  require(getrandom(random.data(), bytes, 0) == static_cast<ssize_t>(bytes), Status::kIo,
          "the system gives no random bytes: ", std::strerror(errno));
  return digits_of(random.data(), bytes);
}

std::string authentication_code(const std::string& key, const std::string& text) {
  std::array<unsigned char, crypto_auth_hmacsha256_BYTES> code{};
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, reinterpret_cast<const unsigned char*>(key.data()), key.size());
  crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  crypto_auth_hmacsha256_final(&state, code.data());
  sodium_memzero(&state, sizeof state);
  return digits_of(code.data(), code.size());
}

bool are_equal_codes(const std::string& one, const std::string& other) {
  return one.size() == other.size() && sodium_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace accel
