// SPDX-License-Identifier: Apache-2.0
// Linear layers by a recipe of fp8 compute on a device what they compute on the CPU, with each scaling, and the host
// waits for none of it.
#include "nn/low_precision/fp8_layers.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <vector>

#include "config/generated/choices/fp8_scaling.hpp"
#include "config/generated/choices/precision.hpp"
#include "device_fixture.hpp"
#include "nn/layers/linear.hpp"
#include "nn/low_precision/fp8_routes.hpp"
#include "precision/autocast.hpp"

namespace accel::nn {
namespace fp8_layers_device_test {

class Fp8LayersDevice : public tests::DeviceTest {};

// A layer on a device, of which steps are taken.
class Layer {
 public:
  Layer(const at::Tensor& weight, Fp8Scaling scaling, c10::Device device)
      : device_(device), module_(std::make_shared<Linear>(weight.to(device).clone(), at::Tensor())) {
    precision::Fp8Recipe recipe;
    recipe.scaling = scaling;
    recipe.skip_first_and_last = false;
    layers_ = make_fp8_layers(recipe, select_fp8_layers(*module_, recipe), device);
  }

  // The output and the gradients of the input and the weight.
  std::vector<at::Tensor> step(const at::Tensor& given, const at::Tensor& gradient) const {
    const at::Tensor input = given.to(device_).detach().requires_grad_();
    at::Tensor output;
    {
      const Fp8Layers::Scope scope(layers_);
      const precision::AutocastGuard autocast(Precision::kBf16, device_.type());
      output = module_->call(input);
    }
    output.backward(gradient.to(device_).to(output.scalar_type()));
    if (layers_->histories() != nullptr) layers_->histories()->update(layers_->histories()->magnitudes().clone());
    std::vector<at::Tensor> found = {output.detach(), input.grad(), module_->parameter(0).grad()};
    module_->parameter(0).mutable_grad() = at::Tensor();
    return found;
  }
  int64_t overflows() const { return layers_->overflows(); }

 private:
  const c10::Device device_;
  const ModulePtr module_;
  std::shared_ptr<Fp8Layers> layers_;
};

double relative_error(const at::Tensor& found, const at::Tensor& expected) {
  return (found.cpu().to(at::kFloat) - expected.to(at::kFloat)).norm().item<double>() /
         expected.to(at::kFloat).norm().item<double>();
}

TEST_F(Fp8LayersDevice, EqualTheCpu) {
  for (const Fp8Scaling scaling :
       {Fp8Scaling::kCurrent, Fp8Scaling::kDelayed, Fp8Scaling::kRowwise, Fp8Scaling::kBlockwise}) {
    const at::Tensor weight = at::randn({64, 80});
    const Layer on_host(weight, scaling, c10::Device(c10::kCPU)), on_device(weight, scaling, device());
    for (int step = 0; step < 3; step++) {
      const at::Tensor input = at::randn({48, 80}) * (step + 1), gradient = at::randn({48, 64});
      const auto expected = on_host.step(input, gradient), found = on_device.step(input, gradient);
      for (size_t i = 0; i < found.size(); i++)
        EXPECT_LT(relative_error(found[i], expected[i]), 2e-3) << static_cast<int>(scaling) << ' ' << step << ' ' << i;
    }
    EXPECT_EQ(on_device.overflows(), on_host.overflows());
  }
}

TEST_F(Fp8LayersDevice, TheHostWaitsForNothing) {
  NEEDS_SIMULATION("counts of waits");
  const auto waits = [] {
    simulated_device_statistics statistics{};
    simulation().get_statistics(0, &statistics);
    return statistics.host_waits;
  };
  const Layer layer(at::randn({64, 80}), Fp8Scaling::kDelayed, device());
  const at::Tensor input = at::randn({48, 80}, device()), gradient = at::randn({48, 64}, device());
  layer.step(input, gradient);
  tensor::synchronize(device());
  const auto before = waits();
  layer.step(input, gradient);
  EXPECT_EQ(waits(), before);
}

}  // namespace fp8_layers_device_test
}  // namespace accel::nn
