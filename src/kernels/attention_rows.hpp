// Softmax of attention scores and its backward, row by row, between the matmuls of attention. The source is compiled
// once for each instruction set, see kernels.hpp.
#pragma once

#include <cstdint>

#include "kernels/element_span.hpp"

namespace accel::kernels {

constexpr int64_t kMaxKeys = kBlock;  // a row stays in the L1 cache

// Scores are query * key^T before scaling: a row for each query of each head, contiguous.
struct AttentionRows {
  float* scores = nullptr;
  int64_t queries = 0;     // of a head
  int64_t keys = 0;        // at most kMaxKeys
  bool is_causal = false;  // a query attends to the keys up to its own position
  float scale = 1;
  // Outputs: the probabilities, and in backward the gradients of the unscaled scores; float32 or bfloat16. They may
  // alias the scores and the gradients.
  ElementSpan probabilities;
  ElementSpan score_gradients;
};

struct AttentionKernels {
  // Rows [first, last). `logsumexp` receives the logarithm of each row's sum of exponentials.
  void (*normalize)(const AttentionRows& rows, int64_t first, int64_t last, float* logsumexp);
  // `gradients` are those of the probabilities, `inner` the inner products of each row's gradients and probabilities.
  void (*differentiate)(const AttentionRows& rows, int64_t first, int64_t last, const float* logsumexp,
                        const float* gradients, const float* inner);
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
