// SPDX-License-Identifier: Apache-2.0
// A folder with files as the kernel and drivers have them, of a machine that is not this one.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace accel::tests {

class DescribedMachine {
 public:
  DescribedMachine() {
    static int number = 0;
    root_ = std::filesystem::temp_directory_path() /
            ("accel_machine_" + std::to_string(getpid()) + "_" + std::to_string(number++));
    std::filesystem::create_directories(root_);
  }
  DescribedMachine(const DescribedMachine&) = delete;
  DescribedMachine& operator=(const DescribedMachine&) = delete;
  ~DescribedMachine() { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& content) const {
    const std::string whole = root_.string() + path;
    std::filesystem::create_directories(std::filesystem::path(whole).parent_path());
    std::ofstream(whole, std::ios::binary) << content;
  }
  std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

}  // namespace accel::tests
