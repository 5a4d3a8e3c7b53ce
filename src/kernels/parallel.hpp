// Work for the threads of LibTorch.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace accel::kernels {

// Calls work(begin, end) for parts of [0, count) that together are the whole, each of at least `grain` but for the
// last, on as many threads as LibTorch is set to use.
void parallel_for(int64_t count, int64_t grain, c10::function_ref<void(int64_t, int64_t)> work);

}  // namespace accel::kernels
