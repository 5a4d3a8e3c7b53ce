// SPDX-License-Identifier: Apache-2.0
// Replica check: compares the bits of parameters and optimizer states over the ranks that must have equal ones, and
// finds silent corruption by a bad core or memory. Each rank sends a digest of 16 bytes; only where digests differ the
// ranks look for the one at fault and its first tensor.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/replicas/replica_items.hpp"
#include "accelerator/replicas/replica_vote.hpp"
#include "state/state.hpp"

namespace accel::accelerator {

class ReplicaCheck {
 public:
  // Both are those of the accelerator that has this.
  ReplicaCheck(const state::State& state, const PreparedObjects& prepared) : state_(state), prepared_(prepared) {}
  ReplicaCheck(const ReplicaCheck&) = delete;

  // Collective among all ranks. Throws kCorrupt on all of them if any differ. Returns how many ranks have what this one
  // has, with itself: nothing is compared if it is 1. kInvalidState while ranks differ on purpose.
  int run();
  // After each update: run() in the steps of `verify_replicas_every`.
  void count_update();
  // Before a checkpoint is written: run(), if `verify_replicas_every` is set. Returns whether the ranks agreed.
  bool run_before_save();

  // The training is as in this checkpoint, which was saved or loaded.
  void note_checkpoint(const std::string& folder, bool is_agreed) {
    last_ = folder;
    if (is_agreed) agreed_ = folder;
  }
  // The last checkpoint that was saved or loaded before a run() in which all ranks agreed; empty: none.
  const std::string& agreed_checkpoint() const { return agreed_; }

 private:
  using Digests = std::vector<kernels::Digest128>;

  // Why ranks may differ now; null: they may not.
  const char* reason_to_differ() const;
  const ReplicaGroups& groups();
  // The digests of all ranks.
  Digests gather(const kernels::Digest128& own) const;
  [[noreturn]] void explain(const Disagreement& disagreement, const kernels::Digest128& first) const;

  const state::State& state_;
  const PreparedObjects& prepared_;
  std::pair<std::string, ReplicaGroups> groups_;  // by the axes
  int64_t updates_ = 0;
  std::string last_, agreed_;
};

}  // namespace accel::accelerator
