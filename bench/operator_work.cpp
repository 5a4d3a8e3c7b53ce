// SPDX-License-Identifier: Apache-2.0
#include "operator_work.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace bench {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

double size(const at::Tensor &tensor, int64_t dimension) { return static_cast<double>(tensor.size(dimension)); }
double numel(const at::Tensor &tensor) { return static_cast<double>(tensor.numel()); }

// A matrix product, or a batch of them; addmm and baddbmm have what is added before the factors.
template <size_t kFirst>
double product_flops(Arguments arguments) {
  return 2 * numel(arguments[kFirst].toTensor()) * size(arguments[kFirst + 1].toTensor(), -1);
}

// The pairs of a query and a key that attention looks at: where it is causal, a query has the keys up to its own place.
double attention_pairs(const at::Tensor &query, const at::Tensor &key, bool is_causal) {
  const double heads = size(query, 0) * size(query, 1), queries = size(query, 2), keys = size(key, 2);
  if (!is_causal) return heads * queries * keys;
  const double triangle = std::min(queries, keys);
  return heads * (triangle * (triangle + 1) / 2 + (queries - triangle) * keys);
}

// Weights, and their product with the values.
double attention_flops(Arguments arguments) {
  const at::Tensor &query = arguments[0].toTensor(), &value = arguments[2].toTensor();
  return 2 * attention_pairs(query, arguments[1].toTensor(), arguments[4].toBool()) *
         (size(query, -1) + size(value, -1));
}

// The weights again, and the gradients of weights, values, queries and keys.
double attention_backward_flops(Arguments arguments) {
  const at::Tensor &query = arguments[1].toTensor(), &value = arguments[3].toTensor();
  return 2 * attention_pairs(query, arguments[2].toTensor(), arguments[7].toBool()) *
         (3 * size(query, -1) + 2 * size(value, -1));
}

// Each number of the result, or of its gradient, meets the weights of one output channel.
double convolution_flops(double results, const at::Tensor &weight) {
  return 2 * results * numel(weight) / size(weight, 0);
}

// convolution(input, weight, bias, stride, padding, dilation, transposed, ...)
double convolution_flops(Arguments arguments) {
  const at::Tensor &input = arguments[0].toTensor(), &weight = arguments[1].toTensor();
  if (arguments[6].toBool()) return convolution_flops(numel(input), weight);
  const std::vector<int64_t> stride = arguments[3].toIntVector(), padding = arguments[4].toIntVector(),
                             dilation = arguments[5].toIntVector();
  const auto along = [](const std::vector<int64_t> &values, int64_t i) {
    return values.size() == 1 ? values[0] : values[static_cast<size_t>(i)];
  };
  double results = size(input, 0) * size(weight, 0);
  for (int64_t i = 0; i + 2 < input.dim(); ++i) {
    const int64_t window = along(dilation, i) * (weight.size(i + 2) - 1) + 1;
    results *= static_cast<double>((input.size(i + 2) + 2 * along(padding, i) - window) / along(stride, i) + 1);
  }
  return convolution_flops(results, weight);
}

// convolution_backward(grad, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups,
// output_mask): the gradients of input and weight cost as much as the forward, each.
double convolution_backward_flops(Arguments arguments) {
  const at::Tensor &result = arguments[arguments[7].toBool() ? 1 : 0].toTensor();
  const c10::List<bool> wanted = arguments[10].toBoolList();
  return (wanted[0] + wanted[1]) * convolution_flops(numel(result), arguments[2].toTensor());
}

FlopFormula find_flop_formula(const std::string &name) {
  static const std::unordered_map<std::string, FlopFormula> formulas = {
      {"aten::mm", product_flops<0>},
      {"aten::bmm", product_flops<0>},
      {"aten::addmm", product_flops<1>},
      {"aten::addmm_", product_flops<1>},
      {"aten::baddbmm", product_flops<1>},
      {"aten::baddbmm_", product_flops<1>},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention_flops},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward_flops},
      {"aten::convolution", convolution_flops},
      {"aten::convolution_backward", convolution_backward_flops},
  };
  const auto found = formulas.find(name);
  return found == formulas.end() ? nullptr : found->second;
}

// A view that its schema does not call one, and memory that is not written.
bool is_memory_only(const std::string &name) {
  static const std::unordered_set<std::string> names = {"aten::_unsafe_view", "aten::empty",   "aten::empty_strided",
                                                        "aten::empty_like",   "aten::resize_", "aten::new_empty"};
  return names.count(name) != 0;
}

// Operators in place that do not read what they replace.
bool replaces_all(const std::string &name) {
  static const std::unordered_set<std::string> names = {"aten::copy_", "aten::fill_", "aten::zero_",
                                                        "aten::_foreach_zero_"};
  return names.count(name) != 0;
}

// Results that are returned are counted as such.
int passes_over(const c10::FunctionSchema &schema, size_t index, bool is_replaced) {
  const c10::Argument &argument = schema.arguments()[index];
  const bool is_written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  return (argument.is_out() || is_replaced ? 0 : 1) + (is_written && schema.returns().empty() ? 1 : 0);
}

// An expanded dimension is one place in memory.
double bytes_of(const at::Tensor &tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided) return 0;
  double bytes = static_cast<double>(tensor.element_size());
  for (int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.stride(i) != 0 || tensor.size(i) == 0) bytes *= size(tensor, i);
  return bytes;
}

template <typename Visit>
void each_tensor(const c10::IValue &value, Visit visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor &tensor : value.toTensorVector()) visit(tensor);
  }
}

}  // namespace

OperatorKind find_operator_kind(const std::string &name, const std::string &overload) {
  OperatorKind kind;
  const auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!handle) return kind;
  const c10::FunctionSchema &schema = handle->schema();
  kind.has_kernel = !handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  kind.flop_formula = find_flop_formula(name);
  const auto &returns = schema.returns();
  const bool is_view = std::any_of(returns.begin(), returns.end(), [](const c10::Argument &result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
  kind.moves_bytes = kind.has_kernel && !is_view && !is_memory_only(name);
  kind.has_results = !returns.empty();
  kind.is_autocast = handle->hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU);
  for (size_t i = 0; i < schema.arguments().size(); ++i)
    kind.passes.push_back(passes_over(schema, i, i == 0 && replaces_all(name)));
  return kind;
}

OperatorWork work_of_arguments(const OperatorKind &kind, Arguments arguments) {
  OperatorWork work;
  if (kind.flop_formula != nullptr) {
    work.flops = kind.flop_formula(arguments);
    // The second argument is a factor in every formula; the first may be what is added.
    each_tensor(arguments[1], [&](const at::Tensor &factor) { work.dtype = factor.scalar_type(); });
  }
  if (!kind.moves_bytes) return work;
  for (size_t i = 0; i < std::min(arguments.size(), kind.passes.size()); ++i) {
    each_tensor(arguments[i], [&](const at::Tensor &tensor) {
      work.bytes += kind.passes[i] * bytes_of(tensor);
      if (!kind.has_results) work.dtype = tensor.scalar_type();
    });
  }
  return work;
}

void add_results(const OperatorKind &kind, Arguments results, OperatorWork &work) {
  for (const c10::IValue &result : results) {
    each_tensor(result, [&](const at::Tensor &tensor) {
      if (work.dtype == c10::ScalarType::Undefined && tensor.defined()) work.dtype = tensor.scalar_type();
      if (kind.moves_bytes) work.bytes += bytes_of(tensor);
    });
  }
}

}  // namespace bench
