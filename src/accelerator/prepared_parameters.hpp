// Prepared parameters: a model whose gradients the application computes itself.
#pragma once

#include <memory>
#include <utility>

#include "comm/work.hpp"
#include "parallel/parameters/application_gradients.hpp"
#include "state/gradient_state.hpp"

namespace accel::accelerator {

class PreparedParameters {
 public:
  PreparedParameters(std::shared_ptr<parallel::ApplicationGradients> gradients,
                     std::shared_ptr<comm::Communicator> communicator,
                     std::shared_ptr<const state::GradientState> gradient_state)
      : communicator_(std::move(communicator)),
        gradients_(std::move(gradients)),
        gradient_state_(std::move(gradient_state)) {}

  const comm::Communicator& communicator() const { return *communicator_; }
  parallel::ApplicationGradients& gradients() const { return *gradients_; }
  void grad_ready(size_t index, const at::Tensor& given) { gradients_->ready(index, given, exchange()); }
  void synchronize() { gradients_->synchronize(exchange()); }
  std::shared_ptr<comm::Work> start_synchronize() { return gradients_->start(exchange()); }

 private:
  // The factor by which backward() multiplies the loss.
  parallel::ApplicationGradients::Exchange exchange() const {
    if (!gradient_state_->sync_gradients()) return std::nullopt;
    const state::AccumulationSettings& settings = gradient_state_->settings();
    const int64_t length = gradient_state_->own().front()->length;  // 0 outside of micro-batches
    return 1.0 / static_cast<double>(settings.true_divisor && length > 0 ? length : settings.num_steps);
  }

  std::shared_ptr<comm::Communicator> communicator_;
  std::shared_ptr<parallel::ApplicationGradients> gradients_;
  std::shared_ptr<const state::GradientState> gradient_state_;
};

}  // namespace accel::accelerator
