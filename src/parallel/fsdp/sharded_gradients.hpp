// SPDX-License-Identifier: Apache-2.0
// Sharded data parallelism for gradients of the application: it gathers the parameters of a module around its own use
// of them, and when the last gradient of a module is ready, the ranks reduce them while it computes others.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/fsdp/fully_sharded_data_parallel.hpp"
#include "parallel/parameters/application_gradients.hpp"

namespace accel::parallel {

class ShardedGradients final : public ApplicationGradients, public std::enable_shared_from_this<ShardedGradients> {
 public:
  // The forward of the model is not used.
  explicit ShardedGradients(std::shared_ptr<FullyShardedDataParallel> model);

  size_t size() const override { return places_.size(); }
  // The gradient of the whole parameter, and of this micro-batch only: zeros, or in later ones of a window the sum so
  // far.
  const at::Tensor& gradient(size_t index) override;
  void ready(size_t index, const at::Tensor& given, Exchange exchange) override;
  void synchronize(Exchange exchange) override;
  std::shared_ptr<comm::Work> start(Exchange exchange) override;

  void unshard(const std::string& module, bool wait) override;
  void reshard(const std::string& module) override;

 private:
  struct Place {
    ParameterGroup* group;
    size_t index;
  };

  const Place& place(size_t index) const;
  ParameterGroup& group_of(const std::string& module) const;
  at::Tensor& memory(const Place& place);
  void check_all_ready() const;
  void start_complete_groups(double factor);
  std::vector<std::shared_ptr<comm::Work>> start_all(Exchange exchange);
  void end_micro_batch(Exchange exchange);

  std::shared_ptr<FullyShardedDataParallel> model_;
  std::mutex mutex_;
  std::vector<Place> places_;             // of each gradient
  std::vector<ParameterGroup*> reduced_;  // with trained parameters, in the order of their reduction
  size_t num_started_ = 0;                // of these, in this micro-batch
};

}  // namespace accel::parallel
