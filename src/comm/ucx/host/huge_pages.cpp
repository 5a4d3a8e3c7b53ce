// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/host/huge_pages.hpp"

#include <sys/mman.h>

#include <cstdint>

#include "comm/ucx/host/page_size.hpp"

namespace accel::comm::ucx {

void ask_for_huge_pages(void* data, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(data);
  const uintptr_t start = (first + kPage - 1) / kPage * kPage, end = (first + bytes) / kPage * kPage;
  if (start < end) madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
}

}  // namespace accel::comm::ucx
