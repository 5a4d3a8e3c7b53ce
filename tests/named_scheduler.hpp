// SPDX-License-Identifier: Apache-2.0
// Schedulers by the names and arguments that torch.optim.lr_scheduler has for them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "optim/schedules/composed_scheduler.hpp"
#include "optim/schedules/lr_scheduler.hpp"
#include "optim/schedules/plateau_scheduler.hpp"
#include "optim/settings.hpp"

namespace accel::tests {

class SchedulerArguments {
 public:
  explicit SchedulerArguments(const c10::IValue& arguments) : map_(optim::as_map(arguments, "the arguments")) {}

  double number(const char* key, double otherwise) const { return optim::read_number(map_, key, otherwise); }
  double number(const char* key) const {
    require(has(key), Status::kNotFound, "argument ", key, " is missing");
    return number(key, 0);
  }
  int64_t integer(const char* key) const { return static_cast<int64_t>(number(key)); }
  int64_t integer(const char* key, int64_t otherwise) const { return has(key) ? integer(key) : otherwise; }
  bool flag(const char* key, bool otherwise) const { return has(key) ? map_.at(key).toBool() : otherwise; }
  std::string word(const char* key, const char* otherwise) const {
    return has(key) ? map_.at(key).toStringRef() : otherwise;
  }
  std::vector<int64_t> integers(const char* key) const {
    std::vector<int64_t> numbers;
    for (const auto& item : map_.at(key).toListRef()) numbers.push_back(item.toInt());
    return numbers;
  }
  c10::IValue value(const char* key) const { return map_.at(key); }
  bool has(const char* key) const { return map_.contains(key); }

 private:
  optim::Map map_;
};

inline optim::Schedule named_schedule(const std::string& name, const SchedulerArguments& given) {
  using namespace optim;
  if (name == "StepLR") return step_schedule(given.integer("step_size"), given.number("gamma"));
  if (name == "MultiStepLR") return multi_step_schedule(given.integers("milestones"), given.number("gamma"));
  if (name == "ConstantLR") return constant_schedule(given.number("factor"), given.integer("total_iters"));
  if (name == "LinearLR")
    return linear_schedule(given.number("start_factor"), given.number("end_factor", 1), given.integer("total_iters"));
  if (name == "ExponentialLR") return exponential_schedule(given.number("gamma"));
  if (name == "PolynomialLR") return polynomial_schedule(given.integer("total_iters"), given.number("power"));
  if (name == "CosineAnnealingLR") return cosine_annealing_schedule(given.integer("T_max"), given.number("eta_min", 0));
  if (name == "CosineAnnealingWarmRestarts")
    return cosine_warm_restarts_schedule(given.integer("T_0"), given.integer("T_mult", 1), given.number("eta_min", 0));
  if (name == "OneCycleLR") {
    OneCycleSettings settings;
    settings.pct_start = given.number("pct_start", settings.pct_start);
    settings.anneal_strategy = given.word("anneal", "cos") == "linear" ? AnnealStrategy::kLinear : AnnealStrategy::kCos;
    settings.three_phase = given.flag("three_phase", settings.three_phase);
    settings.cycle_momentum = given.flag("cycle_momentum", settings.cycle_momentum);
    return one_cycle_schedule(given.number("max_lr"), given.integer("total_steps"), settings);
  }
  if (name == "CyclicLR") {
    CyclicSettings settings;
    settings.step_size_up = given.integer("step_size_up", settings.step_size_up);
    if (given.has("step_size_down")) settings.step_size_down = given.integer("step_size_down");
    const std::string mode = given.word("mode", "triangular");
    settings.mode = mode == "triangular2" ? CycleMode::kTriangular2
                    : mode == "exp_range" ? CycleMode::kExpRange
                                          : CycleMode::kTriangular;
    settings.gamma = given.number("gamma", settings.gamma);
    settings.cycle_momentum = given.flag("cycle_momentum", settings.cycle_momentum);
    return cyclic_schedule(given.number("base_lr"), given.number("max_lr"), settings);
  }
  // The lambdas of the fixtures and of transformers.
  if (name == "LambdaLinear") return factor_schedule(linear_warmup_factor(0, given.integer("total")));
  if (name == "linear") return factor_schedule(linear_warmup_factor(given.integer("warmup"), given.integer("total")));
  if (name == "cosine") return factor_schedule(cosine_factor(given.integer("warmup"), given.integer("total"), 0));
  if (name == "cosine_with_restarts")
    return factor_schedule(
        hard_restarts_factor(given.integer("warmup"), given.integer("total"), given.integer("cycles")));
  if (name == "constant_with_warmup") return factor_schedule(constant_factor(given.integer("warmup")));
  if (name == "inverse_sqrt") {
    std::optional<int64_t> timescale;
    if (given.has("timescale")) timescale = given.integer("timescale");
    return factor_schedule(inverse_sqrt_factor(given.integer("warmup"), timescale));
  }
  fail(Status::kNotFound, "no schedule is called ", name);
}

inline std::shared_ptr<optim::Scheduler> named_scheduler(const std::string& name, const c10::IValue& arguments,
                                                         const std::shared_ptr<optim::Optimizer>& optimizer) {
  const SchedulerArguments given(arguments);
  if (name == "ReduceLROnPlateau") {
    PlateauSettings settings;
    settings.mode = given.word("mode", "min") == "max" ? MetricMode::kMax : MetricMode::kMin;
    settings.factor = given.number("factor", settings.factor);
    settings.patience = given.integer("patience", settings.patience);
    settings.threshold = given.number("threshold", settings.threshold);
    settings.threshold_mode = given.word("threshold_mode", "rel") == "abs" ? ThresholdMode::kAbs : ThresholdMode::kRel;
    settings.cooldown = given.integer("cooldown", settings.cooldown);
    settings.min_lr = given.number("min_lr", settings.min_lr);
    return std::make_shared<optim::PlateauScheduler>(optimizer, settings);
  }
  if (name != "ChainedScheduler" && name != "SequentialLR")
    return std::make_shared<optim::LrScheduler>(optimizer, named_schedule(name, given));
  std::vector<std::shared_ptr<optim::Scheduler>> schedulers;  // of [name, arguments] each
  const c10::IValue described = given.value("schedulers");
  for (const auto& part : described.toListRef())
    schedulers.push_back(named_scheduler(part.toListRef()[0].toStringRef(), part.toListRef()[1], optimizer));
  auto parts = optim::scheduler_parts(schedulers);
  if (name == "ChainedScheduler") return std::make_shared<optim::ChainedScheduler>(std::move(parts));
  return std::make_shared<optim::SequentialScheduler>(std::move(parts), given.integers("milestones"));
}

}  // namespace accel::tests
