// SPDX-License-Identifier: Apache-2.0
// Autotune table of matmuls: the size from which an alternative kernel is faster than LibTorch's default on this
// processor. The alternative is tiled_matmul.hpp for float32, and float32 arithmetic for half precision
// (emulated_matmul.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace accel::kernels {

// The memory layout of the two matrices: both row-major, or one of them transposed. Others keep the default kernel.
enum class Layout : uint8_t { kPlain, kSecondTransposed, kFirstTransposed };
// By the smallest of the three sizes; smaller ones than skinny keep the default kernel.
enum class Shape : uint8_t { kSkinny, kBulky };

// The sizes of a (batched) matrix multiplication.
struct Gemm {
  int64_t batch, rows, inner, columns;
  Layout layout;

  double multiply_adds() const {
    return static_cast<double>(batch) * static_cast<double>(rows) * static_cast<double>(inner) *
           static_cast<double>(columns);
  }
};

class AutotuneTable {
 public:
  // Seconds that a matmul takes with the alternative kernel, or with the default.
  using Timer = std::function<double(const Gemm& gemm, bool alternative)>;

  // False for float32 matmuls that are too small for any table to select the alternative: the fixed cost decides.
  static bool may_select(const Gemm& gemm);
  // False where one of the sizes is so small that no table selects the alternative in any dtype.
  static bool is_wide_enough(const Gemm& gemm);

  // From a size that pays on every processor on which the alternative is faster at all.
  static AutotuneTable always();
  // From this number of multiply-adds.
  static AutotuneTable from(double min_multiply_adds);
  // Takes at most 65 measurements. The alternative is selected where it takes at most this fraction of the default's
  // time for a large matmul.
  static AutotuneTable measure(const Timer& time, double max_time);

  bool selects(const Gemm& gemm) const;  // the alternative
  bool selects_any() const;
  bool selects_all() const;  // large matmuls of every layout and shape

  std::string to_json() const;
  // Nothing for text that to_json() did not write.
  static std::optional<AutotuneTable> from_json(const std::string& document);

  bool operator==(const AutotuneTable& other) const { return thresholds_ == other.thresholds_; }

 private:
  static constexpr size_t kLayouts = 3;
  static constexpr size_t kShapes = 2;
  double& threshold(Layout layout, Shape shape);
  double threshold(Layout layout, Shape shape) const;

  std::array<double, kLayouts * kShapes> thresholds_{};  // multiply-adds; 0: never
};

}  // namespace accel::kernels
