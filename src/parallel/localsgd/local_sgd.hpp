// Ranks that train on their own and average their weights now and then: local SGD (Stich, 2019), post-local SGD (Lin et
// al., 2018), and with an outer step DiLoCo (Douillard et al., 2023).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "config/generated/settings.hpp"
#include "parallel/localsgd/outer_sgd.hpp"
#include "parallel/parallel_model.hpp"
#include "tensor/stateful.hpp"

namespace accel::parallel {

class LocalSgd final : public tensor::Stateful {
 public:
  // `gradient_group`: ranks that go on exchanging gradients in local steps, or null. Nothing is averaged when the
  // settings turn it off, or the model exchanges no gradients.
  LocalSgd(ParallelModelPtr model, CommunicatorPtr communicator, int64_t local_sgd_steps,
           const LocalSgdSettings& settings, CommunicatorPtr gradient_group);
  // Gradients are exchanged as before.
  ~LocalSgd() override;
  LocalSgd(const LocalSgd&) = delete;
  LocalSgd& operator=(const LocalSgd&) = delete;

  // Counts a step, after the optimizer's. Whether the weights were averaged; that is collective.
  bool step();
  // Averages the weights if they may differ.
  void average_parameters();
  void finish() { average_parameters(); }

  // Whether the ranks have made steps of their own, so that their optimizers differ, and between averages the weights.
  bool has_local_steps() const { return enabled_ && num_steps_ > settings_.start_step; }
  const ParallelModelPtr& model() const { return model_; }

  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state_dict) override;
  // As if it began now.
  void restart();

 private:
  bool is_local() const { return num_steps_ >= settings_.start_step; }
  void exchange_as_due();
  void exchange_as_before();

  ParallelModelPtr model_;
  CommunicatorPtr communicator_;
  CommunicatorPtr gradient_group_;
  int64_t local_sgd_steps_;
  LocalSgdSettings settings_;
  bool enabled_;
  std::vector<at::Tensor> weights_;
  std::optional<OuterSgd> outer_;  // else the means are taken
  int64_t num_steps_ = 0;
  int64_t averaged_at_ = 0;  // the step after which the weights were the same everywhere
  bool exchanges_locally_ = false;
  CommunicatorPtr former_group_;  // the model's, while it has ours
};

}  // namespace accel::parallel
