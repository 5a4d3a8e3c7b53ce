// SPDX-License-Identifier: Apache-2.0
// Errors of the dynamic linker.
#pragma once

#include <cerrno>
#include <cstring>
#include <string_view>

namespace accel {

// Whether a text of dlerror() means a lack of memory; false for null.
inline bool is_lack_of_memory(const char* linker_error) {
  if (linker_error == nullptr) return false;
  const std::string_view said = linker_error;
  return said.find(std::strerror(ENOMEM)) != std::string_view::npos ||
         said.find("out of memory") != std::string_view::npos ||
         said.find("cannot create shared object descriptor") !=
             std::string_view::npos;  // of glibc, for which it allocates
}

}  // namespace accel
