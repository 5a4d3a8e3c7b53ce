// SPDX-License-Identifier: Apache-2.0
// A folder for one test.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace accel::tests {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int number = 0;
    const std::string name = "accel_report_" + std::to_string(getpid()) + "_" + std::to_string(number++);
    path_ = std::filesystem::temp_directory_path() / name;
    std::filesystem::create_directories(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  std::string path(const std::string& name = "") const {
    return name.empty() ? path_.string() : (path_ / name).string();
  }
  // Makes the folders of the name, too.
  std::string write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path(name);
  }
  void append(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary | std::ios::app) << content;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace accel::tests
