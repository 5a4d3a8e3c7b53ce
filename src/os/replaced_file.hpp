// SPDX-License-Identifier: Apache-2.0
// A file that is written chunk by chunk and appears as a whole, or stays as it was.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "os/file_descriptor.hpp"

namespace accel {

class ReplacedFile {
 public:
  // Makes the file's folder if that is missing. Where the path is a link, the file that it leads to is replaced.
  explicit ReplacedFile(const std::string& path);
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;
  ~ReplacedFile();

  void write(std::string_view bytes);
  // With the permissions of the file that was there. The bytes are on the disk when it returns.
  void commit();

 private:
  void flush();

  const std::string path_;
  std::string temporary_;  // a sibling, private until then
  FileDescriptor descriptor_;
  std::string waiting_;
  bool is_committed_ = false;
};

void replace_file(const std::string& path, std::string_view bytes);

}  // namespace accel
