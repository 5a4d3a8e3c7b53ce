// SPDX-License-Identifier: Apache-2.0
// A file with a name of its own, for one test.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace accel::tests {

class WrittenFile {
 public:
  explicit WrittenFile(const std::string& content, const char* end = ".yaml") {
    static int number = 0;
    const std::string name = "accel_program_" + std::to_string(getpid()) + "_" + std::to_string(number++) + end;
    path_ = (std::filesystem::temp_directory_path() / name).string();
    std::ofstream(path_, std::ios::binary) << content;
  }
  WrittenFile(const WrittenFile&) = delete;
  WrittenFile& operator=(const WrittenFile&) = delete;
  ~WrittenFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace accel::tests
