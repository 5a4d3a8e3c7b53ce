// SPDX-License-Identifier: Apache-2.0
// Split parameters: which part of each parameter a rank has under a plan.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.hpp"
#include "parallel/tensor/plan.hpp"
#include "tensor/placement.hpp"

namespace accel::parallel {

// How one of the tensors that a dimension has behind each other is shared among the ranks.
struct PackedCut {
  int64_t size = 0;
  int64_t inseparable = 1;  // elements that stay together: those of a head
  int64_t copies = 1;       // neighbouring ranks that store the same part: there are fewer key heads than ranks

  bool operator==(const PackedCut& other) const {
    return size == other.size && inseparable == other.inseparable && copies == other.copies;
  }
};

// A dimension that is cut.
struct DimensionCut {
  size_t dim = 0;
  std::vector<PackedCut> packed;  // which together are the dimension

  bool operator==(const DimensionCut& other) const { return dim == other.dim && packed == other.packed; }
};

// The part of rank `rank` of `ranks`. Sizes of parts differ by at most one, or one head. The first of several ranks
// with the same part counts it.
tensor::Placement split_placement(std::vector<int64_t> shape, const DimensionCut& cut, int64_t rank, int64_t ranks,
                                  const std::string& axis);

// The sizes of packed tensors in a dimension, of which the rule may give the number alone.
std::vector<int64_t> packed_sizes(const SplitRule& rule, int64_t size, const std::string& path);

}  // namespace accel::parallel
