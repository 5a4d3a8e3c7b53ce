// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/cut/product_count.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>

namespace accel::parallel {
namespace {

thread_local ProductCount* innermost = nullptr;

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  for (const std::string_view other : names)
    if (name == other) return true;
  return false;
}

double last_size(const c10::IValue& tensor) { return static_cast<double>(tensor.toTensor().size(-1)); }

// The operations for each element of the output; none: the operator is no product.
std::optional<double> operations_of_element(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  if (is_one_of(name, {"aten::linear", "aten::matmul", "aten::mm", "aten::bmm", "aten::mv"}))
    return 2 * last_size(inputs[0]);
  if (is_one_of(name, {"aten::addmm", "aten::baddbmm", "aten::addmv"})) return 2 * last_size(inputs[1]);
  if (name == "aten::convolution") {
    const at::Tensor& weight = inputs[1].toTensor();
    return 2.0 * static_cast<double>(weight.numel()) / static_cast<double>(weight.size(0));
  }
  if (name != "aten::scaled_dot_product_attention") return std::nullopt;
  const auto keys = static_cast<double>(inputs[1].toTensor().size(-2));
  const double seen = inputs[5].toBool() ? keys / 2 : keys;  // is_causal
  return 2 * seen * (1 + last_size(inputs[0]) / last_size(inputs[2]));
}

struct Product final : at::ObserverContext {
  explicit Product(double operations_of_element) : operations_of_element(operations_of_element) {}
  const double operations_of_element;
};

}  // namespace

ProductCount::ProductCount() : outer_(innermost) {
  innermost = this;
  callback_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&begin, &end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
}

ProductCount::~ProductCount() {
  at::removeCallback(callback_);
  innermost = outer_;
}

std::unique_ptr<at::ObserverContext> ProductCount::begin(const at::RecordFunction& operation) {
  const auto operations = operations_of_element(operation.name(), operation.inputs());
  if (!operations) return nullptr;
  innermost->depth_++;
  return std::make_unique<Product>(*operations);
}

void ProductCount::end(const at::RecordFunction& operation, at::ObserverContext* product) {
  if (product == nullptr) return;
  innermost->depth_--;
  if (innermost->depth_ > 0 || operation.outputs().empty()) return;
  const at::Tensor output = operation.outputs()[0].toTensor();
  innermost->operations_ += static_cast<Product*>(product)->operations_of_element * static_cast<double>(output.numel());
}

}  // namespace accel::parallel
