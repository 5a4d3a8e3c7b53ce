// SPDX-License-Identifier: Apache-2.0
#include "optim/open_step.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <utility>

#include "optim/parameter_state.hpp"
#include "precision/overflow_flag.hpp"

namespace accel::optim {
namespace {

// Values of dense tensors of one device, to be put back where a flag of the device says so, without the host.
class FormerValues {
 public:
  explicit FormerValues(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.numel() == 0) continue;
      auto list = std::find_if(lists_.begin(), lists_.end(), [&](const List& other) {
        return other.tensors[0].scalar_type() == tensor.scalar_type();
      });
      if (list == lists_.end()) list = lists_.emplace(lists_.end());
      list->tensors.push_back(tensor.as_strided({tensor.numel()}, {1}));
    }
    for (List& list : lists_) list.values = at::cat(list.tensors);
  }

  void put_back_if(const at::Tensor& flag) const {
    for (const List& list : lists_) {
      std::vector<int64_t> sizes;
      for (const at::Tensor& tensor : list.tensors) sizes.push_back(tensor.numel());
      const at::Tensor chosen = at::where(flag.ne(0), list.values, at::cat(list.tensors));
      at::_foreach_copy_(list.tensors, chosen.split_with_sizes(sizes));
    }
  }

 private:
  struct List {
    std::vector<at::Tensor> tensors;  // as vectors, in the order of their memory
    at::Tensor values;
  };
  std::vector<List> lists_;
};

// Tensors on the device that an update changes.
std::vector<at::Tensor> changed_by(const Update& update) {
  const ParameterState& state = *update.state;
  std::vector<at::Tensor> changed{update.parameter};
  for (const StateValue& value : state.values)
    for (const at::Tensor& tensor : {value.tensor, value.scales})
      if (tensor.defined() && !tensor.is_cpu()) changed.push_back(tensor);
  return changed;
}

}  // namespace

void OpenStep::note(size_t index, const ParameterState& state) {
  if (overflow_ == nullptr) return;
  Former former{index, state, {}};
  for (const at::Tensor& number : host_numbers(state)) former.numbers.push_back(number.item<float>());
  former_.push_back(std::move(former));
}

void OpenStep::update(const UpdateRule& rule, const ParameterGroup& group, std::vector<Update>& updates) const {
  if (overflow_ == nullptr) return rule.update(group, updates);
  const at::Tensor& flag = overflow_->tensor();
  if (rule.reads_overflow()) {
    for (Update& update : updates) update.overflow = flag;
    rule.update(group, updates);
  } else {
    std::vector<at::Tensor> changed;
    for (const Update& update : updates)
      for (const at::Tensor& tensor : changed_by(update)) changed.push_back(tensor);
    const FormerValues former(changed);
    rule.update(group, updates);
    former.put_back_if(flag);
    std::vector<at::Tensor> rounded, values;  // are of the step that has been skipped, or right
    for (const Update& update : updates) {
      if (!update.rounded.defined()) continue;
      rounded.push_back(update.rounded);
      values.push_back(update.parameter);
    }
    if (!rounded.empty()) at::_foreach_copy_(rounded, values);
  }
  std::vector<at::Tensor> counts;
  for (const Update& update : updates)
    if (const at::Tensor& step = update.state->step; step.defined() && !step.is_cpu()) counts.push_back(step);
  if (!counts.empty()) at::_foreach_sub_(counts, std::vector<at::Tensor>(counts.size(), flag));
}

std::optional<size_t> OpenStep::most_bytes(const UpdateRule& rule) const {
  if (overflow_ == nullptr || rule.reads_overflow()) return std::nullopt;
  constexpr size_t kMostBytes = 64 << 20;
  return kMostBytes / (3 * (1 + rule.state_entries().size()));  // former, new and chosen values
}

bool OpenStep::was_skipped() const { return overflow_ != nullptr && overflow_->value(); }

void OpenStep::settle(std::vector<ParameterState>& states) {
  const bool skipped = was_skipped();
  const std::vector<Former> noted = std::move(former_);
  former_.clear();
  if (!skipped) return;
  for (const Former& former : noted) {
    states[former.index] = former.state;
    size_t place = 0;
    for (const at::Tensor& number : host_numbers(former.state))
      *number.mutable_data_ptr<float>() = former.numbers[place++];
  }
}

}  // namespace accel::optim
