// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/host/shared_mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/ucx/host/huge_pages.hpp"

namespace accel::comm::ucx {

Mapping::Mapping(int descriptor, size_t size, int rank) : size_(size) {
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) refuse_memory(rank, "mapped", size);
  ask_for_huge_pages(memory, size);
  data_ = static_cast<char*>(memory);
}

Mapping::~Mapping() { munmap(data_, size_); }

FileDescriptor open_file_of(int process, int descriptor) {
  return FileDescriptor(open(text("/proc/", process, "/fd/", descriptor).c_str(), O_RDWR | O_CLOEXEC));
}

void refuse_memory(int rank, const char* what, size_t bytes) {
  const bool no_memory = errno == ENOMEM || errno == ENOSPC;
  throw CollectiveError(
      no_memory ? CollectiveFailure::kOutOfMemory : CollectiveFailure::kBackend, rank,
      text(bytes, " bytes of shared memory could not be ", what, " on rank ", rank, ": ", std::strerror(errno)));
}

}  // namespace accel::comm::ucx
