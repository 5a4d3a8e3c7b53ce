// SPDX-License-Identifier: Apache-2.0
// An update on a device reads no number back: the host queues it and goes on.
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "device_fixture.hpp"
#include "optim/clip.hpp"
#include "optim/lomo.hpp"
#include "optim/rules/rules.hpp"

namespace accel::optim {
namespace update_waits_test {

class UpdateWaits : public tests::DeviceTest {
 protected:
  // A layer's weight and bias, and one that has no matrix kernels.
  static std::vector<at::Tensor> parameters(bool only_matrices) {
    std::vector<at::Tensor> made = {at::randn({64, 96}, device()), at::randn({4, 8}, device())};
    if (!only_matrices) made.push_back(at::randn({96}, device()));
    for (at::Tensor& parameter : made) parameter.requires_grad_();
    return made;
  }
  static int64_t waits() {
    simulated_device_statistics statistics{};
    simulation().get_statistics(0, &statistics);
    return statistics.host_waits;
  }
};

TEST_F(UpdateWaits, NoOptimizerHasOne) {
  NEEDS_SIMULATION("counts of waits");
  const std::vector<std::pair<std::string, RulePtr (*)()>> rules = {
      {"sgd", sgd_rule},
      {"adam", [] { return adam_rule(WeightDecay::kInGradient); }},
      {"adamw", [] { return adam_rule(WeightDecay::kDecoupled); }},
      {"nadam", nadam_rule},
      {"radam", radam_rule},
      {"adamax", adamax_rule},
      {"adagrad", adagrad_rule},
      {"rmsprop", rmsprop_rule},
      {"lion", lion_rule},
      {"lamb", lamb_rule},
      {"adafactor", adafactor_rule},
      {"muon", muon_rule},
      {"schedule_free_sgd", schedule_free_sgd_rule},
      {"schedule_free_adamw", schedule_free_adamw_rule},
  };
  for (const auto& [name, rule] : rules) {
    SCOPED_TRACE(name);
    const auto optimizer = make_optimizer(rule());
    const auto own = parameters(name == "muon");
    optimizer->add_group(own, std::nullopt, std::nullopt);
    int64_t before = 0;
    for (int step = 0; step < 2; step++) {  // the first one makes the states
      for (const at::Tensor& parameter : own) parameter.mutable_grad() = at::randn(parameter.sizes(), device());
      tensor::synchronize(device());
      before = waits();
      clip_gradients_by_norm(own, 1.0);
      optimizer->step();
    }
    EXPECT_EQ(waits(), before);
  }
}

TEST_F(UpdateWaits, NoUpdateInBackwardHasOne) {
  NEEDS_SIMULATION("counts of waits");
  for (const bool adapts : {false, true}) {
    SCOPED_TRACE(adapts ? "adalomo" : "lomo");
    const auto optimizer = make_optimizer(adapts ? adalomo_rule() : lomo_rule(), {{"clip_grad_norm", 1.0}});
    const auto own = parameters(/*only_matrices=*/false);
    optimizer->add_group(own, std::nullopt, std::nullopt);
    int64_t before = 0;
    for (int step = 0; step < 2; step++) {
      const at::Tensor loss = own[0].mean() + own[1].mean() + own[2].mean();
      tensor::synchronize(device());
      before = waits();
      lomo_backward({optimizer}, loss, std::nullopt, {});
    }
    EXPECT_EQ(waits(), before);
  }
}

}  // namespace update_waits_test
}  // namespace accel::optim
