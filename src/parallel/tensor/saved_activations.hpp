// SPDX-License-Identifier: Apache-2.0
// Saved activations: what the forward of a transformer keeps for its backward on one rank, from the shapes of its
// layers alone (Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/tensor/matched_plan.hpp"

namespace accel::parallel {

struct ActivationSizes {
  int64_t tokens = 0;             // of a micro-batch, for the ranks that share layers
  int64_t product_bytes = 4;      // of an element that products and attention read and return
  int64_t function_bytes = 4;     // of what attention and activation functions keep of these
  int64_t input_bytes = 4;        // of what products keep of their inputs
  int64_t residual_bytes = 4;     // of an element that normalizations read
  bool has_own_copies = false;    // each product keeps a copy of its input, which nothing shares
  int64_t tensor_ranks = 1;       // that share the layers of the plan
  bool splits_sequences = false;  // sequence_parallel
  bool regathers_inputs = true;   // layers with split outputs keep the positions of the rank
  bool splits_scores = false;     // loss_parallel
  bool repeats_keys = true;       // for the query heads that share them; attention of split sequences does not
};

// The bytes that the layers keep. A normalization keeps its input, and one without a bias what it scales, too; layers
// with the same input keep it once; what layers with split outputs return is saved by the attention, or by the
// activation function; attention keeps its output, which the next layer reads, and a float32 for each head and
// position; a loss keeps the scores of a head. Of the modules at the paths `recomputed` the inputs are saved, and what
// is inside of one at a time, in the backward. Not included: the scores of attention, which kernels keep only to drop
// some of its weights.
int64_t saved_activation_bytes(const MatchedPlan& plan, const ActivationSizes& sizes,
                               const std::vector<std::string>& recomputed);

}  // namespace accel::parallel
