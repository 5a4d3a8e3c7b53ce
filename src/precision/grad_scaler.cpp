// SPDX-License-Identifier: Apache-2.0
#include "precision/grad_scaler.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "config/precedence.hpp"
#include "tensor/tree.hpp"

namespace accel::precision {
namespace {

using Map = c10::impl::GenericDict;

constexpr const char* kTolerated = "_tolerated_overflows";

double number_of(const Map& state, const char* key) {
  const auto entry = state.find(key);
  require(entry != state.end() && (entry->value().isDouble() || entry->value().isInt()), Status::kInvalidArgument,
          "the state of a gradient scaler lacks the number \"", key, "\"");
  return entry->value().toScalar().toDouble();
}

// Counts are whole numbers of either type, as other languages write them.
int64_t count_of(const Map& state, const char* key, int64_t least) {
  constexpr double kMost = 1LL << 53;
  const double number = number_of(state, key);
  require(number >= static_cast<double>(least) && number <= kMost && number == std::floor(number),
          Status::kInvalidArgument, "\"", key, "\" in the state of a gradient scaler is ", number,
          "; expected a whole number from ", least, " to 2^53");
  return static_cast<int64_t>(number);
}

// Kernels multiply in float32, in which a small scale would be 0 and take every gradient away.
float in_float32(const char* name, double scale) {
  const auto single = static_cast<float>(scale);
  require(std::isfinite(single) && single > 0, Status::kInvalidArgument, name, " is ", scale,
          "; expected a positive number of float32");
  return single;
}

}  // namespace

GradScaler::GradScaler(const GradScalerSettings& settings) : settings_(settings) {
  check_settings(settings);
  scale_.value = in_float32("init_scale", settings.init_scale);
}

void GradScaler::follow(const GradScalerSettings& settings, const BackoffRules& rules) {
  check_settings(settings);
  const float scale = in_float32("init_scale", settings.init_scale);
  settings_ = settings;
  rules_ = rules;
  begin({scale, 0, rules.hysteresis});
}

void GradScaler::begin(const LossScale& scale) {
  scale_ = scale;
  unknown_.clear();
  on_device_.reset();
}

void GradScaler::count(bool overflowed) const {
  if (overflowed) {
    scale_.growth_tracker = 0;
    if (scale_.tolerated > 1) {
      scale_.tolerated -= 1;
      return;
    }
    require(rules_.least_scale == 0 || scale_.value > rules_.least_scale, Status::kInvalidState,
            "gradients overflow although the loss scale is ", scale_.value,
            ", the least one that is allowed; expected a training that does not diverge, or a smaller min_loss_scale");
    scale_.value =
        std::max(static_cast<float>(scale_.value * settings_.backoff_factor), static_cast<float>(rules_.least_scale));
    return;
  }
  const bool grows = ++scale_.growth_tracker == settings_.growth_interval;
  if (grows || rules_.is_consecutive) scale_.tolerated = rules_.hysteresis;
  const auto grown = static_cast<float>(scale_.value * settings_.growth_factor);
  if (grows && std::isfinite(grown)) scale_.value = grown;
  if (grows) scale_.growth_tracker = 0;
}

// The numbers of count(). The products are rounded once, from float64, as there.
void GradScaler::count_on_device(const at::Tensor& found) {
  auto& [scale, tracker, tolerated] = *on_device_;
  const double growth = settings_.growth_factor, backoff = settings_.backoff_factor;
  const int64_t interval = settings_.growth_interval;
  if (rules_.hysteresis == 1 && rules_.least_scale == 0) {
    at::_amp_update_scale_(scale, tracker, found, growth, backoff, interval);
    return;
  }
  const at::Tensor overflow = found.ne(0);
  const at::Tensor shrinks = overflow.logical_and(tolerated.le(1));
  const at::Tensor wide = scale.to(at::kDouble);
  at::Tensor shrunk = (wide * backoff).to(at::kFloat);
  if (rules_.least_scale > 0)  // no step shrinks it there: count() fails
    shrunk = at::where(scale.gt(rules_.least_scale), shrunk.clamp_min(static_cast<float>(rules_.least_scale)), scale);
  const at::Tensor grown = (wide * growth).to(at::kFloat);
  const at::Tensor counted = (tracker + 1).masked_fill(overflow, 0);
  const at::Tensor grows = counted.eq(interval);
  const at::Tensor refills = rules_.is_consecutive ? overflow.logical_not() : grows;
  scale.copy_(at::where(shrinks, shrunk, at::where(grows.logical_and(grown.isfinite()), grown, scale)));
  tracker.copy_(counted.masked_fill(grows, 0));
  tolerated.copy_((tolerated - overflow.to(at::kInt)).clamp_min(1).masked_fill(refills, rules_.hysteresis));
}

void GradScaler::hear() const {
  while (!unknown_.empty() && unknown_.front()->is_known()) {
    const auto overflow = unknown_.front();
    unknown_.pop_front();
    count(overflow->value());
  }
}

const LossScale& GradScaler::settled() const {
  while (!unknown_.empty()) {
    unknown_.front()->value();
    hear();
  }
  return scale_;
}

// A scale above the least one shrinks without an error.
bool GradScaler::may_fail() const {
  if (rules_.least_scale == 0) return false;
  const double backoff = settings_.backoff_factor;
  const double lowest = scale_.value * std::pow(backoff, static_cast<double>(unknown_.size()));
  return lowest <= rules_.least_scale;
}

at::Tensor GradScaler::begin_backward(c10::Device device) {
  backwards_ += 1;
  hear();
  const bool is_known =
      (unknown_.empty() && recorded_ == nullptr) || !on_device_ || on_device_->value.device() != device;
  return is_known ? at::Tensor() : on_device_->value;
}

double GradScaler::scale_for_backward() {
  backwards_ += 1;
  return scale();
}

at::Tensor GradScaler::inverse_on(c10::Device device) const {
  hear();
  const bool is_of_device = !unknown_.empty() || recorded_ != nullptr;
  if (is_of_device && on_device_ && on_device_->value.device() == device) return on_device_->value.reciprocal();
  return at::full({}, static_cast<float>(1.0 / scale()), at::TensorOptions().dtype(at::kFloat).device(device));
}

std::vector<std::shared_ptr<ScaledGradients>> GradScaler::carriers(const ScaledGradients* stepped) const {
  std::vector<std::shared_ptr<ScaledGradients>> carriers;
  for (const auto& user : users_)
    if (const auto gradients = user.lock(); gradients != nullptr && gradients.get() != stepped)
      if (gradients->carry_the_scale()) carriers.push_back(gradients);
  return carriers;
}

void GradScaler::update(bool overflowed, const ScaledGradients* stepped) {
  if (rules_.is_constant) return;
  const float former = settled().value;
  on_device_.reset();
  count(overflowed);
  if (scale_.value == former) return;
  const at::Tensor factor = at::full({}, static_cast<double>(scale_.value) / former, at::kDouble);
  for (const auto& gradients : carriers(stepped)) gradients->multiply(factor);
}

void GradScaler::bring_to(c10::Device device) {
  if (on_device_ && on_device_->value.device() == device) return;
  const LossScale& scale = settled();
  const auto options = at::TensorOptions().device(device);
  on_device_ = DeviceLossScale{at::full({}, scale.value, options.dtype(at::kFloat)),
                               at::full({}, scale.growth_tracker, options.dtype(at::kInt)),
                               at::full({}, scale.tolerated, options.dtype(at::kInt))};
}

void GradScaler::update(const std::shared_ptr<OverflowFlag>& overflow, const ScaledGradients* stepped) {
  if (rules_.is_constant) return;
  const at::NoGradGuard no_grad;
  hear();
  const at::Tensor& found = overflow->tensor();
  bring_to(found.device());
  const auto others = carriers(stepped);
  const at::Tensor former = others.empty() ? at::Tensor() : on_device_->value.clone();
  count_on_device(found);
  if (!others.empty()) {
    const at::Tensor factor = on_device_->value / former;
    for (const auto& gradients : others) gradients->multiply(factor);
  }
  if (recorded_ == nullptr) hear_later(overflow);
}

void GradScaler::hear_later(const std::shared_ptr<OverflowFlag>& overflow) {
  hear();
  unknown_.push_back(overflow);
  if (may_fail()) settled();
}

c10::IValue GradScaler::state_dict() const {
  const LossScale& scale = settled();
  Map state = tree::new_map();
  state.insert("scale", static_cast<double>(scale.value));
  state.insert("growth_factor", settings_.growth_factor);
  state.insert("backoff_factor", settings_.backoff_factor);
  state.insert("growth_interval", settings_.growth_interval);
  state.insert("_growth_tracker", scale.growth_tracker);
  if (rules_.hysteresis > 1) state.insert(kTolerated, scale.tolerated);
  return state;
}

void GradScaler::load_state_dict(const c10::IValue& state_dict) {
  require(state_dict.isGenericDict(), Status::kInvalidArgument, "the state of a gradient scaler is a ",
          tree::kind_name(state_dict), "; expected a map");
  const Map state = state_dict.toGenericDict();
  GradScalerSettings loaded = settings_;
  const float scale = in_float32("\"scale\" in the state of a gradient scaler", number_of(state, "scale"));
  loaded.init_scale = scale;
  loaded.growth_factor = number_of(state, "growth_factor");
  loaded.backoff_factor = number_of(state, "backoff_factor");
  loaded.growth_interval = count_of(state, "growth_interval", 1);
  const int64_t tracker = count_of(state, "_growth_tracker", 0);
  const bool counts = rules_.hysteresis > 1 && state.contains(kTolerated);
  const int64_t tolerated = counts ? count_of(state, kTolerated, 1) : rules_.hysteresis;
  check_settings(loaded);
  settings_ = loaded;
  begin({scale, tracker, std::min(tolerated, rules_.hysteresis)});
}

std::shared_ptr<ScaledGradients> ScaledGradients::create(const std::shared_ptr<GradScaler>& scaler,
                                                         Parameters parameters) {
  auto& users = scaler->users_;
  users.erase(std::remove_if(users.begin(), users.end(), [](const auto& user) { return user.expired(); }), users.end());
  std::shared_ptr<ScaledGradients> gradients(new ScaledGradients(scaler, std::move(parameters)));
  users.push_back(gradients);
  return gradients;
}

// One list per device and dtype, as the kernels require.
std::vector<std::vector<at::Tensor>> ScaledGradients::gradients_by_kernel() const {
  std::vector<std::vector<at::Tensor>> lists;
  size_t index = 0;
  for (const at::Tensor& parameter : parameters_()) {
    const at::Tensor& gradient = parameter.grad();
    const size_t place = index++;
    if (!gradient.defined()) continue;
    require(gradient.scalar_type() != at::kHalf, Status::kTypeMismatch, "parameter ", place, " of shape ",
            parameter.sizes(),
            " has a gradient in float16; expected float32 parameters, whose forward runs in float16 by itself");
    require(gradient.layout() == at::kStrided, Status::kUnsupported, "parameter ", place,
            " has a sparse gradient; expected a dense one");
    auto list = std::find_if(lists.begin(), lists.end(), [&](const auto& other) {
      return other[0].device() == gradient.device() && other[0].scalar_type() == gradient.scalar_type();
    });
    if (list == lists.end()) list = lists.emplace(lists.end());
    list->push_back(gradient);
  }
  return lists;
}

void ScaledGradients::multiply(const at::Tensor& factor) const {
  const at::NoGradGuard no_grad;
  for (const auto& list : gradients_by_kernel()) {
    if (factor.is_cpu())
      at::_foreach_mul_(list, factor.item());
    else
      at::_foreach_mul_(list, factor.to(list[0].device()));
  }
}

void ScaledGradients::unscale() {
  if (!found_.empty()) return;
  require(stepped_at_ != scaler_->backwards_, Status::kInvalidState,
          "the optimizer has stepped since the latest accel_backward(), and its gradients carry no scale any more; "
          "expected a backward before each step");
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> inverses;  // as found_
  for (const auto& list : gradients_by_kernel()) {
    const c10::Device device = list[0].device();
    size_t place = 0;
    while (place < found_.size() && found_[place].device() != device) place++;
    if (place == found_.size()) {
      inverses.push_back(scaler_->inverse_on(device));
      found_.push_back(at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(device)));
    }
    at::_amp_foreach_non_finite_check_and_unscale_(list, found_[place], inverses[place]);
  }
  if (found_.empty()) found_.push_back(at::zeros({}, at::kFloat));  // nothing to step with
}

at::Tensor ScaledGradients::found() {
  unscale();
  if (found_.size() == 1) return found_[0];
  const bool any =
      std::any_of(found_.begin(), found_.end(), [](const at::Tensor& found) { return found.item<float>() != 0; });
  return at::full({}, any ? 1 : 0, at::kFloat);
}

std::shared_ptr<OverflowFlag> ScaledGradients::flag(at::Tensor found) const {
  auto* const recorded = scaler_->recorded_;
  return recorded != nullptr ? recorded->emplace_back(OverflowFlag::recorded(std::move(found)))
                             : std::make_shared<OverflowFlag>(std::move(found));
}

void ScaledGradients::finish(bool overflowed) {
  found_.clear();
  stepped_at_ = scaler_->backwards_;
  scaler_->update(overflowed, this);
}

void ScaledGradients::finish(const std::shared_ptr<OverflowFlag>& overflow) {
  found_.clear();
  stepped_at_ = scaler_->backwards_;
  scaler_->update(overflow, this);
}

}  // namespace accel::precision
