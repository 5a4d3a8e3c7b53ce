// SPDX-License-Identifier: Apache-2.0
// Atomic folder: appears complete or not at all, and replaces an older one in one step.
#pragma once

#include <string>

#include "checkpoint/files/file_system.hpp"
#include "checkpoint/files/temporary.hpp"

namespace accel::checkpoint {

class AtomicFolder {
 public:
  // Creates the temporary folder, after removing those of dead writers. The parent must exist.
  explicit AtomicFolder(const std::string& path, FileSystem& files = system_files());
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();

  // The temporary folder for the files, each of which must be synced before commit().
  const std::string& temporary() const { return temporary_; }

  // Renames the folder and removes the former one. If this throws, the name is that of the old folder or of the new
  // one, never of none or of a part. kAlreadyExists for a former one that may not be replaced.
  void commit(bool may_replace = true);

 private:
  // Returns whether a former folder had the name, which has the temporary one now.
  bool take_name(bool may_replace);
  void replace();
  void replace_in_two_steps();

  FileSystem& files_;
  Target target_;
  std::string temporary_;
  FileDescriptor lock_;
  bool committed_ = false;
};

// Restores a complete folder that a writer had renamed before it died; needed only if the system cannot exchange names.
void recover_folder(const std::string& path, FileSystem& files = system_files());

}  // namespace accel::checkpoint
