// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/gather/gathered_scales.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <algorithm>

namespace accel::parallel {
namespace {

bool has_leaf_in_training(const nn::Module& module) {
  const auto& children = module.children();
  if (children.empty()) return module.is_training();
  return std::any_of(children.begin(), children.end(),
                     [](const auto& child) { return has_leaf_in_training(*child.second); });
}

// The module around a stage of a pipeline does not follow its model to evaluation, but what is inside does.
bool is_in_training(const nn::Module& model) { return model.is_training() && has_leaf_in_training(model); }

}  // namespace

void Fp8Scales::update(const nn::Module& model) {
  const at::NoGradGuard no_grad;
  struct Exchange {
    CommunicatorPtr ranks;
    std::vector<Fp8Weight*> weights;
    std::vector<at::Tensor> largest;
  };
  const bool is_training = is_in_training(model);
  std::vector<Exchange> exchanges;  // experts are shared out among other ranks
  for (const auto& group : groups_) {
    group->gather().set_training(is_training);
    if (are_kept_) continue;
    for (Fp8Weight* const weight : group->gather().fp8_weights()) {
      if (!weight->has_one_scale()) continue;
      auto own = std::find_if(exchanges.begin(), exchanges.end(),
                              [&](const Exchange& exchange) { return exchange.ranks == group->ranks().shard; });
      if (own == exchanges.end()) own = exchanges.insert(exchanges.end(), {group->ranks().shard, {}, {}});
      own->weights.push_back(weight);
      own->largest.push_back(weight->largest_bits().to(group->gather().device()));
    }
  }
  for (const Exchange& exchange : exchanges) {
    const at::Tensor largest = at::cat(exchange.largest);
    exchange.ranks->all_reduce(largest, comm::ReduceOp::kMax);
    for (size_t i = 0; i < exchange.weights.size(); i++)
      exchange.weights[i]->set_largest_bits(largest.narrow(0, static_cast<int64_t>(i), 1));
  }
}

}  // namespace accel::parallel
