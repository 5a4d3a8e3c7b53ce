// SPDX-License-Identifier: Apache-2.0
#include "nn/low_precision/fp8_products.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <utility>
#include <vector>

#include "nn/second_derivative.hpp"
#include "precision/autocast.hpp"
#include "tensor/autograd/autograd_node.hpp"
#include "tensor/autograd/plain_operators.hpp"

namespace accel::nn {
namespace {

using kernels::Fp8Granularity;
using kernels::Fp8Matrix;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

at::Tensor contiguous_rows(const at::Tensor& tensor) {
  const int64_t features = tensor.size(-1);
  return tensor
      .reshape({features == 0 ? c10::multiply_integers(tensor.sizes().slice(0, tensor.dim() - 1)) : -1, features})
      .contiguous();
}

// [outputs, features]
at::Tensor with_rows_of_outputs(const at::Tensor& weight, int64_t output_dim) {
  return output_dim == 0 ? weight : weight.t();
}

at::Tensor plain_product(const at::Tensor& rows, const at::Tensor& columns, const at::Tensor& bias) {
  at::Tensor product = at::mm(rows, columns);
  return bias.defined() ? product.add_(bias) : product;
}

// An activation that hooks on saved tensors may move elsewhere.
struct SavedMatrix {
  void save(const Fp8Matrix& matrix) {
    values = SavedVariable(matrix.values, false);
    scales = matrix.scales;
  }
  Fp8Matrix unpack() const { return {values.unpack(), scales}; }

  SavedVariable values;
  at::Tensor scales;
};

// The gradient of an output, cast as the products need it.
class OutputGradient {
 public:
  OutputGradient(Fp8Layer& layer, at::Tensor of_output) : rows(std::move(of_output)), layer_(layer) {}

  const Fp8Matrix& by_rows() {
    if (!by_rows_.values.defined()) by_rows_ = layer_.cast(Fp8Role::kGradient, rows, /*of_columns=*/false);
    return by_rows_;
  }
  Fp8Matrix by_columns() {
    if (layer_.scheme().granularity == Fp8Granularity::kTensor) return transposed(by_rows());
    return layer_.cast(Fp8Role::kGradient, rows, /*of_columns=*/true);
  }

  const at::Tensor rows;  // [rows, outputs]

 private:
  Fp8Layer& layer_;
  Fp8Matrix by_rows_;
};

class Fp8LinearBackward final : public torch::autograd::Node {
 public:
  using Node::Node;

  std::string name() const override { return "Fp8LinearBackward"; }

  variable_list apply(variable_list&& arriving) override {
    variable_list leaving(3);
    if (!arriving[0].defined()) return leaving;
    const bool needs_input = task_should_compute_output(0), needs_weight = task_should_compute_output(1);
    // Before anything else: what was saved may be computed again by operators that record a graph.
    const Saved saved = unpack(needs_input, needs_weight);
    {
      const tensor::PlainOperators plain;
      OutputGradient gradient(*layer, contiguous_rows(arriving[0]));
      if (needs_input) leaving[0] = of_input(gradient, saved).to(input_dtype).view(input_sizes);
      if (needs_weight) leaving[1] = of_weight(gradient, saved).to(weight_dtype);
      if (task_should_compute_output(2)) leaving[2] = gradient.rows.sum(0, false, at::kFloat).to(bias_dtype);
    }
    refuse_second_derivative(leaving, "accel::fp8_linear has no second derivative; use aten::linear for it",
                             next_edges());
    return leaving;
  }

  void release_variables() override {
    input.values.reset_data();
    plain_input.reset_data();
    plain_weight.reset_data();
    weight = {};
  }

  std::shared_ptr<Fp8Layer> layer;
  int64_t output_dim = 0;
  SavedMatrix input;           // [features, rows]
  Fp8Matrix weight;            // [features, outputs]
  SavedVariable plain_input;   // [rows, features], of a product that is not in 8 bits
  SavedVariable plain_weight;  // the same, or one whose casts are not cached
  std::vector<int64_t> input_sizes;
  at::ScalarType dtype = at::kFloat, input_dtype = at::kFloat, weight_dtype = at::kFloat, bias_dtype = at::kFloat;

 private:
  struct Saved {
    Fp8Matrix input;
    at::Tensor plain_input, plain_weight;
  };

  Saved unpack(bool needs_input, bool needs_weight) const {
    Saved saved;
    if (needs_input && !weight.values.defined()) saved.plain_weight = plain_weight.unpack();
    if (needs_weight && layer->scheme().weight_gradient)
      saved.input = input.unpack();
    else if (needs_weight)
      saved.plain_input = plain_input.unpack();
    return saved;
  }

  at::Tensor of_input(OutputGradient& gradient, const Saved& saved) {
    if (!layer->scheme().input_gradient)
      return at::mm(gradient.rows.to(dtype), with_rows_of_outputs(saved.plain_weight.to(dtype), output_dim));
    const Fp8Matrix factor =
        weight.values.defined() ? weight : layer->cast_weight(saved.plain_weight, /*of_columns=*/output_dim == 0);
    return fp8_product(gradient.by_rows(), factor, {}, input_dtype);
  }

  at::Tensor of_weight(OutputGradient& gradient, const Saved& saved) {
    if (!layer->scheme().weight_gradient) {
      const at::Tensor of_outputs = gradient.rows.to(dtype), of_features = saved.plain_input;
      return output_dim == 0 ? at::mm(of_outputs.t(), of_features) : at::mm(of_features.t(), of_outputs);
    }
    const Fp8Matrix of_outputs = gradient.by_columns(), of_features = saved.input;
    if (output_dim == 0) return fp8_product(of_outputs, of_features, {}, weight_dtype);
    if (gradient.rows.is_cpu()) return fp8_product(of_features, of_outputs, {}, weight_dtype);
    return fp8_product(of_outputs, of_features, {}, weight_dtype).t();  // tensor cores take E5M2 first
  }
};

// Saves what the backward multiplies with.
void save_operands(Fp8LinearBackward& node, const at::Tensor& rows, const Fp8Matrix& cast_rows,
                   const at::Tensor& weight, bool of_input, bool of_weight) {
  const Fp8Scheme& scheme = node.layer->scheme();
  if (of_weight && !scheme.weight_gradient) {
    node.plain_input = SavedVariable(rows.to(node.dtype), false);
  } else if (of_weight) {
    const bool has_cast = cast_rows.values.defined() && scheme.granularity == Fp8Granularity::kTensor;
    node.input.save(has_cast ? transposed(cast_rows) : node.layer->cast(Fp8Role::kInput, rows, /*of_columns=*/true));
  }
  if (!of_input) return;
  if (!node.layer->keeps_casts())
    node.plain_weight = SavedVariable(weight, false);
  else if (scheme.input_gradient)
    node.weight = node.layer->cast_weight(weight, /*of_columns=*/node.output_dim == 0);
  else
    node.plain_weight = SavedVariable(weight.to(node.dtype), false);
}

}  // namespace

bool is_cast_to_fp8(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

at::Tensor fp8_multiply(const std::shared_ptr<Fp8Layer>& layer, const at::Tensor& input, const at::Tensor& weight,
                        const at::Tensor& bias, int64_t output_dim) {
  const at::ScalarType dtype = precision::autocast_dtype(input.device().type()).value_or(input.scalar_type());
  const bool records = torch::autograd::compute_requires_grad(input, weight, bias);
  at::Tensor output;
  Fp8Matrix cast_rows;
  {
    const tensor::PlainOperators plain;
    const at::Tensor rows = contiguous_rows(input);
    if (layer->scheme().forward) {
      cast_rows = layer->cast(Fp8Role::kInput, rows, /*of_columns=*/false);
      output = fp8_product(cast_rows, layer->cast_weight(weight, /*of_columns=*/output_dim == 1), bias, dtype);
    } else {
      output = plain_product(rows.to(dtype), with_rows_of_outputs(weight.to(dtype), output_dim).t(), bias);
    }
    std::vector<int64_t> sizes = input.sizes().vec();
    sizes.back() = weight.size(output_dim);
    output = output.view(sizes);
  }
  if (!records) return output;
  const auto node =
      tensor::make_autograd_node<Fp8LinearBackward>(torch::autograd::collect_next_edges(input, weight, bias));
  node->layer = layer;
  node->output_dim = output_dim;
  node->dtype = dtype;
  node->input_sizes = input.sizes().vec();
  node->input_dtype = input.scalar_type();
  node->weight_dtype = weight.scalar_type();
  if (bias.defined()) node->bias_dtype = bias.scalar_type();
  {
    const tensor::PlainOperators plain;
    save_operands(*node, contiguous_rows(input), cast_rows, weight, input.requires_grad(), weight.requires_grad());
  }
  torch::autograd::set_history(output, node);
  return output;
}

}  // namespace accel::nn
