// SPDX-License-Identifier: Apache-2.0
#include "parallel/regions/split_product.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/collective.hpp"
#include "comm/work.hpp"
#include "kernels/cached_results.hpp"
#include "nn/low_precision/fp8_layers.hpp"
#include "parallel/regions/parallel_operators.hpp"
#include "parallel/regions/region_entry.hpp"
#include "parallel/regions/sequence_region.hpp"
#include "tensor/autograd/autograd_node.hpp"
#include "tensor/autograd/plain_operators.hpp"

namespace accel::parallel {
namespace {

using tensor::PlainOperators;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// Autocast would compute with the result.
at::Tensor cast_for_product(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const c10::DeviceType device = tensor.device().type();
  if (!at::autocast::is_autocast_available(device) || !at::autocast::is_autocast_enabled(device)) return tensor;
  if (c10::impl::tls_is_dispatch_key_excluded(at::autocast::get_autocast_dispatch_key_from_device_type(device)))
    return tensor;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), tensor, device);
}

at::Tensor matrix_of(const at::Tensor& tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

// The weight as the second matrix of the product.
at::Tensor second_of(const at::Tensor& weight, nn::Product product) {
  return product.is_transposed ? weight : weight.t();
}

// Autograd computes the same products, and so the same bits.
at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& weight, nn::Product product) {
  return at::mm(matrix_of(gradient), product.is_transposed ? weight.t() : weight);
}

at::Tensor weight_gradient(const at::Tensor& gradient, const at::Tensor& input, nn::Product product) {
  const at::Tensor rows = matrix_of(gradient), inputs = matrix_of(input);
  return product.is_transposed ? inputs.t().mm(rows) : rows.t().mm(inputs);
}

at::Tensor bias_gradient(const at::Tensor& gradient) { return matrix_of(gradient).sum(0); }

std::vector<int64_t> with_features(at::IntArrayRef sizes, int64_t features) {
  std::vector<int64_t> changed = sizes.vec();
  changed.back() = features;
  return changed;
}

int64_t bytes_of_element(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.element_size()); }

bool has_gradient(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

// A node of a product with a weight. Where the output has no gradient, other ranks may have one, and wait: it is zeros.
class ProductBackward : public Node {
 public:
  using Node::Node;

  SavedVariable weight;
  nn::Product product{};
  std::vector<int64_t> sizes;  // of the output
  at::TensorOptions options;

 protected:
  at::Tensor zeros() const { return at::zeros(sizes, options); }
};

// The node computes the backward of an output that this product has made.
template <typename NodePointer>
void set_product_history(const at::Tensor& output, const at::Tensor& weight, nn::Product product,
                         const NodePointer& node) {
  node->weight = SavedVariable(weight, false);
  node->product = product;
  node->sizes = output.sizes().vec();
  node->options = output.options();
  torch::autograd::set_history(output, node);
}

// The gradients of the weight and the bias of a column layer.
class ColumnWeightBackward final : public Node {
 public:
  using Node::Node;

  std::string name() const override { return "ColumnProductWeightBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const at::Tensor& gradient = gradients[0];
    variable_list results(2);
    if (!gradient.defined()) return results;
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool is_needed = task_should_compute_output(0);
    const at::Tensor read = regathers ? entry->read() : is_needed ? input.unpack() : at::Tensor();
    if (is_needed) results[0] = weight_gradient(gradient, read, product);
    if (task_should_compute_output(1)) results[1] = bias_gradient(gradient);
    return results;
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    input.reset_data();
    if (regathers) entry->release_reader();
  }

  std::shared_ptr<RegionEntry> entry;
  bool regathers = false;
  SavedVariable input;  // unless it is gathered again
  nn::Product product{};
};

// The gradient of the input of a column layer; that of its output goes on to the node above.
class ColumnProductBackward final : public ProductBackward {
 public:
  using ProductBackward::ProductBackward;

  std::string name() const override { return "ColumnProductBackward"; }

  variable_list apply(variable_list&& gradients) override {
    variable_list results(num_outputs());
    if (!gradients[0].defined()) {
      if (!regathers) return results;
      gradients[0] = zeros();  // the others gather
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool of_weight = num_outputs() > 1 && task_should_compute_output(1);
    if (of_weight && regathers && entry->region().overlap) entry->start_gather();
    if (task_should_compute_output(0)) results[0] = of_input(gradients[0]);
    if (of_weight) results[1] = std::move(gradients[0]);
    return results;
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    weight.reset_data();
  }

  std::shared_ptr<RegionEntry> entry;
  bool regathers = false;

 private:
  // Where nothing else is added to it, in memory in which the ranks sum it.
  at::Tensor of_input(const at::Tensor& gradient) const {
    const at::Tensor second = weight.unpack();
    const std::vector<int64_t> input_sizes =
        with_features(gradient.sizes(), second.size(product.is_transposed ? 0 : 1));
    const SplitRegion& region = entry->region();
    if (at::GradMode::is_enabled() || region.sequence_parallel || entry->uses() > 1)
      return input_gradient(gradient, second, product).view(input_sizes);
    const at::Tensor sum = region.memory->take(input_sizes, gradient.options());
    at::Tensor rows = sum.view({-1, sum.size(-1)});
    at::mm_out(rows, matrix_of(gradient), product.is_transposed ? second.t() : second);
    return sum;
  }
};

// How many parts the rows of a product of `rows` by `features` are cut into, along a dimension of size `units`.
int64_t chunk_count(const SplitRegion& region, int64_t units, int64_t rows, int64_t row_bytes) {
  constexpr int64_t kLeastRows = 256, kLeastBytes = 256 << 10;
  if (!region.overlap) return 1;
  const int64_t wanted =
      region.overlap_chunks > 0 ? region.overlap_chunks : std::min(rows / kLeastRows, rows * row_bytes / kLeastBytes);
  return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(units, 1));
}

using RowChunk = std::pair<int64_t, int64_t>;  // the first, and their number

std::vector<RowChunk> row_chunks(int64_t units, int64_t unit, int64_t chunks) {
  std::vector<RowChunk> made;
  for (int64_t chunk = 0; chunk < chunks; chunk++) {
    const Share share = share_of(units, chunk, chunks);
    made.emplace_back(share.begin * unit, share.size * unit);
  }
  return made;
}

// The sum of the ranks' products. Its memory is that of the region.
at::Tensor sum_products(const at::Tensor& input, const at::Tensor& second, const SplitRegion& region) {
  const int64_t features = second.size(1);
  const at::Tensor rows = matrix_of(input), sum = region.memory->take({rows.size(0), features}, input.options());
  const int64_t chunks = chunk_count(region, rows.size(0), rows.size(0), features * bytes_of_element(input));
  std::vector<std::shared_ptr<comm::Work>> works;
  for (const auto& [begin, size] : row_chunks(rows.size(0), 1, chunks)) {
    at::Tensor part = sum.narrow(0, begin, size);
    at::mm_out(part, rows.narrow(0, begin, size), second);
    const bool is_last = begin + size == rows.size(0);
    works.push_back(region.group->start(comm::Collective::all_reduce(part, comm::ReduceOp::kSum),
                                        is_last ? comm::RunsOn::kCaller : comm::RunsOn::kBackground));
  }
  for (const auto& work : works) work->synchronize();
  return sum;
}

// This rank's positions of the sum. Sequences stay together.
at::Tensor sum_products_of_sequences(const at::Tensor& input, const at::Tensor& second, const SplitRegion& region) {
  check_sequence(input, *region.group);
  const int64_t features = second.size(1), length = input.size(kSequence);
  const at::Tensor rows = matrix_of(input);
  const int64_t sequences = length == 0 ? 1 : rows.size(0) / length;
  const int64_t chunks = chunk_count(region, sequences, rows.size(0), features * bytes_of_element(input));
  std::vector<StartedExchange> started;
  for (const auto& [begin, size] : row_chunks(sequences, length, chunks)) {
    const at::Tensor part = at::mm(rows.narrow(0, begin, size), second).view({-1, length, features});
    const bool is_last = begin + size == rows.size(0);
    started.push_back(start_exchange(part, {ExchangeKind::kReduceScatter, 1}, *region.group,
                                     is_last ? comm::RunsOn::kCaller : comm::RunsOn::kBackground, region.memory.get()));
  }
  std::vector<at::Tensor> sums;
  for (StartedExchange& exchange : started) sums.push_back(exchange.finish());
  return sums.size() == 1 ? sums.front() : at::cat(sums);
}

at::Tensor row_forward(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, nn::Product product,
                       const SplitRegion& region) {
  const at::Tensor second = second_of(weight, product);
  std::vector<int64_t> sizes = with_features(input.sizes(), second.size(1));
  if (region.sequence_parallel) {
    const at::Tensor own = sum_products_of_sequences(input, second, region);
    sizes[sizes.size() - 2] /= region.group->size();
    return (bias.defined() ? own + bias : own).view(sizes);
  }
  const at::Tensor sum = sum_products(input, second, region);  // in memory of the next exchange
  return (bias.defined() ? sum + bias : sum.clone()).view(sizes);
}

class RowProductBackward final : public ProductBackward {
 public:
  RowProductBackward(edge_list&& edges, const SplitRegion& of_region)
      : ProductBackward(std::move(edges)), region(of_region) {}

  std::string name() const override { return "RowProductBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const at::Tensor own = gradients[0].defined() ? std::move(gradients[0]) : zeros();
    variable_list results(3);
    if (task_should_compute_output(2)) results[2] = bias_gradient(own);
    // Also where nothing is computed from it: other ranks may, and wait.
    const at::Tensor gradient = region.sequence_parallel
                                    ? parallel_gather(own, kSequence, GatheredGradient::kPartial, region.group)
                                    : parallel_copy(own, region.group);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (task_should_compute_output(0)) {
      const at::Tensor of_input = input_gradient(gradient, weight.unpack(), product);
      results[0] = of_input.view(with_features(gradient.sizes(), of_input.size(-1)));
    }
    if (task_should_compute_output(1)) results[1] = weight_gradient(gradient, input.unpack(), product);
    return results;
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    input.reset_data();
    weight.reset_data();
  }

  const SplitRegion region;
  SavedVariable input;
};

// A product of this rank in 8 bits, and the sum of all of them.
at::Tensor row_product_in_fp8(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                              nn::Product product, const SplitRegion& region) {
  const at::Tensor own = product(input, weight, {});
  const at::Tensor sum = region.sequence_parallel ? parallel_reduce_scatter(own, kSequence, region.group)
                                                  : parallel_reduce(own, region.group);
  return bias.defined() ? sum + bias.to(sum.scalar_type()) : sum;
}

}  // namespace

at::Tensor column_product(const RegionInput::Entered& input, const at::Tensor& given_weight,
                          const at::Tensor& given_bias, nn::Product product) {
  if (input.entry == nullptr) return product(input.whole, given_weight, given_bias);
  if (nn::Fp8Layers::of(input.whole, given_weight) !=
      nullptr) {  // keeps the whole in 8 bits, and gathers nothing again
    input.entry->add_use();
    return product(input.whole, given_weight, given_bias);
  }
  const at::Tensor whole = cast_for_product(input.whole), weight = cast_for_product(given_weight);
  const at::Tensor bias = cast_for_product(given_bias);
  at::Tensor output;
  {
    const PlainOperators plain;
    output = product(whole, weight, bias);
  }
  const bool trains = has_gradient(weight) || has_gradient(bias);
  if (!at::GradMode::is_enabled() || (!has_gradient(whole) && !trains)) return output;
  const std::shared_ptr<RegionEntry>& entry = input.entry;
  const bool regathers =
      entry->region().regathers() && has_gradient(weight) && entry->add_reader(input.part, whole.scalar_type());
  edge_list edges = torch::autograd::collect_next_edges(whole);
  if (trains) {
    const auto of_weight = tensor::make_autograd_node<ColumnWeightBackward>(
        entry->weight_order(), torch::autograd::collect_next_edges(weight, bias));
    of_weight->add_input_metadata(output);
    of_weight->entry = entry;
    of_weight->regathers = regathers;
    of_weight->product = product;
    if (has_gradient(weight) && !regathers) of_weight->input = SavedVariable(whole, false);
    edges.emplace_back(of_weight, 0);
  }
  const auto node = tensor::make_autograd_node<ColumnProductBackward>(std::move(edges));
  entry->add_use();
  node->entry = entry;
  node->regathers = regathers;
  set_product_history(output, weight, product, node);
  return output;
}

at::Tensor row_product(const at::Tensor& given_input, const at::Tensor& given_weight, const at::Tensor& bias,
                       nn::Product product, const SplitRegion& region) {
  if (nn::Fp8Layers::of(given_input, given_weight) != nullptr)
    return row_product_in_fp8(given_input, given_weight, bias, product, region);
  const at::Tensor input = cast_for_product(given_input), weight = cast_for_product(given_weight);
  const at::Tensor own_bias = bias.defined() ? bias.to(weight.scalar_type()) : bias;
  at::Tensor output;
  {
    const PlainOperators plain;
    const auto compute = [&] { return row_forward(input, weight, own_bias, product, region); };
    if (auto* const kept = kernels::CachedResults::current()) {
      constexpr uint64_t kCall = 0x70726f64756374;  // of no operator
      output = kept->keep_or_take(kernels::add_to_call(kernels::add_to_call(kCall, input), weight), compute);
    } else {
      output = compute();
    }
  }
  if (!at::GradMode::is_enabled() || !(has_gradient(input) || has_gradient(weight) || has_gradient(own_bias)))
    return output;
  const auto node = tensor::make_autograd_node<RowProductBackward>(
      torch::autograd::collect_next_edges(input, weight, own_bias), region);
  node->input = SavedVariable(input, false);
  set_product_history(output, weight, product, node);
  return output;
}

}  // namespace accel::parallel
