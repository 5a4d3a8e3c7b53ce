// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/file_list.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "os/list_folder.hpp"

namespace accel::data {
namespace {

// Links to folders are not followed.
void add_files(const std::string& folder, std::string_view end, std::vector<std::string>& files) {
  for (const std::string& name : list_folder(folder)) {
    std::string path = folder + (folder.back() == '/' ? "" : "/") + name;
    struct stat entry {
    }, target{};
    if (::lstat(path.c_str(), &entry) != 0 || ::stat(path.c_str(), &target) != 0)
      continue;  // vanished, or leads nowhere
    if (S_ISDIR(entry.st_mode))
      add_files(path, end, files);
    else if (S_ISREG(target.st_mode) && ends_with(path, end))
      files.push_back(std::move(path));
  }
}

}  // namespace

std::vector<std::string> find_files(const std::string& path, const std::optional<std::string>& suffix,
                                    const char* kind) {
  namespace filesystem = std::filesystem;
  std::error_code error;
  const auto status = filesystem::status(path, error);
  require(filesystem::exists(status), Status::kNotFound, kind, " ", path, " is not there; expected a file or a folder");
  if (filesystem::is_regular_file(status)) return {path};
  require(filesystem::is_directory(status), Status::kInvalidArgument, kind, " ", path,
          " is neither a regular file nor a folder; expected one of them");
  std::vector<std::string> files;
  add_files(path, suffix.value_or(""), files);
  require(!files.empty(), Status::kNotFound, "folder ", path, " has no ", kind, " file",
          suffix ? " that ends with " + *suffix : std::string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace accel::data
