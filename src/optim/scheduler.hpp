// Learning-rate schedulers: a factor of the initial rate at each step, in
// closed form.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "optim/optimizer.hpp"

namespace accel::optim {

// The interface; the accelerator's scheduler wraps another one.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual void step() = 0;
  // Counts a step in which the learning rates stay: gradients still accumulate.
  virtual void count_step() = 0;
  // The rate that the latest step set. A group that is not there is an error.
  virtual double last_lr(size_t group) const = 0;
  // {last_epoch, _step_count, base_lrs, _last_lr}, as
  // torch.optim.lr_scheduler.LambdaLR.
  virtual c10::IValue state_dict() const = 0;
  virtual void load_state_dict(const c10::IValue& state_dict) = 0;
};

using LearningRateFactor = std::function<double(int64_t step)>;

// Rises linearly for warmup_steps, then falls linearly to 0 at total_steps.
LearningRateFactor linear_warmup_factor(int64_t warmup_steps, int64_t total_steps);
// Rises linearly for warmup_steps, then falls along half a cosine to min_factor
// at total_steps, and stays there.
LearningRateFactor cosine_factor(int64_t warmup_steps, int64_t total_steps, double min_factor);
// Multiplies by gamma every step_size steps.
LearningRateFactor step_factor(int64_t step_size, double gamma);

// Sets the rate of every group to its initial one times the factor. Making it
// is step 0: it sets the rates at once.
class LambdaScheduler final : public Scheduler {
 public:
  LambdaScheduler(std::shared_ptr<Optimizer> optimizer, LearningRateFactor factor);
  void step() override;
  void count_step() override { step_count_ += 1; }
  double last_lr(size_t group) const override;
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state_dict) override;

 private:
  void set_rates(int64_t step);

  std::shared_ptr<Optimizer> optimizer_;
  LearningRateFactor factor_;
  int64_t last_epoch_ = 0;  // torch's word for the step
  int64_t step_count_ = 1;
  std::vector<double> base_lrs_;
  std::vector<double> last_lrs_;
};

}  // namespace accel::optim
