// SPDX-License-Identifier: Apache-2.0
#include "nn/recompute/activation_checkpointing.hpp"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>
#include <thread>

#include "base/error.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/settings/prepare/ddp.hpp"
#include "expect_error.hpp"
#include "kernels/compute_policy.hpp"
#include "kernels/memory/cpu_allocator.hpp"
#include "nn/architectures/architecture.hpp"
#include "nn/callback_module.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/normalization.hpp"
#include "nn/layers/sequential.hpp"
#include "nn/module_walks.hpp"
#include "nn/recompute/early_stop.hpp"
#include "parallel/ddp/distributed_data_parallel.hpp"
#include "precision/autocast.hpp"
#include "rank_threads.hpp"
#include "tensor/autograd/saved_tensor_hooks.hpp"
#include "tensor/device/generator.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace activation_checkpointing_test {

using Tensors = std::vector<at::Tensor>;
constexpr Recompute kBothWays[] = {Recompute::kAll, Recompute::kKeepMatmuls};

void seed(uint64_t number) {
  at::Generator generator = tensor::default_generator(at::kCPU);
  tensor::set_seed(generator, number);
}

ActivationCheckpointingSettings recomputing(Recompute what, const char* class_names = "") {
  ActivationCheckpointingSettings settings;
  settings.recompute = what;
  settings.class_names = std::string(class_names);
  return settings;
}

std::shared_ptr<CallbackModule> calling(const char* kind, std::function<at::Tensor(const at::Tensor&)> function) {
  auto module = std::make_shared<CallbackModule>(kind);
  module->set_forward([function = std::move(function)](Module&, const Inputs& inputs) -> c10::IValue {
    return function(inputs[0].toTensor());
  });
  return module;
}

ModulePtr block(int64_t width, double dropout) {
  return std::make_shared<Sequential>(
      std::vector<ModulePtr>{std::make_shared<LayerNorm>(width), std::make_shared<Linear>(width, 2 * width, true),
                             std::make_shared<Activation>("gelu"), std::make_shared<Linear>(2 * width, width, true),
                             std::make_shared<Dropout>(dropout)});
}

ModulePtr blocks(int64_t count, int64_t width, double dropout) {
  seed(1);
  std::vector<ModulePtr> all;
  for (int64_t i = 0; i < count; i++) all.push_back(block(width, dropout));
  return std::make_shared<Sequential>(all);
}

// "0", "1", ...: the blocks, not what is in them.
ActivationCheckpointingSettings of_blocks(Recompute what = Recompute::kAll) {
  ActivationCheckpointingSettings settings = recomputing(what);
  settings.modules = std::string("[0-9]+");
  return settings;
}

Tensors gradients_of(const Module& model) {
  Tensors gradients;
  for (const at::Tensor& parameter : model.parameters()) {
    gradients.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
    parameter.mutable_grad().reset();
  }
  return gradients;
}

void expect_same_bits(const Tensors& actual, const Tensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); i++) {
    ASSERT_EQ(actual[i].defined(), expected[i].defined()) << i;
    if (!actual[i].defined()) continue;
    EXPECT_TRUE(actual[i].equal(expected[i])) << "tensor " << i;
  }
}

// The loss, the gradient of the input, and those of the parameters.
Tensors train(Module& model, const at::Tensor& input, uint64_t seed_of_dropout = 3) {
  seed(seed_of_dropout);
  at::Tensor leaf = input.detach().clone();
  if (leaf.is_floating_point()) leaf.set_requires_grad(true);
  const at::Tensor loss = model.call(leaf).square().mean();
  torch::autograd::backward({loss}, {});
  Tensors results = gradients_of(model);
  results.push_back(loss.detach());
  results.push_back(leaf.grad());
  return results;
}

at::Tensor small_batch() {
  seed(2);
  return at::randn({4, 16});
}

TEST(ActivationCheckpointing, GradientsHaveTheSameBits) {
  const ModulePtr model = blocks(3, 16, 0.2);
  const at::Tensor input = small_batch();
  const Tensors expected = train(*model, input);
  const at::Tensor next_random = at::randn({3});
  for (const Recompute what : kBothWays) {
    checkpoint_activations(*model, of_blocks(what));
    expect_same_bits(train(*model, input), expected);
    EXPECT_TRUE(at::randn({3}).equal(next_random)) << "the recomputation must not draw from the generator";
    checkpoint_activations(*model, recomputing(what));  // the whole model around the blocks
    expect_same_bits(train(*model, input), expected);
    checkpoint_activations(*model, of_blocks(Recompute::kNothing));
    expect_same_bits(train(*model, input), expected);
    checkpoint_activations(*model, recomputing(Recompute::kNothing));
  }
}

ModulePtr small_gpt() {
  seed(1);
  return module_from_config(
      R"({"model_type": "gpt2", "vocab_size": 61, "n_positions": 16, "n_embd": 32, "n_layer": 3, "n_head": 4})");
}

at::Tensor tokens() {
  seed(5);
  return at::randint(0, 61, {2, 16}, at::kLong);
}

TEST(ActivationCheckpointing, OfGpt2WithDropoutInAttention) {
  const ModulePtr model = small_gpt();
  const Tensors expected = train(*model, tokens());
  for (const Recompute what : kBothWays) {
    checkpoint_activations(*model, recomputing(what, "GPT2Block"));
    expect_same_bits(train(*model, tokens()), expected);
  }
}

TEST(ActivationCheckpointing, NestedModulesAreComputedAgainFromEachOther) {
  const ModulePtr model = small_gpt();
  const Tensors expected = train(*model, tokens());
  for (const Recompute what : kBothWays) {
    checkpoint_activations(*model, recomputing(what, "GPT2Model,GPT2Block,GPT2MLP,Linear"));
    expect_same_bits(train(*model, tokens()), expected);
    expect_same_bits(train(*model, tokens()), expected);
  }
}

TEST(ActivationCheckpointing, AutocastIsThatOfTheForward) {
  const ModulePtr model = small_gpt();
  const auto step = [&](precision::AutocastWeightCache* casts) {
    seed(3);
    at::Tensor loss;
    {
      const precision::AutocastWeightCache::Scope kept(casts);
      const precision::AutocastGuard autocast(Precision::kBf16, c10::DeviceType::CPU);
      loss = model->call(tokens()).square().mean();
    }
    torch::autograd::backward({loss}, {});
    return gradients_of(*model);
  };
  const Tensors expected = step(nullptr);
  for (const Recompute what : kBothWays) {
    checkpoint_activations(*model, recomputing(what, "GPT2Block"));
    expect_same_bits(step(nullptr), expected);
    auto casts = std::make_unique<precision::AutocastWeightCache>(c10::DeviceType::CPU);
    expect_same_bits(step(casts.get()), expected);
    EXPECT_GT(casts->size(), 0u);
    expect_same_bits(step(casts.get()), expected);
  }
}

TEST(ActivationCheckpointing, ACacheOfCastsMayBeGoneBeforeTheBackward) {
  const ModulePtr model = small_gpt();
  checkpoint_activations(*model, recomputing(Recompute::kAll, "GPT2Block"));
  auto casts = std::make_unique<precision::AutocastWeightCache>(c10::DeviceType::CPU);
  at::Tensor loss;
  {
    const precision::AutocastWeightCache::Scope kept(casts.get());
    const precision::AutocastGuard autocast(Precision::kBf16, c10::DeviceType::CPU);
    loss = model->call(tokens()).square().mean();
  }
  casts.reset();
  torch::autograd::backward({loss}, {});
}

// Bytes that were in use at most, above those before.
template <typename Run>
size_t peak_of(const Run& run) {
  kernels::install_caching_allocator();
  const kernels::ComputeScope scope({/*use_tuned_kernels=*/false, /*use_cached_memory=*/true});
  const size_t before = kernels::cpu_memory_statistics().in_use;
  kernels::reset_cpu_memory_peak();
  run();
  return kernels::cpu_memory_statistics().peak_in_use - before;
}

// What a forward keeps, and what it and the backward need at most; the gradients of parameters are small beside it.
struct MemoryUse {
  size_t kept, peak;
};
MemoryUse memory_of(Module& model, const at::Tensor& input) {
  MemoryUse use{};
  use.peak = peak_of([&] {
    const size_t before = kernels::cpu_memory_statistics().in_use;
    const at::Tensor output = model.call(input).mean();
    use.kept = kernels::cpu_memory_statistics().in_use - before;
    torch::autograd::backward({output}, {});
  });
  gradients_of(model);
  return use;
}

TEST(ActivationCheckpointing, OneBlockOfActivationsIsLeftBesideTheInputs) {
  constexpr int64_t kBlocks = 8, kWidth = 64, kRows = 16384;
  const ModulePtr model = blocks(kBlocks, kWidth, 0.0);
  const at::Tensor input = at::randn({kRows, kWidth});
  const size_t boundary = kRows * kWidth * sizeof(float);  // an input, or a gradient of one
  const MemoryUse plain = memory_of(*model, input);
  checkpoint_activations(*model, of_blocks(Recompute::kAll));
  const MemoryUse all = memory_of(*model, input);
  checkpoint_activations(*model, of_blocks(Recompute::kKeepMatmuls));
  const MemoryUse matmuls = memory_of(*model, input);
  RecordProperty("kept",
                 std::to_string(plain.kept) + " " + std::to_string(all.kept) + " " + std::to_string(matmuls.kept));
  RecordProperty("peak",
                 std::to_string(plain.peak) + " " + std::to_string(all.peak) + " " + std::to_string(matmuls.peak));
  EXPECT_LE(all.kept, kBlocks * boundary) << "the inputs alone";
  // The backward of a block has its activations, and gradients of the largest of them.
  EXPECT_LE(all.peak, plain.kept / kBlocks + kBlocks * boundary + 6 * boundary) << plain.peak;
  EXPECT_LT(matmuls.kept, plain.kept);
  EXPECT_GT(matmuls.kept, all.kept);
}

TEST(ActivationCheckpointing, NothingIsLeftAfterABackward) {
  const ModulePtr model = blocks(2, 64, 0.0);
  const at::Tensor input = at::randn({4096, 64});
  checkpoint_activations(*model, of_blocks());
  peak_of([&] {
    const at::Tensor loss = model->call(input).mean();
    torch::autograd::backward({loss}, {}, /*retain_graph=*/true);
    gradients_of(*model);
    const size_t kept = kernels::cpu_memory_statistics().in_use;
    // Only the last block: what is computed again for it alone goes too.
    const Tensors last = model->find("1")->parameters();
    torch::autograd::backward({loss}, {}, /*retain_graph=*/true, /*create_graph=*/false, last);
    gradients_of(*model);
    EXPECT_EQ(kernels::cpu_memory_statistics().in_use, kept);
  });
}

// What an operator computes shows whether it was computed again.
TEST(ActivationCheckpointing, KeptMatmulsAreNotComputedAgain) {
  const auto model = std::make_shared<Sequential>(
      std::vector<ModulePtr>{std::make_shared<Linear>(16, 16, true), std::make_shared<Activation>("gelu"),
                             std::make_shared<Linear>(16, 16, false), std::make_shared<Activation>("tanh")});
  const at::Tensor input = small_batch();
  const auto output_gradient = [&](Recompute what) {
    checkpoint_activations(*model, recomputing(what));
    const at::Tensor output = model->call(input);
    const Tensors weights = model->parameters();
    const at::Tensor before = weights[2].detach().clone();
    weights[2].variable_data().zero_();  // past the version
    torch::autograd::backward({output.sum()}, {});
    weights[2].variable_data().copy_(before);
    return gradients_of(*model)[2];
  };
  const at::Tensor of_zeroed = output_gradient(Recompute::kAll);
  const at::Tensor of_kept = output_gradient(Recompute::kKeepMatmuls);
  EXPECT_FALSE(of_zeroed.equal(of_kept));
  checkpoint_activations(*model, recomputing(Recompute::kNothing));
  torch::autograd::backward({model->call(input).sum()}, {});
  EXPECT_TRUE(of_kept.equal(gradients_of(*model)[2]));
}

TEST(ActivationCheckpointing, AGraphCanBeUsedAgain) {
  const ModulePtr model = blocks(2, 16, 0.3);
  const at::Tensor input = small_batch();
  const auto twice = [&] {
    seed(3);
    const at::Tensor loss = model->call(input).square().mean();
    torch::autograd::backward({loss}, {}, /*retain_graph=*/true);
    torch::autograd::backward({loss}, {}, /*retain_graph=*/true);
    torch::autograd::backward({loss}, {});
    return gradients_of(*model);
  };
  const Tensors expected = twice();
  for (const Recompute what : kBothWays) {
    checkpoint_activations(*model, of_blocks(what));
    expect_same_bits(twice(), expected);
  }
}

TEST(ActivationCheckpointing, SeveralForwardsBeforeTheirBackwardsInAnyOrder) {
  const ModulePtr model = blocks(2, 16, 0.3);
  const at::Tensor input = small_batch();
  const auto crossed = [&] {
    seed(3);
    const at::Tensor first = model->call(input).square().mean(), second = model->call(input * 2).square().mean(),
                     third = model->call(input * 3).square().mean();
    torch::autograd::backward({second}, {});
    torch::autograd::backward({first + third}, {});
    return gradients_of(*model);
  };
  const Tensors expected = crossed();
  for (const Recompute what : kBothWays) {
    checkpoint_activations(*model, of_blocks(what));
    expect_same_bits(crossed(), expected);
  }
}

TEST(ActivationCheckpointing, TwiceDifferentiated) {
  const auto model = std::make_shared<Sequential>(
      std::vector<ModulePtr>{std::make_shared<Linear>(16, 16, true), std::make_shared<Activation>("tanh"),
                             std::make_shared<Linear>(16, 16, true), std::make_shared<Activation>("sigmoid")});
  const at::Tensor input = small_batch();
  const auto penalized = [&] {
    at::Tensor leaf = input.clone().set_requires_grad(true);
    const at::Tensor loss = model->call(leaf).square().mean();
    const Tensors gradient = torch::autograd::grad({loss}, {leaf}, {}, std::nullopt, /*create_graph=*/true);
    torch::autograd::backward({gradient[0].square().sum()}, {});
    return gradients_of(*model);
  };
  const Tensors expected = penalized();
  for (const Recompute what : kBothWays) {
    checkpoint_activations(*model, recomputing(what));
    expect_same_bits(penalized(), expected);
  }
}

TEST(ActivationCheckpointing, FrozenPartsAndInputsWithoutGradients) {
  const ModulePtr model = blocks(3, 16, 0.2);
  const at::Tensor input = small_batch();
  for (const at::Tensor& parameter : model->find("1")->parameters()) at::Tensor(parameter).set_requires_grad(false);
  const auto step = [&] {
    seed(3);
    torch::autograd::backward({model->call(input).square().mean()}, {});
    return gradients_of(*model);
  };
  const Tensors expected = step();
  for (const Recompute what : kBothWays) {
    checkpoint_activations(*model, of_blocks(what));
    expect_same_bits(step(), expected);
  }
}

TEST(ActivationCheckpointing, ContainersGoInAndOut) {
  const auto model = std::make_shared<CallbackModule>("Containers");
  model->set_forward([](Module&, const Inputs& inputs) -> c10::IValue {
    const auto pair = tree::sequence_items(inputs[0]);
    const auto named = inputs[1].toGenericDict();
    const at::Tensor sum = at::exp(pair[0].toTensor()) * at::sin(named.at("scale").toTensor());
    return tree::new_map({{"sum", sum * at::sin(sum)}, {"both", tree::new_tuple({at::exp(sum), inputs[2]})}});
  });
  const auto step = [&] {
    seed(3);
    at::Tensor first = at::randn({3}).set_requires_grad(true), scale = at::randn({3}).set_requires_grad(true);
    const c10::IValue output =
        model->call(Inputs{tree::new_tuple({first, at::Tensor()}), tree::new_map({{"scale", scale}}), 7});
    const auto map = output.toGenericDict();
    const auto both = tree::sequence_items(map.at("both"));
    EXPECT_EQ(both[1].toInt(), 7);
    torch::autograd::backward({(map.at("sum").toTensor() + both[0].toTensor()).sum()}, {});
    return Tensors{first.grad(), scale.grad()};
  };
  const Tensors expected = step();
  checkpoint_activations(*model, recomputing(Recompute::kAll));
  expect_same_bits(step(), expected);
}

TEST(ActivationCheckpointing, WithoutAutogradNothingIsKept) {
  const ModulePtr model = blocks(2, 16, 0.0);
  const at::Tensor input = small_batch();
  const at::NoGradGuard no_grad;
  const at::Tensor expected = model->call(input);
  checkpoint_activations(*model, of_blocks());
  EXPECT_TRUE(model->call(input).equal(expected));
}

TEST(ActivationCheckpointing, BuffersAreUpdatedOnce) {
  const auto model = std::make_shared<Sequential>(std::vector<ModulePtr>{
      std::make_shared<Linear>(16, 16, true), std::make_shared<BatchNorm>(16), std::make_shared<Activation>("gelu")});
  const at::Tensor input = small_batch();
  const auto state = model->state_dict();
  const auto buffers_after_steps = [&] {
    NamedTensors fresh;
    for (const auto& [name, tensor] : state) fresh.emplace_back(name, tensor.detach().clone());
    const Tensors first = train(*model, input), second = train(*model, input * 2);
    Tensors results = first;
    results.insert(results.end(), second.begin(), second.end());
    for (const auto& [name, buffer] : nn::named_buffers(*model)) results.push_back(buffer.clone());
    model->load_state_dict(fresh);
    return results;
  };
  const Tensors expected = buffers_after_steps();
  checkpoint_activations(*model, recomputing(Recompute::kAll));
  expect_same_bits(buffers_after_steps(), expected);
}

TEST(ActivationCheckpointing, ABackwardOnAnotherThread) {
  const ModulePtr model = blocks(2, 16, 0.3);
  const at::Tensor input = small_batch();
  const Tensors expected = train(*model, input);
  checkpoint_activations(*model, of_blocks());
  seed(3);
  const at::Tensor loss = model->call(input).square().mean();
  std::thread([&] { torch::autograd::backward({loss}, {}); }).join();
  Tensors gradients = gradients_of(*model);
  for (size_t i = 0; i < gradients.size(); i++) EXPECT_TRUE(gradients[i].equal(expected[i])) << i;
}

TEST(ActivationCheckpointing, BackwardHooksInsideRunOnce) {
  const ModulePtr model = blocks(2, 16, 0.0);
  const at::Tensor input = small_batch();
  int before = 0, after = 0;
  model->find("0.1")->hooks().add_backward_pre_hook([&](Module&, const Inputs&) {
    before++;
    return std::nullopt;
  });
  model->find("0.1")->hooks().add_backward_hook([&](Module&, const Inputs&) {
    after++;
    return std::nullopt;
  });
  const Tensors expected = train(*model, input);
  checkpoint_activations(*model, of_blocks());
  expect_same_bits(train(*model, input), expected);
  EXPECT_EQ(before, 2);
  EXPECT_EQ(after, 2);
}

// Of a module inside, as sharding adds them.
TEST(ActivationCheckpointing, StopsWhenBackwardHasAllAndEndsPlacementHooks) {
  for (const bool early_stop : {true, false}) {
    int last_calls = 0, placed = 0, removed = 0, without_output = 0, program_hooks = 0;
    const auto last = calling("Last", [&](const at::Tensor& input) {
      last_calls++;
      return input + 1;
    });
    const auto outer = std::make_shared<Sequential>(std::vector<ModulePtr>{std::make_shared<Linear>(16, 16, true)});
    outer->hooks().add_pre_hook(
        [&](Module&, const Inputs&) {
          placed++;
          return std::nullopt;
        },
        HookOrder::kPlacement);
    outer->hooks().add_post_hook(
        [&](Module&, const Inputs&, const c10::IValue& output) {
          removed++;
          without_output += output.isNone() ? 1 : 0;
          return std::nullopt;
        },
        HookOrder::kPlacement);
    outer->hooks().add_post_hook([&](Module&, const Inputs&, const c10::IValue&) {
      program_hooks++;
      return std::nullopt;
    });
    const auto model = std::make_shared<Sequential>(std::vector<ModulePtr>{outer, last});
    ActivationCheckpointingSettings settings = recomputing(Recompute::kAll);
    settings.early_stop = early_stop;
    checkpoint_activations(*model, settings);
    train(*model, small_batch());
    EXPECT_EQ(last_calls, early_stop ? 1 : 2);
    EXPECT_EQ(placed, 2);
    EXPECT_EQ(removed, 2);
    EXPECT_EQ(without_output, early_stop ? 1 : 0);
    EXPECT_EQ(program_hooks, early_stop ? 1 : 2);
  }
}

TEST(ActivationCheckpointing, DoesNotStopInsideOfCodeThatExceptionsMustNotCross) {
  int ended = 0, last_calls = 0;
  const auto foreign = calling("Foreign", [&](const at::Tensor& input) {
    const NoEarlyStop no_exception_crosses;
    const at::Tensor output = at::exp(input);
    ended++;
    return output;
  });
  const auto model =
      std::make_shared<Sequential>(std::vector<ModulePtr>{foreign, calling("Last", [&](const at::Tensor& input) {
                                                            last_calls++;
                                                            return input + 1;
                                                          })});
  checkpoint_activations(*model, recomputing(Recompute::kAll));
  train(*model, small_batch());
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(last_calls, 2);
}

void backward_of(const at::Tensor& output) { torch::autograd::backward({output.sum()}, {}); }

TEST(ActivationCheckpointing, AnotherComputationIsAnError) {
  int calls = 0;
  const auto checked = [&](const char* message, std::function<at::Tensor(const at::Tensor&)> function,
                           bool determinism_check = true) {
    calls = 0;
    const auto model = calling("Changing", std::move(function));
    ActivationCheckpointingSettings settings = recomputing(Recompute::kAll);
    settings.determinism_check = determinism_check;
    settings.early_stop = false;
    checkpoint_activations(*model, settings);
    const at::Tensor output = model->call(small_batch().set_requires_grad(true));
    if (message == nullptr) return backward_of(output);
    tests::expect_error(Status::kInvalidState, message, [&] { backward_of(output); });
  };
  checked("of a module of kind 'Changing' saved 2 tensors for backward and 1",
          [&](const at::Tensor& x) { return calls++ == 0 ? at::exp(at::sin(x)) : at::exp(x); });
  checked("of a module of kind 'Changing' saves more than the 1 tensors of before",
          [&](const at::Tensor& x) { return calls++ == 0 ? at::exp(x) : at::exp(at::sin(x)); });
  const auto narrowing = [&](const at::Tensor& x) { return at::exp(x.slice(0, 0, calls++ == 0 ? 4 : 3)); };
  checked("saved a tensor of shape [4, 16], dtype Float on cpu, and one of [3, 16], Float on cpu", narrowing);
  const auto doubling = [&](const at::Tensor& x) { return at::exp(x.to(calls++ == 0 ? at::kFloat : at::kFloat)); };
  checked(nullptr, doubling, false);
}

TEST(ActivationCheckpointing, ErrorsOfTheForwardAreThoseOfTheBackward) {
  int calls = 0;
  const auto model = calling("Failing", [&](const at::Tensor& x) {
    if (calls++ == 1) throw std::runtime_error("the second time");
    return at::exp(x);
  });
  checkpoint_activations(*model, recomputing(Recompute::kAll));
  const at::Tensor output = model->call(small_batch().set_requires_grad(true));
  EXPECT_THROW(torch::autograd::backward({output.sum()}, {}, /*retain_graph=*/true), std::runtime_error);
  backward_of(output);
  EXPECT_EQ(calls, 3);
}

TEST(ActivationCheckpointing, ChangesBetweenForwardAndBackwardAreErrors) {
  const auto model = std::make_shared<Sequential>(
      std::vector<ModulePtr>{std::make_shared<Linear>(16, 16, true), std::make_shared<Activation>("tanh")});
  checkpoint_activations(*model, recomputing(Recompute::kAll));
  at::Tensor input = small_batch();
  at::Tensor output = model->call(input);
  model->train(false);
  tests::expect_error(Status::kInvalidState,
                      "called while training and its forward is computed again in the other mode",
                      [&] { backward_of(output); });
  model->train(true);

  output = model->call(input);
  {
    const at::NoGradGuard no_grad;
    model->parameters()[0].mul_(2);
  }
  tests::expect_error(Status::kInvalidState,
                      "a parameter of a module of kind 'Sequential' was changed between the forward and its backward",
                      [&] { backward_of(output); });

  output = model->call(input);
  input.mul_(2);
  tests::expect_error(Status::kInvalidState, "an input of a module of kind 'Sequential' was changed in place",
                      [&] { backward_of(output); });
}

TEST(ActivationCheckpointing, ChangesInPlaceOfWhatBackwardNeedsAreErrors) {
  const auto model = calling("InPlace", [](const at::Tensor& x) {
    const at::Tensor exponential = at::exp(x);
    return at::sin(exponential.mul_(2));
  });
  checkpoint_activations(*model, recomputing(Recompute::kAll));
  const at::Tensor output = model->call(small_batch().set_requires_grad(true));
  tests::expect_error(Status::kInvalidState, "'InPlace' changes a tensor of shape [4, 16] in place",
                      [&] { backward_of(output); });

  const at::Tensor weight = at::randn({16, 16}).set_requires_grad(true);
  const auto matmul = calling("InPlace", [&](const at::Tensor& x) { return at::sin(at::linear(x, weight).mul_(2)); });
  checkpoint_activations(*matmul, recomputing(Recompute::kKeepMatmuls));
  const at::Tensor product = matmul->call(small_batch());
  tests::expect_error(Status::kUnsupported, "of shape [4, 16] was changed in place and cannot be cached",
                      [&] { backward_of(product); });
}

TEST(ActivationCheckpointing, RandomNumbersOfOtherGenerators) {
  at::Generator generator = tensor::new_generator(7, at::kCPU);
  const auto model = calling("Random", [&](const at::Tensor& x) { return at::sin(x * at::rand_like(x)); });
  ActivationCheckpointingSettings settings = recomputing(Recompute::kAll);
  const auto gradient = [&] {
    seed(3);
    at::Tensor input = small_batch().set_requires_grad(true);
    seed(4);
    backward_of(model->call(input));
    return input.grad();
  };
  const at::Tensor expected = gradient();
  checkpoint_activations(*model, settings);
  EXPECT_TRUE(gradient().equal(expected));
  settings.preserve_rng_state = false;
  checkpoint_activations(*model, settings);
  EXPECT_FALSE(gradient().equal(expected)) << "other numbers were drawn";
}

TEST(ActivationCheckpointing, ModulesAreFoundByClassAndName) {
  const ModulePtr model = small_gpt();
  tests::expect_error(Status::kNotFound, "class_names has 'GPT2Blok', and no module is of this kind; the kinds are ",
                      [&] { checkpoint_activations(*model, recomputing(Recompute::kAll, "GPT2Block,GPT2Blok")); });
  ActivationCheckpointingSettings settings;
  settings.modules = std::string("transformer.h.(");
  tests::expect_error(Status::kInvalidArgument, "modules is 'transformer.h.(', which is not a regular expression",
                      [&] { checkpoint_activations(*model, settings); });
  settings.modules = std::string("h.0");
  tests::expect_error(Status::kNotFound, "modules is 'h.0', and the whole name of no module matches",
                      [&] { checkpoint_activations(*model, settings); });
}

TEST(ActivationCheckpointing, OfSavedTensorHooksTheInnermostHasAnEffect) {
  struct Doubled final : tensor::SavedTensorStandIn {
    explicit Doubled(at::Tensor kept) : kept(std::move(kept)) {}
    at::Tensor tensor() override { return kept * 2; }
    at::Tensor kept;
  };
  const at::Tensor input = at::ones_like(small_batch()).set_requires_grad(true);
  at::Tensor output;
  int replaced = 0;
  {
    const tensor::SavedTensorHooks outer([](const at::Tensor&) -> std::unique_ptr<tensor::SavedTensorStandIn> {
      throw std::runtime_error("the outer hooks");
    });
    {
      const tensor::SavedTensorHooks inner([&](const at::Tensor& tensor) {
        replaced++;
        return std::make_unique<Doubled>(tensor.detach());
      });
      output = input * input;
    }
    EXPECT_THROW(input * input, std::runtime_error);
  }
  EXPECT_EQ(replaced, 2);
  backward_of(output);
  EXPECT_TRUE(input.grad().equal(at::ones_like(input) * 4));
}

at::Tensor rows_of_rank(int rank, int64_t begin, int64_t end) {
  const at::Tensor all = at::arange(12 * 16, at::kFloat).view({12, 16}).remainder(7) / 7;
  return all.slice(0, rank * 6 + begin, rank * 6 + end);
}

// Accumulation: the first micro-batch is not exchanged. Buckets are small, so there are several.
Tensors accumulated_gradients(const ModulePtr& model, const std::shared_ptr<comm::Communicator>& communicator,
                              bool find_unused) {
  DdpSettings options;
  options.bucket_cap_mb = 0.001;
  options.find_unused_parameters = find_unused;
  parallel::DistributedDataParallel ddp(model, communicator, options);
  Tensors results;
  for (int step = 0; step < 3; step++) {
    for (const int64_t begin : {0, 3}) {
      ddp.set_gradient_sync(begin == 3);
      const at::Tensor output = ddp.call(rows_of_rank(communicator->rank(), begin, begin + 3));
      torch::autograd::backward({output.square().mean() / 2}, {});
    }
    for (const at::Tensor& parameter : model->parameters()) {
      results.push_back(parameter.grad().clone());
      parameter.mutable_grad().zero_();
    }
  }
  return results;
}

TEST(ActivationCheckpointing, WithDataParallelismAndAccumulation) {
  for (const bool find_unused : {false, true}) {
    const auto gradients = [&](Recompute what) {
      std::vector<Tensors> of_ranks(2);
      const ModulePtr models[] = {blocks(3, 16, 0.0), blocks(3, 16, 0.0)};
      for (const ModulePtr& model : models) checkpoint_activations(*model, of_blocks(what));
      tests::run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
        const auto rank = static_cast<size_t>(communicator->rank());
        of_ranks[rank] = accumulated_gradients(models[rank], communicator, find_unused);
      });
      return of_ranks;
    };
    const auto expected = gradients(Recompute::kNothing);
    expect_same_bits(expected[0], expected[1]);
    for (const Recompute what : kBothWays) {
      const auto actual = gradients(what);
      expect_same_bits(actual[0], expected[0]);
      expect_same_bits(actual[1], expected[1]);
    }
  }
}

}  // namespace activation_checkpointing_test
}  // namespace accel::nn
