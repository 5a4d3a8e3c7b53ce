// SPDX-License-Identifier: Apache-2.0
// Split classes: class scores of which each rank of a group has some classes, and weights of layers that compute such
// scores. The cross entropy of what is marked here is that over all classes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/class_scores.hpp"

namespace accel::nn {

struct SplitClasses {
  std::shared_ptr<const kernels::ClassShare> share;
  // The input of the layer that computes the scores, as it enters the region of split classes: its gradient is summed
  // over the ranks.
  std::function<at::Tensor(const at::Tensor& input)> enter;
};
using SplitClassesPtr = std::shared_ptr<const SplitClasses>;

// Returns scores [..., classes of this rank] for a loss over all classes. They must require a gradient: what is
// computed from them without mixing classes, such as a view, a part of the rows, another dtype, is known by the graph,
// which owns the classes.
at::Tensor mark_split_scores(const at::Tensor& scores, SplitClassesPtr classes);
// Null if each rank has the scores of all classes. `dim` is that of the classes. kUnsupported for what is computed from
// split scores and another tensor that requires a gradient.
SplitClassesPtr split_classes_of_scores(const at::Tensor& scores, int64_t dim);

// A weight [classes of this rank, features], for accel::linear_cross_entropy. The classes are owned by the layer that
// has the weight, or by the mark: until the weight is gone and another one is marked.
enum class ClassesOwner : uint8_t { kLayer, kMark };
void mark_split_weight(const at::Tensor& weight, const SplitClassesPtr& classes,
                       ClassesOwner owner = ClassesOwner::kLayer);
// Null for another tensor than a marked weight, or its values in another dtype. kInvalidState if nothing owns the
// classes any more.
SplitClassesPtr split_classes_of_weight(const at::Tensor& weight);

}  // namespace accel::nn
