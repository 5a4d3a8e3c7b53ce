// Files that reach the disk whole: written to a new name, made durable, and only then given the name that readers know.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checksum.hpp"
#include "checkpoint/file_system.hpp"
#include "checkpoint/temporary.hpp"

namespace accel::checkpoint {

// A new file. Small pieces are gathered, large ones go from the caller's memory to the system without a copy.
class OutputFile {
 public:
  enum class Summing { kOff, kOn };
  OutputFile(const std::string& path, FileSystem& files, Summing summing = Summing::kOn);
  void write(const void* data, size_t size);
  void finish();  // all of it is on the disk; nothing may be written afterwards
  int descriptor() const { return descriptor_.number(); }
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  uint32_t checksum() const { return checksum_.value(); }  // 0 when it is off

 private:
  void write_through(const char* data, size_t size);
  void flush();

  FileSystem& files_;
  std::string path_;
  Summing summing_;
  FileDescriptor descriptor_;
  std::vector<char> pending_;
  uint64_t size_ = 0;
  Checksum checksum_;
};

// What was written takes the place of something older only if it can be read: kIo when `is_as_given`, which reads it,
// says no or finds it damaged.
void read_back(const std::string& path, const std::function<bool()>& is_as_given);

// Replaces a file, or leaves everything as it was.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path, FileSystem& files = system_files());
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();
  OutputFile& output() { return *output_; }
  // `check` may look at the file when it is on the disk; what it throws leaves everything as it was.
  void commit(const std::function<void(const std::string& path)>& check = nullptr);

 private:
  FileSystem& files_;
  Target target_;
  std::unique_ptr<OutputFile> output_;
  bool committed_ = false;
};

}  // namespace accel::checkpoint
