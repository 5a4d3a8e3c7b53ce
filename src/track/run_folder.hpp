// SPDX-License-Identifier: Apache-2.0
// The folder of a run: its name, and the lock that keeps other processes out.
#pragma once

#include <string>

#include "os/file_descriptor.hpp"

namespace accel::track {

// Makes a name usable as one component of a path, without characters to which a shell or another system gives a
// meaning.
std::string file_name_of(const std::string& name);

// With all above it, and syncs the names of those that are new; kIo.
void make_folder(const std::string& path);

// Copies a file, or all of a folder. kIo.
void copy_files(const std::string& from, const std::string& to);
void write_file(const std::string& path, const std::string& bytes);
// Syncs a file, or all of a folder, and its name. Nothing happens if it is gone. kIo.
void sync_files(const std::string& path);

// While a lock exists no other process, and no other run of this one, writes to the folder. A process that dies leaves
// the file, but not the lock.
class RunLock {
 public:
  // kIo, with the number of the process that has it.
  explicit RunLock(const std::string& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  std::string path_;
  FileDescriptor file_;
};

}  // namespace accel::track
