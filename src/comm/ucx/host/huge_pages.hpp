// SPDX-License-Identifier: Apache-2.0
// Huge pages for new memory: one page fault per 2 MiB instead of 4 KiB.
#pragma once

#include <cstddef>

namespace accel::comm::ucx {

// Only a hint: without effect if the machine has none, or the memory is in use already.
void ask_for_huge_pages(void* data, size_t bytes);

}  // namespace accel::comm::ucx
