// SPDX-License-Identifier: Apache-2.0
// Known products: products of matrices of small integers, which floating point computes without rounding in any order,
// by each of the processor's units for them. The results are known from a constant in the source.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accel::program {

class KnownProducts {
 public:
  static constexpr size_t kSize = 64;                 // of the square matrices
  static constexpr size_t kElements = kSize * kSize;  // of one
  static constexpr size_t kPairs = 16;

  KnownProducts();

  // Computes one product by each unit, with another pair of matrices each time. Returns the first wrong element, or
  // nothing.
  std::optional<std::string> check(uint64_t round) const;
  size_t products_of_round() const { return units_.size(); }
  // Whether the results that this processor computed when the object was made have the known checksum.
  bool are_results_right() const;
  // For tests: a result that no processor gives.
  void falsify(size_t pair, size_t element) { results_[pair][element]++; }

 private:
  using Matrix = std::array<int32_t, kElements>;
  struct Unit {
    const char* name;
    // Writes the result as integers.
    void (*multiply)(const int32_t* left, const int32_t* right, int32_t* result);
  };

  std::vector<Unit> units_;
  std::vector<Matrix> lefts_, rights_, results_;
};

}  // namespace accel::program
