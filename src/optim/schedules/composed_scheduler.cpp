// SPDX-License-Identifier: Apache-2.0
#include "optim/schedules/composed_scheduler.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "optim/schedules/scheduler_state.hpp"
#include "tensor/tree.hpp"

namespace accel::optim {

SchedulerParts scheduler_parts(const std::vector<std::shared_ptr<Scheduler>>& schedulers) {
  require(!schedulers.empty(), Status::kInvalidArgument, "no scheduler was given; expected at least one");
  SchedulerParts parts;
  for (size_t i = 0; i < schedulers.size(); ++i) {
    auto part = std::dynamic_pointer_cast<SchedulerPart>(schedulers[i]);
    require(part != nullptr, Status::kInvalidArgument, "scheduler ", i,
            " waits for a plateau or is prepared; expected one that goes by the steps, and prepare the whole");
    require(part->optimizer() == schedulers[0]->optimizer(), Status::kInvalidArgument, "scheduler ", i,
            " drives another optimizer than scheduler 0; expected the same");
    require(std::find(parts.begin(), parts.end(), part) == parts.end(), Status::kInvalidArgument, "scheduler ", i,
            " is there twice; expected each one once");
    parts.push_back(std::move(part));
  }
  return parts;
}

void ComposedScheduler::note_rates() {
  last_lrs_.clear();
  for (const ParameterGroup& group : optimizer()->groups()) last_lrs_.push_back(group.lr);
}

void ComposedScheduler::reset_rates() {
  for (size_t i = 0; i < optimizer()->groups().size(); ++i) {
    const ParameterGroup& group = optimizer()->groups()[i];
    optimizer()->set_lr(i, group.initial_lr.value_or(group.lr));
  }
}

void ComposedScheduler::restart() {
  reset_rates();
  begin();
}

void ComposedScheduler::take_back() {
  for (const auto& part : parts_) part->take_back();
}

void ComposedScheduler::copy_parts_for(const std::shared_ptr<Optimizer>& optimizer) {
  for (auto& part : parts_) part = std::dynamic_pointer_cast<SchedulerPart>(part->copy_for(optimizer));
}

c10::IValue ComposedScheduler::state_dict() const {
  Map state = tree::new_map();
  write_state(state);
  state.insert("_last_lr", as_list(last_lrs_));
  auto parts = tree::new_list();
  for (const auto& part : parts_) parts.push_back(part->state_dict());
  state.insert("_schedulers", parts);
  return state;
}

void ComposedScheduler::load_state_dict(const c10::IValue& state_dict) {
  const Map map = scheduler_state(state_dict);
  const c10::IValue* const saved = find(map, "_schedulers");
  const size_t count = saved != nullptr && tree::is_sequence(*saved) ? tree::sequence_items(*saved).size() : 0;
  require(count == parts_.size(), Status::kInvalidArgument, "the state of a scheduler has ", count,
          " parts in \"_schedulers\"; expected ", parts_.size());
  auto last_lrs = read_rates(map, "_last_lr", last_lrs_.size());
  std::vector<double> lrs;
  std::vector<c10::IValue> former;
  for (const ParameterGroup& group : optimizer()->groups()) lrs.push_back(group.lr);
  const auto set_rates = [&](const std::vector<double>& rates) {
    for (size_t i = 0; i < rates.size(); ++i) optimizer()->set_lr(i, rates[i]);
  };
  try {
    for (size_t i = 0; i < parts_.size(); ++i) {
      former.push_back(parts_[i]->state_dict());
      parts_[i]->load_state_dict(tree::sequence_items(*saved)[i]);
    }
    read_state(map);
  } catch (...) {
    for (size_t i = 0; i < former.size(); ++i) parts_[i]->load_state_dict(former[i]);
    set_rates(lrs);
    throw;
  }
  last_lrs_ = std::move(last_lrs);
  set_rates(last_lrs_);
}

ChainedScheduler::ChainedScheduler(SchedulerParts parts) : ComposedScheduler(std::move(parts)) { note_rates(); }

void ChainedScheduler::step() {
  for (const auto& part : parts()) part->step();
  note_rates();
}

void ChainedScheduler::begin() {
  for (const auto& part : parts()) part->begin();
  note_rates();
}

std::shared_ptr<Scheduler> ChainedScheduler::copy_for(std::shared_ptr<Optimizer> optimizer) const {
  auto copy = std::make_shared<ChainedScheduler>(*this);
  copy->copy_parts_for(optimizer);
  return copy;
}

SequentialScheduler::SequentialScheduler(SchedulerParts parts, std::vector<int64_t> milestones)
    : ComposedScheduler(std::move(parts)), milestones_(std::move(milestones)) {
  require(milestones_.size() + 1 == this->parts().size(), Status::kInvalidArgument, milestones_.size(),
          " milestones were given for ", this->parts().size(), " schedulers; expected one less than schedulers");
  require(std::is_sorted(milestones_.begin(), milestones_.end()) && (milestones_.empty() || milestones_[0] >= 0),
          Status::kInvalidArgument, "the milestones are not in ascending order from 0 on; expected them so");
  take_back();  // each of them has set the rates when it was made
  restart();
}

SchedulerPart& SequentialScheduler::part_at(int64_t step) const {
  const auto passed = std::upper_bound(milestones_.begin(), milestones_.end(), step) - milestones_.begin();
  return *parts()[static_cast<size_t>(passed)];
}

void SequentialScheduler::begin() {
  last_epoch_ = 0;
  part_at(0).begin();
  note_rates();
}

void SequentialScheduler::step() {
  const int64_t step = last_epoch_ + 1;
  SchedulerPart& part = part_at(step);
  if (&part != &part_at(last_epoch_))
    part.restart();
  else
    part.step();
  last_epoch_ = step;
  note_rates();
}

std::shared_ptr<Scheduler> SequentialScheduler::copy_for(std::shared_ptr<Optimizer> optimizer) const {
  auto copy = std::make_shared<SequentialScheduler>(*this);
  copy->copy_parts_for(optimizer);
  return copy;
}

void SequentialScheduler::write_state(Map& state) const {
  auto milestones = tree::new_list();
  for (const int64_t milestone : milestones_) milestones.push_back(milestone);
  state.insert("_milestones", milestones);
  state.insert("last_epoch", last_epoch_);
}

void SequentialScheduler::read_state(const Map& state) { last_epoch_ = read_count(state, "last_epoch", 0); }

}  // namespace accel::optim
