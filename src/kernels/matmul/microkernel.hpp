// SPDX-License-Identifier: Apache-2.0
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

// The microkernel of bfloat16 with sums in float32. The second matrix has pairs of neighbouring rows side by side:
// element (k, column) is at (k / 2 * second_stride + column) * 2 + k % 2; `inner` is even.
using Bfloat16Microkernel = void (*)(int64_t rows, int64_t columns, int64_t inner, int64_t first_stride,
                                     int64_t second_stride, int64_t result_stride, bool accumulate,
                                     const uint16_t* first, const uint16_t* second, float* result, bool is_paired);

// Null unless it is available. The first call tries it. A thread that has called it calls release_microkernel()
// before it runs code of others: the tile registers of a processor that has some keep a state until then.
Bfloat16Microkernel bfloat16_microkernel();
void release_microkernel();

// The largest tile of `left` of which a kernel is compiled: `largest`, a power of two, or what is left below 16. So
// matrices of any size need few kernels.
constexpr int64_t microkernel_tile(int64_t left, int64_t largest) {
  if (left >= largest) return largest;
  int64_t tile = 16;
  if (left < tile) return left;
  while (tile * 2 <= left) tile *= 2;
  return tile;
}

// A matmul of blocks of any sizes by tiles for which kernels are compiled, by the microkernel of float32 or bfloat16.
template <typename Element>
void multiply_blocks(void (*kernel)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, const Element*,
                                    const Element*, float*, bool),
                     int64_t rows, int64_t columns, int64_t inner, const Element* first, int64_t first_stride,
                     const Element* second, int64_t second_stride, float* result, int64_t result_stride,
                     bool accumulate) {
  constexpr int64_t kMaxRows = 64, kMaxColumns = 256, kMaxInner = 512;
  constexpr bool kIsPaired = sizeof(Element) < sizeof(float);
  for (int64_t row = 0, height = 0; row < rows; row += height) {
    height = microkernel_tile(rows - row, kMaxRows);
    for (int64_t column = 0, width = 0; column < columns; column += width) {
      width = microkernel_tile(columns - column, kMaxColumns);
      for (int64_t k = 0, depth = 0; k < inner; k += depth) {
        depth = microkernel_tile(inner - k, kMaxInner);
        kernel(height, width, depth, first_stride, second_stride, result_stride, accumulate || k > 0,
               first + row * first_stride + k, second + k * second_stride + column * (kIsPaired ? 2 : 1),
               result + row * result_stride + column, kIsPaired);
      }
    }
  }
}

}  // namespace accel::kernels
