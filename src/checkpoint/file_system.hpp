// The calls that change the disk. Writers take them through this seam, so that tests can make each one fail or be the
// last.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "base/file_descriptor.hpp"
#include "base/system_error.hpp"

namespace accel::checkpoint {

// Each returns -1 and sets errno on failure, as the system call behind it.
class FileSystem {
 public:
  virtual int create_file(const char* path);  // a descriptor of a new file; EEXIST when there is one
  virtual ssize_t write(int descriptor, const void* data, size_t size);
  virtual int sync(int descriptor);
  virtual void start_sync(int descriptor, uint64_t offset, size_t size);  // of data that sync() will wait for; a hint
  virtual int make_folder(const char* path);
  virtual int rename(const char* from, const char* to);
  virtual int exchange(const char* a, const char* b);  // atomically; EINVAL or ENOSYS where the system cannot
  virtual int remove_file(const char* path);
  virtual int remove_tree(const char* path);  // a file, or a folder with all in it; links are not followed

 protected:
  ~FileSystem() = default;
};

FileSystem& system_files();

// Makes the names in a folder durable.
void sync_folder(FileSystem& files, const std::string& path);

}  // namespace accel::checkpoint
