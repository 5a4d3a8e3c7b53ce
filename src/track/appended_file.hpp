// SPDX-License-Identifier: Apache-2.0
// A file that is appended to, with what could not be written yet in memory. A file that somebody removes is made anew.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "os/file_descriptor.hpp"

namespace accel::track {

class AppendedFile {
 public:
  // A new file, or one that goes on. kIo.
  explicit AppendedFile(std::string path);

  const std::string& path() const { return path_; }
  std::string& buffer() { return buffer_; }
  size_t pending_bytes() const { return buffer_.size(); }
  size_t written_bytes() const { return written_; }  // that the file has

  // Whether the file is gone, which is then there again, empty.
  bool renew_if_removed();
  // Removes what stands after the last newline: a line that a crash cut off.
  void remove_broken_line();
  // Removes all but the first bytes. kIo.
  void shorten(size_t bytes);
  // kIo. Bytes that were not written stay in the buffer. Durable: a power cut takes neither the bytes nor the file's
  // name.
  void flush(bool durable);

 private:
  std::string folder() const { return path_.substr(0, path_.find_last_of('/')); }
  void open_file();

  std::string path_;
  std::string buffer_;
  FileDescriptor file_;
  size_t written_ = 0;
  bool has_durable_name_ = false;
};

}  // namespace accel::track
