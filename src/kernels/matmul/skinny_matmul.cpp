#include "kernels/matmul/skinny_matmul.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "kernels/instruction_set.hpp"
#include "kernels/matmul/skinny_kernels.hpp"
#include "kernels/parallel.hpp"

namespace accel::kernels {
namespace {

// Up to so many rows the product takes less time than copying the matrix.
int64_t most_rows() {
  switch (fastest_instruction_set()) {
    case InstructionSet::kAvx512:
      return 32;
    case InstructionSet::kAvx2:
      return 4;
    default:
      return 0;
  }
}

constexpr int64_t kFewestElements = 1 << 16;  // of the matrix: what is smaller stays in caches
constexpr int64_t kFewestInner = 64;
constexpr int64_t kElementsATask = 1 << 15;

}  // namespace

bool is_skinny(const at::Tensor& first, const at::Tensor& second) {
  const int64_t rows = first.size(0), inner = first.size(1), columns = second.size(1);
  return rows > 0 && rows <= most_rows() && inner >= kFewestInner && inner * columns >= kFewestElements &&
         first.stride(1) == 1 && second.stride(0) == 1 && second.stride(1) >= inner &&
         (rows == 1 || first.stride(0) >= inner);
}

void skinny_matmul(const at::Tensor& first, const at::Tensor& second, const at::Tensor& result,
                   const at::Tensor& bias) {
  const int64_t inner = first.size(1), columns = second.size(1);
  const SkinnyProduct product = {first.size(0),
                                 inner,
                                 first.const_data_ptr<float>(),
                                 first.stride(0),
                                 second.const_data_ptr<float>(),
                                 second.stride(1),
                                 bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                                 result.mutable_data_ptr<float>(),
                                 columns};
  auto* const multiply = ACCEL_FASTEST(multiply_skinny);
  const int64_t columns_a_task = std::max<int64_t>(2, kElementsATask / inner);
  parallel_for(columns, columns_a_task, [&](int64_t begin, int64_t end) { multiply(product, begin, end); });
}

}  // namespace accel::kernels
