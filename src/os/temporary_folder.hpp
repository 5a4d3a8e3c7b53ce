// SPDX-License-Identifier: Apache-2.0
// A folder of its own below that for temporary files, which goes with all that is in it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "os/system_error.hpp"

namespace accel {

class TemporaryFolder {
 public:
  // `name` is the beginning of its name. Nobody else can read what is in it.
  explicit TemporaryFolder(const std::string& name) {
    path_ = (std::filesystem::temp_directory_path() / (name + "-XXXXXX")).string();
    if (mkdtemp(path_.data()) == nullptr) fail_system(Status::kIo, "make the folder", path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { remove(); }

  const std::string& path() const { return path_; }
  void remove() noexcept {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

 private:
  std::string path_;
};

}  // namespace accel
