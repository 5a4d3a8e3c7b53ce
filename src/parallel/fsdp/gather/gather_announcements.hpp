// SPDX-License-Identifier: Apache-2.0
// Gather announcements: ranks that gather parameters in each micro-batch of a pipeline say ahead of a gather which
// group it is of. A rank whose stage has failed, or that computes nothing more, gathers with the others until all have
// ended, so that none waits for it.
//
// Note: rounds. In each round every rank says what it gathers next, or that it has ended. One that has ended takes part
// in what the others announce; the rounds are over when all have ended in the same one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "comm/work.hpp"
#include "parallel/fsdp/parameter_group.hpp"

namespace accel::parallel {

class GatherAnnouncements {
 public:
  // All of `groups` are gathered by `ranks`, or by some of these, in the same order.
  GatherAnnouncements(CommunicatorPtr ranks, const std::vector<std::unique_ptr<ParameterGroup>>& groups);

  // Without `announces` ranks gather in another way, and nothing is announced.
  void begin_micro_batches(bool announces);
  void end_micro_batches() { in_micro_batches_ = is_active_ = false; }
  bool in_micro_batches() const { return in_micro_batches_; }
  // Ahead of a gather of this rank, if it starts one now. Does not wait.
  void announce(size_t group);
  // Behind the gather of a group. Throws if another rank had ended instead.
  void check(size_t group);
  // Collective: this rank gathers no more. Gathers with the others until all have ended. Returns whether check() has
  // thrown, so that the error that ended this rank is another one's.
  bool end();

 private:
  struct Round {
    size_t group;
    at::Tensor announced, all;  // by this rank, and by each
    std::shared_ptr<comm::Work> work;
  };

  Round begin_round(size_t group, int64_t announced);
  // Waits for the round, and returns what the ranks announced.
  static std::vector<int64_t> finish(const Round& round);

  const CommunicatorPtr ranks_;
  const std::vector<std::unique_ptr<ParameterGroup>>& groups_;
  std::deque<Round> rounds_;  // that nobody has read
  bool in_micro_batches_ = false, is_active_ = false;
  bool saw_end_ = false;
};

}  // namespace accel::parallel
