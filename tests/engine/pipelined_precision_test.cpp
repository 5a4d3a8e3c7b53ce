// SPDX-License-Identifier: Apache-2.0
// Backwards in two halves under mixed precision, beside shards and recompute: as backwards at once.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/parallelism/tensor_parallel.hpp"
#include "config/generated/settings/prepare/grad_scaler.hpp"
#include "config/generated/settings/state/state.hpp"
#include "pipelined_model_fixture.hpp"

namespace accel::parallel {
namespace pipelined_precision_test {

using namespace pipelined_model_tests;

// Products of half precision, whose sums come in another order.
constexpr double kHalfTolerance = 5e-3;

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<bool> skipped;
  std::map<std::string, at::Tensor> weights;
};

// On the CPU losses are scaled where a program asks for it, as fp16 does elsewhere.
void scale_losses(const AcceleratorPtr& accelerator) {
  GradScalerSettings scaler;
  scaler.enabled = true;
  accelerator->precision().set_grad_scaler(scaler);
}

struct Mode {
  Precision precision = Precision::kNo;
  bool scales = false;
  bool recomputes = false;
  bool has_sequences = false;  // split between layers that are split
};

Outcome train(const MeshSizes& mesh, const Case& test, const Mode& mode) {
  Outcome outcome;
  PrepareModelSettings settings = settings_of(test);
  settings.fsdp.activation_checkpointing = mode.recomputes;
  settings.tensor_parallel.sequence_parallel = mode.has_sequences;
  on_mesh(
      mesh,
      [&](const AcceleratorPtr& accelerator) {
        if (mode.scales) scale_losses(accelerator);
        Training training(accelerator, test, settings);
        Outcome own;
        for (int64_t step = 0; step < kSteps; step++) {
          const auto [loss, norm] = training.step(step);
          own.losses.push_back(loss);
          own.norms.push_back(norm);
          own.skipped.push_back(training.optimizer()->step_was_skipped());
        }
        own.weights = training.weights();
        if (accelerator->state().process_index() == 0) outcome = std::move(own);
      },
      [mode](StateSettings& state, int) { state.mixed_precision = mode.precision; });
  return outcome;
}

void expect_as_at_once(const MeshSizes& mesh, Case test, const Mode& mode) {
  SCOPED_TRACE(name_of(test) + ", precision " + std::to_string(static_cast<int>(mode.precision)) +
               (mode.scales ? ", scaled" : "") + (mode.recomputes ? ", recomputed" : ""));
  test.dtype = at::kFloat;
  const Outcome halves = train(mesh, test, mode);
  test.schedule = "gpipe";
  const Outcome whole = train(mesh, test, mode);
  EXPECT_EQ(halves.skipped, whole.skipped);
  for (size_t step = 0; step < whole.losses.size(); step++) {
    EXPECT_NEAR(halves.losses[step], whole.losses[step], kHalfTolerance);
    EXPECT_NEAR(halves.norms[step] / whole.norms[step], 1, kHalfTolerance);
  }
  ASSERT_EQ(halves.weights.size(), whole.weights.size());
  for (const auto& [name, values] : whole.weights)
    EXPECT_LT((halves.weights.at(name) - values).abs().mean().item<double>(), 1e-3) << name;
}

const std::vector<Mode> kModes{{Precision::kNo}, {Precision::kNo, true}, {Precision::kBf16}, {Precision::kBf16, true}};

TEST(PipelinedPrecision, HalvesOfBackwards) {
  for (const Mode& mode : kModes)
    for (const char* schedule : {"zero_bubble", "zero_bubble_v"}) {
      expect_as_at_once(stages(2), {schedule, 4}, mode);
      expect_as_at_once(stages(2), {schedule, 4, true, 2}, mode);
    }
}

TEST(PipelinedPrecision, HalvesBesideShardsAndRecompute) {
  for (Mode mode : kModes)
    for (const bool recomputes : {false, true}) {
      mode.recomputes = recomputes;
      expect_as_at_once({1, 2, 1, 1, 1, 2}, {"zero_bubble", 4, true, 1, true}, mode);
    }
}

// The first half computes the gradients of weights in 8 bits, too.
TEST(PipelinedPrecision, HalvesUnderFp8) {
  for (const char* schedule : {"zero_bubble", "zero_bubble_v"})
    expect_as_at_once(stages(2), {schedule, 4}, {Precision::kFp8});
  Case test{"zero_bubble", 4};
  test.dtype = at::kFloat;
  const Outcome in_bfloat16 = train(stages(2), test, {Precision::kBf16});
  EXPECT_NE(train(stages(2), test, {Precision::kFp8}).norms, in_bfloat16.norms);  // layers are covered
}

TEST(PipelinedPrecision, HalvesBesideReplicas) {
  expect_as_at_once({2, 1, 1, 1, 1, 2}, {"zero_bubble", 4, true, 2}, {Precision::kBf16, true});
}

// All in one process, within the rounding of bf16.
TEST(PipelinedPrecision, LossesAreThoseOfOneProcess) {
  const Case test{"zero_bubble", 4};
  const Trained expected = train_alone(test, 1);
  Case in_half = test;
  in_half.dtype = at::kFloat;
  for (const bool scales : {false, true}) {
    const Outcome found = train(stages(2), in_half, {Precision::kBf16, scales});
    for (size_t step = 0; step < expected.losses.size(); step++)
      EXPECT_NEAR(found.losses[step], expected.losses[step], 2e-2);
  }
}

// Products of kinds of parallelism in bf16, each near one process in double precision: rounding of the activations,
// with 8 bits, and of the weights' copies, is all that differs.
TEST(PipelinedPrecision, ProductsAreNearOneProcess) {
  constexpr double kLossBound = 2e-2, kNormBound = 5e-2;  // of their value
  const MeshSizes layers{1, 1, 2, 1, 1, 2}, replicas{2, 1, 1, 1, 1, 2}, shards{1, 2, 1, 1, 1, 2};
  struct Product {
    MeshSizes mesh;
    Case test;
    bool recomputes = false;
    bool has_sequences = false;
  };
  const Product products[] = {{stages(3), {"1f1b", 4}},
                              {stages(2), {"interleaved", 4, true, 2}},
                              {layers, {"1f1b", 4}},
                              {layers, {"zero_bubble", 3, false, 2}, false, true},
                              {replicas, {"gpipe", 3}},
                              {shards, {"1f1b", 4, true, 2, true}, true},
                              {shards, {"zero_bubble_v", 4, false, 1, true}}};
  for (const Product& product : products) {
    SCOPED_TRACE(name_of(product.test));
    const Trained expected = train_alone(product.test, product.mesh.replicas * product.mesh.shards);
    Case test = product.test;
    test.dtype = at::kFloat;
    const Outcome found =
        train(product.mesh, test, {Precision::kBf16, false, product.recomputes, product.has_sequences});
    for (size_t step = 0; step < expected.norms.size(); step++) {
      EXPECT_NEAR(found.norms[step] / expected.norms[step], 1, kNormBound);
      if (product.mesh.replicas * product.mesh.shards == 1) {
        EXPECT_NEAR(found.losses[step] / expected.losses[step], 1, kLossBound);
      }
    }
  }
}

// An overflow in one stage skips the step on all.
TEST(PipelinedPrecision, AnOverflowSkipsTheStepOfAllStages) {
  Case test{"zero_bubble", 4};
  test.dtype = at::kFloat;
  on_mesh(stages(2), [&](const AcceleratorPtr& accelerator) {
    scale_losses(accelerator);
    Training training(accelerator, test);
    PipelineLoss loss = cross_entropy();
    loss.of_output = [](const c10::IValue& output, const c10::IValue& targets) {
      return tensor::cross_entropy(output.toTensor(), targets.toTensor()) * 1e36;
    };
    const auto before = training.weights();
    training.backward(tokens(kRows, 1), loss);
    training.optimizer()->step();
    EXPECT_TRUE(training.optimizer()->step_was_skipped());
    training.zero_grad();
    for (const auto& [name, values] : training.weights()) EXPECT_TRUE(values.equal(before.at(name))) << name;
  });
}

}  // namespace pipelined_precision_test
}  // namespace accel::parallel
