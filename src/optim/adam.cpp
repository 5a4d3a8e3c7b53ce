#include "optim/adam.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::optim {
namespace {

void check(const AdamSettings& settings) {
  require_decay_rate(settings.beta1, "beta1");
  require_decay_rate(settings.beta2, "beta2");
  require_not_negative(settings.eps, "eps");
}

AdamSettings read_settings(const Map& map, AdamSettings settings) {
  if (const c10::IValue* const betas = find(map, "betas"); betas != nullptr) {
    const bool pair =
        (betas->isList() && betas->toListRef().size() == 2) || (betas->isTuple() && betas->toTupleRef().size() == 2);
    require(pair, Status::kInvalidArgument, "\"betas\" of a parameter group is a ", tree::kind_name(*betas),
            "; expected two numbers");
    const auto at = [&](size_t i) {
      return betas->isList() ? betas->toListRef()[i] : betas->toTupleRef().elements()[i];
    };
    require(at(0).isDouble() && at(1).isDouble(), Status::kInvalidArgument, "\"betas\" of a parameter group holds a ",
            tree::kind_name(at(0)), " and a ", tree::kind_name(at(1)), "; expected two numbers");
    settings.beta1 = at(0).toDouble();
    settings.beta2 = at(1).toDouble();
  }
  settings.eps = read_number(map, "eps", settings.eps);
  settings.amsgrad = read_flag(map, "amsgrad", settings.amsgrad);
  settings.maximize = read_flag(map, "maximize", settings.maximize);
  check(settings);
  return settings;
}

at::Tensor new_step(const at::Tensor& parameter, double value) {
  return at::full({}, value, parameter.options().dtype(at::kFloat).requires_grad(false));
}

// Older files have the step as a number.
at::Tensor read_step(const Map& state, size_t index, const at::Tensor& parameter) {
  const c10::IValue* const value = find(state, "step");
  const bool is_tensor = value != nullptr && value->isTensor() && value->toTensor().numel() == 1;
  require(is_tensor || (value != nullptr && (value->isInt() || value->isDouble())), Status::kInvalidArgument,
          "state of parameter ", index, " has no \"step\"; expected a number");
  return new_step(parameter, is_tensor ? value->toTensor().item<double>() : value->toScalar().toDouble());
}

}  // namespace

struct Adam::LoadedAdam final : Loaded {
  std::vector<AdamSettings> settings;
  std::vector<State> states;
};

Adam::Adam(WeightDecay kind, const AdamSettings& settings)
    : ParameterOptimizer(settings.lr, settings.weight_decay), kind_(kind), defaults_(settings) {
  check(settings);
}

void Adam::group_added() {
  settings_.push_back(defaults_);
  states_.resize(parameters().size());
}

Adam::State& Adam::state_of(const GradientEntry& entry, bool amsgrad) {
  State& state = states_[entry.index];
  if (!state.step.defined()) {
    state.step = new_step(entry.parameter, 0);
    state.exp_avg = at::zeros_like(entry.parameter);
    state.exp_avg_sq = at::zeros_like(entry.parameter);
  }
  if (amsgrad && !state.max_exp_avg_sq.defined()) state.max_exp_avg_sq = at::zeros_like(entry.parameter);
  return state;
}

void Adam::update(size_t group, c10::ArrayRef<GradientEntry> entries) {
  const AdamSettings& settings = settings_[group];
  std::vector<at::Tensor> lists[6];
  for (auto& list : lists) list.reserve(entries.size());
  auto& [parameters, gradients, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps] = lists;
  for (const auto& entry : entries) {
    const State& state = state_of(entry, settings.amsgrad);
    parameters.push_back(entry.parameter);
    gradients.push_back(entry.gradient);
    exp_avgs.push_back(state.exp_avg);
    exp_avg_sqs.push_back(state.exp_avg_sq);
    if (settings.amsgrad) max_exp_avg_sqs.push_back(state.max_exp_avg_sq);
    steps.push_back(state.step);
  }
  if (entries[0].parameter.device().is_cpu()) {
    for (const auto& step : steps)
      *step.mutable_data_ptr<float>() += 1;  // an operator call each would cost more than small updates
  } else {
    at::_foreach_add_(steps, 1);
  }
  const auto kernel = [&](auto&& fused) {
    fused(parameters, gradients, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, groups()[group].lr, settings.beta1,
          settings.beta2, groups()[group].weight_decay, settings.eps, settings.amsgrad, settings.maximize);
  };
  if (kind_ == WeightDecay::kDecoupled) {
    kernel([](const auto&... arguments) { at::_fused_adamw_(arguments...); });
  } else {
    kernel([](const auto&... arguments) { at::_fused_adam_(arguments...); });
  }
}

void Adam::write_settings(size_t group, Map& settings) const {
  const AdamSettings& own = settings_[group];
  auto betas = tree::new_list();
  betas.push_back(own.beta1);
  betas.push_back(own.beta2);
  settings.insert("betas", betas);
  settings.insert("eps", own.eps);
  settings.insert("amsgrad", own.amsgrad);
  settings.insert("maximize", own.maximize);
  settings.insert("decoupled_weight_decay", kind_ == WeightDecay::kDecoupled);
  settings.insert("foreach", c10::IValue());
  settings.insert("capturable", false);
  settings.insert("differentiable", false);
  settings.insert("fused", true);
}

std::optional<Map> Adam::write_state(size_t index) const {
  const State& state = states_[index];
  if (!state.step.defined()) return std::nullopt;
  Map map = tree::new_map();
  map.insert("step", state.step);
  map.insert("exp_avg", state.exp_avg);
  map.insert("exp_avg_sq", state.exp_avg_sq);
  if (state.max_exp_avg_sq.defined()) map.insert("max_exp_avg_sq", state.max_exp_avg_sq);
  return map;
}

std::unique_ptr<ParameterOptimizer::Loaded> Adam::read(const std::vector<Map>& settings,
                                                       const std::vector<std::optional<Map>>& states) const {
  auto loaded = std::make_unique<LoadedAdam>();
  for (size_t group = 0; group < settings.size(); ++group)
    loaded->settings.push_back(read_settings(settings[group], settings_[group]));
  loaded->states.resize(states.size());
  for (size_t index = 0; index < states.size(); ++index) {
    if (!states[index]) continue;
    const Map& map = *states[index];
    State& state = loaded->states[index];
    const at::Tensor& parameter = parameters()[index];
    state.step = read_step(map, index, parameter);
    state.exp_avg = read_like(map, "exp_avg", index, parameter);
    state.exp_avg_sq = read_like(map, "exp_avg_sq", index, parameter);
    if (find(map, "max_exp_avg_sq") != nullptr)
      state.max_exp_avg_sq = read_like(map, "max_exp_avg_sq", index, parameter);
  }
  return loaded;
}

void Adam::adopt(std::unique_ptr<Loaded> loaded) noexcept {
  auto& own = static_cast<LoadedAdam&>(*loaded);
  settings_ = std::move(own.settings);
  states_ = std::move(own.states);
}

}  // namespace accel::optim
