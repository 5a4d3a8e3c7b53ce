// SPDX-License-Identifier: Apache-2.0
// What counts as a launch of a kernel.
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <functional>
#include <vector>

#include "simulated_device_fixture.hpp"

namespace simulated_device::tests {
namespace launches_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;

class SimulatedLaunches : public SimulatedDeviceTest {
 protected:
  static int64_t launches_of(const std::function<void()>& call) {
    const int64_t before = statistics().launches;
    call();
    return statistics().launches - before;
  }
  static int64_t casts_of(const std::function<void()>& call) {
    const int64_t before = statistics().casts;
    call();
    return statistics().casts - before;
  }
  static Tensors three(at::ScalarType dtype = at::kFloat) {
    return {at::ones({4}, at::TensorOptions(device()).dtype(dtype)),
            at::ones({2, 3}, at::TensorOptions(device()).dtype(dtype)),
            at::ones({}, at::TensorOptions(device()).dtype(dtype))};
  }
};

TEST_F(SimulatedLaunches, AnOperatorIsOneAndAViewNone) {
  const Tensor tensor = at::ones({4, 4}, device());
  EXPECT_EQ(launches_of([&] { tensor.add(1); }), 1);
  EXPECT_EQ(launches_of([&] { tensor.mul_(2); }), 1);
  EXPECT_EQ(launches_of([&] { tensor.t().slice(0, 0, 2); }), 0);
  EXPECT_EQ(launches_of([&] { at::empty({4}, device()); }), 0);
}

TEST_F(SimulatedLaunches, ANumberThatIsReadIsAWait) {
  const Tensor tensor = at::ones({}, device());
  const int64_t before = statistics().host_waits;
  EXPECT_EQ(launches_of([&] { EXPECT_EQ(tensor.item<float>(), 1); }), 0);
  EXPECT_EQ(statistics().host_waits, before + 1);
}

TEST_F(SimulatedLaunches, AnOperatorOfListsIsOne) {
  const Tensors tensors = three(), others = three();
  EXPECT_EQ(launches_of([&] { at::_foreach_add_(tensors, 1); }), 1);
  EXPECT_EQ(launches_of([&] { at::_foreach_add_(tensors, others, 2); }), 1);
  EXPECT_EQ(launches_of([&] { EXPECT_EQ(at::_foreach_norm(tensors, 2).size(), 3U); }), 1);
  EXPECT_EQ(launches_of([&] { at::_foreach_copy_(three(at::kBFloat16), tensors); }), 4) << "three are made";
  EXPECT_TRUE(tensors[1].cpu().eq(4).all().item<bool>());
}

TEST_F(SimulatedLaunches, ListsWithoutAKernelAreOneForEachTensor) {
  const Tensors tensors = three();
  const Tensors transposed = {at::ones({4}, device()), at::ones({3, 2}, device()).t(), at::ones({}, device())};
  EXPECT_EQ(launches_of([&] { at::_foreach_add_(tensors, transposed); }), 3);
  Tensors mixed = tensors;
  mixed[2] = mixed[2].to(at::kDouble);
  EXPECT_EQ(launches_of([&] { at::_foreach_add_(mixed, 1); }), 3);
  const int64_t copies = statistics().copies;
  EXPECT_EQ(launches_of([&] { at::_foreach_copy_(tensors, {at::ones({4}), at::ones({2, 3}), at::ones({})}); }), 0);
  EXPECT_EQ(statistics().copies, copies + 3);
}

TEST_F(SimulatedLaunches, AFusedOptimizerIsOne) {
  const Tensors parameters = three(), gradients = three(), means = three(), squares = three();
  const Tensors steps = {at::ones({}, device()), at::ones({}, device()), at::ones({}, device())};
  EXPECT_EQ(launches_of([&] {
              at::_fused_adamw_(parameters, gradients, means, squares, {}, steps, 0.1, 0.9, 0.99, 0, 1e-8, false,
                                false);
            }),
            1);
}

TEST_F(SimulatedLaunches, ACopyIsOneWhereItConverts) {
  const Tensor tensor = at::randn({4, 3}, device());
  EXPECT_EQ(launches_of([&] { tensor.clone(); }), 0);
  EXPECT_EQ(launches_of([&] { tensor.to(at::kBFloat16); }), 1);
  EXPECT_EQ(launches_of([&] { tensor.t().contiguous(); }), 1);
  EXPECT_EQ(launches_of([&] { tensor.cpu(); }), 0);
  EXPECT_EQ(launches_of([&] { at::ones({4, 3}).to(device()); }), 0);
}

TEST_F(SimulatedLaunches, ACopyBetweenDtypesIsACast) {
  const Tensor tensor = at::randn({4, 3}, device());
  EXPECT_EQ(casts_of([&] { tensor.to(at::kBFloat16); }), 1);
  EXPECT_EQ(casts_of([&] { tensor.t().contiguous(); }), 0);
  EXPECT_EQ(casts_of([&] { tensor.add(1); }), 0);
  const Tensors tensors = three(), others = three(), halves = three(at::kBFloat16);
  EXPECT_EQ(casts_of([&] { at::_foreach_copy_(halves, tensors); }), 1);
  EXPECT_EQ(casts_of([&] { at::_foreach_copy_(others, tensors); }), 0);
}

}  // namespace launches_test
}  // namespace simulated_device::tests
