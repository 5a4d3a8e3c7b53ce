#include "parallel/regions/region_input.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "parallel/regions/sequence_region.hpp"

namespace accel::parallel {

std::shared_ptr<RegionInput> RegionInput::within(nn::Module& parent, RankGroup group, bool gathers) {
  auto region = std::make_shared<RegionInput>(std::move(group), gathers);
  const auto set_in_call = [region](bool in_call) {
    region->in_call_ = in_call;
    region->held_.reset();
  };
  parent.hooks().add_pre_hook([set_in_call](nn::Module&, const nn::Inputs&) -> std::optional<nn::Inputs> {
    set_in_call(true);
    return std::nullopt;
  });
  parent.hooks().add_post_hook(
      [set_in_call](nn::Module&, const nn::Inputs&, const c10::IValue&) -> std::optional<c10::IValue> {
        set_in_call(false);
        return std::nullopt;
      },
      nn::HookOrder::kProgram, /*after_errors=*/true);
  return region;
}

// A tensor that the graph saves outlives the call: a forward that is computed again, without hooks, finds it so.
at::Tensor RegionInput::enter(const at::Tensor& input) {
  if (!gathers_ && !input.requires_grad()) return input;
  const Weak key(input.getIntrusivePtr());
  if (input_ == key)
    if (auto entered = entered_.lock()) return at::Tensor(std::move(entered));
  at::Tensor entered = gathers_ ? gather_sequence(input, group_) : parallel_copy(input, group_);
  input_ = key;
  entered_ = Weak(entered.getIntrusivePtr());
  if (in_call_) held_ = entered;
  return entered;
}

}  // namespace accel::parallel
