// SPDX-License-Identifier: Apache-2.0
#include "own_operators.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <torch/library.h>

#include "host_fallback.hpp"

namespace simulated_device {
namespace {

using at::Tensor;
using torch::jit::Stack;

template <typename... Results>
void replace_arguments(Stack* stack, size_t count, Results&&... results) {
  torch::jit::drop(*stack, count);
  (stack->emplace_back(std::forward<Results>(results)), ...);
}

void dropout_on_host(const c10::OperatorHandle&, Stack* stack) {
  const auto arguments = torch::jit::last(*stack, 3);
  const Tensor input = arguments[0].toTensor();
  const double kept = 1 - arguments[1].toDouble();
  if (!arguments[2].isNone() && !arguments[2].toBool())
    return replace_arguments(stack, 3, input, at::ones_like(input, at::kBool));
  Tensor noise = at::empty_like(input).bernoulli_(kept);
  const Tensor mask = noise.to(at::kBool);
  replace_arguments(stack, 3, at::mul(input, noise.div_(kept)), mask);
}

void dropout_backward_on_host(const c10::OperatorHandle&, Stack* stack) {
  const auto arguments = torch::jit::last(*stack, 3);
  const Tensor gradient = arguments[0].toTensor(), mask = arguments[1].toTensor();
  replace_arguments(stack, 3, at::mul(gradient, mask.to(gradient.scalar_type()).div_(1 / arguments[2].toDouble())));
}

std::optional<Tensor> optional_tensor(const c10::IValue& value) {
  return value.isNone() ? std::nullopt : std::optional<Tensor>(value.toTensor());
}

void convolution_on_host(const c10::OperatorHandle&, Stack* stack) {
  const auto arguments = torch::jit::last(*stack, 9);
  replace_arguments(stack, 9,
                    at::convolution(arguments[0].toTensor(), arguments[1].toTensor(), optional_tensor(arguments[2]),
                                    arguments[3].toIntVector(), arguments[4].toIntVector(), arguments[5].toIntVector(),
                                    arguments[6].toBool(), arguments[7].toIntVector(), arguments[8].toInt()));
}

void convolution_backward_on_host(const c10::OperatorHandle&, Stack* stack) {
  const auto arguments = torch::jit::last(*stack, 10);
  const auto flags = arguments[9].toBoolList();
  const bool transposed = arguments[6].toBool();
  const Tensor weight = arguments[2].toTensor();
  const int64_t groups = arguments[8].toInt();
  const int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
  auto [input, weights, bias] = at::convolution_backward(
      arguments[0].toTensor(), arguments[1].toTensor(), weight, at::IntArrayRef{channels}, arguments[3].toIntVector(),
      arguments[4].toIntVector(), arguments[5].toIntVector(), transposed, arguments[7].toIntVector(), groups,
      std::array<bool, 3>{flags[0], flags[1], flags[2]});
  replace_arguments(stack, 10, input, weights, bias);
}

template <HostKernel on_host>
void on_device(const c10::OperatorHandle& op, Stack* stack) {
  compute_on_host(op, stack, on_host);
}

template <HostKernel on_host>
torch::CppFunction kernel() {
  return torch::CppFunction::makeFromBoxedFunction<&on_device<on_host>>();
}

}  // namespace

void register_own_operators(torch::Library& library) {
  library.impl("native_dropout", kernel<&dropout_on_host>());
  library.impl("native_dropout_backward", kernel<&dropout_backward_on_host>());
  library.impl("convolution_overrideable", kernel<&convolution_on_host>());
  library.impl("convolution_backward_overrideable", kernel<&convolution_backward_on_host>());
}

}  // namespace simulated_device
