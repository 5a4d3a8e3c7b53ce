// SPDX-License-Identifier: Apache-2.0
// Overrides of LibTorch's operators that act where a sequence or classes are split, whoever calls them. In the scope of
// a split sequence (split_sequence.hpp) scaled_dot_product_attention is of the whole sequence, and the mean of
// cross_entropy_loss is over the targets of all ranks. Of split scores (split_classes.hpp) cross_entropy_loss is that
// over all classes. Other calls reach LibTorch's operators.
#pragma once

#include <c10/core/Device.h>

namespace accel::nn {

// Once for each kind of device, at the first split sequence on it: programs without one keep LibTorch's operators as
// they are.
void install_split_operators(c10::Device device);

// At the first split classes; softmax and others that would mix the classes of one rank then refuse their scores, too.
void install_split_classes(c10::Device device);

}  // namespace accel::nn
