// SPDX-License-Identifier: Apache-2.0
// Gradient state: the progress of gradient accumulation, and the active loader.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace accel::data {
class PreparedDataLoader;
}

namespace accel::state {

// The progress of a loader. Owned by the loader; the gradient state refers to it.
struct LoaderProgress {
  struct Rows {
    int64_t rows = 0;   // -1: the rank has no batch now
    int64_t valid = 0;  // without repeated rows, which come last
  };
  bool end_of_dataloader = false;
  int64_t remainder = -1;   // rows of the last global batch without repeated ones; 0: all; -1: unknown
  int64_t rows = 0;         // of this rank's batch
  std::vector<Rows> ranks;  // of each rank; empty: as on this rank, and all valid
};

// How gradients accumulate. These come from the state's settings, and GradientAccumulationSettings, where each is
// optional, change some of them. @accelerate GradientAccumulationPlugin
struct AccumulationSettings {
  int64_t num_steps = 1;
  bool adjust_scheduler = false;
  bool sync_with_dataloader = true;
  bool sync_each_batch = false;
  bool true_divisor = false;  // a short last window is divided by its own length, not by num_steps
};

// Accumulation window: the micro-batches whose gradients are accumulated for one optimizer step. Each prepared model
// has its own, so that models can be trained alternately.
struct AccumulationWindow {
  int64_t micro_batch = 0;  // counted across windows, until the end of a loader
  int64_t length = 0;       // micro-batches in the window so far
  bool complete = true;     // whether the latest micro-batch ended the window
  // The factor of the losses in the accumulated gradients; 0: there are none.
  double weight = 0;
  int64_t items = -1;  // counted by accel_backward_sum() in the window; -1: losses are means
};
using AccumulationWindows = std::vector<std::shared_ptr<AccumulationWindow>>;

// Not thread-safe: used by the thread of the training loop.
class GradientState {
 public:
  explicit GradientState(const AccumulationSettings& settings)
      : settings_(settings), own_{std::make_shared<AccumulationWindow>()} {}

  const AccumulationSettings& settings() const { return settings_; }
  void set_num_steps(int64_t steps);
  void set_settings(const AccumulationSettings& settings);

  // Starts a micro-batch of some models, whose windows must have the same progress: counts it, and decides whether
  // gradients are exchanged in it. Without models the state's own window counts.
  void begin_micro_batch(const AccumulationWindows& windows = {});
  bool sync_gradients() const { return sync_gradients_; }
  void set_sync_gradients(bool sync) { sync_gradients_ = sync; }

  // The window for micro-batches without models.
  const AccumulationWindows& own() const { return own_; }
  void restart() { *own_[0] = AccumulationWindow(); }

  // Loaders nest: the innermost running one is active. Deleted and aborted loaders are dropped.
  void begin_loader(const std::shared_ptr<const LoaderProgress>& progress,
                    const std::weak_ptr<data::PreparedDataLoader>& loader = {});
  void end_loader(const std::shared_ptr<const LoaderProgress>& progress);
  bool in_dataloader() const { return active() != nullptr; }
  bool end_of_dataloader() const;
  int64_t remainder() const;  // -1 without an active loader
  // The progress of the active loader; null without one.
  std::shared_ptr<const LoaderProgress> active() const;
  // The loader of the innermost loop, or of the `depth`-th loop around it; null if there is none.
  std::shared_ptr<data::PreparedDataLoader> active_loader(int64_t depth) const;

 private:
  struct RunningLoader {
    std::weak_ptr<const LoaderProgress> progress;
    std::weak_ptr<data::PreparedDataLoader> loader;
  };

  AccumulationSettings settings_;
  AccumulationWindows own_;
  bool sync_gradients_ = true;
  std::vector<RunningLoader> loaders_;  // the outermost first
};

// Counts the next micro-batch, which begins a new window if the former one is complete.
void advance(AccumulationWindow& window, bool completes);

}  // namespace accel::state
