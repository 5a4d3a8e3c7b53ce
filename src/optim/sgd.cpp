#include "optim/sgd.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::optim {
namespace {

void check(const SgdSettings& settings) {
  require_not_negative(settings.momentum, "momentum");
  require_not_negative(settings.dampening, "dampening");
  require(!settings.nesterov || (settings.momentum > 0 && settings.dampening == 0), Status::kInvalidArgument,
          "nesterov with momentum ", settings.momentum, " and dampening ", settings.dampening,
          "; expected a momentum above 0 and no dampening");
}

SgdSettings read_settings(const Map& map, SgdSettings settings) {
  settings.momentum = read_number(map, "momentum", settings.momentum);
  settings.dampening = read_number(map, "dampening", settings.dampening);
  settings.nesterov = read_flag(map, "nesterov", settings.nesterov);
  settings.maximize = read_flag(map, "maximize", settings.maximize);
  check(settings);
  return settings;
}

}  // namespace

struct Sgd::LoadedSgd final : Loaded {
  std::vector<SgdSettings> settings;
  std::vector<at::Tensor> momentum_buffers;
};

Sgd::Sgd(const SgdSettings& settings) : ParameterOptimizer(settings.lr, settings.weight_decay), defaults_(settings) {
  check(settings);
}

void Sgd::group_added() {
  settings_.push_back(defaults_);
  momentum_buffers_.resize(parameters().size());
}

void Sgd::update(size_t group, c10::ArrayRef<GradientEntry> entries) {
  // The first step of a parameter fills its buffer instead of decaying it; the
  // kernel wants lists of one kind.
  std::vector<GradientEntry> first;
  std::vector<GradientEntry> later;
  for (const auto& entry : entries) {
    const bool has_history = settings_[group].momentum == 0 || momentum_buffers_[entry.index].defined();
    (has_history ? later : first).push_back(entry);
  }
  for (const auto& entry : first) momentum_buffers_[entry.index] = at::empty_like(entry.parameter);
  if (!first.empty()) update_alike(group, first, true);
  if (!later.empty()) update_alike(group, later, false);
}

void Sgd::update_alike(size_t group, const std::vector<GradientEntry>& entries, bool is_first_step) {
  const SgdSettings& settings = settings_[group];
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> buffers;
  for (const auto& entry : entries) {
    parameters.push_back(entry.parameter);
    gradients.push_back(entry.gradient);
    if (settings.momentum != 0) buffers.push_back(momentum_buffers_[entry.index]);
  }
  at::_fused_sgd_(parameters, gradients, buffers, groups()[group].weight_decay, settings.momentum, groups()[group].lr,
                  settings.dampening, settings.nesterov, settings.maximize, is_first_step);
}

void Sgd::write_settings(size_t group, Map& settings) const {
  const SgdSettings& own = settings_[group];
  settings.insert("momentum", own.momentum);
  settings.insert("dampening", own.dampening);
  settings.insert("nesterov", own.nesterov);
  settings.insert("maximize", own.maximize);
  settings.insert("foreach", c10::IValue());
  settings.insert("differentiable", false);
  settings.insert("fused", true);
}

std::optional<Map> Sgd::write_state(size_t index) const {
  if (!momentum_buffers_[index].defined()) return std::nullopt;
  Map map = tree::new_map();
  map.insert("momentum_buffer", momentum_buffers_[index]);
  return map;
}

std::unique_ptr<ParameterOptimizer::Loaded> Sgd::read(const std::vector<Map>& settings,
                                                      const std::vector<std::optional<Map>>& states) const {
  auto loaded = std::make_unique<LoadedSgd>();
  for (size_t group = 0; group < settings.size(); ++group)
    loaded->settings.push_back(read_settings(settings[group], settings_[group]));
  loaded->momentum_buffers.resize(states.size());
  for (size_t index = 0; index < states.size(); ++index) {
    if (!states[index]) continue;
    const c10::IValue* const buffer = find(*states[index], "momentum_buffer");
    if (buffer == nullptr || buffer->isNone()) continue;  // torch.optim has it so before the first step with momentum
    loaded->momentum_buffers[index] = read_like(*states[index], "momentum_buffer", index, parameters()[index]);
  }
  return loaded;
}

void Sgd::adopt(std::unique_ptr<Loaded> loaded) noexcept {
  auto& own = static_cast<LoadedSgd&>(*loaded);
  settings_ = std::move(own.settings);
  momentum_buffers_ = std::move(own.momentum_buffers);
}

}  // namespace accel::optim
