// SPDX-License-Identifier: Apache-2.0
// A mapping of a file of shared memory, of this process or of another one of the host.
#pragma once

#include <cstddef>

#include "os/file_descriptor.hpp"

namespace accel::comm::ucx {

// The destructor unmaps the memory.
class Mapping {
 public:
  Mapping(int descriptor, size_t size, int rank);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();
  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  char* data_;
  size_t size_;
};

// Opens a file that another process of this host has open, through /proc. Not open where that is not allowed.
FileDescriptor open_file_of(int process, int descriptor);

// Throws the CollectiveError for `bytes` of shared memory that could not be `what` ("mapped"), with the reason in
// errno.
[[noreturn]] void refuse_memory(int rank, const char* what, size_t bytes);

}  // namespace accel::comm::ucx
