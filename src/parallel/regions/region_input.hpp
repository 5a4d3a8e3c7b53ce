// SPDX-License-Identifier: Apache-2.0
// Region input: a tensor that enters a region of a split model once, although several of its layers read it, so that
// its gradient is summed over the ranks once.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "nn/module.hpp"
#include "parallel/regions/split_region.hpp"

namespace accel::parallel {

class RegionEntry;

class RegionInput {
 public:
  // A layer reads the tensor, and shares the entry with the others that read it; null: nothing is computed from it
  // backward, and the ranks have it as a whole.
  struct Entered {
    at::Tensor whole;
    std::shared_ptr<RegionEntry> entry;
    at::Tensor part;  // the tensor before it entered
  };

  // For so many layers.
  RegionInput(SplitRegion region, size_t layers) : region_(std::move(region)), layers_(layers) {}
  // For layers that are called within `parent`.
  static std::shared_ptr<RegionInput> within(nn::Module& parent, const SplitRegion& region, size_t layers);

  // An input returns the same tensor again, while that one exists or further layers are to read it.
  Entered enter(const at::Tensor& input);

 private:
  using Weak = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;

  void forget();

  SplitRegion region_;
  size_t layers_;
  Weak input_{c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>()}, entered_ = input_;
  std::weak_ptr<RegionEntry> entry_;
  size_t reads_ = 0;  // of what has entered
  Entered held_;      // until all layers have read it
};

}  // namespace accel::parallel
