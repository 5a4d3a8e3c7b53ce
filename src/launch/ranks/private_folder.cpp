// SPDX-License-Identifier: Apache-2.0
#include "launch/ranks/private_folder.hpp"

#include <sys/stat.h>

#include <cerrno>

#include "os/list_folder.hpp"
#include "os/system_error.hpp"

namespace accel::launch {

void make_private_folder(const std::string& path) {
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1))
    if (mkdir(path.substr(0, end).c_str(), 0700) != 0 && errno != EEXIST) break;
  if (mkdir(path.c_str(), 0700) == 0 || (errno == EEXIST && is_folder(path))) return;
  if (errno == EEXIST) errno = ENOTDIR;
  fail_system(Status::kIo, "make the folder", path);
}

}  // namespace accel::launch
