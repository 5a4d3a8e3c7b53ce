// BRGEMM microkernel: oneDNN's JIT-compiled float32 matmul of small blocks (Georganas et al. 2020,
// https://doi.org/10.1109/IPDPS47924.2020.00032), which LibTorch exports on x86. It needs AVX-512.
#pragma once

#include <cstdint>

namespace accel::kernels {

// at::native::cpublas::brgemm() of float32, in LibTorch 2.11 to 2.15.
inline constexpr const char* kMicrokernelSymbol = "_ZN2at6native7cpublas6brgemmEllllllbPKfS3_Pfb";

// result [rows, columns] = first [rows, inner] * second [inner, columns], added to the result where `accumulate` is
// set. All are row-major; a stride is the distance of two rows. A thread compiles a kernel for each combination of the
// numbers before the pointers and keeps it, so callers have few of them. The last argument is for other dtypes: false.
using Microkernel = void (*)(int64_t rows, int64_t columns, int64_t inner, int64_t first_stride, int64_t second_stride,
                             int64_t result_stride, bool accumulate, const float* first, const float* second,
                             float* result, bool is_vnni);

enum class MicrokernelStatus : uint8_t { kAvailable, kNoSymbol, kNoProcessor };

// Looks the function up and tries it, once for the process: a later call returns the first one's result.
MicrokernelStatus load_microkernel(const char* symbol = kMicrokernelSymbol);

// Null unless it is available. Any thread.
Microkernel microkernel();

// The largest tile of `left` of which a kernel is compiled: `largest`, a power of two, or what is left below 16. So
// matrices of any size need few kernels.
constexpr int64_t microkernel_tile(int64_t left, int64_t largest) {
  if (left >= largest) return largest;
  int64_t tile = 16;
  if (left < tile) return left;
  while (tile * 2 <= left) tile *= 2;
  return tile;
}

// A matmul of blocks of any sizes by tiles for which kernels are compiled.
inline void multiply_blocks(Microkernel kernel, int64_t rows, int64_t columns, int64_t inner, const float* first,
                            int64_t first_stride, const float* second, int64_t second_stride, float* result,
                            int64_t result_stride, bool accumulate) {
  constexpr int64_t kMaxRows = 64, kMaxColumns = 256, kMaxInner = 512;
  for (int64_t row = 0, height = 0; row < rows; row += height) {
    height = microkernel_tile(rows - row, kMaxRows);
    for (int64_t column = 0, width = 0; column < columns; column += width) {
      width = microkernel_tile(columns - column, kMaxColumns);
      for (int64_t k = 0, depth = 0; k < inner; k += depth) {
        depth = microkernel_tile(inner - k, kMaxInner);
        kernel(height, width, depth, first_stride, second_stride, result_stride, accumulate || k > 0,
               first + row * first_stride + k, second + k * second_stride + column,
               result + row * result_stride + column, false);
      }
    }
  }
}

}  // namespace accel::kernels
