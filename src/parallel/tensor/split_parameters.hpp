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

// A dimension that is cut: into tensors behind each other, each of which is shared among the ranks.
struct DimensionCut {
  size_t dim = 0;
  std::vector<int64_t> packed;  // sizes of these tensors, which together are the dimension
  int64_t inseparable = 1;      // elements that stay together: those of a head

  bool operator==(const DimensionCut& other) const {
    return dim == other.dim && packed == other.packed && inseparable == other.inseparable;
  }
};

// The part of rank `rank` of `ranks`. Sizes of parts differ by at most one, or one head.
tensor::Placement split_placement(std::vector<int64_t> shape, const DimensionCut& cut, int64_t rank, int64_t ranks,
                                  const std::string& axis);

// The sizes of packed tensors in a dimension, of which the rule may give the number alone.
std::vector<int64_t> packed_sizes(const SplitRule& rule, int64_t size, const std::string& path);

}  // namespace accel::parallel
