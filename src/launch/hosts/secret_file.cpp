// SPDX-License-Identifier: Apache-2.0
#include "launch/hosts/secret_file.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "os/regular_file.hpp"

namespace accel::launch {
namespace {

constexpr size_t kShortestSecret = 16;

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

}  // namespace accel::launch
