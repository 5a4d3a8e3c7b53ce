// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/mixture_of_experts.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.hpp"
#include "nn/creation_device.hpp"
#include "nn/initial_values.hpp"
#include "nn/layers/grouped_product.hpp"
#include "nn/layers/initial.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/token_order.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

constexpr size_t kExpertBias = 0;  // the index of the buffer

at::Tensor new_weight(at::IntArrayRef sizes, std::optional<double> deviation, std::optional<at::ScalarType> dtype) {
  const at::Tensor weight = at::empty(sizes, new_parameter_options().dtype(dtype));
  const double bound = 1.0 / std::sqrt(static_cast<double>(sizes.back()));  // fill_kaiming_uniform() of each expert's
  set_initial_values(weight, deviation ? Filling{Filling::Kind::kNormal, 0.0, *deviation}
                                       : Filling{Filling::Kind::kUniform, -bound, bound});
  return weight;
}

std::vector<int64_t> numbers_of(const at::Tensor& tensor) {
  const at::Tensor on_host = tensor.to(at::kCPU, at::kLong).contiguous();
  const int64_t* const first = on_host.const_data_ptr<int64_t>();
  return {first, first + on_host.numel()};
}

ModulePtr new_gate(const MixtureSettings& settings) {
  if (!settings.deviation) return std::make_shared<Linear>(settings.hidden_size, settings.num_experts, /*bias=*/false);
  return std::make_shared<Linear>(
      new_weight({settings.num_experts, settings.hidden_size}, settings.deviation, settings.dtype), at::Tensor());
}

}  // namespace

GroupedExperts::GroupedExperts(int64_t experts, int64_t hidden_size, int64_t intermediate_size,
                               std::optional<double> deviation, std::optional<at::ScalarType> dtype)
    : Module("GroupedExperts") {
  add_parameter("gate_up_proj", new_weight({experts, 2 * intermediate_size, hidden_size}, deviation, dtype));
  add_parameter("down_proj", new_weight({experts, hidden_size, intermediate_size}, deviation, dtype));
}

c10::IValue GroupedExperts::forward(const Inputs& inputs) {
  require(inputs.size() == 2 && inputs[0].isTensor() && inputs[1].isTensor(), Status::kTypeMismatch,
          "a module of kind 'GroupedExperts' was called with ", inputs.size(),
          " inputs; expected the rows of the experts and their numbers, two tensors");
  const std::vector<int64_t> counts = numbers_of(inputs[1].toTensor());
  const at::Tensor gate_up = grouped_product(inputs[0].toTensor(), parameter(kGateUp), counts);
  const std::vector<at::Tensor> halves = gate_up.chunk(2, /*dim=*/-1);
  return grouped_product(at::silu(halves[0]) * halves[1], parameter(kDown), counts);
}

MixtureOfExperts::MixtureOfExperts(const MixtureSettings& settings) : Module("MixtureOfExperts"), settings_(settings) {
  check_size(settings.hidden_size, "hidden_size");
  check_size(settings.intermediate_size, "intermediate_size");
  check_size(settings.num_experts, "num_experts");
  require(settings.experts_per_token >= 1 && settings.experts_per_token <= settings.num_experts,
          Status::kInvalidArgument, "experts_per_token is ", settings.experts_per_token, "; expected 1 to ",
          settings.num_experts, ", the number of experts");
  require(settings.balance_rate >= 0 && std::isfinite(settings.balance_rate), Status::kInvalidArgument,
          "balance_rate is ", settings.balance_rate, "; expected 0 or more, such as 0.001");
  add_child("gate", gate_ = new_gate(settings));
  add_child("experts", experts_ = std::make_shared<GroupedExperts>(settings.num_experts, settings.hidden_size,
                                                                   settings.intermediate_size, settings.deviation,
                                                                   settings.dtype));
  if (is_balanced()) add_buffer("expert_bias", constant_parameter(0, {settings.num_experts}, at::kFloat));
}

void MixtureOfExperts::add_shared_expert(ModulePtr network, ModulePtr gate) {
  add_child("shared_expert", shared_expert_ = std::move(network));
  add_child("shared_expert_gate", shared_expert_gate_ = std::move(gate));
}

void MixtureOfExperts::set_capacity_factor(double factor) {
  require(factor >= 0 && std::isfinite(factor), Status::kInvalidArgument, "capacity_factor is ", factor,
          "; expected 0, or the most tokens of an expert in units of the mean, such as 1.25");
  capacity_factor_ = factor;
}

int64_t MixtureOfExperts::capacity(int64_t tokens) const {
  if (capacity_factor_ == 0) return 0;
  const auto mean =
      static_cast<double>(tokens * settings_.experts_per_token) / static_cast<double>(settings_.num_experts);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(mean * capacity_factor_)));
}

// In float32 at least, as transformers does: scores of close experts would be equal in half precision.
RoutedTokens MixtureOfExperts::routed_tokens(const at::Tensor& input, const at::Tensor& scores) {
  const at::Tensor shares = at::softmax(scores, -1, scores.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  at::Tensor chosen;
  {
    const at::NoGradGuard no_grad;
    chosen = std::get<1>(at::topk(is_balanced() ? shares + buffer(kExpertBias) : shares, settings_.experts_per_token));
  }
  at::Tensor weights = shares.gather(1, chosen);
  if (settings_.normalizes_weights) weights = weights / weights.sum(1, /*keepdim=*/true);
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes.back() = settings_.experts_per_token;
  const RoutedTokens routed{input, chosen.view(sizes), weights.view(sizes)};
  return split_ == nullptr ? routed : split_->enter(routed);
}

c10::IValue MixtureOfExperts::forward(const Inputs& inputs) {
  const at::Tensor& input = only_tensor(inputs);
  require(input.dim() >= 1 && input.size(-1) == settings_.hidden_size, Status::kShapeMismatch,
          "a mixture of experts was called with the shape ", input.sizes(), "; expected [..., ", settings_.hidden_size,
          "]");
  const at::Tensor scores = gate_->call(input.reshape({-1, settings_.hidden_size}));
  const RoutedTokens routed = routed_tokens(input, scores);
  const at::Tensor tokens = routed.tokens.reshape({-1, settings_.hidden_size});
  const TokenOrderPtr order = TokenOrder::create(routed.experts.reshape({-1, settings_.experts_per_token}),
                                                 settings_.num_experts, capacity(tokens.size(0)));
  if (is_balanced() && is_training() && at::GradMode::is_enabled()) {
    const at::Tensor counts = at::tensor(order->chosen(), at::kDouble);
    tokens_of_experts_ = tokens_of_experts_.defined() ? tokens_of_experts_ + counts : counts;
  }
  const ExpertRanks::Compute compute = [this](const at::Tensor& rows, const std::vector<int64_t>& counts) {
    return experts_->call(Inputs{rows, at::tensor(counts, at::kLong)}).toTensor();
  };
  const at::Tensor rows = order->spread(cast_for_grouped_product(tokens));
  const at::Tensor results =
      ranks_ == nullptr ? compute(rows, order->counts()) : ranks_->run(rows, order->counts(), compute);
  const at::Tensor places = order->to_places(results);
  const at::Tensor weights = routed.weights.reshape({-1, 1, settings_.experts_per_token}).to(places.scalar_type());
  const at::Tensor sums = at::bmm(weights, places).view(routed.tokens.sizes());
  at::Tensor result = split_ == nullptr ? sums : split_->leave(sums);
  if (shared_expert_ != nullptr)
    result = result + shared_expert_gate_->call(input).sigmoid() * shared_expert_->call(input);
  if (!settings_.gives_scores) return result;
  return tree::new_list({std::move(result), scores});
}

void MixtureOfExperts::balance(const std::function<void(const at::Tensor& tokens)>& sum) {
  if (!is_balanced()) return;
  const at::NoGradGuard no_grad;
  const at::Tensor tokens =
      tokens_of_experts_.defined() ? tokens_of_experts_ : at::zeros({settings_.num_experts}, at::kDouble);
  tokens_of_experts_ = at::Tensor();
  if (sum) sum(tokens);
  const at::Tensor& bias = buffer(kExpertBias);
  bias.add_(at::sign(tokens.mean() - tokens).mul(settings_.balance_rate).to(bias.options()));
}

}  // namespace accel::nn
