// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradient_check.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "nn/module_walks.hpp"
#include "parallel/parallel_model.hpp"
#include "tensor/placement.hpp"

namespace accel::parallel {
namespace {

// Gradients that ranks have computed alike differ by roundings.
constexpr double kTolerance = 1e-4;

bool differ(const at::Tensor& sums, const at::Tensor& squares, int64_t elements) {
  const double largest = squares.max().item<double>();
  const double norm = std::sqrt(largest * static_cast<double>(elements));  // bounds the sum
  return largest - squares.min().item<double>() > kTolerance * largest ||
         (sums.max() - sums.min()).item<double>() > kTolerance * norm;
}

}  // namespace

bool check_equal_gradients(const nn::Module& module, const std::string& axis, comm::Communicator& ranks) {
  const at::NoGradGuard no_grad;
  const nn::Placements placements = nn::placements(module), summed = nn::summed_placements(module);
  std::vector<std::string> names;
  std::vector<int64_t> elements;
  std::vector<at::Tensor> numbers;  // of each gradient the sum, and that of its squares
  bool has_gradients = false;
  for (const auto& [name, parameter] : nn::named_parameters(module)) {
    has_gradients = has_gradients || parameter.grad().defined();
    const tensor::PlacementPtr placement = placements.find(parameter);
    const bool is_split =
        placement != nullptr && tensor::has_any_axis(placement->axes, tensor::join_axes(axis, kExpertAxes));
    if (!parameter.requires_grad() || is_split || summed.find(parameter) != nullptr) continue;
    names.push_back(name);
    elements.push_back(parameter.numel());
    const at::Tensor gradient = parameter.grad();
    if (!gradient.defined() || !gradient.has_storage()) {
      numbers.push_back(at::zeros({2}, parameter.options().dtype(at::kDouble)));
      continue;
    }
    const at::Tensor exact = gradient.to(at::kDouble);
    numbers.push_back(at::stack({exact.sum(), exact.square().sum()}));
  }
  if (!has_gradients || numbers.empty()) return has_gradients;
  const at::Tensor all = comm::gather_rows(ranks, at::stack(numbers).flatten().cpu()).unflatten(1, {-1, 2});
  if (!at::isfinite(all).all().item<bool>()) return false;
  std::string differing;
  for (size_t i = 0; i < names.size(); i++) {
    const at::Tensor own = all.select(1, static_cast<int64_t>(i));
    if (differ(own.select(1, 0), own.select(1, 1), elements[i]))
      differing += (differing.empty() ? "" : ", ") + names[i];
  }
  require(differing.empty(), Status::kCollectiveMismatch, "the ranks along the axis ", axis,
          " of the mesh have different gradients of parameters that they store as a whole: ", differing,
          "; expected layers that work on whole tensors, or the style replicated_with_grad_allreduce for those that "
          "work on a "
          "rank's features");
  return true;
}

}  // namespace accel::parallel
