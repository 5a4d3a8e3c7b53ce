// SPDX-License-Identifier: Apache-2.0
// Balance of experts: after a step the biases of mixtures of experts move by the tokens of all ranks.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "nn/layers/mixture_of_experts.hpp"
#include "optim/optimizer.hpp"

namespace accel::accelerator {

class ExpertBalance {
 public:
  // Adds the layers that have biases, as long as they exist; `ranks` are those that train the model with other tokens.
  void add(nn::Module& model, const std::shared_ptr<comm::Communicator>& ranks);
  bool empty() const { return entries_.empty(); }
  // After a step of an optimizer: of the layers whose router it trains. Collective.
  void run(const optim::Optimizer& optimizer) const;

 private:
  struct Entry {
    std::weak_ptr<nn::MixtureOfExperts> layer;
    std::shared_ptr<comm::Communicator> ranks;
  };
  std::vector<Entry> entries_;
};

}  // namespace accel::accelerator
