// SPDX-License-Identifier: Apache-2.0
// Adapters on a device: what they compute and their gradients equal the CPU, also beside weights that come and go.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "bigmodel/load_and_dispatch.hpp"
#include "config/generated/settings/big_model/dispatch.hpp"
#include "device_fixture.hpp"
#include "nn/adapters/adapters.hpp"
#include "nn/architectures/architecture.hpp"
#include "nn/layers/projection.hpp"
#include "nn/module_walks.hpp"
#include "nn/quantized/quantized_model.hpp"

namespace accel::nn {
namespace adapters_device_test {

constexpr const char* kName = "mine";
constexpr double kTolerance = 1e-5;  // the CPU has products of its own

ModulePtr decoder() {
  ModulePtr model = module_from_config(R"({"model_type": "llama", "hidden_size": 24, "intermediate_size": 32,
      "num_hidden_layers": 3, "vocab_size": 13, "num_attention_heads": 4})");
  const at::NoGradGuard no_grad;
  double seed = 1;
  for (const auto& [name, parameter] : named_parameters(*model)) {
    seed += 0.37;
    if (parameter.dim() == 1) continue;
    at::Tensor(parameter).copy_(
        at::linspace(-3 * seed, 11 * seed, parameter.numel()).sin().mul(0.3).view(parameter.sizes()));
  }
  return model;
}

void add_known_adapter(Module& model, bool is_dora) {
  LoraConfig config;
  config.shape.rank = 3;
  config.shape.is_dora = is_dora;
  config.targets.endings = {"q_proj", "v_proj", "down_proj"};
  add_lora(model, kName, config);
  const at::NoGradGuard no_grad;
  double seed = 0.5;
  for (const auto& [path, tensor] : adapter_tensors(model, kName)) {
    if (tensor.dim() == 1) continue;
    seed += 0.3;
    at::Tensor(tensor).copy_(at::linspace(-2 * seed, 7 * seed, tensor.numel()).sin().mul(0.2).view(tensor.sizes()));
  }
}

// On the CPU: the logits, and the gradients of the adapter.
std::map<std::string, at::Tensor> computed_by(Module& model, c10::Device device) {
  std::map<std::string, at::Tensor> found;
  const at::Tensor logits = model.call(at::arange(12).mul(5).remainder(13).view({2, 6}).to(device));
  logits.square().mean().backward();
  found["logits"] = logits.detach().cpu();
  for (const auto& [path, tensor] : adapter_tensors(model, kName)) found[path] = tensor.grad().cpu();
  return found;
}

class AdaptersDevice : public tests::DeviceTest {
 protected:
  AdaptersDevice() : DeviceTest(tests::LateStreams{3, 200}) {}

  static void expect_close(const std::map<std::string, at::Tensor>& found,
                           const std::map<std::string, at::Tensor>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, tensor] : expected)
      EXPECT_LE(tests::difference(found.at(name), tensor), kTolerance) << name;
  }
};

TEST_F(AdaptersDevice, EqualTheCpu) {
  for (const bool is_dora : {false, true}) {
    const ModulePtr model = decoder(), other = decoder();
    add_known_adapter(*model, is_dora);
    other->to(std::nullopt, device());
    add_known_adapter(*other, is_dora);
    expect_close(computed_by(*other, device()), computed_by(*model, c10::Device(c10::kCPU)));
    const at::NoGradGuard no_grad;
    const at::Tensor tokens = at::arange(6).view({1, 6}).to(device());
    const at::Tensor apart = other->call(tokens).cpu();
    merge_adapters(*other);
    EXPECT_LE(tests::difference(other->call(tokens).cpu(), apart), kTolerance);
  }
}

// Backward needs weights that were on the device for their block's forward alone.
TEST_F(AdaptersDevice, StandBesideOffloadedWeights) {
  for (const bool is_dora : {false, true}) {
    const ModulePtr model = decoder(), other = decoder();
    add_known_adapter(*model, is_dora);
    DispatchSettings settings;
    settings.block_bytes = 1;
    settings.prefetch_bytes = 0;
    bigmodel::cpu_offload(*other, device(), settings);
    add_known_adapter(*other, is_dora);
    for (const auto& [path, tensor] : adapter_tensors(*other, kName)) EXPECT_EQ(tensor.device(), device()) << path;
    expect_close(computed_by(*other, device()), computed_by(*model, c10::Device(c10::kCPU)));
  }
}

// The CPU computes with the numbers that the codes stand for.
TEST_F(AdaptersDevice, StandOnQuantizedWeights) {
  for (const char* const kind : {"nf4", "int4", "int8_grouped", "float8_e4m3"})
    for (const bool is_dora : {false, true}) {
      SCOPED_TRACE(kind);
      const ModulePtr model = decoder(), other = decoder();
      QuantizationOptions options;
      options.kind = kind;
      const std::vector<std::string> layers = quantize_model(*other, options);
      {
        const at::NoGradGuard no_grad;
        for (const std::string& layer : layers) {
          const auto& quantized = dynamic_cast<const Projection&>(*other->find(layer));
          at::Tensor(model->find(layer)->parameter(Projection::kWeight)).copy_(quantized.whole_weight());
        }
      }
      add_known_adapter(*model, is_dora);
      other->to(std::nullopt, device());
      add_known_adapter(*other, is_dora);
      for (const std::string& layer : layers)
        EXPECT_EQ(other->find(layer)->parameter(Projection::kWeight).device(), device()) << layer;
      expect_close(computed_by(*other, device()), computed_by(*model, c10::Device(c10::kCPU)));
    }
}

}  // namespace adapters_device_test
}  // namespace accel::nn
