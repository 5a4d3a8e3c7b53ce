// Gradient accumulation as it stands: which micro-batch of a group this is, and which loader feeds the loop.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace accel::data {
class PreparedDataLoader;
}

namespace accel::state {

// What a loader says of the batch in hand. The loader owns it; the gradient state only watches.
struct LoaderProgress {
  struct Rows {
    int64_t rows = 0;   // -1: that rank has no batch at this time
    int64_t valid = 0;  // the first ones, which are no repetitions
  };
  bool end_of_dataloader = false;
  int64_t remainder = -1;   // rows of the last global batch that are no repetition; 0: all; -1: unknown
  int64_t rows = 0;         // of this rank's batch
  std::vector<Rows> ranks;  // of each rank's; empty: as many as here everywhere, and all of them valid
};

// @accelerate GradientAccumulationPlugin
struct AccumulationSettings {
  int64_t num_steps = 1;
  bool adjust_scheduler = false;
  bool sync_with_dataloader = true;
  bool sync_each_batch = false;
  bool true_divisor = false;  // a short last group is divided by its own length, not by num_steps
};

// The micro-batches whose gradients go into one step, and the next such group, and so on. Each prepared model has its
// own, so that models may be trained by turns.
struct AccumulationGroup {
  int64_t micro_batch = 0;  // counted over groups, until the end of a loader
  int64_t length = 0;       // micro-batches of the group so far
  bool complete = true;     // whether the latest micro-batch ended its group
  // Gradients of the group are those of the losses, times this; 0: there are none.
  double weight = 0;
  int64_t items = -1;  // that accel_backward_sum() has counted in the group; -1: losses are means
};
using AccumulationGroups = std::vector<std::shared_ptr<AccumulationGroup>>;

// Used by one thread, the one that runs the training loop.
class GradientState {
 public:
  explicit GradientState(const AccumulationSettings& settings)
      : settings_(settings), own_{std::make_shared<AccumulationGroup>()} {}

  const AccumulationSettings& settings() const { return settings_; }
  void set_num_steps(int64_t steps);
  void set_settings(const AccumulationSettings& settings);

  // The start of a micro-batch of some models, which must be at the same place of their groups: counts it, and decides
  // whether gradients are exchanged in it. Without models the state counts for itself.
  void begin_micro_batch(const AccumulationGroups& groups = {});
  bool sync_gradients() const { return sync_gradients_; }
  void set_sync_gradients(bool sync) { sync_gradients_ = sync; }

  // Micro-batches that no model counts.
  const AccumulationGroups& own() const { return own_; }
  void restart() { *own_[0] = AccumulationGroup(); }

  // Loaders nest: the innermost running one is active. A loader that is gone, or broke off, drops out by itself.
  void begin_loader(const std::shared_ptr<const LoaderProgress>& progress,
                    const std::weak_ptr<data::PreparedDataLoader>& loader = {});
  void end_loader(const std::shared_ptr<const LoaderProgress>& progress);
  bool in_dataloader() const { return active() != nullptr; }
  bool end_of_dataloader() const;
  int64_t remainder() const;  // -1 without an active loader
  // Of the loader that is active; null without one.
  std::shared_ptr<const LoaderProgress> active() const;
  // The loader of the innermost loop, or of the `depth`-th around it; null where there are not so many.
  std::shared_ptr<data::PreparedDataLoader> active_loader(int64_t depth) const;

 private:
  struct RunningLoader {
    std::weak_ptr<const LoaderProgress> progress;
    std::weak_ptr<data::PreparedDataLoader> loader;
  };

  AccumulationSettings settings_;
  AccumulationGroups own_;
  bool sync_gradients_ = true;
  std::vector<RunningLoader> loaders_;  // the outermost first
};

// The next micro-batch of a group, or the first one of a new group.
void go_on(AccumulationGroup& group, bool completes);

}  // namespace accel::state
