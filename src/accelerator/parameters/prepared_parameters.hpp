// SPDX-License-Identifier: Apache-2.0
// Prepared parameters: a model whose gradients the application computes itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/parameters/registered_parameters.hpp"
#include "comm/work.hpp"
#include "nn/module.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/parameters/application_gradients.hpp"
#include "state/gradient_state.hpp"

namespace accel::accelerator {

class PreparedParameters {
 public:
  PreparedParameters(const parallel::ParallelGradients& parallel, std::vector<TrainedParameter> trained,
                     std::shared_ptr<comm::Communicator> communicator,
                     std::shared_ptr<state::GradientState> gradient_state,
                     std::shared_ptr<state::AccumulationWindow> window)
      : communicator_(std::move(communicator)),
        model_(parallel.model),
        gradients_(parallel.gradients),
        trained_(std::move(trained)),
        gradient_state_(std::move(gradient_state)),
        window_(std::move(window)) {}

  const comm::Communicator& communicator() const { return *communicator_; }
  const parallel::ParallelModelPtr& model() const { return model_; }
  parallel::ApplicationGradients& gradients() const { return *gradients_; }
  // In the order of gradients().
  const std::vector<TrainedParameter>& trained() const { return trained_; }
  // Null if the parameters are the library's own.
  const std::shared_ptr<const RegisteredMemory>& memory() const { return memory_; }
  void set_memory(std::shared_ptr<const RegisteredMemory> memory) { memory_ = std::move(memory); }

  void grad_ready(size_t index, const at::Tensor& given) { gradients_->ready(index, given, exchange(own_window())); }
  void synchronize() { gradients_->synchronize(exchange(own_window())); }
  std::shared_ptr<comm::Work> start_synchronize() { return gradients_->start(exchange(own_window())); }

  // A micro-batch, which it counts, with all gradients at once; undefined ones are zeros. Returns whether it ended an
  // accumulation window, and then they are averaged.
  bool exchange_all(const std::vector<at::Tensor>& gradients);

 private:
  // The factor by which backward() multiplies the loss.
  parallel::ApplicationGradients::Exchange exchange(const state::AccumulationWindow& window) const {
    if (!gradient_state_->sync_gradients()) return std::nullopt;
    const state::AccumulationSettings& settings = gradient_state_->settings();
    const int64_t length = window.length;  // 0 outside of micro-batches
    return 1.0 / static_cast<double>(settings.true_divisor && length > 0 ? length : settings.num_steps);
  }
  const state::AccumulationWindow& own_window() const { return *gradient_state_->own().front(); }

  std::shared_ptr<comm::Communicator> communicator_;
  parallel::ParallelModelPtr model_;
  std::shared_ptr<parallel::ApplicationGradients> gradients_;
  std::vector<TrainedParameter> trained_;
  std::shared_ptr<state::GradientState> gradient_state_;
  std::shared_ptr<state::AccumulationWindow> window_;  // of exchange_all()
  std::shared_ptr<const RegisteredMemory> memory_;
};

}  // namespace accel::accelerator
