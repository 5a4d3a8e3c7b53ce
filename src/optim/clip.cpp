// SPDX-License-Identifier: Apache-2.0
#include "optim/clip.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "kernels/update/elementwise.hpp"

namespace accel::optim {
namespace {

constexpr double kNormEpsilon = 1e-6;  // torch.nn.utils.clip_grad_norm_
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<at::Tensor> dense_gradients(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    require(gradient.layout() == at::kStrided, Status::kUnsupported, "a sparse gradient of shape ", gradient.sizes(),
            " cannot be clipped; expected dense ones");
    gradients.push_back(gradient);
  }
  return gradients;
}

// One list per device, as foreach kernels require.
std::vector<std::vector<at::Tensor>> by_device(const std::vector<at::Tensor>& tensors) {
  std::vector<std::vector<at::Tensor>> lists;
  for (const auto& tensor : tensors) {
    auto list = lists.begin();
    while (list != lists.end() && list->front().device() != tensor.device()) ++list;
    if (list == lists.end()) list = lists.emplace(lists.end());
    list->push_back(tensor);
  }
  return lists;
}

// Whether the kernels of this library support them: a call of LibTorch for each of a thousand gradients would cost more
// than the work.
bool have_kernels(const std::vector<at::Tensor>& gradients) {
  return std::all_of(gradients.begin(), gradients.end(), [](const at::Tensor& gradient) {
    return gradient.is_cpu() && gradient.is_non_overlapping_and_dense() && kernels::has_format(gradient.scalar_type());
  });
}

std::optional<kernels::Norm> kernel_norm(double norm_type) {
  if (norm_type == 1) return kernels::Norm::kSum;
  if (norm_type == 2) return kernels::Norm::kSquares;
  if (norm_type == kInfinity) return kernels::Norm::kLargest;
  return std::nullopt;
}

double joint_norm(kernels::Norm kind, const std::vector<at::Tensor>& gradients) {
  double total = 0;
  for (const double norm : kernels::norms(kind, gradients)) {
    if (kind == kernels::Norm::kLargest) {
      total = norm > total || std::isnan(norm) ? norm : total;
    } else {
      total += norm;
    }
  }
  return kind == kernels::Norm::kSquares ? std::sqrt(total) : total;
}

void check_norm(double max_norm, double norm_type) {
  require(max_norm >= 0, Status::kInvalidArgument, "max_norm is ", max_norm, "; expected at least 0");
  require(norm_type > 0, Status::kInvalidArgument, "norm_type is ", norm_type,
          "; expected a number above 0, or infinity");
}

at::Tensor norm_of(const std::vector<at::Tensor>& gradients, double norm_type) {
  if (const auto kind = kernel_norm(norm_type); kind && have_kernels(gradients))
    return at::full({}, joint_norm(*kind, gradients), at::kDouble);
  std::vector<at::Tensor> norms;
  for (const auto& list : by_device(gradients))
    for (const auto& norm : at::_foreach_norm(list, norm_type)) norms.push_back(norm.to(gradients[0].device()));
  return at::linalg_vector_norm(at::stack(norms), norm_type);
}

void scale_to_norm(const std::vector<at::Tensor>& gradients, const at::Tensor& total, double max_norm) {
  // Multiplies even if the factor is 1: a check would wait for the device. On the CPU there is no wait.
  const at::Tensor factor = clip_factor(total, max_norm);
  if (total.is_cpu()) {
    const double value = factor.item<double>();
    if (value == 1.0) return;
    if (have_kernels(gradients)) return kernels::scale(gradients, value, kInfinity);
  }
  for (const auto& list : by_device(gradients)) at::_foreach_mul_(list, factor.to(list[0].device()));
}

}  // namespace

double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + kNormEpsilon);
  return factor > 1 ? 1 : factor;  // NaN stays
}

at::Tensor clip_factor(const at::Tensor& norm, double max_norm) {
  return (max_norm / (norm + kNormEpsilon)).clamp_max(1.0);
}

at::Tensor clip_gradients_by_norm(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type) {
  check_norm(max_norm, norm_type);
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = dense_gradients(parameters);
  if (gradients.empty()) return at::zeros({}, at::kFloat);
  if (const auto kind = kernel_norm(norm_type); kind && have_kernels(gradients)) {
    const double norm = joint_norm(*kind, gradients);
    const double factor = clip_factor(norm, max_norm);
    if (factor != 1) kernels::scale(gradients, factor, kInfinity);
    return at::full({}, norm, gradients[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  }
  const at::Tensor total = norm_of(gradients, norm_type);
  scale_to_norm(gradients, total, max_norm);
  return total;
}

at::Tensor clip_shared_gradients_by_norm(const std::vector<at::Tensor>& counted, const std::vector<at::Tensor>& copies,
                                         double max_norm, double norm_type, const CombineNorms& combine) {
  check_norm(max_norm, norm_type);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients = dense_gradients(counted);
  const std::vector<at::Tensor> others = dense_gradients(copies);
  const bool largest = norm_type == kInfinity;
  // Powers are summed over the ranks, in float64, which holds them where float32 overflows; a rank may have no part of
  // any gradient, and an empty part is 0.
  const auto power_of = [&](const std::vector<at::Tensor>& list) {
    std::vector<at::Tensor> filled;
    for (const at::Tensor& gradient : list)
      if (gradient.numel() > 0) filled.push_back(gradient);
    const at::Tensor norm = filled.empty() ? at::zeros({}, at::kDouble) : norm_of(filled, norm_type).to(at::kDouble);
    return largest ? norm : norm.pow(norm_type);
  };
  at::Tensor total = combine(power_of(gradients).reshape({1}), largest).squeeze(0);
  if (!largest) total = total.pow(1 / norm_type);
  gradients.insert(gradients.end(), others.begin(), others.end());
  if (!gradients.empty()) scale_to_norm(gradients, total, max_norm);
  const auto is_double = [](const at::Tensor& parameter) { return parameter.scalar_type() == at::kDouble; };
  const bool exact =
      std::any_of(counted.begin(), counted.end(), is_double) || std::any_of(copies.begin(), copies.end(), is_double);
  return exact ? total : total.to(at::kFloat);
}

void clip_gradients_by_value(const std::vector<at::Tensor>& parameters, double clip_value) {
  require(clip_value >= 0, Status::kInvalidArgument, "clip_value is ", clip_value, "; expected at least 0");
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = dense_gradients(parameters);
  if (have_kernels(gradients)) return kernels::scale(gradients, 1, clip_value);
  for (const auto& list : by_device(gradients)) {
    at::_foreach_clamp_min_(list, -clip_value);
    at::_foreach_clamp_max_(list, clip_value);
  }
}

}  // namespace accel::optim
