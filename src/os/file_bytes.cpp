// SPDX-License-Identifier: Apache-2.0
#include "os/file_bytes.hpp"

namespace accel {
namespace {

constexpr size_t kSmallestMap = 1 << 20;

}  // namespace

FileBytes::FileBytes(const std::string& path) : path_(path) {
  const RegularFile file(path);
  if (file.size() >= kSmallestMap) {
    map_ = std::make_unique<const MappedFile>(file);
  } else {
    bytes_ = std::make_unique<const std::string>(file.read());
  }
}

}  // namespace accel
