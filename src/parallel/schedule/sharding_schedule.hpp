// SPDX-License-Identifier: Apache-2.0
// Sharding schedule: when the parameters of each group of a sharded model are gathered and released, and when gradients
// are reduced, as lists of actions. The schedule follows from the events of a training step and the settings, and has
// no tensors: a sharded model executes the actions, also on a rank without inputs, and the memory estimate counts them.
//
// Note: who gathers when. A group is gathered before the forward of its module and again before its backward; while one
// is used, the next is on its way: in a forward by the order of the former one, in a backward by the reverse order of
// the forward. The actions depend on the calls of modules alone, so they are the same on all ranks. A group's gradients
// are reduced when the last of them has arrived, while backward goes on below it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "nn/call_order.hpp"

namespace accel {
struct FsdpSettings;
enum class BackwardPrefetch : int32_t;
}  // namespace accel

namespace accel::parallel {

struct ShardingAction {
  enum class Kind : uint8_t {
    kStartUnshard,        // starts to gather the group's parameters
    kUnshard,             // gathers them, or waits for what was started
    kReshard,             // releases them
    kReshardForBackward,  // releases them after a forward whose backward will use them
    kStartReduce,         // starts to reduce the gradients
    kFinishReduce,        // waits for that
    kKeepGradients,       // keeps the gradients of whole parameters for the next backward
    kReduceKept,          // reduces the gradients that former backwards saved, if there are any
  };
  Kind kind;
  size_t group;
};
using ShardingActions = std::vector<ShardingAction>;

// The output of a module's forward.
struct ModuleOutput {
  bool is_recorded = false;     // a backward may follow
  bool has_parameters = false;  // it refers to the memory of whole parameters
};

class ShardingSchedule {
 public:
  // `expected` is the order in which the first forward is expected to call the groups' modules. The group with the
  // highest number is that of the whole model.
  ShardingSchedule(std::vector<size_t> expected, const FsdpSettings& settings);

  ShardingActions begin_forward(bool records);
  ShardingActions begin_module(size_t group);
  ShardingActions end_module(size_t group, const ModuleOutput& output);

  // The backward of a call of the group's module begins.
  ShardingActions begin_module_backward(size_t group);
  // A gradient of the group has arrived. Returns whether the backward of the model begins with it.
  bool begin_backward(size_t group);
  // The group's gradients are complete. With `exchange` they are reduced. Groups with frozen parameters keep these
  // until the gradients of the module's inputs are there.
  ShardingActions complete_gradients(size_t group, bool exchange, bool has_frozen);
  // The gradients of the inputs of the group's module are there; `has_gradients` if those of its parameters are
  // complete.
  ShardingActions complete_inputs(size_t group, bool has_gradients);
  ShardingActions end_backward(bool exchange);
  // Forwards and backwards between two updates follow, in any order, or have ended. Where parameters stay from a
  // forward to its backward, they stay through all of these.
  ShardingActions set_micro_batches(bool follow);
  // The backward has failed, or micro-batches, on each rank at another place. The order of the first forward is
  // expected again, so that all gather the same ahead.
  void abandon_backward();
  bool in_backward() const { return in_backward_; }

 private:
  struct Group {
    bool in_backward = false;
    bool has_inputs = false;  // the gradients of the latest call's inputs
  };

  size_t depth() const { return limits_gathers_ ? 1 : 2; }
  void prefetch_in_backward(ShardingActions& actions) const;
  void end_group(size_t group, bool exchange, ShardingActions& actions);
  void finish_reduce(ShardingActions& actions);
  void reshard(ShardingAction::Kind kind, size_t group, ShardingActions& actions) const;
  void reshard_all(ShardingActions& actions) const;
  bool is_root(size_t group) const { return group + 1 == groups_.size(); }

  bool limits_gathers_, prefetches_forward_;
  BackwardPrefetch backward_prefetch_;
  bool reshards_after_forward_;
  std::vector<Group> groups_;
  nn::CallOrder order_;
  bool records_ = false;     // the latest forward may have a backward
  bool is_expected_ = true;  // the forward so far: behind another call what is gathered ahead would stay unused
  bool in_backward_ = false;
  bool keeps_micro_batches_ = false;
  std::optional<size_t> reducing_;  // the group whose gradients are on their way
};

// Whether a group's parameters are released between its forward and its backward.
bool reshards_after_forward(const FsdpSettings& settings);

}  // namespace accel::parallel
