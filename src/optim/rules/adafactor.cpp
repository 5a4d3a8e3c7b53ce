// SPDX-License-Identifier: Apache-2.0
// Adafactor (Shazeer, Stern, 2018) as in torch.optim: stores the second moment of a matrix as the means of its rows and
// columns. AdaLomo (Lv et al., 2023) computes such updates during backward.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rsub.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "config/generated/option_tables.hpp"
#include "kernels/update/factored.hpp"
#include "optim/rules/foreach_adafactor.hpp"
#include "optim/rules/rules.hpp"
#include "optim/update_recording.hpp"

namespace accel::optim {
namespace {

// The larger of the root mean square and `least`, on the tensor's device: the host does not wait for it. A half
// precision is too coarse for it.
at::Tensor root_mean_square(const at::Tensor& tensor, double least) {
  const double root = std::sqrt(static_cast<double>(tensor.numel()));
  return at::linalg_vector_norm(tensor, 2, c10::nullopt, /*keepdim=*/false, at::toOpMathType(tensor.scalar_type()))
      .div_(root)
      .clamp_min_(least);
}

at::Tensor in_opmath(const at::Tensor& tensor) { return tensor.to(at::toOpMathType(tensor.scalar_type())); }

// The mean of the squares over a dimension, which stays with size 1.
at::Tensor mean_square(const at::Tensor& tensor, int64_t dim) {
  return at::linalg_vector_norm(tensor, 2, dim, /*keepdim=*/true).square_().div_(tensor.size(dim));
}

double epsilon_of(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return std::numeric_limits<double>::epsilon();
    case at::kHalf:
      return std::numeric_limits<c10::Half>::epsilon();
    case at::kBFloat16:
      return std::numeric_limits<c10::BFloat16>::epsilon();
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

class AdafactorRule final : public UpdateRule {
 public:
  AdafactorRule()
      : UpdateRule(option_tables::adafactor_options,
                   {{"beta2_decay"}, {"eps1", "eps"}, {"eps2", "eps"}, {"d"}, {"maximize"}}) {}
  c10::ArrayRef<Constant> constants() const override {
    static constexpr Constant kConstants[] = {{"foreach", Constant::Value::kNone}};
    return kConstants;
  }
  c10::ArrayRef<StateEntry> state_entries() const override { return state_entries_; }
  bool records_numbers() const override { return true; }
  bool needs(size_t entry, const ParameterGroup&, const at::Tensor& parameter) const override {
    return (parameter.dim() > 1) == (entry != kVariance);
  }

  void update(const ParameterGroup& group, c10::ArrayRef<Update> updates) const override {
    const bool in_lists =
        !updates[0].parameter.is_cpu() && !at::isReducedFloatingType(updates[0].parameter.scalar_type());
    std::vector<Update> listed;
    for (const Update& update : updates) {
      if (in_lists && update.parameter.dim() <= 2 && update.parameter.numel() > 0)
        listed.push_back(update);
      else
        update_one(group, update);
    }
    if (!listed.empty()) update_lists(group, std::move(listed));
  }

 private:
  enum : size_t { kBeta2Decay, kEps1, kEps2, kD, kMaximize };  // settings
  enum : size_t { kRowVar, kColVar, kVariance };               // entries

  static double share_of(const ParameterGroup& group, const Update& update) {
    return std::pow(update.step(), group.values[kBeta2Decay]);
  }
  static double rate_of(const ParameterGroup& group, const Update& update) {
    return std::min(group.lr, 1 / std::sqrt(update.step()));
  }
  static double keep_of(const ParameterGroup& group) { return 1 - group.lr * group.weight_decay; }

  static void update_one(const ParameterGroup& group, const Update& update) {
    const auto& values = group.values;
    const at::Tensor& parameter = update.parameter;
    const double eps1 = std::isnan(values[kEps1]) ? epsilon_of(parameter.scalar_type()) : values[kEps1];
    if (has_kernels(parameter))
      return update_matrix(group, update, eps1, share_of(group, update), rate_of(group, update));
    if (UpdateRecording* const recording = UpdateRecording::current(); recording != nullptr && !parameter.is_cpu()) {
      const at::Tensor numbers = recording->numbers(3, parameter.scalar_type(), [&group, update](double* to) {
        to[0] = share_of(group, update), to[1] = rate_of(group, update), to[2] = keep_of(group);
      });
      return update_by(group, update, eps1, numbers.select(0, 0), numbers.select(0, 1), numbers.select(0, 2));
    }
    update_by(group, update, eps1, share_of(group, update), rate_of(group, update), keep_of(group));
  }

  // The numbers are those of the host, or tensors.
  template <typename Number>
  static void update_by(const ParameterGroup& group, const Update& update, double eps1, const Number& share,
                        const Number& rate, const Number& keep) {
    const auto& values = group.values;
    const at::Tensor& parameter = update.parameter;
    const at::Tensor gradient = values[kMaximize] != 0 ? update.gradient.neg() : update.gradient;
    const at::Tensor length = root_mean_square(parameter, values[kEps2]);
    if (group.weight_decay != 0) parameter.mul_(keep);

    at::Tensor step;
    if (gradient.dim() > 1) {
      const at::Tensor& rows = update.state_tensor(kRowVar).lerp_(mean_square(gradient, -1), share);
      const at::Tensor& columns = update.state_tensor(kColVar).lerp_(mean_square(gradient, -2), share);
      step = at::matmul(rows, columns).div_(rows.mean(-2, /*keepdim=*/true).clamp_min_(eps1));
    } else {
      step = update.state_tensor(kVariance).lerp_(gradient * gradient, share).clone();
    }
    step.clamp_min_(eps1 * eps1).rsqrt_().mul_(gradient);
    const at::Tensor excess = root_mean_square(step, values[kD]).div_(values[kD]);
    parameter.sub_(in_opmath(step).mul_(length.div(excess).mul_(rate)));
  }

  static void update_lists(const ParameterGroup& group, std::vector<Update> updates) {
    const auto& values = group.values;
    const auto is_before = [](const Update& a, const Update& b) {  // matrices by shape, then the others
      const auto &left = a.parameter, &right = b.parameter;
      return left.dim() != right.dim() ? left.dim() > right.dim()
                                       : left.dim() == 2 && left.sizes().vec() < right.sizes().vec();
    };
    std::stable_sort(updates.begin(), updates.end(), is_before);
    ForeachAdafactor lists;
    const double eps1 = std::isnan(values[kEps1]) ? epsilon_of(updates[0].parameter.scalar_type()) : values[kEps1];
    lists.eps1 = eps1, lists.eps2 = values[kEps2], lists.d = values[kD];
    lists.keep = keep_of(group), lists.decays = group.weight_decay != 0;
    for (const Update& update : updates) {
      lists.parameters.push_back(update.parameter);
      lists.gradients.push_back(update.gradient);
      if (update.parameter.dim() == 2) {
        lists.rows.push_back(update.state_tensor(kRowVar));
        lists.columns.push_back(update.state_tensor(kColVar));
      } else {
        lists.variances.push_back(update.state_tensor(kVariance));
      }
      lists.shares.emplace_back(share_of(group, update));
      lists.rates.emplace_back(rate_of(group, update));
    }
    if (values[kMaximize] != 0) lists.gradients = at::_foreach_neg(lists.gradients);
    if (UpdateRecording* const recording = UpdateRecording::current())
      lists.numbers = recording->numbers(2 * updates.size() + 1, updates[0].parameter.scalar_type(),
                                         [&group, updates](double* to) { write_numbers(group, updates, to); });
    optim::update(lists);
  }

  static void write_numbers(const ParameterGroup& group, const std::vector<Update>& updates, double* to) {
    for (const Update& update : updates) *to++ = share_of(group, update);
    for (const Update& update : updates) *to++ = rate_of(group, update) * group.values[kD];
    *to = keep_of(group);
  }

  // Only matrices that are large enough; others use LibTorch.
  static bool has_kernels(const at::Tensor& parameter) {
    return parameter.dim() == 2 && parameter.numel() >= 4096 && parameter.is_cpu() &&
           parameter.scalar_type() == at::kFloat && parameter.is_contiguous();
  }

  // Updates a matrix in three passes over memory: means, norm of the step, step.
  static void update_matrix(const ParameterGroup& group, const Update& update, double eps1, double share, double rate) {
    kernels::FactoredMatrix matrix;
    matrix.gradient = update.gradient.const_data_ptr<float>();
    matrix.parameter = update.parameter.mutable_data_ptr<float>();
    matrix.height = update.parameter.size(0);
    matrix.width = update.parameter.size(1);
    const auto count = static_cast<double>(update.parameter.numel());
    at::Tensor row_means = at::empty({matrix.height, 1}, at::kFloat);
    at::Tensor column_means = at::empty({1, matrix.width}, at::kFloat);
    const double squares =
        kernels::mean_squares(matrix, row_means.mutable_data_ptr<float>(), column_means.mutable_data_ptr<float>());
    const double length = std::max(group.values[kEps2], std::sqrt(squares / count)) * rate;

    const at::Tensor& rows = update.state_tensor(kRowVar).lerp_(row_means, share);
    const at::Tensor& columns = update.state_tensor(kColVar).lerp_(column_means, share);
    const at::Tensor of_rows = (rows / rows.mean().clamp_min_(eps1)).rsqrt_();
    const at::Tensor of_columns = columns.rsqrt();
    matrix.rows = of_rows.const_data_ptr<float>();
    matrix.columns = of_columns.const_data_ptr<float>();
    matrix.most = static_cast<float>(1 / eps1);
    const double step = std::sqrt(kernels::step_squares(matrix) / count);
    const double sign = group.values[kMaximize] != 0 ? -1 : 1;
    kernels::take_step(matrix, static_cast<float>(1 - group.lr * group.weight_decay),
                       static_cast<float>(sign * length / std::max(1.0, step / group.values[kD])));
  }

  std::vector<StateEntry> state_entries_ = {{"row_var", StateEntry::Kind::kRows},
                                            {"col_var", StateEntry::Kind::kColumns},
                                            {"variance", StateEntry::Kind::kLikeParameter}};
};

// Each update has at most a given root mean square, times that of its parameter. Computed in float32 for half
// precision.
class AdaLomoRule final : public UpdateRule {
 public:
  AdaLomoRule()
      : UpdateRule(option_tables::adalomo_options, {{"decay_rate"},
                                                    {"eps1", "eps"},
                                                    {"eps2", "eps"},
                                                    {"clip_threshold"},
                                                    {"clip_grad_norm"},
                                                    {"clip_grad_value"}}) {}
  void check(const ParameterGroup& group) const override {
    require(group.values[kClipThreshold] > 0, Status::kInvalidArgument,
            "clip_threshold is 0; expected the most that the root mean square of an update may be, above 0");
  }
  c10::ArrayRef<StateEntry> state_entries() const override { return state_entries_; }
  bool needs(size_t entry, const ParameterGroup&, const at::Tensor& parameter) const override {
    return (parameter.dim() > 1) == (entry != kSquares);
  }
  bool updates_in_backward() const override { return true; }

  void update(const ParameterGroup& group, c10::ArrayRef<Update> updates) const override {
    for (const Update& update : updates) update_one(group, update);
  }

 private:
  enum : size_t { kDecayRate, kEps1, kEps2, kClipThreshold };  // settings
  enum : size_t { kRows, kColumns, kSquares };                 // entries

  static void update_one(const ParameterGroup& group, const Update& update) {
    const auto& values = group.values;
    const at::Tensor parameter = in_opmath(update.parameter);
    const at::Tensor gradient = in_opmath(update.gradient);
    const double share = std::pow(update.step(), values[kDecayRate]);
    const at::Tensor squares = gradient.square().add_(values[kEps1]);
    at::Tensor step;
    if (gradient.dim() > 1) {
      const at::Tensor& rows = update.state_tensor(kRows).lerp_(squares.mean(-1, /*keepdim=*/true), share);
      const at::Tensor& columns = update.state_tensor(kColumns).lerp_(squares.mean(-2, /*keepdim=*/true), share);
      step = (rows / rows.mean(-2, /*keepdim=*/true)).rsqrt_() * columns.rsqrt();
    } else {
      step = update.state_tensor(kSquares).lerp_(squares, share).rsqrt();
    }
    step.mul_(gradient);
    const at::Tensor rate = root_mean_square(parameter, values[kEps2]).mul_(group.lr);
    if (group.weight_decay != 0) parameter.mul_(at::rsub(rate * group.weight_decay, 1));
    const at::Tensor excess = root_mean_square(step, values[kClipThreshold]).div_(values[kClipThreshold]);
    parameter.sub_(step.mul_(rate.div(excess)));
    if (!parameter.is_same(update.parameter)) update.parameter.copy_(parameter);
  }

  std::vector<StateEntry> state_entries_ = {float32_entry("exp_avg_sq_row", StateEntry::Kind::kRows),
                                            float32_entry("exp_avg_sq_col", StateEntry::Kind::kColumns),
                                            float32_entry("exp_avg_sq", StateEntry::Kind::kLikeParameter)};

  static StateEntry float32_entry(const char* key, StateEntry::Kind kind) {
    StateEntry entry{key, kind};
    entry.is_float32 = true;
    return entry;
  }
};

}  // namespace

RulePtr adalomo_rule() { return std::make_unique<AdaLomoRule>(); }
RulePtr adafactor_rule() { return std::make_unique<AdafactorRule>(); }

}  // namespace accel::optim
