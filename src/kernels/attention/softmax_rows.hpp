// SPDX-License-Identifier: Apache-2.0
// Softmax of a cross-entropy loss over rows of class scores, in two passes: one computes the sums of each row, the
// other replaces the scores by the loss's gradient. Probabilities are never stored. The source is compiled once for
// each instruction set, see kernels.hpp.
#pragma once

#include <cstdint>

#include "kernels/update/element_span.hpp"

namespace accel::kernels {

// Row-major and contiguous.
struct ScoreRows {
  void* scores = nullptr;
  int64_t classes = 0;
  const int64_t* targets = nullptr;    // the class of each row; -1: none of these
  const void* class_weight = nullptr;  // of each class, float64 for scores of float64, else float32; null: 1
  Format format = Format::kFloat;
  bool sums_scores = false;  // whether RowSums::weighted is computed
};

struct RowSums {
  double largest;   // score
  double sum;       // of exp(score - largest)
  double weighted;  // sum of class_weight * score
  double target;    // the score of the target, or 0
};

// The gradient is probability * softmax - smoothing * class_weight, and less by `target` at the target.
struct RowFactors {
  double probability;
  double smoothing;
  double target;
};

struct SoftmaxKernels {
  // Rows [first, last).
  void (*measure)(const ScoreRows& rows, int64_t first, int64_t last, RowSums* sums);
  void (*differentiate)(const ScoreRows& rows, int64_t first, int64_t last, const RowSums* sums,
                        const RowFactors* factors);
};

namespace baseline {
SoftmaxKernels softmax_kernels();
}
namespace avx2 {
SoftmaxKernels softmax_kernels();
}
namespace avx512 {
SoftmaxKernels softmax_kernels();
}

}  // namespace accel::kernels
