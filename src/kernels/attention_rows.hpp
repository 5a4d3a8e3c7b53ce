// What attention does between its products: softmax over rows of scores, and its backward. The source is compiled once
// for each instruction set, see kernels.hpp.
#pragma once

#include <cstdint>

#include "kernels/stream.hpp"

namespace accel::kernels {

constexpr int64_t kMostKeys = kBlock;  // a row is worked on in the first-level cache

// Scores are the products of queries and keys before they are scaled: a row for each query of each head, without gaps.
struct AttentionRows {
  float* scores = nullptr;
  int64_t queries = 0;     // of a head
  int64_t keys = 0;        // at most kMostKeys
  bool is_causal = false;  // a query sees the keys up to its own place
  float scale = 1;
  // Receive the probabilities, and in a backward the gradients of the scores before they were scaled: float32 or
  // bfloat16. They may be the scores' and the gradients' own memory.
  Stream probabilities;
  Stream score_gradients;
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
