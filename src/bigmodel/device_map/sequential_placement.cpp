// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/device_map/sequential_placement.hpp"

#include <algorithm>

namespace accel::bigmodel {
namespace {

// The last member first, as in the queue.
std::vector<int32_t> queue_of_members(const ModuleTree& tree) {
  std::vector<int32_t> queue;
  tree.for_each_member(0, [&](int32_t member) { queue.push_back(member); });
  std::reverse(queue.begin(), queue.end());
  return queue;
}

// The members that replace a module, the last first.
std::vector<int32_t> parameters_and_children(const ModuleTree& tree, int32_t module) {
  std::vector<int32_t> members;
  tree.for_each_member(module, [&](int32_t member) {
    if (tree[member].kind != NodeKind::kBuffer) members.push_back(member);
  });
  std::reverse(members.begin(), members.end());
  return members;
}

}  // namespace

SequentialPlacement::SequentialPlacement(const ModuleTree& tree, const Ties& ties, std::vector<Tier> tiers,
                                         TieRule rule, bool fallback_allocation)
    : tree_(tree),
      ties_(ties),
      rule_(rule),
      fallback_allocation_(fallback_allocation),
      queue_(queue_of_members(tree)),
      queued_(static_cast<size_t>(tree.size()), false),
      largest_layers_(tree, queue_) {
  for (const int32_t item : queue_) queued_[static_cast<size_t>(item)] = true;
  placement_.tiers = std::move(tiers);
}

std::optional<Placement> SequentialPlacement::run() {
  while (!queue_.empty() && !has_failed_) {
    if (is_queued(queue_.back()))
      treat(pop_front());
    else
      queue_.pop_back();
  }
  if (has_failed_) return std::nullopt;
  std::sort(left_buffers_.begin(), left_buffers_.end());
  place_buffers(tree_, left_buffers_, placement_);
  return std::move(placement_);
}

std::optional<int32_t> SequentialPlacement::item_of(int32_t node) const {
  while (node > 0 && !is_queued(node)) node = tree_[node].parent;
  return node > 0 ? std::optional(node) : std::nullopt;
}

int32_t SequentialPlacement::pop_front() {
  const int32_t item = queue_.back();
  queue_.pop_back();
  remove(item);
  return item;
}

void SequentialPlacement::push_front(int32_t item) {
  queue_.push_back(item);
  queued_[static_cast<size_t>(item)] = true;
  largest_layers_.enqueue(item);
}

void SequentialPlacement::remove(int32_t item) {
  queued_[static_cast<size_t>(item)] = false;
  largest_layers_.dequeue(item);
}

void SequentialPlacement::replace_by_members(int32_t item) {
  const auto place = queue_.erase(std::find(queue_.begin(), queue_.end(), item));
  remove(item);
  insert_members(item, place);
}

void SequentialPlacement::insert_members(int32_t item, std::vector<int32_t>::iterator place) {
  const std::vector<int32_t> members = parameters_and_children(tree_, item);
  queue_.insert(place, members.begin(), members.end());
  for (const int32_t member : members) {
    queued_[static_cast<size_t>(member)] = true;
    largest_layers_.enqueue(member);
  }
  largest_layers_.replaced(item);
  tree_.for_each_member(item, [&](int32_t member) {
    if (tree_[member].kind == NodeKind::kBuffer) left_buffers_.push_back(member);
  });
}

void SequentialPlacement::treat(int32_t item) {
  largest_layers_.look_at(item);
  std::optional<TiedItems> tied = with_ties(item);
  has_failed_ = !tied.has_value();
  if (has_failed_) return;
  const double reserved = tier().computes_offloaded ? largest_layers_.bytes() : 0;
  const double available = tier().limit - reserved - tier().used;
  const Step step{StepKind::kPlaced, item, current_, tied->size, available, reserved, std::move(tied->items)};
  if (step.needed <= available) return place(step);
  const double size = tree_[item].size;
  if (!step.tied.empty() && size <= available && split_tied(step)) return;
  if (size >= available && tree_[item].may_split) return split(step);
  const bool is_unused = tier().used == 0;
  if (is_unused && fallback_allocation_ && take_fallback(step)) return;
  if (is_unused) tier().minimum = step.needed + reserved;
  if (!has_failed_) use_next_tier(step);
}

std::optional<TiedItems> SequentialPlacement::with_ties(int32_t item) const {
  if (tree_.ties().empty()) return TiedItems{tree_[item].size, {}};
  const auto find_item = [this, item](int32_t node) {
    return tree_.contains(item, node) ? std::optional(item) : item_of(node);
  };
  if (rule_ == TieRule::kConnected) return ties_.together_with(item, find_item);
  return size_with_ties(tree_, tree_[item].size, ties_.tied_to(item), [this](int32_t node) { return item_of(node); });
}

void SequentialPlacement::place(const Step& step) {
  const bool is_fallback = std::find(fallbacks_.begin(), fallbacks_.end(), step.node) != fallbacks_.end();
  placement_.steps.push_back(step);
  if (is_fallback) placement_.steps.back().kind = StepKind::kFallback;
  placement_.placed.emplace_back(step.node, current_);
  tier().used += step.needed;
  for (const int32_t item : step.tied) {
    if (!is_queued(item)) continue;  // it has several of the parameters
    remove(item);
    placement_.placed.emplace_back(item, current_);
  }
}

bool SequentialPlacement::split_tied(const Step& step) {
  const auto item = std::find_if(step.tied.begin(), step.tied.end(), [&](int32_t one) { return tree_[one].may_split; });
  if (item == step.tied.end()) return false;
  placement_.steps.push_back(step);
  placement_.steps.back().kind = StepKind::kTiedSplit;
  placement_.steps.back().tied = {*item};
  replace_by_members(*item);
  push_front(step.node);
  largest_layers_.measure();
  return true;
}

void SequentialPlacement::split(const Step& step) {
  placement_.steps.push_back(step);
  placement_.steps.back().kind = StepKind::kSplit;
  insert_members(step.node, queue_.end());
  largest_layers_.measure();
}

// The first module of the queue, or in one of it, that leaves room for the item and the largest layer.
std::optional<int32_t> SequentialPlacement::find_fallback(double limit) {
  std::vector<int32_t> search;
  std::copy_if(queue_.begin(), queue_.end(), std::back_inserter(search), [&](int32_t item) { return is_queued(item); });
  const auto item_in_search = [&](int32_t node) {
    const auto item =
        std::find_if(search.begin(), search.end(), [&](int32_t one) { return tree_.contains(one, node); });
    return item == search.end() ? std::nullopt : std::optional(*item);
  };
  while (!search.empty()) {
    const int32_t item = search.back();
    search.pop_back();
    if (rule_ == TieRule::kConnected) {
      if (tree_[item].size <= limit && !ties_.reach_outside(item)) return item;
    } else {
      const auto tied = size_with_ties(tree_, tree_[item].size, ties_.tied_to(item), item_in_search);
      has_failed_ = !tied.has_value();
      if (has_failed_) return std::nullopt;
      if (tied->size <= limit) return item;
    }
    if (!tree_[item].may_split) continue;
    const std::vector<int32_t> members = parameters_and_children(tree_, item);
    search.insert(search.end(), members.begin(), members.end());
  }
  return std::nullopt;
}

bool SequentialPlacement::take_fallback(const Step& step) {
  const double limit = tier().limit - std::max(largest_layers_.bytes(), step.needed);
  const auto found = limit >= 0 ? find_fallback(limit) : std::nullopt;
  if (!found) return false;
  // One that ties keep from being placed could be taken again and again.
  has_failed_ = std::find(fallbacks_.begin(), fallbacks_.end(), *found) != fallbacks_.end();
  if (has_failed_) return false;
  fallbacks_.push_back(*found);
  std::vector<int32_t> ancestors;
  for (int32_t node = tree_[*found].parent; node > 0; node = tree_[node].parent) ancestors.push_back(node);
  for (auto node = ancestors.rbegin(); node != ancestors.rend(); ++node)
    if (is_queued(*node)) replace_by_members(*node);
  queue_.erase(std::find(queue_.begin(), queue_.end(), *found));
  remove(*found);
  push_front(step.node);
  push_front(*found);
  return true;
}

void SequentialPlacement::use_next_tier(const Step& step) {
  if (static_cast<size_t>(current_) + 1 == placement_.tiers.size())
    fail_without_room(tree_, step.node, step.needed, placement_.tiers);
  placement_.steps.push_back(step);
  placement_.steps.back().kind = StepKind::kNextTier;
  tier().used += step.reserved;
  current_++;
  push_front(step.node);
}

}  // namespace accel::bigmodel
