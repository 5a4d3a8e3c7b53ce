// SPDX-License-Identifier: Apache-2.0
#include "machine/nvidia_driver.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>

#include "os/list_folder.hpp"
#include "os/read_line.hpp"

namespace accel {
namespace {

using Version = std::array<int, 3>;
constexpr Version kFirstWithPeerCopies = {550, 40, 7};

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 ...": the first number with a point.
std::string driver_version(const std::string& folder) {
  std::ifstream file(folder + "/version");
  std::string line;
  if (!file || !read_line(file, line)) return "";
  for (size_t begin = 0; begin < line.size();) {
    const size_t end = std::min(line.find(' ', begin), line.size());
    const std::string word = line.substr(begin, end - begin);
    if (!word.empty() && word.find_first_not_of("0123456789.") == std::string::npos &&
        word.find('.') != std::string::npos)
      return word;
    begin = end + 1;
  }
  return "";
}

Version numbers_of(const std::string& version) {
  Version numbers{};
  std::sscanf(version.c_str(), "%d.%d.%d", &numbers[0], &numbers[1], &numbers[2]);
  return numbers;
}

// "Model:  NVIDIA GeForce RTX 4090" in gpus/0000:01:00.0/information.
std::string model_of(const std::string& file) {
  std::ifstream information(file);
  for (std::string line; information && read_line(information, line);)
    if (line.rfind("Model:", 0) == 0) return line;
  return "";
}

}  // namespace

std::string driver_without_peer_copies(const std::string& folder) {
  const std::string gpus = folder + "/gpus";
  if (access(gpus.c_str(), R_OK) != 0) return "";
  int count = 0;
  bool is_concerned = false;
  for (const std::string& gpu : list_folder(gpus)) {
    const std::string model = model_of(gpus + "/" + gpu + "/information");
    if (model.empty()) continue;
    count++;
    is_concerned = is_concerned || model.find("RTX 40") != std::string::npos;
  }
  const std::string version = count > 1 && is_concerned ? driver_version(folder) : "";
  return !version.empty() && numbers_of(version) < kFirstWithPeerCopies ? version : "";
}

}  // namespace accel
