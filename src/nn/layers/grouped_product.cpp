// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/grouped_product.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "nn/second_derivative.hpp"
#include "tensor/autograd/autograd_node.hpp"

namespace accel::nn {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

using Counts = std::vector<int64_t>;

// No graph is recorded below, and nothing is cast.
struct UnrecordedOperators {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

// Calls `compute` with the number of each group that has rows, and its first row.
template <typename Compute>
void for_each_group(const Counts& counts, const Compute& compute) {
  int64_t begin = 0;
  for (size_t group = 0; group < counts.size(); group++) {
    if (counts[group] > 0) compute(static_cast<int64_t>(group), begin, counts[group]);
    begin += counts[group];
  }
}

at::Tensor multiply_groups(const at::Tensor& rows, const at::Tensor& weight, const Counts& counts) {
  at::Tensor result = at::empty({rows.size(0), weight.size(1)}, rows.options());
  for_each_group(counts, [&](int64_t group, int64_t begin, int64_t count) {
    at::Tensor own = result.narrow(0, begin, count);
    at::mm_out(own, rows.narrow(0, begin, count), weight.select(0, group).t());
  });
  return result;
}

at::Tensor rows_gradient(const at::Tensor& gradient, const at::Tensor& weight, const Counts& counts) {
  at::Tensor result = at::empty({gradient.size(0), weight.size(2)}, gradient.options());
  for_each_group(counts, [&](int64_t group, int64_t begin, int64_t count) {
    at::Tensor own = result.narrow(0, begin, count);
    at::mm_out(own, gradient.narrow(0, begin, count), weight.select(0, group));
  });
  return result;
}

at::Tensor weight_gradient(const at::Tensor& gradient, const at::Tensor& rows, const Counts& counts) {
  at::Tensor result =
      at::empty({static_cast<int64_t>(counts.size()), gradient.size(1), rows.size(1)}, gradient.options());
  for (size_t group = 0; group < counts.size(); group++)
    if (counts[group] == 0) result.select(0, static_cast<int64_t>(group)).zero_();
  for_each_group(counts, [&](int64_t group, int64_t begin, int64_t count) {
    at::Tensor own = result.select(0, group);
    at::mm_out(own, gradient.narrow(0, begin, count).t(), rows.narrow(0, begin, count));
  });
  return result;
}

class GroupedProductBackward final : public torch::autograd::Node {
 public:
  using Node::Node;

  std::string name() const override { return "GroupedProductBackward"; }

  variable_list apply(variable_list&& gradients) override {
    variable_list results(2);
    if (!gradients[0].defined()) return results;
    const std::lock_guard<std::mutex> lock(mutex_);
    const at::Tensor rows = saved_rows.unpack(), weight = saved_weight.unpack();
    {
      const UnrecordedOperators plain;
      const at::Tensor gradient = gradients[0].contiguous();
      if (task_should_compute_output(0)) results[0] = rows_gradient(gradient, weight, counts);
      if (task_should_compute_output(1)) results[1] = weight_gradient(gradient, rows, counts);
    }
    refuse_second_derivative(results, "the product of a mixture of experts has no second derivative", next_edges());
    return results;
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    saved_rows.reset_data();
    saved_weight.reset_data();
  }

  SavedVariable saved_rows, saved_weight;
  Counts counts;
};

void check(const at::Tensor& rows, const at::Tensor& weight, const Counts& counts) {
  require(rows.dim() == 2 && weight.dim() == 3 && rows.size(1) == weight.size(2), Status::kShapeMismatch,
          "a grouped product of rows ", rows.sizes(), " with weights ", weight.sizes(),
          "; expected [rows, in] and [groups, out, in]");
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  require(static_cast<int64_t>(counts.size()) == weight.size(0) && sum == rows.size(0), Status::kShapeMismatch,
          "a grouped product has ", counts.size(), " counts with the sum ", sum, ", for ", weight.size(0),
          " matrices and ", rows.size(0), " rows; expected one for each matrix, with the number of rows");
}

}  // namespace

at::Tensor cast_for_grouped_product(const at::Tensor& tensor) {
  const c10::DeviceType device = tensor.device().type();
  if (!at::autocast::is_autocast_available(device) || !at::autocast::is_autocast_enabled(device)) return tensor;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), tensor, device);
}

at::Tensor grouped_product(const at::Tensor& all_rows, const at::Tensor& all_weights, const Counts& counts) {
  check(all_rows, all_weights, counts);
  const at::Tensor rows = cast_for_grouped_product(all_rows), weight = cast_for_grouped_product(all_weights);
  at::Tensor result;
  {
    const UnrecordedOperators plain;
    result = multiply_groups(rows, weight, counts);
  }
  if (!at::GradMode::is_enabled() || !(rows.requires_grad() || weight.requires_grad())) return result;
  const auto node =
      tensor::make_autograd_node<GroupedProductBackward>(torch::autograd::collect_next_edges(rows, weight));
  node->saved_rows = SavedVariable(rows, /*is_output=*/false);
  node->saved_weight = SavedVariable(weight, /*is_output=*/false);
  node->counts = counts;
  torch::autograd::set_history(result, node);
  return result;
}

}  // namespace accel::nn
