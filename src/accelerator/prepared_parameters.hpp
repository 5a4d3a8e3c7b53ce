// Prepared parameters: a model whose gradients the application computes itself.
#pragma once

#include <memory>

#include "comm/work.hpp"
#include "parallel/parameters/gradient_buckets.hpp"
#include "state/gradient_state.hpp"

namespace accel::accelerator {

class PreparedParameters {
 public:
  PreparedParameters(const nn::Module& module, std::shared_ptr<comm::Communicator> communicator, double bucket_cap_mb,
                     std::shared_ptr<const state::GradientState> gradient_state)
      : communicator_(communicator),
        buckets_(std::make_shared<parallel::GradientBuckets>(module, std::move(communicator), bucket_cap_mb)),
        gradient_state_(std::move(gradient_state)) {}

  const comm::Communicator& communicator() const { return *communicator_; }
  const at::Tensor& gradient(size_t index) const { return buckets_->gradient(index); }
  void grad_ready(size_t index, const at::Tensor& given) { buckets_->ready(index, given, exchange()); }
  void synchronize() { buckets_->synchronize(exchange()); }
  std::shared_ptr<comm::Work> start_synchronize() {
    buckets_->start(exchange());
    return buckets_->started();
  }

 private:
  // The factor by which backward() multiplies the loss.
  parallel::GradientBuckets::Exchange exchange() const {
    if (!gradient_state_->sync_gradients()) return std::nullopt;
    const state::AccumulationSettings& settings = gradient_state_->settings();
    const int64_t length = gradient_state_->own().front()->length;  // 0 outside of micro-batches
    return 1.0 / static_cast<double>(settings.true_divisor && length > 0 ? length : settings.num_steps);
  }

  std::shared_ptr<comm::Communicator> communicator_;
  std::shared_ptr<parallel::GradientBuckets> buckets_;
  std::shared_ptr<const state::GradientState> gradient_state_;
};

}  // namespace accel::accelerator
