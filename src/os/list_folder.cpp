// SPDX-License-Identifier: Apache-2.0
#include "os/list_folder.hpp"

#include <dirent.h>
#include <sys/stat.h>

#include <cerrno>
#include <memory>
#include <string_view>

#include "os/system_error.hpp"

namespace accel {

bool is_folder(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

std::vector<std::string> list_folder(const std::string& path) {
  const auto close = [](DIR* folder) { ::closedir(folder); };
  const std::unique_ptr<DIR, decltype(close)> folder(::opendir(path.c_str()), close);
  if (folder == nullptr) fail_system(Status::kIo, "list the folder", path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (const std::string_view name = entry->d_name; name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) fail_system(Status::kIo, "list the folder", path);
  return names;
}

}  // namespace accel
