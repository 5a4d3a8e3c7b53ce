// SPDX-License-Identifier: Apache-2.0
// Adam (Kingma, Ba, 2015) and its variants: AdamW (Loshchilov, Hutter, 2019), AdamW with 8-bit moments (Dettmers
// et al., 2022), Adamax (Kingma, Ba, 2015), NAdam (Dozat, 2016), RAdam (Liu et al., 2020), LAMB (You et al., 2020).
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "config/generated/option_tables.hpp"
#include "kernels/update/elementwise.hpp"
#include "kernels/update/foreach_quantization.hpp"
#include "kernels/update/foreach_update.hpp"
#include "kernels/update/tensor_lists.hpp"
#include "optim/rules/elementwise_rule.hpp"
#include "optim/rules/rules.hpp"

namespace accel::optim {
namespace {

using kernels::UpdateKernel;
using Constant = UpdateRule::Constant;
using Value = UpdateRule::Constant::Value;

// Indices of the settings that all variants begin with.
enum : size_t { kBeta1, kBeta2, kEps, kMaximize, kOwn };

constexpr Constant kForeachConstants[] = {
    {"foreach", Value::kNone}, {"capturable", Value::kFalse}, {"differentiable", Value::kFalse}};

class AdamFamily : public ElementwiseRule {
 public:
  c10::ArrayRef<Constant> constants() const override { return kForeachConstants; }
  c10::ArrayRef<StateEntry> state_entries() const override { return state_entries_; }

 protected:
  explicit AdamFamily(const OptionTable& options, const std::vector<Setting>& further = {},
                      std::vector<StateEntry> entries = {{"exp_avg"}, {"exp_avg_sq"}})
      : ElementwiseRule(options, {{"beta1", "betas"}, {"beta2", "betas"}, {"eps"}, {"maximize"}}, further),
        state_entries_(std::move(entries)) {}

  static bool is_set(const ParameterGroup& group, size_t setting) { return group.values[setting] != 0; }
  // Bias correction of a moving average of `step` values that started at 0.
  static double correction(double beta, double step) { return 1 - std::pow(beta, step); }
  static void set_moments(const ParameterGroup& group, bool decoupled, Scalars scalars) {
    set_decay(group, decoupled, is_set(group, kMaximize), scalars);
    scalars[kernels::kRest1] = 1 - group.values[kBeta1];
    scalars[kernels::kBeta2] = group.values[kBeta2];
    scalars[kernels::kRest2] = 1 - group.values[kBeta2];
    scalars[kernels::kEps] = group.values[kEps];
  }

 private:
  std::vector<StateEntry> state_entries_;
};

class AdamRule : public AdamFamily {
 public:
  explicit AdamRule(WeightDecay decay, std::vector<StateEntry> entries = {{"exp_avg"}, {"exp_avg_sq"}, largest()})
      : AdamFamily(option_tables::adam_options, {{"amsgrad"}}, std::move(entries)),
        decoupled_(decay == WeightDecay::kDecoupled) {
    if (decoupled_) set_default_weight_decay(0.01);  // one struct is for both
  }

  c10::ArrayRef<Constant> constants() const override {
    static constexpr Constant kInGradient[] = {{"foreach", Value::kNone},
                                               {"capturable", Value::kFalse},
                                               {"differentiable", Value::kFalse},
                                               {"fused", Value::kTrue},
                                               {"decoupled_weight_decay", Value::kFalse}};
    static constexpr Constant kDecoupled[] = {{"foreach", Value::kNone},
                                              {"capturable", Value::kFalse},
                                              {"differentiable", Value::kFalse},
                                              {"fused", Value::kTrue},
                                              {"decoupled_weight_decay", Value::kTrue}};
    if (decoupled_) return kDecoupled;
    return kInGradient;
  }
  bool needs(size_t entry, const ParameterGroup& group, const at::Tensor&) const override {
    return entry < 2 || is_set(group, kAmsgrad);
  }
  bool keeps_step_on_device() const override { return true; }
  bool reads_overflow() const override { return true; }
  bool reads_device_rate() const override { return true; }

 protected:
  enum : size_t { kAmsgrad = kOwn };
  static StateEntry largest() { return {"max_exp_avg_sq", StateEntry::Kind::kLikeParameter, 0, /*is_optional=*/true}; }

  UpdateKernel kernel(const ParameterGroup& group) const override {
    return is_set(group, kAmsgrad) ? UpdateKernel::kAdamAmsgrad : UpdateKernel::kAdam;
  }
  void set_scalars(const ParameterGroup& group, const Update& update, Scalars scalars) const override {
    set_moments(group, decoupled_, scalars);
    scalars[kernels::kRate] = group.lr / correction(group.values[kBeta1], update.step());
    scalars[kernels::kScale] = 1 / std::sqrt(correction(group.values[kBeta2], update.step()));
  }
  void update_on_device(const ParameterGroup& group, c10::ArrayRef<Update> updates) const override {
    const std::optional<at::Tensor> overflow = updates[0].overflow_if_any();
    kernels::update_in_parts(make_lists(group, updates), 0,
                             [&](const kernels::ForeachUpdate& lists) { update_fused(group, lists, overflow); });
  }
  void update_fused(const ParameterGroup& group, const kernels::ForeachUpdate& lists,
                    const std::optional<at::Tensor>& overflow) const {
    const auto with = [&](auto&& fused) {
      const auto at_rate = [&](const auto& rate) {
        fused(lists.parameters, lists.gradients, lists.states[0], lists.states[1], lists.states[2], lists.steps, rate,
              group.values[kBeta1], group.values[kBeta2], group.weight_decay, group.values[kEps],
              is_set(group, kAmsgrad), is_set(group, kMaximize), /*grad_scale=*/std::optional<at::Tensor>(), overflow);
      };
      if (group.device_rate) return at_rate(group.device_rate->value);
      at_rate(group.lr);
    };
    if (decoupled_) {
      with([](const auto&... arguments) { at::_fused_adamw_(arguments...); });
    } else {
      with([](const auto&... arguments) { at::_fused_adam_(arguments...); });
    }
  }

 private:
  bool decoupled_;
};

class AdamW8BitRule final : public AdamRule {
 public:
  AdamW8BitRule()
      : AdamRule(
            WeightDecay::kDecoupled,
            {{"exp_avg", StateEntry::Kind::kSigned8Bit}, {"exp_avg_sq", StateEntry::Kind::kUnsigned8Bit}, largest()}) {}
  // Bytes that are decoded and stored again may be others.
  bool reads_overflow() const override { return false; }
  StateEntry::Kind kind(size_t entry, const at::Tensor& parameter) const override {
    return parameter.numel() < kFewest ? StateEntry::Kind::kLikeParameter : state_entries()[entry].kind;
  }
  void check(const ParameterGroup& group) const override {
    require(!is_set(group, kAmsgrad), Status::kInvalidArgument, "amsgrad is 1; the 8-bit AdamW has none: expected 0");
  }
  void check_parameter(const at::Tensor& parameter, size_t index) const override {
    require(parameter.scalar_type() != at::kDouble, Status::kUnsupported, "parameter ", index, " of the group is ",
            parameter.scalar_type(), "; the 8-bit AdamW updates float32, bfloat16 and float16");
  }

 protected:
  void update_on_device(const ParameterGroup& group, c10::ArrayRef<Update> updates) const override {
    std::vector<Update> small, large;
    for (const Update& update : updates) (update.parameter.numel() < kFewest ? small : large).push_back(update);
    if (!small.empty()) AdamRule::update_on_device(group, small);
    if (large.empty()) return;
    std::vector<Part> parts;
    int64_t room = kMostElements;
    for (const Update& update : large)
      for (int64_t begin = 0; begin < update.parameter.numel();) {
        if (room < kernels::kBlock) {
          update_quantized(group, std::exchange(parts, {}));
          room = kMostElements;
        }
        const int64_t count = std::min(update.parameter.numel() - begin, room / kernels::kBlock * kernels::kBlock);
        parts.push_back({&update, begin, count});
        begin += count;
        room -= count;
      }
    update_quantized(group, parts);
    std::vector<at::Tensor> rounded, parameters;
    for (const Update& update : large) {
      if (!update.rounded.defined()) continue;
      rounded.push_back(update.rounded);
      parameters.push_back(update.parameter);
    }
    if (!rounded.empty()) at::_foreach_copy_(rounded, parameters);
  }

 private:
  // Consecutive blocks of a parameter.
  struct Part {
    const Update* update;
    int64_t begin, count;
    at::Tensor of(const at::Tensor& tensor) const { return kernels::flat(tensor).narrow(0, begin, count); }
    at::Tensor of_scales(const at::Tensor& scales) const {
      return scales.narrow(0, begin / kernels::kBlock, kernels::num_blocks(count));
    }
  };

  void update_quantized(const ParameterGroup& group, const std::vector<Part>& parts) const {
    kernels::ForeachUpdate lists;
    std::vector<kernels::QuantizedMoments> moments;
    for (const Part& part : parts) {
      const auto& [first, second] = std::tie(part.update->state->values[0], part.update->state->values[1]);
      lists.parameters.push_back(part.of(part.update->parameter));
      lists.gradients.push_back(part.of(part.update->gradient));
      lists.steps.push_back(part.update->state->step);
      moments.push_back(
          {part.of(first.tensor), part.of_scales(first.scales), part.of(second.tensor), part.of_scales(second.scales)});
    }
    const std::vector<at::Tensor> stored = lists.parameters;
    const bool is_half = stored[0].scalar_type() != at::kFloat;
    if (is_half) lists.parameters = kernels::cast(lists.parameters, at::kFloat);
    if (lists.gradients[0].scalar_type() != at::kFloat) lists.gradients = kernels::cast(lists.gradients, at::kFloat);
    kernels::DecodedMoments decoded(std::move(moments), decoded_codes(stored[0].device()));
    lists.states[0] = decoded.first();
    lists.states[1] = decoded.second();
    update_fused(group, lists, /*overflow=*/std::nullopt);
    decoded.store();
    if (parts[0].update->stochastic_rounding)
      kernels::round_stochastically(lists.parameters, stored);
    else if (is_half)
      at::_foreach_copy_(stored, lists.parameters);
  }

  // Made once for a device: copying them there waits.
  at::Tensor decoded_codes(c10::Device device) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const at::Tensor& known : decoded_codes_)
      if (known.device() == device) return known;
    return decoded_codes_.emplace_back(kernels::decoded_codes(device));
  }

  static constexpr int64_t kMostElements = 1 << 20;  // at a time, of some 50 bytes each
  mutable std::mutex mutex_;
  mutable std::vector<at::Tensor> decoded_codes_;  // of each device
  static constexpr int64_t kFewest = 4096;         // for less the bytes do not matter, but biases and norms do
};

class NadamRule final : public AdamFamily {
 public:
  NadamRule()
      : AdamFamily(option_tables::nadam_options, {{"momentum_decay"}, {"decoupled_weight_decay"}},
                   {{"exp_avg"}, {"exp_avg_sq"}, {"mu_product", StateEntry::Kind::kNumber, 1}}) {}

 protected:
  enum : size_t { kMomentumDecay = kOwn, kDecoupled };

  UpdateKernel kernel(const ParameterGroup&) const override { return UpdateKernel::kNadam; }
  void set_scalars(const ParameterGroup& group, const Update& update, Scalars scalars) const override {
    set_moments(group, is_set(group, kDecoupled), scalars);
    const auto momentum = [&](double step) {
      return group.values[kBeta1] * (1 - 0.5 * std::pow(0.96, step * group.values[kMomentumDecay]));
    };
    const double step = update.step();
    const double now = momentum(step);
    const double next = momentum(step + 1);
    auto& product = *update.state_tensor(2).mutable_data_ptr<float>();
    product = static_cast<float>(product * now);
    scalars[kernels::kScale] = 1 / std::sqrt(correction(group.values[kBeta2], step));
    scalars[kernels::kShare1] = group.lr * (1 - now) / (1 - product);
    scalars[kernels::kShare2] = group.lr * next / (1 - product * next);
  }
};

class RadamRule final : public AdamFamily {
 public:
  RadamRule() : AdamFamily(option_tables::radam_options, {{"decoupled_weight_decay"}}) {}

 protected:
  enum : size_t { kDecoupled = kOwn };

  UpdateKernel kernel(const ParameterGroup&) const override { return UpdateKernel::kRadam; }
  void set_scalars(const ParameterGroup& group, const Update& update, Scalars scalars) const override {
    set_moments(group, is_set(group, kDecoupled), scalars);
    const double beta2 = group.values[kBeta2];
    const double step = update.step();
    const double missing = correction(beta2, step);
    const double longest = 2 / (1 - beta2) - 1;
    const double length = longest - 2 * step * std::pow(beta2, step) / missing;
    const double rate = group.lr / correction(group.values[kBeta1], step);
    scalars[kernels::kShare1] = 0;
    scalars[kernels::kShare2] = rate;
    if (length > 5) {
      const double rectification =
          std::sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length));
      scalars[kernels::kShare1] = rate * std::sqrt(missing) * rectification;
      scalars[kernels::kShare2] = 0;
    }
  }
};

class AdamaxRule final : public AdamFamily {
 public:
  AdamaxRule() : AdamFamily(option_tables::adamax_options, {}, {{"exp_avg"}, {"exp_inf"}}) {}

 protected:
  UpdateKernel kernel(const ParameterGroup&) const override { return UpdateKernel::kAdamax; }
  void set_scalars(const ParameterGroup& group, const Update& update, Scalars scalars) const override {
    set_moments(group, false, scalars);
    scalars[kernels::kRate] = group.lr / correction(group.values[kBeta1], update.step());
  }
};

// LAMB: the direction of AdamW, then a step whose length depends on the norms of parameter and direction.
class LambRule final : public AdamFamily {
 public:
  LambRule() : AdamFamily(option_tables::lamb_options) {}
  bool is_elementwise() const override { return false; }
  void update(const ParameterGroup& group, c10::ArrayRef<Update> updates) const override {
    if (!updates[0].parameter.is_cpu()) return update_on_device(group, updates);
    std::vector<kernels::UpdateArguments> arguments;
    std::vector<std::vector<double>> squares;
    for (const Update& update : updates) {
      arguments.push_back(make_arguments(group, update));
      squares.emplace_back(2 * static_cast<size_t>(kernels::num_blocks(arguments.back().count)));
      arguments.back().squares = squares.back().data();
      arguments.back().rounded = {};
    }
    kernels::update(UpdateKernel::kLambDirection, arguments);
    for (size_t i = 0; i < updates.size(); ++i) {
      double length = 0;
      double step = 0;
      for (size_t block = 0; block < squares[i].size(); block += 2) {
        length += squares[i][block];
        step += squares[i][block + 1];
      }
      arguments[i].scalars[kernels::kRate] = group.lr * (length > 0 && step > 0 ? std::sqrt(length / step) : 1);
      if (updates[i].rounded.defined()) arguments[i].rounded = kernels::span_of(updates[i].rounded);
    }
    kernels::update(UpdateKernel::kLambStep, arguments);
  }

 protected:
  UpdateKernel kernel(const ParameterGroup&) const override { return UpdateKernel::kLambDirection; }
  void set_scalars(const ParameterGroup& group, const Update& update, Scalars scalars) const override {
    set_moments(group, false, scalars);
    scalars[kernels::kDecay] = 0;
    scalars[kernels::kRate] = group.lr;
    scalars[kernels::kShare1] = 1 / correction(group.values[kBeta1], update.step());
    scalars[kernels::kScale] = 1 / std::sqrt(correction(group.values[kBeta2], update.step()));
    scalars[kernels::kShare2] = group.weight_decay;
  }

  void run_on_device(const ParameterGroup&, const kernels::ForeachUpdate& lists) const override {
    kernels::update_lamb(lists);
  }
};

}  // namespace

RulePtr adam_rule(WeightDecay decay) { return std::make_unique<AdamRule>(decay); }
RulePtr adamw_8bit_rule() { return std::make_unique<AdamW8BitRule>(); }
RulePtr nadam_rule() { return std::make_unique<NadamRule>(); }
RulePtr radam_rule() { return std::make_unique<RadamRule>(); }
RulePtr adamax_rule() { return std::make_unique<AdamaxRule>(); }
RulePtr lamb_rule() { return std::make_unique<LambRule>(); }

}  // namespace accel::optim
