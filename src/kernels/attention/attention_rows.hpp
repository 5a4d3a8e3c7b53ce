// SPDX-License-Identifier: Apache-2.0
// Softmax of attention scores and its backward, between the matmuls of attention. The source is compiled once for each
// instruction set, see kernels.hpp.
#pragma once

#include <cstdint>

#include "kernels/update/element_span.hpp"

namespace accel::kernels {

constexpr int64_t kMaxKeys = 3072;  // a row stays in the L1 cache, and two strips of rows in most of the L2 cache

// Scores are query * key^T before scaling: a row for each query of each head.
struct AttentionRows {
  float* scores = nullptr;
  int64_t stride = 0;       // of two rows, here and in the outputs
  int64_t queries = 0;      // of a head
  int64_t first_query = 0;  // the position of row 0 in its head
  int64_t keys = 0;         // at most kMaxKeys
  bool is_causal = false;   // a query attends to the keys up to its own position
  float scale = 1;
  // Outputs: the probabilities, and in backward the gradients of the unscaled scores; float32 or bfloat16. They may
  // alias the scores and the gradients.
  ElementSpan probabilities;
  ElementSpan score_gradients;
};

// Scores are key * query^T before scaling: a row for each of some keys, a column for each of some queries of a head.
// The probabilities replace the scores, and the gradients of the unscaled scores those of the probabilities.
struct AttentionColumns {
  float* scores = nullptr;
  float* gradients = nullptr;
  int64_t stride = 0;  // of the rows of both
  int64_t keys = 0;
  int64_t queries = 0;
  bool is_causal = false;  // query i of the columns attends to the keys up to i of the rows
  float scale = 1;
  const float* logsumexp = nullptr;  // of each query
  const float* inner = nullptr;      // the inner product of each query's output and its gradient
};

struct AttentionKernels {
  // Rows [first, last). `logsumexp` receives the logarithm of each row's sum of exponentials.
  void (*normalize)(const AttentionRows& rows, int64_t first, int64_t last, float* logsumexp);
  // `gradients` are those of the probabilities, `inner` the inner products of each row's gradients and probabilities.
  void (*differentiate)(const AttentionRows& rows, int64_t first, int64_t last, const float* logsumexp,
                        const float* gradients, const float* inner);
  void (*differentiate_columns)(const AttentionColumns& columns);
  // The inner product of each pair of rows of `size` elements.
  void (*inner_products)(const float* first, int64_t first_stride, const float* second, int64_t second_stride,
                         int64_t rows, int64_t size, float* results);
};

namespace baseline {
AttentionKernels attention_kernels();
}
namespace avx2 {
AttentionKernels attention_kernels();
}
namespace avx512 {
AttentionKernels attention_kernels();
}

}  // namespace accel::kernels
