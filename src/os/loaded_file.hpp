// SPDX-License-Identifier: Apache-2.0
// The files that the dynamic linker has loaded into this process.
#pragma once

#include <string>

namespace accel {

// The shared library, or the program, that has this address, as the linker found it; empty if no file has it. Takes a
// microsecond, while dladdr() searches all symbols of the file, milliseconds in LibTorch.
std::string loaded_file_of(const void* address);

template <typename Result, typename... Arguments>
std::string loaded_file_of(Result (*function)(Arguments...)) {
  return loaded_file_of(reinterpret_cast<const void*>(function));
}

}  // namespace accel
