// SPDX-License-Identifier: Apache-2.0
// File system calls of the writers, as an interface, so that tests can make each call fail or be the last.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "os/file_descriptor.hpp"
#include "os/system_error.hpp"

namespace accel::checkpoint {

// Each returns -1 and sets errno on failure, as its system call.
class FileSystem {
 public:
  virtual int create_file(const char* path);  // a descriptor of a new file; EEXIST if it exists
  virtual ssize_t write(int descriptor, const void* data, size_t size);
  virtual int sync(int descriptor);
  virtual int set_direct(int descriptor, bool on);  // whether writes pass by the page cache; EINVAL if unsupported
  virtual int make_folder(const char* path);
  virtual int rename(const char* from, const char* to);
  virtual int exchange(const char* a, const char* b);  // atomic; EINVAL or ENOSYS if unsupported
  // `path` becomes a file with the contents of another one, which are synced: a copy that shares its blocks, or a hard
  // link.
  virtual int share_file(const char* existing, const char* path);
  virtual bool is_durable() const { return true; }  // whether sync() reaches the disk
  virtual int remove_file(const char* path);
  virtual int remove_tree(const char* path);  // a file, or a folder with its contents; links are not followed

 protected:
  ~FileSystem() = default;
};

FileSystem& system_files();
// Writes as system_files() does, but syncs nothing.
FileSystem& unsynced_files();

// Syncs the entries of a folder.
void sync_folder(FileSystem& files, const std::string& path);

}  // namespace accel::checkpoint
