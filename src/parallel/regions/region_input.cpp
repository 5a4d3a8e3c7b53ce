// SPDX-License-Identifier: Apache-2.0
#include "parallel/regions/region_input.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "parallel/regions/region_entry.hpp"

namespace accel::parallel {

std::shared_ptr<RegionInput> RegionInput::within(nn::Module& parent, const SplitRegion& region, size_t layers) {
  auto input = std::make_shared<RegionInput>(region, layers);
  // Some of the layers may not be called.
  parent.hooks().add_post_hook(
      [input](nn::Module&, const nn::Inputs&, const c10::IValue&) -> std::optional<c10::IValue> {
        input->forget();
        return std::nullopt;
      },
      nn::HookOrder::kProgram, /*after_errors=*/true);
  return input;
}

void RegionInput::forget() {
  held_ = {};
  entry_.reset();
}

// A tensor that entered before is found again while it is held here, or by the graph.
RegionInput::Entered RegionInput::enter(const at::Tensor& input) {
  if (!region_.sequence_parallel && !input.requires_grad()) return {input, nullptr, input};
  const Weak key(input.getIntrusivePtr());
  if (input_ == key) {
    auto entry = entry_.lock();
    auto entered = entered_.lock();
    if (entry != nullptr && entered) {
      if (++reads_ == layers_) held_ = {};
      return {at::Tensor(std::move(entered)), std::move(entry), input};
    }
  }
  auto entry = std::make_shared<RegionEntry>(input, region_);
  Entered made{entry->take_whole(), entry, input};
  input_ = key;
  entered_ = Weak(made.whole.getIntrusivePtr());
  entry_ = entry;
  reads_ = 1;
  if (layers_ > 1) held_ = {made.whole, made.entry, at::Tensor()};
  return made;
}

}  // namespace accel::parallel
