// Large pages for memory that is written for the first time: a fault for every 2 MiB instead of every 4 KiB.
#pragma once

#include <cstddef>

namespace accel::comm::ucx {

// A wish: where the machine does not grant it, or the memory is in use already, nothing changes.
void ask_for_huge_pages(void* data, size_t bytes);

}  // namespace accel::comm::ucx
