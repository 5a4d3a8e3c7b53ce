// Atomic files: written under a temporary name, synced, and then renamed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/files/content_hash.hpp"
#include "checkpoint/files/file_system.hpp"
#include "checkpoint/files/temporary.hpp"

namespace accel::checkpoint {

// A new file. Small writes are buffered, large ones are passed to the system without a copy.
class OutputFile {
 public:
  OutputFile(const std::string& path, FileSystem& files);
  void write(const void* data, size_t size);
  void finish();  // syncs the file; no writes afterwards
  int descriptor() const { return descriptor_.number(); }
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  uint64_t hash() const { return hash_.value(); }  // of what has been written through

 private:
  void write_through(const char* data, size_t size);
  void write_all(const char* data, size_t size);
  void flush();

  FileSystem& files_;
  std::string path_;
  FileDescriptor descriptor_;
  std::vector<char> pending_;
  uint64_t size_ = 0;    // written through
  uint64_t synced_ = 0;  // of these, handed to the disk
  ContentHash hash_;
};

// Verifies a file before it replaces an older one: kIo if `is_as_given`, which reads it, returns false or finds it
// damaged.
void read_back(const std::string& path, const std::function<bool()>& is_as_given);

// Replaces a file atomically.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path, FileSystem& files = system_files());
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();
  OutputFile& output() { return *output_; }
  // `check` may read the synced file; if it throws, nothing is replaced.
  void commit(const std::function<void(const std::string& path)>& check = nullptr);

 private:
  FileSystem& files_;
  Target target_;
  std::unique_ptr<OutputFile> output_;
  bool committed_ = false;
};

}  // namespace accel::checkpoint
