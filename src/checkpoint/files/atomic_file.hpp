// SPDX-License-Identifier: Apache-2.0
// Atomic files: written under a temporary name, synced, and then renamed.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "checkpoint/files/file_hash.hpp"
#include "checkpoint/files/file_system.hpp"
#include "checkpoint/files/temporary.hpp"

namespace accel::checkpoint {

// A new file. The bytes are hashed, gathered, and written by a thread of its own while the next bytes are gathered.
class OutputFile {
 public:
  OutputFile(const std::string& path, FileSystem& files);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();
  void write(const void* data, size_t size);
  // Writes what is left and syncs the file; no writes afterwards. Not durable: without the sync, which the system does
  // some time later.
  void finish(bool durable = true);
  int descriptor() const { return descriptor_.number(); }
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  uint64_t hash() const { return hash_.value(); }

 private:
  void write_in_background();
  void wait_for_writer();
  void write_all(const char* data, size_t size);
  void write_through_cache();

  FileSystem& files_;
  std::string path_;
  FileDescriptor descriptor_;
  FileHash hash_;
  uint64_t size_ = 0;
  std::shared_ptr<char> filling_;
  size_t filled_ = 0;
  std::shared_ptr<char> writing_;
  bool is_direct_ = false;  // past the page cache; of the writer while there is one
  std::thread writer_;
  std::future<void> written_;
};

// Whether the file has the size of what was written and, unless it is large, its hash.
bool is_as_written(const OutputFile& output);

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
