// Region input: a tensor that enters a region of a split model once, although several of its layers read it, so that
// its gradient is summed over the ranks once.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <utility>

#include "nn/module.hpp"
#include "parallel/regions/parallel_operators.hpp"

namespace accel::parallel {

class RegionInput {
 public:
  // `gathers`: ranks have their positions of the sequence alone.
  RegionInput(RankGroup group, bool gathers) : group_(std::move(group)), gathers_(gathers) {}
  // For layers that are called within `parent`.
  static std::shared_ptr<RegionInput> within(nn::Module& parent, RankGroup group, bool gathers);

  // Enters by parallel_copy(), or gathers the sequence. The same input returns the same tensor while that one exists.
  at::Tensor enter(const at::Tensor& input);

 private:
  using Weak = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;

  RankGroup group_;
  bool gathers_;
  Weak input_{c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>()}, entered_ = input_;
  bool in_call_ = false;  // of the parent
  at::Tensor held_;       // what entered last in it
};

}  // namespace accel::parallel
