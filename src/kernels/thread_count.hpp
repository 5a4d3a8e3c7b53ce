// SPDX-License-Identifier: Apache-2.0
// Number of threads of LibTorch's operators.
#pragma once

#include <cstdint>

namespace accel::kernels {

// Takes effect for this thread at once, and for other threads at their next follow_num_threads().
void set_num_threads(int64_t threads);

// Called at each entry of the C API. OpenMP has the number per thread: LibTorch's own loops set it on a new thread, but
// oneDNN, which may run first, does not.
void follow_num_threads();

// Ends the idle threads of OpenMP that operators on this thread have left. A fork loses them, and the next operator in
// the child would wait for them for ever.
void end_idle_threads();

}  // namespace accel::kernels
