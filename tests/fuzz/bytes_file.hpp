// SPDX-License-Identifier: Apache-2.0
// Bytes as a file that a reader can open, in memory alone.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "fuzz_target.hpp"
#include "os/file_descriptor.hpp"

class BytesFile {
 public:
  BytesFile(const uint8_t* data, size_t size) : file_(::memfd_create("input", MFD_CLOEXEC)) {
    check(file_.is_open());
    check(::write(file_.number(), data, size) == static_cast<ssize_t>(size));
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.number()); }

 private:
  accel::FileDescriptor file_;
};
