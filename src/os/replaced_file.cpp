// SPDX-License-Identifier: Apache-2.0
#include "os/replaced_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/write_whole.hpp"
#include "os/system_error.hpp"

namespace accel {
namespace {

constexpr size_t kWritten = size_t{1} << 20;  // at once

void make_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(!error, Status::kIo, "cannot make the folder '", folder.string(), "': ", error.message());
}

std::string target_of(const std::string& path) {
  require(!path.empty(), Status::kInvalidArgument, "the file to write has no name; expected one");
  make_folder_of(path);
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  if (error) return path;
  require(!std::filesystem::is_directory(target, error), Status::kIo, "'", path,
          "' is a folder; expected the name of a file");
  return target.string();
}

}  // namespace

ReplacedFile::ReplacedFile(const std::string& path)
    : path_(target_of(path)), temporary_(path_ + ".XXXXXX"), descriptor_(::mkostemp(temporary_.data(), O_CLOEXEC)) {
  if (!descriptor_.is_open()) fail_system(Status::kIo, "write", path_);
}

ReplacedFile::~ReplacedFile() {
  if (!is_committed_) ::unlink(temporary_.c_str());
}

void ReplacedFile::write(std::string_view bytes) {
  waiting_.append(bytes);
  if (waiting_.size() >= kWritten) flush();
}

void ReplacedFile::flush() {
  if (write_whole(descriptor_.number(), waiting_) < waiting_.size()) fail_system(Status::kIo, "write", path_);
  waiting_.clear();
}

void ReplacedFile::commit() {
  flush();
  struct stat before {};
  const mode_t mode = ::stat(path_.c_str(), &before) == 0 ? before.st_mode & 07777 : 0644;
  if (::fchmod(descriptor_.number(), mode) != 0 || ::fsync(descriptor_.number()) != 0 ||
      ::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail_system(Status::kIo, "replace", path_);
  is_committed_ = true;
}

void replace_file(const std::string& path, std::string_view bytes) {
  ReplacedFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace accel
