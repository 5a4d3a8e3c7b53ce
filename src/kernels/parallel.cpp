// SPDX-License-Identifier: Apache-2.0
#include "kernels/parallel.hpp"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>

namespace accel::kernels {

// at::parallel_for() is inline, and runs on one thread in a library that is not compiled with LibTorch's OpenMP. What
// LibTorch compiled itself is the loop over the elements of a tensor: a byte stands for each number, and its address
// says which.
void parallel_for(int64_t count, int64_t grain, c10::function_ref<void(int64_t, int64_t)> work) {
  if (count <= grain || at::get_num_threads() == 1 || at::in_parallel_region()) {
    if (count > 0) work(0, count);
    return;
  }
  const at::Tensor indices = at::empty({count}, at::kByte);
  const char* const first = static_cast<const char*>(indices.const_data_ptr());
  auto iterator = at::TensorIterator::borrowing_nullary_op(indices);
  iterator.for_each(
      [&](char** data, const int64_t* /*strides*/, int64_t size, int64_t rows) {
        const int64_t begin = data[0] - first;
        work(begin, begin + size * rows);
      },
      grain);
}

void parallel_for_each(size_t count, c10::function_ref<void(size_t)> work) {
  const auto threads = static_cast<size_t>(at::get_num_threads());
  std::atomic<size_t> next{0};
  parallel_for(static_cast<int64_t>(std::min(count, threads)), 1, [&](int64_t, int64_t) {
    for (size_t i = next++; i < count; i = next++) work(i);
  });
}

}  // namespace accel::kernels
