// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/files/file_system.hpp"

#include <fcntl.h>
#include <ftw.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

namespace accel::checkpoint {

int FileSystem::create_file(const char* path) { return ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); }

ssize_t FileSystem::write(int descriptor, const void* data, size_t size) { return ::write(descriptor, data, size); }

int FileSystem::sync(int descriptor) { return ::fsync(descriptor); }

int FileSystem::set_direct(int descriptor, bool on) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags < 0 ? -1 : ::fcntl(descriptor, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT);
}

int FileSystem::make_folder(const char* path) { return ::mkdir(path, 0777); }

int FileSystem::rename(const char* from, const char* to) { return ::rename(from, to); }

int FileSystem::exchange(const char* a, const char* b) {
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE));
}

int FileSystem::share_file(const char* existing, const char* path) {
  const FileDescriptor from(::open(existing, O_RDONLY | O_CLOEXEC));
  if (!from.is_open()) return -1;
  {
    const FileDescriptor to(create_file(path));
    if (!to.is_open()) return -1;
    if (::ioctl(to.number(), FICLONE, from.number()) == 0) return sync(to.number());
  }
  ::unlink(path);
  if (sync(from.number()) != 0) return -1;  // a save that was not durable may have written it
  return ::link(existing, path);
}

int FileSystem::remove_file(const char* path) { return ::unlink(path); }

int FileSystem::remove_tree(const char* path) {
  constexpr int kOpenFolders = 16;
  const auto remove_entry = [](const char* entry, const struct stat*, int, FTW*) {
    return ::remove(entry) == 0 || errno == ENOENT ? 0 : -1;  // another cleaner may have been quicker
  };
  return ::nftw(path, remove_entry, kOpenFolders, FTW_DEPTH | FTW_PHYS);
}

FileSystem& system_files() {
  struct SystemFiles final : FileSystem {};
  static SystemFiles files;
  return files;
}

FileSystem& unsynced_files() {
  struct UnsyncedFiles final : FileSystem {
    int sync(int) override { return 0; }
    bool is_durable() const override { return false; }
  };
  static UnsyncedFiles files;
  return files;
}

void sync_folder(FileSystem& files, const std::string& path) {
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) fail_system(Status::kIo, "open the folder", path);
  // Some network file systems cannot sync a folder, and need not.
  if (files.sync(folder.number()) != 0 && errno != EINVAL) fail_system(Status::kIo, "make durable the folder", path);
}

}  // namespace accel::checkpoint
