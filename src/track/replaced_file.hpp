// A file that is written piece by piece and appears as a whole, or stays as it was.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/file_descriptor.hpp"

namespace accel::track {

class ReplacedFile {
 public:
  // Makes the file's folder if that is missing.
  explicit ReplacedFile(const std::string& path);
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;
  ~ReplacedFile();

  void write(std::string_view text);
  void commit();

 private:
  void flush();

  const std::string path_;
  std::string temporary_;
  FileDescriptor descriptor_;
  std::string waiting_;
  bool is_committed_ = false;
};

}  // namespace accel::track
