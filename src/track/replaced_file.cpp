#include "track/replaced_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/system_error.hpp"

namespace accel::track {
namespace {

constexpr size_t kWritten = size_t{1} << 20;  // at once

std::string temporary_name(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  require(!error, Status::kIo, "cannot make the folder '", folder.string(), "': ", error.message());
  return path + ".XXXXXX";
}

}  // namespace

ReplacedFile::ReplacedFile(const std::string& path)
    : path_(path), temporary_(temporary_name(path)), descriptor_(::mkostemp(temporary_.data(), O_CLOEXEC)) {
  if (!descriptor_.is_open()) fail_system(Status::kIo, "write", path);
}

ReplacedFile::~ReplacedFile() {
  if (!is_committed_) ::unlink(temporary_.c_str());
}

void ReplacedFile::write(std::string_view text) {
  waiting_.append(text);
  if (waiting_.size() >= kWritten) flush();
}

void ReplacedFile::flush() {
  for (size_t done = 0; done < waiting_.size();) {
    const ssize_t written = ::write(descriptor_.number(), waiting_.data() + done, waiting_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_system(Status::kIo, "write", path_);
    done += static_cast<size_t>(written);
  }
  waiting_.clear();
}

void ReplacedFile::commit() {
  flush();
  if (::fchmod(descriptor_.number(), 0644) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail_system(Status::kIo, "write", path_);
  is_committed_ = true;
}

}  // namespace accel::track
