// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/sharding_schedule.hpp"

#include <algorithm>
#include <utility>

#include "config/generated/settings/prepare/fsdp.hpp"

namespace accel::parallel {

using ShardingKind = ShardingAction::Kind;

bool reshards_after_forward(const FsdpSettings& settings) {
  const ShardingStrategy strategy = settings.sharding_strategy;
  if (settings.reshard_group_size == 1) return false;  // each rank keeps all
  return settings.reshard_after_forward.value_or(strategy == ShardingStrategy::kFullShard ||
                                                 strategy == ShardingStrategy::kHybridShard);
}

ShardingSchedule::ShardingSchedule(std::vector<size_t> expected, const FsdpSettings& settings)
    : limits_gathers_(settings.limit_all_gathers),
      prefetches_forward_(settings.forward_prefetch),
      backward_prefetch_(settings.backward_prefetch),
      reshards_after_forward_(reshards_after_forward(settings)),
      groups_(expected.size()),
      order_(std::move(expected)) {}

ShardingActions ShardingSchedule::begin_forward(bool records) {
  ShardingActions actions;
  reshard_all(actions);
  order_.end_pass(/*keep_calls=*/std::exchange(records_, records) && records);
  is_expected_ = true;
  return actions;
}

ShardingActions ShardingSchedule::begin_module(size_t group) {
  ShardingActions actions{{ShardingKind::kUnshard, group}};
  if (in_backward_) return actions;  // a forward that is computed again
  is_expected_ = order_.use(group) && is_expected_;
  if (prefetches_forward_ && is_expected_)
    for (size_t i = 0; i < std::min(depth(), order_.left_in_pass()); i++)
      actions.push_back({ShardingKind::kStartUnshard, order_.upcoming(i)});
  return actions;
}

ShardingActions ShardingSchedule::end_module(size_t group, const ModuleOutput& output) {
  if (in_backward_) return {};  // its backward comes next
  order_.end_use(group);
  const bool stays = output.is_recorded && (is_root(group) || !reshards_after_forward_);
  if (stays || output.has_parameters) return {};
  ShardingActions actions;
  reshard(output.is_recorded ? ShardingKind::kReshardForBackward : ShardingKind::kReshard, group, actions);
  return actions;
}

bool ShardingSchedule::begin_backward(size_t group) {
  const bool begins = !std::exchange(in_backward_, true);
  if (begins) {
    order_.begin_backward();
    groups_.assign(groups_.size(), {});
  }
  if (reducing_ != group) groups_[group].in_backward = true;  // else its gradients are complete
  return begins;
}

ShardingActions ShardingSchedule::begin_module_backward(size_t group) {
  begin_backward(group);
  groups_[group].has_inputs = false;
  ShardingActions actions{{ShardingKind::kUnshard, group}};
  order_.use_in_backward(group);
  if (backward_prefetch_ == BackwardPrefetch::kBackwardPre) prefetch_in_backward(actions);
  return actions;
}

void ShardingSchedule::prefetch_in_backward(ShardingActions& actions) const {
  for (const size_t group : order_.upcoming_in_backward(depth()))
    actions.push_back({ShardingKind::kStartUnshard, group});
}

ShardingActions ShardingSchedule::complete_gradients(size_t group, bool exchange, bool has_frozen) {
  ShardingActions actions;
  end_group(group, exchange, actions);
  if (!has_frozen || groups_[group].has_inputs) reshard(ShardingKind::kReshard, group, actions);
  if (backward_prefetch_ == BackwardPrefetch::kBackwardPost) prefetch_in_backward(actions);
  return actions;
}

ShardingActions ShardingSchedule::complete_inputs(size_t group, bool has_gradients) {
  groups_[group].has_inputs = true;
  ShardingActions actions;
  if (has_gradients) reshard(ShardingKind::kReshard, group, actions);
  return actions;
}

void ShardingSchedule::end_group(size_t group, bool exchange, ShardingActions& actions) {
  groups_[group].in_backward = false;
  if (!exchange) {
    actions.push_back({ShardingKind::kKeepGradients, group});
    return;
  }
  finish_reduce(actions);
  actions.push_back({ShardingKind::kStartReduce, group});
  reducing_ = group;
}

void ShardingSchedule::finish_reduce(ShardingActions& actions) {
  if (const auto former = std::exchange(reducing_, std::nullopt))
    actions.push_back({ShardingKind::kFinishReduce, *former});
}

ShardingActions ShardingSchedule::end_backward(bool exchange) {
  ShardingActions actions;
  if (!std::exchange(in_backward_, false)) return actions;
  for (size_t group = groups_.size(); group-- > 0;)
    if (groups_[group].in_backward) end_group(group, exchange, actions);
  finish_reduce(actions);
  for (size_t group = 0; exchange && group < groups_.size(); group++)
    actions.push_back({ShardingKind::kReduceKept, group});
  reshard_all(actions);
  order_.end_pass();
  return actions;
}

// The group of the whole model comes first, as in a forward.
ShardingActions ShardingSchedule::set_micro_batches(bool follow) {
  ShardingActions actions;
  keeps_micro_batches_ = false;
  reshard_all(actions);  // ahead of them what has been gathered may be older than the latest update
  keeps_micro_batches_ = follow && !reshards_after_forward_;
  if (!keeps_micro_batches_) return actions;
  actions.push_back({ShardingKind::kStartUnshard, groups_.size() - 1});
  for (size_t group = 0; group + 1 < groups_.size(); group++) actions.push_back({ShardingKind::kStartUnshard, group});
  return actions;
}

void ShardingSchedule::abandon_backward() {
  in_backward_ = records_ = false;
  reducing_.reset();
  groups_.assign(groups_.size(), {});
  order_.forget();
  is_expected_ = true;
}

void ShardingSchedule::reshard(ShardingKind kind, size_t group, ShardingActions& actions) const {
  if (!keeps_micro_batches_) actions.push_back({kind, group});
}

void ShardingSchedule::reshard_all(ShardingActions& actions) const {
  for (size_t group = 0; group < groups_.size(); group++) reshard(ShardingKind::kReshard, group, actions);
}

}  // namespace accel::parallel
