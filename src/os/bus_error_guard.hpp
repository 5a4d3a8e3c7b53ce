// SPDX-License-Identifier: Apache-2.0
// Reading a mapped file that became shorter: an error instead of the signal SIGBUS, which would end the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace accel {

// While one exists, pages that a mapped file (MappedFile) has lost read as zeros, in any thread. The handler of the
// signal is put back with the last guard; faults at other addresses go to the handler that the program had.
class BusErrorGuard {
 public:
  BusErrorGuard();
  BusErrorGuard(const BusErrorGuard&) = delete;
  BusErrorGuard& operator=(const BusErrorGuard&) = delete;
  ~BusErrorGuard();

  // kIo that names the file if one lost pages that were read; what was read is not to be used.
  void check() const;
};

// MappedFile registers its mappings here. `path` must live as long as the mapping.
void register_mapping(char* begin, size_t size, const std::string& path);
void unregister_mapping(char* begin);
bool is_in_mapping(uintptr_t begin, uintptr_t end);
// The file that is mapped at an address; "" if none is.
std::string mapped_path(const void* address);

}  // namespace accel
