// SPDX-License-Identifier: Apache-2.0
#include "os/mapped_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "os/bus_error_guard.hpp"
#include "os/system_error.hpp"

namespace accel {

MappedFile::MappedFile(const RegularFile& file) : path_(file.path()) {
  if (file.size() == 0) return;
  // Without a reservation for pages that may be written: files may be larger than the memory.
  constexpr int kFlags = MAP_PRIVATE | MAP_NORESERVE;
  void* const data = ::mmap(nullptr, file.size(), PROT_READ | PROT_WRITE, kFlags, file.descriptor(), 0);
  if (data == MAP_FAILED) fail_system(Status::kIo, "map", path_);
  data_ = static_cast<char*>(data);
  size_ = file.size();
  register_mapping(data_, size_, path_);
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  unregister_mapping(data_);
  ::munmap(data_, size_);
}

void forget_pages(const void* data, size_t size) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (address + page - 1) / page * page, end = (address + size) / page * page;
  if (begin < end && is_in_mapping(begin, end)) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

bool is_cached(const void* data, size_t size) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = address / page * page, end = (address + size + page - 1) / page * page;
  std::vector<unsigned char> pages((end - begin) / page);
  return ::mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()) == 0 &&
         std::all_of(pages.begin(), pages.end(), [](unsigned char flags) { return (flags & 1) != 0; });
}

}  // namespace accel
