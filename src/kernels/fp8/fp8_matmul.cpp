// SPDX-License-Identifier: Apache-2.0
#include "kernels/fp8/fp8_matmul.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <type_traits>

#include "base/error.hpp"
#include "kernels/fp8/fp8_kernels.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/matmul/microkernel.hpp"
#include "kernels/parallel.hpp"
#include "kernels/update/elementwise.hpp"

namespace accel::kernels {
namespace {

constexpr int64_t kLinesPerTile = 64;
constexpr int64_t kPanelColumns = 64;              // of the second matrix, which is packed panel by panel
constexpr int64_t kUnitsPacked = 256;              // of a panel at a time, a multiple of a block of scales
constexpr int64_t kMinProductsOfThread = 1 << 20;  // multiply-adds

int64_t tiles_for(int64_t count, int64_t size) { return (count + size - 1) / size; }

// An operand as lines, which are rows of the first matrix or columns of the second one.
class Fp8Lines {
 public:
  explicit Fp8Lines(const Fp8Matrix& lines)
      : values_(lines.values),
        scales_(lines.scales),
        granularity_(granularity_of(lines)),
        is_transposed_(values_.stride(1) != 1 && values_.size(1) != 1) {
    if (has_blocks()) block_scales_ = is_transposed_ ? scales_.t().contiguous() : scales_;
  }

  const at::Tensor& values() const { return values_; }
  int64_t count() const { return values_.size(0); }
  Fp8PackSource source() const {
    const int64_t stride = is_transposed_         ? values_.stride(1)
                           : values_.size(0) == 1 ? values_.size(1)
                                                  : values_.stride(0);
    Fp8PackSource source{static_cast<const uint8_t*>(values_.const_data_ptr()), stride,
                         float8_format(values_.scalar_type()), is_transposed_, Fp8BlockScales()};
    if (has_blocks()) {
      const int64_t of_row = block_scales_.size(1);
      source.scales = {block_scales_.const_data_ptr<float>(), is_transposed_ ? 1 : of_row, is_transposed_ ? of_row : 1};
    }
    return source;
  }
  // The numbers that are multiplied.
  at::Tensor in_float32() const {
    const at::Tensor dense = values_.is_non_overlapping_and_dense() ? values_ : values_.contiguous();
    return dequantize({dense, has_blocks() ? scales_ : at::ones({1})}, at::kFloat);
  }
  // The scales of the sums.
  Fp8Scales of_sums() const {
    if (has_blocks()) return {&kOne, 0};
    return {scales_.const_data_ptr<float>(), granularity_ == Fp8Granularity::kRow ? 1 : 0};
  }

 private:
  static constexpr float kOne = 1;

  bool has_blocks() const { return granularity_ == Fp8Granularity::kBlock; }

  const at::Tensor values_, scales_;
  const Fp8Granularity granularity_;
  const bool is_transposed_;
  at::Tensor block_scales_;  // in the order of the values
};

// By a microkernel of bfloat16 or float32, in tiles of 32-bit units (fp8_kernels.hpp).
template <typename Element>
class Fp8Problem {
 public:
  using Kernel = std::conditional_t<std::is_same_v<Element, float>, Microkernel, Bfloat16Microkernel>;

  Fp8Problem(const Fp8Lines& first, const Fp8Lines& second, const Fp8Epilogue& epilogue, const at::Tensor& result)
      : first_(first.source()),
        second_(second.source()),
        epilogue_(epilogue),
        result_(result),
        rows_(first.count()),
        inner_(first.values().size(1)),
        columns_(second.count()),
        units_(tiles_for(inner_, kNumbersOfUnit)) {}

  void run(Kernel kernel) const {
    const int64_t panels = tiles_for(columns_, kPanelColumns);
    const at::Tensor packed = pack_second(panels);
    // A thread takes all panels of a row of tiles, whose first matrix it packs once, unless there are few such rows.
    const int64_t tile_rows = tiles_for(rows_, kLinesPerTile);
    const int64_t parts = tile_rows < 2 * at::get_num_threads() ? panels : 1;
    const int64_t work = inner_ * std::min(rows_, kLinesPerTile) * columns_ / parts;
    parallel_for(tile_rows * parts, tiles_for(kMinProductsOfThread, std::max<int64_t>(1, work)),
                 [&](int64_t begin, int64_t end) {
                   const at::Tensor memory = at::empty({kLinesPerTile * (units_ + kPanelColumns)}, at::kInt);
                   auto* const lines = reinterpret_cast<uint32_t*>(memory.mutable_data_ptr<int32_t>());
                   int64_t packed_row = -1;
                   for (int64_t i = begin; i < end; i++) {
                     const int64_t row = i / parts * kLinesPerTile, height = std::min(kLinesPerTile, rows_ - row);
                     if (row != packed_row) packing_.pack_lines(first_.from(row, 0), height, inner_, lines, units_);
                     packed_row = row;
                     const int64_t panel = i % parts;
                     multiply_row(kernel, lines, packed, row, height, parts == 1 ? 0 : panel,
                                  parts == 1 ? panels : panel + 1);
                   }
                   if (kIsPaired) release_microkernel();
                 });
  }

 private:
  static constexpr bool kIsPaired = sizeof(Element) < sizeof(float);
  static constexpr int64_t kNumbersOfUnit = kIsPaired ? 2 : 1;

  at::Tensor pack_second(int64_t panels) const {
    const at::Tensor packed = at::empty({panels, units_, kPanelColumns}, at::kInt);
    auto* const to = reinterpret_cast<uint32_t*>(packed.mutable_data_ptr<int32_t>());
    const int64_t depths = tiles_for(units_, kUnitsPacked);
    parallel_for(panels * depths, 2, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        const int64_t column = i / depths * kPanelColumns, unit = i % depths * kUnitsPacked;
        const int64_t k = kNumbersOfUnit * unit;
        packing_.pack_columns(second_.from(column, k), std::min(kPanelColumns, columns_ - column),
                              std::min(kNumbersOfUnit * kUnitsPacked, inner_ - k),
                              to + (i / depths * units_ + unit) * kPanelColumns, kPanelColumns);
      }
    });
    return packed;
  }

  // Panels [begin, end) of a row of tiles, whose first matrix is packed in `lines`, with room for a tile behind it.
  void multiply_row(Kernel kernel, uint32_t* lines, const at::Tensor& packed, int64_t row, int64_t height,
                    int64_t begin, int64_t end) const {
    auto* const tile = reinterpret_cast<float*>(lines + kLinesPerTile * units_);
    for (int64_t panel = begin; panel < end; panel++) {
      const int64_t column = panel * kPanelColumns, width = std::min(kPanelColumns, columns_ - column);
      const auto* const second =
          reinterpret_cast<const Element*>(packed.const_data_ptr<int32_t>() + panel * units_ * kPanelColumns);
      const int64_t inner = kNumbersOfUnit * units_;
      multiply_blocks(kernel, height, width, inner, reinterpret_cast<const Element*>(lines), inner, second,
                      kPanelColumns, tile, kPanelColumns, false);
      auto* const to = static_cast<char*>(result_.mutable_data_ptr()) +
                       (row * result_.stride(0) + column) * static_cast<int64_t>(result_.element_size());
      kernels_.finish(tile, kPanelColumns, height, width, epilogue_.from(row, column), to, span_of(result_).format,
                      result_.stride(0));
    }
  }

  const Fp8Kernels kernels_ = ACCEL_FASTEST(fp8_kernels)();
  const Fp8Packing packing_ = kIsPaired ? kernels_.in_bfloat16 : kernels_.in_float32;
  const Fp8PackSource first_, second_;
  const Fp8Epilogue epilogue_;
  const at::Tensor result_;
  const int64_t rows_, inner_, columns_, units_;
};

// By LibTorch, of numbers in float32.
void multiply_in_float32(const Fp8Lines& first, const Fp8Lines& second, const Fp8Epilogue& epilogue,
                         const at::Tensor& result) {
  const at::Tensor sums = at::mm(first.in_float32(), second.in_float32().t());
  const auto finish = ACCEL_FASTEST(fp8_kernels)().finish;
  const auto* const data = sums.const_data_ptr<float>();
  auto* const to = static_cast<char*>(result.mutable_data_ptr());
  const int64_t columns = sums.size(1), row_bytes = result.stride(0) * static_cast<int64_t>(result.element_size());
  parallel_for(sums.size(0), std::max<int64_t>(1, kMinProductsOfThread / 64 / std::max<int64_t>(1, columns)),
               [&](int64_t begin, int64_t end) {
                 finish(data + begin * columns, columns, end - begin, columns, epilogue.from(begin, 0),
                        to + begin * row_bytes, span_of(result).format, result.stride(0));
               });
}

}  // namespace

Fp8Arithmetic fastest_fp8_arithmetic() {
  static const Fp8Arithmetic fastest = bfloat16_support() != Bfloat16Support::kNone && bfloat16_microkernel() != nullptr
                                           ? Fp8Arithmetic::kBfloat16
                                       : load_microkernel() == MicrokernelStatus::kAvailable ? Fp8Arithmetic::kFloat32
                                                                                             : Fp8Arithmetic::kLibTorch;
  return fastest;
}

void fp8_matmul(const Fp8Matrix& first, const Fp8Matrix& second, const at::Tensor& bias, const at::Tensor& result,
                Fp8Arithmetic arithmetic) {
  require(first.values.dim() == 2 && second.values.dim() == 2 && first.values.size(1) == second.values.size(0) &&
              is_float8(first.values.scalar_type()) && is_float8(second.values.scalar_type()),
          Status::kInternal, "8-bit matrices of ", first.values.sizes(), " and ", second.values.sizes(),
          "; expected two whose inner sizes are equal");
  if (result.numel() == 0) return;
  const at::Tensor exact_bias = bias.defined() ? bias.to(at::kFloat).contiguous() : bias;
  const Fp8Lines rows(first), columns({second.values.t(), second.scales});
  const Fp8Epilogue epilogue{rows.of_sums(), columns.of_sums(),
                             bias.defined() ? exact_bias.const_data_ptr<float>() : nullptr};
  if (arithmetic == Fp8Arithmetic::kLibTorch || first.values.size(1) == 0)
    return multiply_in_float32(rows, columns, epilogue, result);
  if (arithmetic == Fp8Arithmetic::kBfloat16)
    return Fp8Problem<uint16_t>(rows, columns, epilogue, result).run(bfloat16_microkernel());
  require(load_microkernel() == MicrokernelStatus::kAvailable, Status::kInternal, "there is no microkernel of float32");
  Fp8Problem<float>(rows, columns, epilogue, result).run(microkernel());
}

}  // namespace accel::kernels
