// SPDX-License-Identifier: Apache-2.0
// Random numbers of a device: those of the CPU with the same seed.
#include <ATen/Context.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>

#include "simulated_device_fixture.hpp"

namespace simulated_device::tests {
namespace generator_test {

class SimulatedGenerator : public SimulatedDeviceTest {
 protected:
  static at::Generator default_generator(c10::Device device) { return at::globalContext().defaultGenerator(device); }
  static void seed(c10::Device device, uint64_t number) {
    at::Generator generator = default_generator(device);
    generator.set_current_seed(number);
  }

  // What a function draws on the CPU and on a device, from the same seed.
  template <typename Draw>
  static void expect_same(Draw&& draw) {
    seed(at::kCPU, 11);
    const at::Tensor expected = draw(c10::Device(at::kCPU));
    seed(device(1), 11);
    const at::Tensor state = default_generator(at::kCPU).get_state();
    const at::Tensor drawn = draw(device(1));
    EXPECT_EQ(drawn.device(), device(1));
    EXPECT_TRUE(drawn.cpu().equal(expected));
    EXPECT_TRUE(default_generator(at::kCPU).get_state().equal(state)) << "the CPU's generator has changed";
    EXPECT_FALSE(draw(device(1)).cpu().equal(expected)) << "the generator has not gone on";
  }
};

TEST_F(SimulatedGenerator, DrawsWhatTheCpuDraws) {
  expect_same([](c10::Device on) { return at::randn({50}, on); });
  expect_same([](c10::Device on) { return at::rand({50}, on); });
  expect_same([](c10::Device on) { return at::randint(0, 1000, {50}, on); });
  expect_same([](c10::Device on) { return at::randperm(50, on); });
  expect_same([](c10::Device on) { return at::ones({50}, on).bernoulli_(0.5); });
  expect_same([](c10::Device on) { return at::empty({50}, on).normal_(1, 2); });
  expect_same([](c10::Device on) { return at::ones({50}, on).multinomial(20, true); });
  expect_same([](c10::Device on) { return at::dropout(at::ones({50}, on), 0.3, true); });
}

TEST_F(SimulatedGenerator, HasStatesAndOffspring) {
  at::Generator generator =
      at::globalContext().getAcceleratorHooksInterface(c10::DeviceType::PrivateUse1).getNewGenerator(2);
  EXPECT_EQ(generator.device(), device(2));
  generator.set_current_seed(5);
  EXPECT_EQ(generator.current_seed(), 5u);
  const at::Tensor state = generator.get_state();
  const at::Tensor first = at::randn({4}, generator, at::TensorOptions().device(device(2)));
  const at::Generator copy = generator.clone();
  const at::Tensor second = at::randn({4}, generator, at::TensorOptions().device(device(2)));
  EXPECT_FALSE(first.equal(second));
  EXPECT_TRUE(second.equal(at::randn({4}, copy, at::TensorOptions().device(device(2)))));
  generator.set_state(state);
  EXPECT_TRUE(first.equal(at::randn({4}, generator, at::TensorOptions().device(device(2)))));
  EXPECT_THROW(at::randn({4}, generator, at::TensorOptions().device(device(1))), c10::Error);
}

}  // namespace generator_test
}  // namespace simulated_device::tests
