#include "data/datasets/file_list.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/error.hpp"

namespace accel::data {
namespace {

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
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
  for (filesystem::recursive_directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;  // a file that vanished, or a link to nothing, is no regular file
    if (entry->is_regular_file(gone) && ends_with(entry->path().native(), suffix.value_or("")))
      files.push_back(entry->path().native());
  }
  require(!error, Status::kIo, "folder ", path, " cannot be listed: ", error.message());
  require(!files.empty(), Status::kNotFound, "folder ", path, " has no ", kind, " file",
          suffix ? " that ends with " + *suffix : std::string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace accel::data
