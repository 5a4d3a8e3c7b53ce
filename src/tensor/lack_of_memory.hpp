// SPDX-License-Identifier: Apache-2.0
// Tells whether an exception means that memory is missing. Header only: backend plugins use no symbol of libaccel.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string_view>

namespace accel::tensor {

// LibTorch has a class for an allocator of a device that has nothing left, and only texts for the host's allocator, and
// for drivers and libraries of a device that another process has filled: no context, handle or communicator fits then.
inline bool says_no_memory(std::string_view message) {
  for (const std::string_view words : {"DefaultCPUAllocator: ", "error: out of memory", "'out of memory'",
                                       "_STATUS_ALLOC_FAILED", "_ALLOCATION_FAILED"})
    if (message.find(words) != std::string_view::npos) return true;
  return false;
}

inline bool means_no_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch != nullptr && says_no_memory(of_torch->what_without_backtrace());
}

}  // namespace accel::tensor
