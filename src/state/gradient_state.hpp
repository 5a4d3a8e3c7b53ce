// Gradient accumulation as it stands: which micro-batch of a group this is, and which loader feeds the loop.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace accel::state {

// What a loader says of the batch in hand. The loader owns it; the gradient state only watches.
struct LoaderProgress {
  bool end_of_dataloader = false;
  int64_t remainder = -1;  // rows of the last global batch that are no repetition; 0: all; -1: unknown
};

struct AccumulationSettings {
  int64_t num_steps = 1;
  bool adjust_scheduler = false;
  bool sync_with_dataloader = true;
  bool sync_each_batch = false;
};

// Used by one thread, the one that runs the training loop.
class GradientState {
 public:
  explicit GradientState(const AccumulationSettings& settings) : settings_(settings) {}

  const AccumulationSettings& settings() const { return settings_; }
  void set_num_steps(int64_t steps);

  // The start of a micro-batch: counts it, and decides whether gradients are exchanged in it.
  void begin_micro_batch();
  bool sync_gradients() const { return sync_gradients_; }
  void set_sync_gradients(bool sync) { sync_gradients_ = sync; }
  int64_t micro_batch() const { return micro_batch_; }
  void set_micro_batch(int64_t count) { micro_batch_ = count; }

  // Loaders nest: the innermost running one is active. A loader that is gone, or broke off, drops out by itself.
  void begin_loader(const std::shared_ptr<const LoaderProgress>& progress);
  void end_loader(const std::shared_ptr<const LoaderProgress>& progress);
  bool in_dataloader() const { return active() != nullptr; }
  bool end_of_dataloader() const;
  int64_t remainder() const;  // -1 without an active loader

 private:
  std::shared_ptr<const LoaderProgress> active() const;

  AccumulationSettings settings_;
  int64_t micro_batch_ = 0;
  bool sync_gradients_ = true;
  std::vector<std::weak_ptr<const LoaderProgress>> loaders_;
};

}  // namespace accel::state
