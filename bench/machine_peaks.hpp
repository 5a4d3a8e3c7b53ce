// SPDX-License-Identifier: Apache-2.0
// What the machine gives at best: arithmetic of large products, and passes over memory.
#pragma once

#include <accel.h>

#include <cstddef>
#include <vector>

namespace bench {

// GFLOPS of the products of two square matrices of the size at which they are fastest, on the threads and with the
// kernels of the state that was made last.
std::vector<double> product_rates(accel_dtype_t dtype, double seconds);

enum class Pass { kRead, kWrite, kCopy };

class Memory {
 public:
  // As much that no cache holds half of it, unless `bytes` says how much.
  explicit Memory(size_t bytes);

  size_t bytes() const { return data_.size(); }
  // 64 KiB, four times that and so on, and all.
  std::vector<size_t> sizes() const;
  // GB/s of passes over the first `bytes`, of which each thread has its part. A copy, from one half to the other, reads
  // and writes: it counts all of them.
  std::vector<double> rates(Pass pass, size_t bytes, int threads, double seconds);

 private:
  std::vector<char> data_;
};

}  // namespace bench
