// SPDX-License-Identifier: Apache-2.0
// The groups of an engine, by their numbers. Under the engine's mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/ucx/progress/progressed_group.hpp"

namespace accel::comm::ucx {

class GroupList {
 public:
  using GroupPointer = std::shared_ptr<ProgressedGroup>;

  // Identifies a group in this process; not reused soon.
  uint32_t new_number();
  void add(uint32_t number, GroupPointer group);
  void remove(const ProgressedGroup& group);

  size_t size() const { return groups_.size(); }
  // The most urgent of them.
  OpenWork open_work() const;
  // Whether a group has, or had, peers on other hosts.
  bool reach_other_hosts() const { return reach_other_hosts_; }
  void copy_to(std::vector<GroupPointer>& groups) const;
  // For those whose detector has this descriptor: looks which processes have ended.
  void check_ended_processes(int descriptor) const;

 private:
  struct Numbered {
    uint32_t number;
    GroupPointer group;
  };
  std::vector<Numbered> groups_;
  uint32_t latest_number_ = 0;
  bool reach_other_hosts_ = false;
};

}  // namespace accel::comm::ucx
