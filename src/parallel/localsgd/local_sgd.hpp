// SPDX-License-Identifier: Apache-2.0
// Local SGD (Stich, 2019): ranks train independently and average their parameters every few steps; also post-local SGD
// (Lin et al., 2018), and with an outer optimizer DiLoCo (Douillard et al., 2023).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "config/generated/settings/training_loop/local_sgd.hpp"
#include "parallel/localsgd/outer_sgd.hpp"
#include "parallel/parallel_model.hpp"
#include "tensor/stateful.hpp"

namespace accel::parallel {

class LocalSgd final : public tensor::Stateful {
 public:
  // `gradient_group`: ranks that continue to exchange gradients in local steps, or null. Parameters are not averaged if
  // the settings turn it off, or the model exchanges no gradients.
  LocalSgd(ParallelModelPtr model, CommunicatorPtr communicator, int64_t local_sgd_steps,
           const LocalSgdSettings& settings, CommunicatorPtr gradient_group);
  // Ends it: gradients are exchanged as before.
  ~LocalSgd() override;
  LocalSgd(const LocalSgd&) = delete;
  LocalSgd& operator=(const LocalSgd&) = delete;

  // Counts a step, after the optimizer's. Returns whether the parameters were averaged, which is collective.
  bool step();
  // Averages the parameters if they may differ.
  void average_parameters();
  void finish() { average_parameters(); }

  // Whether the ranks have made steps of their own, so that their optimizers differ, and between averages the weights.
  bool has_local_steps() const { return enabled_ && num_steps_ > settings_.start_step; }
  const ParallelModelPtr& model() const { return model_; }

  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state_dict) override;
  // Begins anew.
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
  std::optional<OuterSgd> outer_;  // none: the averages are used directly
  int64_t num_steps_ = 0;
  int64_t averaged_at_ = 0;  // the step of the latest average
  bool exchanges_locally_ = false;
  CommunicatorPtr former_group_;  // the model's own, to be restored
};

}  // namespace accel::parallel
