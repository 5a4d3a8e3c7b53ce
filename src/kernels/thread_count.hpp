// How many threads LibTorch computes with.
#pragma once

#include <cstdint>

namespace accel::kernels {

// For this thread at once, and for every other when it follows.
void set_num_threads(int64_t threads);

// At each entry of the host into the library. OpenMP keeps the number for each thread by itself: LibTorch's own loops
// set it on a thread that is new to them, and oneDNN, which may come first, does not.
void follow_num_threads();

}  // namespace accel::kernels
