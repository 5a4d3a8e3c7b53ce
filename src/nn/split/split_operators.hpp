// Overrides of LibTorch's operators that act where a sequence is split (split_sequence.hpp), whoever calls them:
// scaled_dot_product_attention is of the whole sequence, and the mean of cross_entropy_loss is over the targets of all
// ranks. Other calls reach LibTorch's operators.
#pragma once

namespace accel::nn {

// Once for the process, at the first split sequence: programs without one keep LibTorch's operators as they are.
void install_split_operators();

}  // namespace accel::nn
