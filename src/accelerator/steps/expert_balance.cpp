// SPDX-License-Identifier: Apache-2.0
#include "accelerator/steps/expert_balance.hpp"

#include <ATen/core/Tensor.h>

#include "accelerator/steps/step_clipping.hpp"
#include "nn/module_walks.hpp"

namespace accel::accelerator {

void ExpertBalance::add(nn::Module& model, const std::shared_ptr<comm::Communicator>& ranks) {
  for (const auto& [path, module] : nn::named_modules(model)) {
    const auto layer =
        std::dynamic_pointer_cast<nn::MixtureOfExperts>(path.empty() ? model.shared_from_this() : model.find(path));
    if (layer != nullptr && layer->is_balanced()) entries_.push_back({layer, ranks});
  }
}

void ExpertBalance::run(const optim::Optimizer& optimizer) const {
  for (const Entry& entry : entries_) {
    const auto layer = entry.layer.lock();
    if (layer == nullptr || !updates(optimizer, *layer)) continue;
    layer->balance([&](const at::Tensor& tokens) {
      const at::Tensor sent = tokens.to(entry.ranks->device());
      entry.ranks->all_reduce(sent, comm::ReduceOp::kSum);
      if (!sent.is_same(tokens)) tokens.copy_(sent);
    });
  }
}

}  // namespace accel::accelerator
