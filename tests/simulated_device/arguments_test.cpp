// SPDX-License-Identifier: Apache-2.0
// Operators refuse the tensors of other devices, types and layouts that CUDA's refuse.
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <functional>

#include "simulated_device_fixture.hpp"

namespace simulated_device::tests {
namespace arguments_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;

class SimulatedArguments : public SimulatedDeviceTest {
 protected:
  static void expect_refused(const std::string& part, const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "expected an error with: " << part;
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what_without_backtrace()).find(part), std::string::npos)
          << error.what_without_backtrace();
    }
  }
  static void expect_refused_devices(const std::function<void()>& call) {
    expect_refused("Expected all tensors to be on the same device, but found at least two devices, sim:0 and cpu",
                   call);
  }
  // What a fused optimizer has of one parameter of 2 x 3.
  struct States {
    Tensor parameter = at::ones({2, 3}, device()), gradient = at::ones({2, 3}, device()),
           mean = at::zeros({2, 3}, device()), square = at::zeros({2, 3}, device()), step = at::ones({}, device());
    void update(const Tensor& rate = {}) const {
      const Tensors parameters = {parameter}, gradients = {gradient}, means = {mean}, squares = {square},
                    steps = {step};
      if (rate.defined())
        at::_fused_adam_(parameters, gradients, means, squares, {}, steps, rate, 0.9, 0.99, 0, 1e-8, false, false);
      else
        at::_fused_adamw_(parameters, gradients, means, squares, {}, steps, 0.1, 0.9, 0.99, 0, 1e-8, false, false);
    }
  };
};

TEST_F(SimulatedArguments, TensorsOfOneDevice) {
  const Tensor tensor = at::ones({4}, device());
  expect_refused("at least two devices, sim:0 and sim:1", [&] { tensor.add(at::ones({4}, device(1))); });
  expect_refused_devices([&] { tensor.add(at::ones({4})); });
  expect_refused_devices([&] { at::_foreach_add(Tensors{tensor}, Tensors{at::ones({4})}); });
}

TEST_F(SimulatedArguments, NumbersOfTheCpuWhereOperatorsGoElementByElement) {
  const Tensor tensor = at::ones({4}, device()), number = at::full({}, 2);
  EXPECT_EQ(tensor.add(number).sum().item<float>(), 12);
  EXPECT_EQ(at::where(tensor.gt(0), tensor, number).sum().item<float>(), 4);
  EXPECT_EQ(tensor.masked_fill(tensor.gt(0), number).sum().item<float>(), 8);
  EXPECT_EQ(at::_foreach_mul(Tensors{tensor}, number)[0].sum().item<float>(), 8);
  const Tensor index = at::zeros({}, at::kLong);
  EXPECT_EQ(tensor.index({index}).item<float>(), 1);
  expect_refused_devices([&] { at::index_select(tensor, 0, index); });
  expect_refused_devices([&] { at::embedding(tensor.reshape({2, 2}), index); });
  expect_refused_devices([&] { tensor.reshape({2, 2}).index_add_(0, index, tensor.reshape({2, 2})); });
}

TEST_F(SimulatedArguments, LossScalingOnTheDevice) {
  const Tensors gradients = {at::ones({4}, device())};
  Tensor found = at::zeros({}, device()), found_on_cpu = at::zeros({}), scale = at::ones({}, device());
  expect_refused_devices([&] { at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, at::ones({})); });
  expect_refused_devices([&] { at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_on_cpu, scale); });
  Tensor tracker = at::zeros({}, at::kInt), tracker_there = tracker.to(device());
  expect_refused_devices([&] { at::_amp_update_scale_(scale, tracker, found, 2, 0.5, 10); });
  expect_refused_devices([&] { at::_amp_update_scale_(scale, tracker_there, found_on_cpu, 2, 0.5, 10); });
  EXPECT_NO_THROW(at::_amp_update_scale_(scale, tracker_there, found, 2, 0.5, 10));
}

TEST_F(SimulatedArguments, FusedOptimizers) {
  States().update();
  States().update(at::full({}, 0.1));  // a rate of the CPU is read there
  const auto expect_refused_with = [](const std::string& part, const std::function<void(States&)>& change) {
    States states;
    change(states);
    expect_refused(part, [&] { states.update(); });
    expect_refused(part, [&] { states.update(at::full({}, 0.1)); });
  };
  expect_refused_with("sim:0 and cpu", [](States& states) { states.step = states.step.cpu(); });
  expect_refused_with("sim:0 and cpu", [](States& states) { states.mean = states.mean.cpu(); });
  expect_refused_with("state_steps are Double", [](States& states) { states.step = states.step.to(at::kDouble); });
  expect_refused_with("grads must have the dtype",
                      [](States& states) { states.gradient = states.gradient.to(at::kHalf); });
  expect_refused_with("exp_avgs must have the dtype, the device and the layout", [](States& states) {
    states.mean = at::zeros({3, 2}, device()).t();
  });
  const Tensors parameters = {at::ones({2}, device()), at::ones({2}, device()).to(at::kDouble)};
  const Tensors gradients = {at::ones({2}, device()), at::ones({2}, device()).to(at::kDouble)};
  expect_refused("must have the dtype",
                 [&] { at::_fused_sgd_(parameters, gradients, {}, 0, 0, 0.1, 0, false, false, false); });
}

}  // namespace arguments_test
}  // namespace simulated_device::tests
