// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/files/atomic_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <tuple>
#include <utility>

#include "base/log.hpp"

namespace accel::checkpoint {
namespace {

FileDescriptor open_folder(const std::string& path) {
  return FileDescriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

std::pair<std::string, FileDescriptor> create_sibling_folder(const Target& target, FileSystem& files) {
  for (int attempt = 0; attempt < kSiblingAttempts; attempt++) {
    std::string path = temporary_sibling(target, false);
    if (files.make_folder(path.c_str()) != 0) fail_system(Status::kIo, "make the folder", path);
    FileDescriptor lock = open_folder(path);
    if (lock.is_open() && claim(lock.number())) return {std::move(path), std::move(lock)};
  }
  fail(Status::kIo, "cannot keep a temporary folder beside '", target.full(),
       "': other writers of it are removing them");
}

bool cannot_exchange(int code) { return code == EINVAL || code == ENOSYS || code == ENOTSUP; }

}  // namespace

AtomicFolder::AtomicFolder(const std::string& path, FileSystem& files) : files_(files), target_(path) {
  clean_leftovers(target_, files_);
  std::tie(temporary_, lock_) = create_sibling_folder(target_, files_);
}

AtomicFolder::~AtomicFolder() {
  if (!committed_) files_.remove_tree(temporary_.c_str());
}

void AtomicFolder::commit(bool may_replace) {
  sync_folder(files_, temporary_);
  const bool replaces = take_name(may_replace);
  committed_ = true;
  sync_folder(files_, target_.parent);
  // After an exchange the old folder has the temporary name. It is removed only after the new one is synced.
  if (replaces && files_.remove_tree(temporary_.c_str()) != 0)
    log(LogLevel::kWarning, "cannot remove '", temporary_, "', the former '", target_.full(),
        "'; the next writer will");
}

bool AtomicFolder::take_name(bool may_replace) {
  struct stat status {};
  if (::lstat(target_.full().c_str(), &status) != 0) {
    if (files_.rename(temporary_.c_str(), target_.full().c_str()) == 0) return false;
    const bool is_taken = errno == ENOTEMPTY || errno == EEXIST;  // another writer was faster
    if (!is_taken || ::lstat(target_.full().c_str(), &status) != 0)
      fail_system(Status::kIo, "give its name to", target_.full());
  }
  require(S_ISDIR(status.st_mode), Status::kAlreadyExists, "'", target_.full(),
          "' is a file; expected a folder or a free name");
  require(may_replace, Status::kAlreadyExists, "'", target_.full(),
          "' appeared while it was written: another program writes it, too; give each a folder of its own");
  replace();
  return true;
}

void AtomicFolder::replace() {
  if (files_.exchange(temporary_.c_str(), target_.full().c_str()) == 0) return;
  if (!cannot_exchange(errno)) fail_system(Status::kIo, "give its name to", target_.full());
  replace_in_two_steps();
}

void AtomicFolder::replace_in_two_steps() {
  const std::string aside = temporary_sibling(target_, true);
  const FileDescriptor lock = open_folder(target_.full());
  try_lock(lock.number());  // readers that find the name missing must not put the old folder back meanwhile
  if (files_.rename(target_.full().c_str(), aside.c_str()) != 0) fail_system(Status::kIo, "move aside", target_.full());
  if (files_.rename(temporary_.c_str(), target_.full().c_str()) != 0) {
    const int code = errno;
    files_.rename(aside.c_str(), target_.full().c_str());
    errno = code;
    fail_system(Status::kIo, "give its name to", target_.full());
  }
  temporary_ = aside;
}

void recover_folder(const std::string& path, FileSystem& files) { restore_aside(Target(path), files); }

}  // namespace accel::checkpoint
