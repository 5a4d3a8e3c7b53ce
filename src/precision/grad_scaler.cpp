#include "precision/grad_scaler.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/full.h>
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
  scale_ = in_float32("init_scale", settings.init_scale);
}

void GradScaler::follow(const GradScalerSettings& settings, const BackoffRules& rules) {
  check_settings(settings);
  scale_ = in_float32("init_scale", settings.init_scale);
  settings_ = settings;
  rules_ = rules;
  tolerated_ = rules.hysteresis;
  growth_tracker_ = 0;
}

void GradScaler::shrink() {
  if (tolerated_ > 1) {
    tolerated_ -= 1;
    return;
  }
  require(rules_.least_scale == 0 || scale_ > rules_.least_scale, Status::kInvalidState,
          "gradients overflow although the loss scale is ", scale_,
          ", the least one that is allowed; expected a training that does not diverge, or a smaller min_loss_scale");
  scale_ = std::max(static_cast<float>(scale_ * settings_.backoff_factor), static_cast<float>(rules_.least_scale));
}

double GradScaler::scale_for_backward() {
  backwards_ += 1;
  return scale_;
}

void GradScaler::update(bool overflowed, const ScaledGradients* stepped) {
  if (rules_.is_constant) return;
  const float former = scale_;
  if (overflowed) {
    growth_tracker_ = 0;
    shrink();
  } else {
    const bool grows = ++growth_tracker_ == settings_.growth_interval;
    if (grows || rules_.is_consecutive) tolerated_ = rules_.hysteresis;
    const auto grown = static_cast<float>(scale_ * settings_.growth_factor);
    if (grows && std::isfinite(grown)) scale_ = grown;
    if (grows) growth_tracker_ = 0;
  }
  if (scale_ == former) return;
  for (const auto& user : users_)
    if (const auto gradients = user.lock(); gradients != nullptr && gradients.get() != stepped)
      if (gradients->carry_the_scale()) gradients->multiply(static_cast<double>(scale_) / former);
}

c10::IValue GradScaler::state_dict() const {
  Map state = tree::new_map();
  state.insert("scale", static_cast<double>(scale_));
  state.insert("growth_factor", settings_.growth_factor);
  state.insert("backoff_factor", settings_.backoff_factor);
  state.insert("growth_interval", settings_.growth_interval);
  state.insert("_growth_tracker", growth_tracker_);
  if (rules_.hysteresis > 1) state.insert(kTolerated, tolerated_);
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
  tolerated_ = std::min(tolerated, rules_.hysteresis);
  settings_ = loaded;
  scale_ = scale;
  growth_tracker_ = tracker;
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

void ScaledGradients::multiply(double factor) const {
  const at::NoGradGuard no_grad;
  for (const auto& list : gradients_by_kernel()) at::_foreach_mul_(list, factor);
}

void ScaledGradients::unscale() {
  if (!found_.empty()) return;
  require(stepped_at_ != scaler_->backwards_, Status::kInvalidState,
          "the optimizer has stepped since the latest accel_backward(), and its gradients carry no scale any more; "
          "expected a backward before each step");
  const at::NoGradGuard no_grad;
  const auto inverse = static_cast<float>(1.0 / scaler_->scale());
  for (const auto& list : gradients_by_kernel()) {
    const auto options = at::TensorOptions().dtype(at::kFloat).device(list[0].device());
    found_.push_back(at::zeros({}, options));
    at::_amp_foreach_non_finite_check_and_unscale_(list, found_.back(), at::full({}, inverse, options));
  }
  if (found_.empty()) found_.push_back(at::zeros({}, at::kFloat));  // nothing to step with
}

bool ScaledGradients::overflowed() {
  unscale();
  return std::any_of(found_.begin(), found_.end(), [](const at::Tensor& found) { return found.item<float>() != 0; });
}

void ScaledGradients::finish(bool overflowed) {
  found_.clear();
  stepped_at_ = scaler_->backwards_;
  scaler_->update(overflowed, this);
}

}  // namespace accel::precision
