// SPDX-License-Identifier: Apache-2.0
// The bytes of a file: a large file is mapped, so that it may exceed memory; a small one is read, because the number of
// mappings of a process is limited, and thousands of them cost more than reading.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "os/mapped_file.hpp"

namespace accel {

class FileBytes {
 public:
  explicit FileBytes(const std::string& path);

  const std::string& path() const { return path_; }
  std::string_view text() const { return map_ != nullptr ? map_->text() : std::string_view(*bytes_); }

 private:
  std::string path_;
  std::unique_ptr<const MappedFile> map_;
  std::unique_ptr<const std::string> bytes_;  // on the heap: what text() gave stays where it is when this one moves
};

}  // namespace accel
