// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/activation.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>

#include <array>

#include "base/error.hpp"

namespace accel::nn {
namespace {

struct Known {
  std::string_view name;
  const char* kind;
  at::Tensor (*function)(const at::Tensor&);
  bool keeps_output;
};

at::Tensor exact_gelu(const at::Tensor& input) { return at::gelu(input, "none"); }
at::Tensor tanh_gelu(const at::Tensor& input) { return at::gelu(input, "tanh"); }

// The sigmoid's approximation of a GELU (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016).
at::Tensor quick_gelu(const at::Tensor& input) { return input * at::sigmoid(input * 1.702); }

constexpr std::array<Known, 9> kKnown = {{
    {"relu", "ReLU", [](const at::Tensor& input) { return at::relu(input); }, true},
    {"gelu", "GELU", exact_gelu, false},
    {"gelu_new", "GELU", tanh_gelu, false},
    {"gelu_pytorch_tanh", "GELU", tanh_gelu, false},
    {"quick_gelu", "QuickGELU", quick_gelu, false},
    {"silu", "SiLU", [](const at::Tensor& input) { return at::silu(input); }, false},
    {"swish", "SiLU", [](const at::Tensor& input) { return at::silu(input); }, false},
    {"tanh", "Tanh", [](const at::Tensor& input) { return at::tanh(input); }, true},
    {"sigmoid", "Sigmoid", [](const at::Tensor& input) { return at::sigmoid(input); }, true},
}};

const Known* look_up(std::string_view name) {
  for (const Known& entry : kKnown)
    if (entry.name == name) return &entry;
  return nullptr;
}

const Known& known(std::string_view name) {
  if (const Known* entry = look_up(name)) return *entry;
  std::string names;
  for (const Known& entry : kKnown) names += text(names.empty() ? "" : ", ", entry.name);
  fail(Status::kNotFound, "activation '", name, "' is not known; expected one of ", names);
}

}  // namespace

Activation::Activation(std::string_view name)
    : Module(known(name).kind), function_(known(name).function), keeps_output_(known(name).keeps_output) {}

bool Activation::knows(std::string_view name) { return look_up(name) != nullptr; }

c10::IValue Activation::forward(const Inputs& inputs) { return function_(only_tensor(inputs)); }

}  // namespace accel::nn
