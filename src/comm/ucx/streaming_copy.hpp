// A copy that does not pass the destination through the caches: it need not be read from memory before it is written.
#pragma once

#include <cstddef>

namespace accel::comm::ucx {

void copy_streaming(char* to, const char* from, size_t bytes);

}  // namespace accel::comm::ucx
