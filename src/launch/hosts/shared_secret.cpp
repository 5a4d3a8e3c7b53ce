#include "launch/hosts/shared_secret.hpp"

#include <sodium/crypto_auth_hmacsha256.h>
#include <sodium/utils.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "os/regular_file.hpp"

namespace accel::launch {
namespace {

constexpr size_t kShortestSecret = 16;

std::string digits_of(const unsigned char* bytes, size_t count) {
  std::string digits(2 * count + 1, '\0');
  sodium_bin2hex(digits.data(), digits.size(), bytes, count);
  digits.pop_back();
  return digits;
}

}  // namespace

std::string read_secret_file(const std::string& path) {
  const RegularFile file(path);
  struct stat info {};
  require(fstat(file.descriptor(), &info) == 0, Status::kIo, "cannot look at '", path, "': ", std::strerror(errno));
  require((info.st_mode & (S_IRWXG | S_IRWXO)) == 0, Status::kInvalidArgument, "the secret in '", path,
          "' can be used by others; expected a file of its owner alone: chmod 600 ", path);
  std::string secret = file.read();
  constexpr char kSpace[] = " \t\r\n";
  secret.erase(secret.find_last_not_of(kSpace) + 1);
  secret.erase(0, secret.find_first_not_of(kSpace));
  require(secret.size() >= kShortestSecret, Status::kInvalidArgument, "the secret in '", path, "' has ", secret.size(),
          " characters; expected at least ", kShortestSecret, ", for example from: head -c 32 /dev/urandom | base64");
  return secret;
}

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

}  // namespace accel::launch
