// A folder that appears complete or not at all, and takes the place of an older one in one step.
#pragma once

#include <string>

#include "checkpoint/file_system.hpp"
#include "checkpoint/temporary.hpp"

namespace accel::checkpoint {

class AtomicFolder {
 public:
  // Makes the temporary folder, after removing those of dead writers. The parent must exist.
  explicit AtomicFolder(const std::string& path, FileSystem& files = system_files());
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();

  // Where the files are to be written, each durable before commit().
  const std::string& temporary() const { return temporary_; }

  // Gives the folder its name and removes what had it before. When this throws, either the old folder or the new one
  // has the name, never none and never a part.
  void commit();

 private:
  void replace();
  void replace_in_two_steps();

  FileSystem& files_;
  Target target_;
  std::string temporary_;
  FileDescriptor lock_;
  bool committed_ = false;
};

// Puts back a complete folder that a writer had moved aside when it died; needed only where the system cannot exchange
// names.
void recover_folder(const std::string& path, FileSystem& files = system_files());

}  // namespace accel::checkpoint
