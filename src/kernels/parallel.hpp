// SPDX-License-Identifier: Apache-2.0
// Parallel loop on the threads of LibTorch.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <cstdint>

namespace accel::kernels {

// Splits [0, count) into ranges of at least `grain` (but for the last) and calls work(begin, end) for each, on as many
// threads as LibTorch is set to use.
void parallel_for(int64_t count, int64_t grain, c10::function_ref<void(int64_t, int64_t)> work);

// Calls work(i) for each number below count, the next one on each thread that is free: a thread that has no processor
// holds up no more than its own.
void parallel_for_each(size_t count, c10::function_ref<void(size_t)> work);

}  // namespace accel::kernels
