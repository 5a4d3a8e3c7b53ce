// SPDX-License-Identifier: Apache-2.0
// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/matmul/packing.hpp"

#include "kernels/format_dispatch.hpp"
#include "kernels/matmul/transpose.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

template <typename Number>
inline void load(const typename Number::Stored* from, int64_t count, float* to) {
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) to[i] = Number::load(from[i]);
}

// By reference: not every instruction set passes lanes by value.
template <typename Number>
inline void load_lanes(const typename Number::Stored* from, FloatLanes& lanes) {
  alignas(64) float values[kLanes];
  load<Number>(from, kLanes, values);
  __builtin_memcpy(&lanes, values, sizeof(lanes));
}

template <typename Number>
void pack_transposed(const typename Number::Stored* from, int64_t stride, int64_t rows, int64_t columns, float* to,
                     int64_t to_stride) {
  const int64_t whole_rows = rows / kLanes * kLanes, whole_columns = columns / kLanes * kLanes;
  for (int64_t column = 0; column < whole_columns; column += kLanes) {
    for (int64_t row = 0; row < whole_rows; row += kLanes) {
      FloatLanes block[kLanes];
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < kLanes; lane++)
        load_lanes<Number>(from + (column + lane) * stride + row, block[lane]);
      transpose_lanes(block);
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < kLanes; lane++)
        __builtin_memcpy(to + (row + lane) * to_stride + column, &block[lane], sizeof(block[lane]));
    }
  }
  for (int64_t row = 0; row < rows; row++)
    for (int64_t column = row < whole_rows ? whole_columns : 0; column < columns; column++)
      to[row * to_stride + column] = Number::load(from[column * stride + row]);
}

template <typename Number>
void pack_as(const PackSource& source, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
  const auto* const from = static_cast<const typename Number::Stored*>(source.data);
  if (source.transposed) return pack_transposed<Number>(from, source.stride, rows, columns, to, to_stride);
  for (int64_t row = 0; row < rows; row++) load<Number>(from + row * source.stride, columns, to + row * to_stride);
}

void pack(const PackSource& source, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
  with_number(source.format, [&](auto number) { pack_as<decltype(number)>(source, rows, columns, to, to_stride); });
}

template <typename Number>
void unpack_as(const float* from, int64_t from_stride, int64_t rows, int64_t columns, void* to, int64_t to_stride) {
  auto* const stored = static_cast<typename Number::Stored*>(to);
  for (int64_t row = 0; row < rows; row++) {
    const float* const source = from + row * from_stride;
    typename Number::Stored* const target = stored + row * to_stride;
    ACCEL_VECTORISE
    for (int64_t i = 0; i < columns; i++) target[i] = Number::store(source[i]);
  }
}

void unpack(const float* from, int64_t from_stride, int64_t rows, int64_t columns, void* to, Format format,
            int64_t to_stride) {
  with_number(format,
              [&](auto number) { unpack_as<decltype(number)>(from, from_stride, rows, columns, to, to_stride); });
}

void add_row(const float* row, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
  for (int64_t i = 0; i < rows; i++, to += to_stride) {
    ACCEL_VECTORISE
    for (int64_t column = 0; column < columns; column++) to[column] += row[column];
  }
}

}  // namespace

PackingKernels packing_kernels() { return {pack, unpack, add_row}; }

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
