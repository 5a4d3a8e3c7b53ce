// SPDX-License-Identifier: Apache-2.0
#include "track/run_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/write_whole.hpp"
#include "os/list_folder.hpp"
#include "os/sync_folder.hpp"
#include "os/system_error.hpp"

namespace accel::track {
namespace {

constexpr size_t kLongestName = 200;  // below the 255 of file systems, for what is added

void write_all(const FileDescriptor& file, std::string_view bytes, const std::string& path) {
  if (write_whole(file.number(), bytes) < bytes.size()) fail_system(Status::kIo, "write", path);
}

FileDescriptor open_new(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.is_open()) fail_system(Status::kIo, "create", path);
  return file;
}

void copy_file(const std::string& from, const std::string& to) {
  const FileDescriptor source(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (!source.is_open()) fail_system(Status::kIo, "read", from);
  const FileDescriptor target = open_new(to);
  std::array<char, 65536> block{};
  for (;;) {
    const ssize_t count = ::read(source.number(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_system(Status::kIo, "read", from);
    if (count == 0) return;
    write_all(target, {block.data(), static_cast<size_t>(count)}, to);
  }
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// Returns false, with errno, if the folder cannot be made.
bool make_last_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) != 0) return false;
  sync_folder(parent_of(path));
  return true;
}

// Without links, which could lead around in a circle, and without the target, which may be inside.
void copy_folder(const std::string& from, const std::string& to, const struct stat& target) {
  for (const std::string& name : list_folder(from)) {
    struct stat found {};
    const std::string path = from + "/" + name, copy = to + "/" + name;
    if (::lstat(path.c_str(), &found) != 0) fail_system(Status::kIo, "examine", path);
    if (S_ISREG(found.st_mode)) copy_file(path, copy);
    if (!S_ISDIR(found.st_mode) || (found.st_ino == target.st_ino && found.st_dev == target.st_dev)) continue;
    make_folder(copy);
    copy_folder(path, copy, target);
  }
}

}  // namespace

std::string file_name_of(const std::string& name) {
  std::string result = name;
  for (char& byte : result)
    if (static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f || std::strchr("/\\:*?\"'<>|", byte) != nullptr)
      byte = '_';
  if (result.size() > kLongestName) {
    size_t end = kLongestName;
    while (end > 0 && (static_cast<unsigned char>(result[end]) & 0xc0) == 0x80) end--;  // not inside of a character
    result.resize(end);
  }
  if (result.find_first_not_of('.') == std::string::npos) std::fill(result.begin(), result.end(), '_');
  return result.empty() ? "_" : result;
}

void make_folder(const std::string& path) {
  if (path.empty() || is_folder(path) || make_last_folder(path)) return;
  if (errno == ENOENT) {
    const size_t slash = path.find_last_of('/');
    if (slash != std::string::npos && slash > 0) {
      make_folder(path.substr(0, slash));
      if (make_last_folder(path)) return;
    }
  }
  if (!is_folder(path)) fail_system(Status::kIo, "make the folder", path);
}

void copy_files(const std::string& from, const std::string& to) {
  if (!is_folder(from)) return copy_file(from, to);
  make_folder(to);
  struct stat target {};
  if (::stat(to.c_str(), &target) != 0) fail_system(Status::kIo, "examine", to);
  copy_folder(from, to, target);
}

void write_file(const std::string& path, const std::string& bytes) { write_all(open_new(path), bytes, path); }

void sync_files(const std::string& path) {
  if (is_folder(path)) {
    for (const std::string& name : list_folder(path)) sync_files(path + "/" + name);
  } else {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (!file.is_open()) return;
    if (::fsync(file.number()) != 0 && errno != EINVAL) fail_system(Status::kIo, "make durable", path);
  }
  sync_folder(parent_of(path));
}

RunLock::RunLock(const std::string& folder) : path_(folder + "/.run.lock") {
  for (;;) {
    file_ = FileDescriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!file_.is_open()) fail_system(Status::kIo, "open", path_);
    if (::flock(file_.number(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) {
        log(LogLevel::kWarning, "'", path_, "' cannot be locked: ", std::strerror(errno),
            "; nothing keeps a second process out of this run");
        return;
      }
      std::array<char, 32> pid{};
      const ssize_t count = ::pread(file_.number(), pid.data(), pid.size() - 1, 0);
      const std::string owner(pid.data(), count > 0 ? static_cast<size_t>(count) : 0);
      fail(Status::kIo, "process ", owner.empty() ? "?" : owner, " writes to the run in '", folder,
           "'; wait until it ends, or take another run_name");
    }
    struct stat opened {
    }, present{};  // the former owner may have removed the file meanwhile
    if (::fstat(file_.number(), &opened) == 0 && ::stat(path_.c_str(), &present) == 0 &&
        opened.st_ino == present.st_ino && opened.st_dev == present.st_dev)
      break;
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(file_.number(), 0) != 0) fail_system(Status::kIo, "write", path_);
  if (::pwrite(file_.number(), pid.data(), pid.size(), 0) < 0) fail_system(Status::kIo, "write", path_);
}

RunLock::~RunLock() {
  struct stat opened {
  }, present{};
  if (::fstat(file_.number(), &opened) == 0 && ::stat(path_.c_str(), &present) == 0 && opened.st_ino == present.st_ino)
    ::unlink(path_.c_str());
}

}  // namespace accel::track
