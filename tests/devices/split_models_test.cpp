// SPDX-License-Identifier: Apache-2.0
// Layers, losses and sequences that are split over ranks with a device each compute what one process computes on the
// CPU.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "config/generated/choices/context_method.hpp"
#include "config/generated/choices/overlap.hpp"
#include "engine/split_model_fixture.hpp"
#include "parallel/context/context_scope.hpp"
#include "parallel/context/sequence_parts.hpp"
#include "staged_ranks.hpp"
#include "tensor/device/device_work.hpp"

namespace accel::parallel {
namespace split_models_test {

using namespace split_model_tests;
using tests::CommunicatorPtr;

class SplitModels : public tests::StagedRanks {
 protected:
  // A rank's thread that has a device.
  static void on_devices(const MeshSizes& sizes, const std::function<void(const AcceleratorPtr&)>& body) {
    on_mesh(
        sizes,
        [&](const AcceleratorPtr& accelerator) {
          const c10::DeviceGuard guard(accelerator->state().device());
          if (device_count() < sizes.ranks()) c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
          body(accelerator);
        },
        [](StateSettings& settings, int rank) {
          settings.cpu = false;
          settings.torch_device = device(rank).str();
        });
  }
};

TEST_F(SplitModels, TrainAsOneProcessOnTheCpu) {
  constexpr int kSteps = 3;
  for (const Case& test :
       {Case{"GPT-2", gpt2, "auto"}, Case{"GPT-2, sequences", gpt2, "auto", 1e-9, true},
        Case{"GPT-2, loss", gpt2, "auto", 1e-9, false, true}, Case{"GPT-2, both", gpt2, "auto", 1e-9, true, true}}) {
    SCOPED_TRACE(test.name);
    const Trained expected = train_alone(test, kSteps);
    on_devices({1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
      PrepareModelSettings settings;
      settings.tensor_parallel.overlap = Overlap::kYes;
      Training training(accelerator, test, settings);
      for (size_t step = 0; step < kSteps; step++)
        EXPECT_NEAR(training.step(static_cast<int64_t>(step)).second, expected.steps[step].second, test.tolerance);
      expect_close(training.weights(), expected.weights, test.tolerance);
    });
  }
}

// A model in the memory of the CPU is cut there.
TEST_F(SplitModels, PartsAloneComeToTheDevice) {
  NEEDS_DEVICES(2);
  on_devices({1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    const int rank = static_cast<int>(accelerator->state().process_index());
    const nn::ModulePtr model = from_config(
        R"({"model_type": "gpt2", "n_embd": 128, "n_layer": 2, "n_head": 4, "vocab_size": 1000, "n_positions": 8})");
    int64_t whole = 0, parts = 0, tensors = 0;
    for (const at::Tensor& parameter : model->parameters()) whole += static_cast<int64_t>(parameter.nbytes());
    tensor::reset_peak_memory(device(rank));
    const int64_t before = tensor::device_memory(device(rank)).peak_allocated;
    accelerator->preparation().prepare_model(model, PrepareModelSettings());
    for (const at::Tensor& parameter : model->parameters()) {
      EXPECT_EQ(parameter.device(), device(rank));
      parts += static_cast<int64_t>(parameter.nbytes());
      tensors++;
    }
    EXPECT_LE(parts, whole * 55 / 100);
    constexpr int64_t kRounding = 512, kOfMessages = 64 * 1024;
    EXPECT_LE(tensor::device_memory(device(rank)).peak_allocated - before, parts + tensors * kRounding + kOfMessages);
  });
}

at::Tensor numbers(at::IntArrayRef sizes, double seed) {
  return at::linspace(-40.0 * seed, 53.0, c10::multiply_integers(sizes), at::kDouble).sin().view(sizes);
}

// The output and the gradients of queries, keys and values.
std::vector<at::Tensor> attend(std::vector<at::Tensor> inputs, const at::Tensor& gradient, bool is_causal) {
  for (at::Tensor& input : inputs) input = input.detach().requires_grad_();
  const at::Tensor out =
      at::scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], {}, 0.0, is_causal, std::nullopt);
  std::vector<at::Tensor> results = torch::autograd::grad({out}, inputs, {gradient});
  results.insert(results.begin(), out.detach());
  return results;
}

TEST_F(SplitModels, AttentionIsThatOfTheWholeSequence) {
  constexpr int64_t kBatch = 2, kHeads = 4, kLength = 24, kSize = 5;
  std::vector<at::Tensor> whole;
  for (const double seed : {0.7, 0.9, 1.3, 0.4}) whole.push_back(numbers({kBatch, kHeads, kLength, kSize}, seed));
  for (const bool is_causal : {false, true}) {
    const std::vector<at::Tensor> expected = attend({whole[0], whole[1], whole[2]}, whole[3], is_causal);
    for (const int size : {2, 3})
      for (const ContextMethod method : {ContextMethod::kAllGather, ContextMethod::kRing, ContextMethod::kUlysses})
        run_ranks(size, /*on_cpu=*/false, [&](const CommunicatorPtr& communicator, c10::Device place) {
          const bool is_balanced = is_causal && method != ContextMethod::kUlysses;
          const ContextParallelism split{communicator, method,
                                         is_balanced ? SequenceOrder::kHeadAndTail : SequenceOrder::kContiguous};
          std::vector<at::Tensor> own;
          for (const at::Tensor& tensor : whole)
            own.push_back(split_sequence(tensor, 2, split.order, communicator).contiguous().to(place));
          std::vector<at::Tensor> found;
          {
            const ContextScope scope(split, {});
            found = attend({own[0], own[1], own[2]}, own[3], is_causal);
          }
          for (size_t i = 0; i < found.size(); i++) {
            const at::Tensor part = split_sequence(expected[i], 2, split.order, communicator);
            EXPECT_LE((found[i].cpu() - part).abs().max().item<double>(), 1e-9)
                << i << " by method " << static_cast<int>(method) << " on " << size << " ranks";
          }
        });
  }
}

TEST_F(SplitModels, MeansOfLossesAreOverAllRanks) {
  const at::Tensor scores = numbers({12, 7}, 0.6), targets = at::arange(12).remainder(7);
  targets.slice(0, 0, 5).fill_(-100);
  const double expected = at::cross_entropy_loss(scores, targets).item<double>();
  run_ranks(3, /*on_cpu=*/false, [&](const CommunicatorPtr& communicator, c10::Device place) {
    const ContextParallelism split{communicator, ContextMethod::kRing, SequenceOrder::kContiguous};
    const auto own = [&](const at::Tensor& whole) {
      return split_sequence(whole, 0, split.order, communicator).to(place);
    };
    const ContextScope scope(split, {});
    const at::Tensor part = own(scores).requires_grad_();
    const at::Tensor loss = at::cross_entropy_loss(part, own(targets));
    EXPECT_NEAR(loss.item<double>(), expected, 1e-12);
    loss.backward();
    EXPECT_TRUE(part.grad().defined());
  });
}

}  // namespace split_models_test
}  // namespace accel::parallel
