// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/files/make_folders.hpp"

#include <cerrno>

#include "os/list_folder.hpp"

namespace accel::checkpoint {

std::string parent_folder(const std::string& path) {
  const size_t last = path.find_last_not_of('/');
  const size_t slash = last == std::string::npos ? std::string::npos : path.find_last_of('/', last);
  if (slash == std::string::npos) return path.empty() || path.front() != '/' ? "." : "/";
  return slash == 0 ? "/" : path.substr(0, slash);
}

void make_folders(const std::string& path, FileSystem& files) {
  if (is_folder(path)) return;
  const std::string parent = parent_folder(path);
  if (parent != path && parent != ".") make_folders(parent, files);
  if (files.make_folder(path.c_str()) == 0)
    sync_folder(files, parent);
  else if (errno != EEXIST)
    fail_system(Status::kIo, "make the folder", path);
}

}  // namespace accel::checkpoint
