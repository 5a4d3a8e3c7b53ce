// SPDX-License-Identifier: Apache-2.0
// Muon (Jordan et al., 2024) as in torch.optim: momentum that is orthogonalized by a few Newton-Schulz steps.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "config/generated/option_tables.hpp"
#include "kernels/update/tensor_lists.hpp"
#include "optim/rules/rules.hpp"
#include "optim/update_recording.hpp"

namespace accel::optim {
namespace {

class MuonRule final : public UpdateRule {
 public:
  MuonRule()
      : UpdateRule(option_tables::muon_options, {{"momentum"},
                                                 {"nesterov"},
                                                 {"ns_a", "ns_coefficients"},
                                                 {"ns_b", "ns_coefficients"},
                                                 {"ns_c", "ns_coefficients"},
                                                 {"eps"},
                                                 {"ns_steps"},
                                                 {"adjust_lr_fn"}}) {}
  void check_parameter(const at::Tensor& parameter, size_t index) const override {
    require(parameter.dim() == 2, Status::kInvalidArgument, "parameter ", index, " of the group has shape ",
            parameter.sizes(), "; Muon updates matrices only: give the others to another optimizer");
  }
  c10::ArrayRef<StateEntry> state_entries() const override { return state_entries_; }
  bool counts_steps() const override { return false; }
  bool records_numbers() const override { return true; }

  void update(const ParameterGroup& group, c10::ArrayRef<Update> updates) const override {
    const auto& values = group.values;
    if (!updates[0].parameter.is_cpu()) return update_lists(group, updates.vec());
    for (const Update& update : updates) {
      const at::Tensor& momentum = update.state_tensor(0).lerp_(update.gradient, 1 - values[kMomentum]);
      const at::Tensor direction =
          values[kNesterov] != 0 ? update.gradient.lerp(momentum, values[kMomentum]) : momentum;
      const double rate = group.lr * rate_factor(group, update.parameter);
      const at::Tensor step = orthogonalized(group, direction);
      update.parameter.mul_(1 - group.lr * group.weight_decay);
      update.parameter.add_(step, -rate);
    }
  }

 private:
  enum : size_t { kMomentum, kNesterov, kA, kB, kC, kEps, kNewtonSchulzSteps, kAdjust };

  // Newton-Schulz, in bfloat16: x <- a x + (b g + c g g) x with g = x x^T, on the side where g is small.
  static at::Tensor orthogonalized(const ParameterGroup& group, const at::Tensor& matrix) {
    const auto& values = group.values;
    const bool is_tall = matrix.size(0) > matrix.size(1);
    at::Tensor x = matrix.to(at::kBFloat16, /*non_blocking=*/false, /*copy=*/true);
    if (is_tall) x = x.t();
    x.div_(at::norm(x).clamp_min_(values[kEps]));  // the iteration wants no singular value above 1
    for (int step = 0; step < static_cast<int>(values[kNewtonSchulzSteps]); ++step) {
      const at::Tensor gram = at::mm(x, x.t());
      x = at::addmm(x, at::addmm(gram, gram, gram, values[kB], values[kC]), x, values[kA]);
    }
    return is_tall ? x.t() : x;
  }

  // Orthogonalizes all matrices of one shape at once.
  static at::Tensor orthogonalized_batch(const ParameterGroup& group, const at::Tensor& matrices) {
    const auto& values = group.values;
    const bool is_tall = matrices.size(1) > matrices.size(2);
    at::Tensor x = is_tall ? matrices.transpose(1, 2) : matrices;
    x = x / at::linalg_vector_norm(x, 2, at::IntArrayRef{1, 2}, /*keepdim=*/true).clamp_min_(values[kEps]);
    for (int step = 0; step < static_cast<int>(values[kNewtonSchulzSteps]); ++step) {
      const at::Tensor gram = at::bmm(x, x.transpose(1, 2));
      x = at::baddbmm(x, at::baddbmm(gram, gram, gram, values[kB], values[kC]), x, values[kA]);
    }
    return is_tall ? x.transpose(1, 2).contiguous() : x;
  }

  // On devices: a few launches for each shape and for all matrices together.
  static void update_lists(const ParameterGroup& group, std::vector<Update> updates) {
    const auto& values = group.values;
    std::stable_sort(updates.begin(), updates.end(), [](const Update& a, const Update& b) {
      return a.parameter.sizes().vec() < b.parameter.sizes().vec();
    });
    std::vector<at::Tensor> parameters, gradients, momenta, steps;
    std::vector<at::Scalar> rates;
    for (const Update& update : updates) {
      parameters.push_back(update.parameter);
      gradients.push_back(update.gradient);
      momenta.push_back(update.state_tensor(0));
      rates.emplace_back(group.lr * rate_factor(group, update.parameter));
    }
    at::_foreach_lerp_(momenta, gradients, 1 - values[kMomentum]);
    const auto rounded = [](const std::vector<at::Tensor>& directions) {
      return kernels::cast(directions, at::kBFloat16);
    };
    const std::vector<at::Tensor> directions =
        rounded(values[kNesterov] != 0 ? at::_foreach_lerp(gradients, momenta, values[kMomentum]) : momenta);
    kernels::for_each_shape(directions, [&](size_t begin, size_t end) {
      const at::Tensor matrices = at::stack(at::TensorList(directions.data() + begin, end - begin));
      for (const at::Tensor& step : orthogonalized_batch(group, matrices).unbind(0)) steps.push_back(step);
    });
    steps = kernels::cast(steps, parameters[0].scalar_type());
    if (UpdateRecording* const recording = UpdateRecording::current()) {
      const auto count = static_cast<int64_t>(updates.size());
      const at::Tensor numbers =
          recording->numbers(updates.size() + 1, parameters[0].scalar_type(), [&group, parameters](double* to) {
            for (const at::Tensor& parameter : parameters) *to++ = group.lr * rate_factor(group, parameter);
            *to = 1 - group.lr * group.weight_decay;
          });
      at::_foreach_mul_(steps, kernels::spread_like(numbers.narrow(0, 0, count), steps));
      at::_foreach_mul_(parameters, numbers.select(0, count));
    } else {
      at::_foreach_mul_(steps, rates);
      at::_foreach_mul_(parameters, 1 - group.lr * group.weight_decay);
    }
    at::_foreach_sub_(parameters, steps);
  }

  static double rate_factor(const ParameterGroup& group, const at::Tensor& matrix) {
    const auto rows = static_cast<double>(matrix.size(0));
    const auto columns = static_cast<double>(matrix.size(1));
    const bool matches_adamw = group.values[kAdjust] != 0;
    return matches_adamw ? 0.2 * std::sqrt(std::max(rows, columns)) : std::sqrt(std::max(1.0, rows / columns));
  }

  std::vector<StateEntry> state_entries_ = {{"momentum_buffer"}};
};

}  // namespace

RulePtr muon_rule() { return std::make_unique<MuonRule>(); }

}  // namespace accel::optim
