#include "optim/scheduler.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "optim/settings.hpp"
#include "tensor/tree.hpp"

namespace accel::optim {
namespace {

constexpr double kPi = 3.14159265358979323846;

void check_steps(int64_t warmup_steps, int64_t total_steps) {
  require(warmup_steps >= 0 && total_steps >= 1 && warmup_steps <= total_steps, Status::kInvalidArgument,
          "warmup_steps is ", warmup_steps, " and total_steps ", total_steps,
          "; expected 0 <= warmup_steps <= total_steps and at least one step");
}

// How far step is on its way from begin to end; a way without length counts as
// one step.
double fraction(int64_t step, int64_t begin, int64_t end) {
  return static_cast<double>(step - begin) / static_cast<double>(std::max<int64_t>(1, end - begin));
}

c10::IValue as_list(const std::vector<double>& numbers) {
  auto list = tree::new_list();
  for (const double number : numbers) list.push_back(number);
  return list;
}

std::vector<double> read_rates(const Map& map, const char* key, size_t groups) {
  const c10::IValue* const value = find(map, key);
  const bool fits = value != nullptr && value->isList() && value->toListRef().size() == groups;
  require(fits, Status::kInvalidArgument, "the state of a scheduler has no \"", key, "\" for ", groups,
          " parameter groups; expected a list of as many numbers");
  std::vector<double> rates;
  for (const auto& rate : value->toListRef()) {
    require(rate.isDouble() || rate.isInt(), Status::kInvalidArgument, "\"", key, "\" of a scheduler holds a ",
            tree::kind_name(rate), "; expected numbers");
    rates.push_back(rate.toScalar().toDouble());
    require_not_negative(rates.back(), key);
  }
  return rates;
}

int64_t read_step(const Map& map, const char* key) {
  const c10::IValue* const value = find(map, key);
  require(value != nullptr && value->isInt() && value->toInt() >= 0, Status::kInvalidArgument,
          "the state of a scheduler has no \"", key, "\"; expected an integer of at least 0");
  return value->toInt();
}

}  // namespace

LearningRateFactor linear_warmup_factor(int64_t warmup_steps, int64_t total_steps) {
  check_steps(warmup_steps, total_steps);
  return [=](int64_t step) {
    if (step < warmup_steps) return fraction(step, 0, warmup_steps);
    return std::max(0.0, static_cast<double>(total_steps - step) /
                             static_cast<double>(std::max<int64_t>(1, total_steps - warmup_steps)));
  };
}

LearningRateFactor cosine_factor(int64_t warmup_steps, int64_t total_steps, double min_factor) {
  check_steps(warmup_steps, total_steps);
  require_not_negative(min_factor, "min_factor");
  return [=](int64_t step) {
    if (step < warmup_steps) return fraction(step, 0, warmup_steps);
    const double progress = std::min(1.0, fraction(step, warmup_steps, total_steps));
    return min_factor + (1.0 - min_factor) * 0.5 * (1.0 + std::cos(kPi * progress));
  };
}

LearningRateFactor step_factor(int64_t step_size, double gamma) {
  require(step_size >= 1, Status::kInvalidArgument, "step_size is ", step_size, "; expected at least 1");
  require_not_negative(gamma, "gamma");
  return [=](int64_t step) { return std::pow(gamma, static_cast<double>(step / step_size)); };
}

LambdaScheduler::LambdaScheduler(std::shared_ptr<Optimizer> optimizer, LearningRateFactor factor)
    : optimizer_(std::move(optimizer)), factor_(std::move(factor)) {
  set_rates(0);
}

void LambdaScheduler::set_rates(int64_t step) {
  const double factor = factor_(step);
  require(std::isfinite(factor) && factor >= 0, Status::kInvalidArgument, "the learning rate's factor at step ", step,
          " is ", factor, "; expected a finite number of at least 0");
  const size_t count = optimizer_->groups().size();
  for (size_t i = base_lrs_.size(); i < count; ++i) {  // also groups that were added since
    ParameterGroup& group = optimizer_->group(i);
    if (!group.initial_lr) group.initial_lr = group.lr;
    base_lrs_.push_back(*group.initial_lr);
  }
  last_lrs_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    last_lrs_[i] = base_lrs_[i] * factor;
    optimizer_->set_lr(i, last_lrs_[i]);
  }
  last_epoch_ = step;
}

void LambdaScheduler::step() {
  set_rates(last_epoch_ + 1);
  step_count_ += 1;
}

double LambdaScheduler::last_lr(size_t group) const {
  require(group < last_lrs_.size(), Status::kNotFound, "parameter group ", group,
          " is not there; the scheduler drives ", last_lrs_.size());
  return last_lrs_[group];
}

c10::IValue LambdaScheduler::state_dict() const {
  Map state = tree::new_map();
  state.insert("last_epoch", last_epoch_);
  state.insert("_step_count", step_count_);
  state.insert("base_lrs", as_list(base_lrs_));
  state.insert("_last_lr", as_list(last_lrs_));
  return state;
}

void LambdaScheduler::load_state_dict(const c10::IValue& state_dict) {
  const Map map = as_map(state_dict, "the state of a scheduler");
  const int64_t last_epoch = read_step(map, "last_epoch");
  const int64_t step_count = read_step(map, "_step_count");
  auto base_lrs = read_rates(map, "base_lrs", base_lrs_.size());
  auto last_lrs = read_rates(map, "_last_lr", last_lrs_.size());
  last_epoch_ = last_epoch;
  step_count_ = step_count;
  base_lrs_ = std::move(base_lrs);
  last_lrs_ = std::move(last_lrs);
  // An optimizer whose own state is not loaded would make its next step with
  // the rate of step 0.
  for (size_t i = 0; i < last_lrs_.size(); ++i) optimizer_->set_lr(i, last_lrs_[i]);
}

}  // namespace accel::optim
