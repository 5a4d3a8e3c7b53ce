// SPDX-License-Identifier: Apache-2.0
// Fp8 scales: the update of delayed scales behind each optimizer step, from the largest magnitudes that the ranks have
// seen, in one collective for all layers.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "optim/optimizer.hpp"
#include "parallel/parallel_model.hpp"

namespace accel::nn {
class Fp8Layers;
}

namespace accel::accelerator {

class Fp8Scales {
 public:
  // Adds the layers of a model, for as long as they exist, unless their scales are never delayed. The ranks train the
  // model with other data.
  void add(const std::shared_ptr<nn::Fp8Layers>& layers, const parallel::ParallelModelPtr& model,
           std::shared_ptr<comm::Communicator> ranks);
  // After a step of an optimizer: of the models of its parameters. Collective. A model with several optimizers follows
  // the first of them that steps.
  void update(const std::shared_ptr<optim::Optimizer>& optimizer);

 private:
  struct Entry {
    std::weak_ptr<nn::Fp8Layers> layers;
    std::weak_ptr<parallel::ParallelModel> model;
    std::shared_ptr<comm::Communicator> ranks;
    std::weak_ptr<optim::Optimizer> optimizer = {};  // which it follows; gone or null: not known yet
  };

  std::vector<Entry> entries_;
};

}  // namespace accel::accelerator
