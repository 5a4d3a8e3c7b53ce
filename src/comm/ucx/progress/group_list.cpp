// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/progress/group_list.hpp"

#include <algorithm>
#include <utility>

#include "comm/ucx/progress/failure_detector.hpp"
#include "comm/ucx/transport/transport.hpp"

namespace accel::comm::ucx {

uint32_t GroupList::new_number() {
  while (true) {
    latest_number_ = (latest_number_ + 1) % (1 << kGroupNumberBits);
    const auto has_it = [this](const Numbered& one) { return one.number == latest_number_; };
    if (std::none_of(groups_.begin(), groups_.end(), has_it)) return latest_number_;
  }
}

void GroupList::add(uint32_t number, GroupPointer group) {
  reach_other_hosts_ = reach_other_hosts_ || group->detector().peers().has_other_hosts();
  groups_.push_back({number, std::move(group)});
}

void GroupList::remove(const ProgressedGroup& group) {
  const auto is_it = [&](const Numbered& one) { return one.group.get() == &group; };
  groups_.erase(std::remove_if(groups_.begin(), groups_.end(), is_it), groups_.end());
}

OpenWork GroupList::open_work() const {
  OpenWork most = OpenWork::kNone;
  for (const Numbered& one : groups_) most = std::max(most, one.group->open_work());
  return most;
}

void GroupList::copy_to(std::vector<GroupPointer>& groups) const {
  groups.clear();
  for (const Numbered& one : groups_) groups.push_back(one.group);
}

void GroupList::check_ended_processes(int descriptor) const {
  for (const Numbered& one : groups_)
    if (FailureDetector& detector = one.group->detector(); detector.event_descriptor() == descriptor)
      detector.check_ended_processes(0);
}

}  // namespace accel::comm::ucx
