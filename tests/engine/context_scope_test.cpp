// SPDX-License-Identifier: Apache-2.0
// Scopes of split sequences: models, losses and recomputations in them are those of one process.
#include "parallel/context/context_scope.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/collective_error.hpp"
#include "config/generated/choices/recompute.hpp"
#include "config/generated/settings/module/activation_checkpointing.hpp"
#include "expect_error.hpp"
#include "json/json.hpp"
#include "nn/architectures/gpt2.hpp"
#include "nn/architectures/llama.hpp"
#include "nn/callback_module.hpp"
#include "nn/layers/attention.hpp"
#include "nn/linear_cross_entropy.hpp"
#include "nn/recompute/activation_checkpointing.hpp"
#include "precision/autocast.hpp"
#include "rank_threads.hpp"
#include "tensor/autograd/loss.hpp"

namespace accel::parallel {
namespace context_scope_test {

constexpr int64_t kLength = 24, kVocabulary = 11;

at::Tensor numbers(const std::vector<int64_t>& sizes, double seed) {
  return at::linspace(-40.0 * seed, 53.0, c10::multiply_integers(sizes), at::kDouble).sin().view(sizes);
}

void on_ranks(const std::function<void(const RankGroup&)>& body) {
  for (const int size : {1, 2, 3, 4}) {
    SCOPED_TRACE(size);
    tests::run_ranks(size, body);
  }
}

const std::vector<std::pair<ContextMethod, SequenceOrder>> kSplits = {
    {ContextMethod::kAllGather, SequenceOrder::kHeadAndTail},
    {ContextMethod::kRing, SequenceOrder::kHeadAndTail},
    {ContextMethod::kUlysses, SequenceOrder::kContiguous}};

bool near(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-12) {
  return a.sizes() == b.sizes() && at::allclose(a, b, tolerance, tolerance);
}

at::Tensor tokens() { return at::arange(2 * kLength, at::kLong).mul(7).remainder(kVocabulary).view({2, kLength}); }

// The ranks have different numbers of labels that count.
at::Tensor labels() {
  at::Tensor all = tokens().add(3).remainder(kVocabulary);
  all.select(0, 0).narrow(0, 0, 9).fill_(-100);
  all.select(0, 1).narrow(0, kLength - 1, 1).fill_(-100);
  return all;
}

// The same weights on each rank; threads draw from one generator.
nn::ModulePtr make_model(const char* kind) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  nn::ModulePtr model;
  if (std::string(kind) == "gpt2")
    model = nn::build_gpt2(parse_json(R"({"architectures": ["GPT2LMHeadModel"], "vocab_size": 11, "n_positions": 24,
      "n_embd": 12, "n_layer": 2, "n_head": 4, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0})",
                                      "gpt2"));
  else
    model = nn::build_llama(parse_json(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 11, "hidden_size": 24,
      "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 12, "num_key_value_heads": 1})",
                                       "llama"));
  model->to(at::kDouble, std::nullopt);
  double seed = 0.2;
  for (const at::Tensor& parameter : model->parameters())
    parameter.detach().copy_(numbers(parameter.sizes().vec(), seed += 0.13).mul(0.4));
  return model;
}

// The loss, and the gradients of all parameters.
std::vector<at::Tensor> step(nn::Module& model, const at::Tensor& ids, const at::Tensor& targets) {
  const at::Tensor loss = tensor::cross_entropy(model.call(ids), targets);
  std::vector<at::Tensor> results = torch::autograd::grad({loss}, model.parameters());
  results.insert(results.begin(), loss.detach());
  return results;
}

void expect_step_of_whole(const char* kind, std::optional<Recompute> recompute = std::nullopt,
                          const char* class_name = "GPT2Block") {
  // Norms of Llama are of float32.
  const double tolerance = std::string(kind) == "llama" ? 1e-6 : 1e-11;
  on_ranks([&](const RankGroup& group) {
    const nn::ModulePtr model = make_model(kind);
    const std::vector<at::Tensor> expected = step(*model, tokens(), labels());
    if (recompute) {
      ActivationCheckpointingSettings settings;
      settings.recompute = *recompute;
      settings.class_names = std::string(class_name);
      nn::checkpoint_activations(*model, settings);
    }
    for (const auto& [method, order] : kSplits) {
      SCOPED_TRACE(static_cast<int>(method));
      const at::Tensor ids = tokens(), targets = labels();
      at::Tensor loss;
      {
        const ContextScope scope({group, method, order}, {{ids, 1}, {targets, -1}});
        EXPECT_EQ(ids.size(1), kLength / group->size());
        loss = tensor::cross_entropy(model->call(ids), targets);
      }
      EXPECT_TRUE(ids.equal(tokens()) && targets.equal(labels()));
      EXPECT_TRUE(near(loss, expected[0], tolerance));
      const std::vector<at::Tensor> gradients = torch::autograd::grad({loss}, model->parameters());  // outside
      for (size_t i = 0; i < gradients.size(); i++) {
        const at::Tensor mean = gradients[i].clone();
        if (group->size() > 1) group->all_reduce(mean, comm::ReduceOp::kSum, 1.0 / group->size());
        EXPECT_TRUE(near(mean, expected[i + 1], tolerance)) << i;
      }
    }
  });
}

TEST(ContextScope, StepOfGpt2IsThatOfOneProcess) { expect_step_of_whole("gpt2"); }
TEST(ContextScope, StepOfLlamaIsThatOfOneProcess) { expect_step_of_whole("llama"); }
TEST(ContextScope, RecomputationOutsideIsSplitToo) {
  expect_step_of_whole("gpt2", Recompute::kAll);
  expect_step_of_whole("gpt2", Recompute::kKeepMatmuls);
  expect_step_of_whole("gpt2", Recompute::kAll, "GPT2LMHeadModel");  // whose input is a buffer of the scope
}

TEST(ContextScope, MeansOfLossesAreOverAllRanks) {
  on_ranks([](const RankGroup& group) {
    const at::Tensor whole = numbers({2, kLength, 5}, 0.3), weight = numbers({kVocabulary, 5}, 0.6);
    const at::Tensor by_class = numbers({kVocabulary}, 0.2).add(2);
    for (const double smoothing : {0.0, 0.1})
      for (const bool has_weights : {false, true})
        for (const bool fused : {false, true}) {
          const std::optional<at::Tensor> classes = has_weights ? std::optional(by_class) : std::nullopt;
          const auto loss_of = [&](const at::Tensor& input, const at::Tensor& target) {
            if (fused)
              return nn::linear_cross_entropy(input, weight, target, std::nullopt, classes, "mean", -100, smoothing, 0);
            return at::cross_entropy_loss(input.matmul(weight.t()).flatten(0, 1), target.flatten(), classes,
                                          at::Reduction::Mean, -100, smoothing);
          };
          const at::Tensor leaf = whole.clone().requires_grad_();
          const at::Tensor expected = loss_of(leaf, labels());
          const at::Tensor gradient = torch::autograd::grad({expected}, {leaf})[0];
          for (const auto& [method, order] : kSplits) {
            const at::Tensor part = split_sequence(whole, 1, order, group).clone().requires_grad_();
            const ContextScope scope({group, method, order}, {});
            const at::Tensor loss = loss_of(part, split_sequence(labels(), 1, order, group));
            EXPECT_TRUE(near(loss, expected));
            const at::Tensor own = torch::autograd::grad({loss}, {part})[0].div(group->size());
            EXPECT_TRUE(near(own, split_sequence(gradient, 1, order, group)));
          }
        }
  });
}

TEST(ContextScope, EndsAndNests) {
  tests::run_ranks(2, [](const RankGroup& group) {
    const ContextParallelism split{group, ContextMethod::kRing, SequenceOrder::kContiguous};
    const at::Tensor x = numbers({1, 2, 4, 3}, 0.4);
    const auto attend = [&] { return at::scaled_dot_product_attention(x, x, x, {}, 0.0, true); };
    const at::Tensor before = attend();
    {
      const ContextScope scope(split, {});
      const at::Tensor inside = attend();
      EXPECT_EQ(inside.equal(before), group->rank() == 0);
      {
        const c10::InferenceMode inference;
        const at::Tensor y = x.clone();
        EXPECT_TRUE(at::scaled_dot_product_attention(y, y, y, {}, 0.0, true).equal(inside));
      }
      {
        const nn::SplitSequence::Scope whole(nullptr);
        EXPECT_TRUE(attend().equal(before));
      }
      EXPECT_TRUE(attend().equal(inside));
    }
    EXPECT_TRUE(attend().equal(before));
  });
}

// Attention is split in the dtype of autocast.
TEST(ContextScope, Autocast) {
  tests::run_ranks(2, [](const RankGroup& group) {
    const at::Tensor x = numbers({1, 2, 8, 4}, 0.4).to(at::kFloat);
    const at::Tensor whole = at::scaled_dot_product_attention(x, x, x, {}, 0.0, true);
    precision::AutocastState autocast = precision::AutocastState::current(at::kCPU);
    autocast.enabled = true;
    autocast.dtype = at::kBFloat16;
    const precision::AutocastStateScope casts(autocast);
    const ContextParallelism split{group, ContextMethod::kRing, SequenceOrder::kHeadAndTail};
    const at::Tensor part = split_sequence(x, 2, split.order, group).requires_grad_();
    const ContextScope scope(split, {});
    const at::Tensor out = at::scaled_dot_product_attention(part, part, part, {}, 0.0, true);
    EXPECT_EQ(out.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(near(out.to(at::kFloat), split_sequence(whole, 2, split.order, group), 0.02));
    EXPECT_EQ(torch::autograd::grad({out}, {part}, {at::ones_like(out)})[0].scalar_type(), at::kFloat);
  });
}

TEST(ContextScope, BuffersThatAreNotRestored) {
  tests::run_ranks(2, [](const RankGroup& group) {
    const at::Tensor kept = at::arange(8), restored = at::arange(16).view({2, 8});
    {
      const ContextScope scope({group, ContextMethod::kRing, SequenceOrder::kHeadAndTail},
                               {{kept, 0, false}, {restored, 1}});
      EXPECT_EQ(restored.size(1), 4);
    }
    EXPECT_TRUE(restored.equal(at::arange(16).view({2, 8})));
    EXPECT_TRUE(kept.equal(sequence_positions(8, group->rank(), 2, SequenceOrder::kHeadAndTail)));
  });
}

TEST(ContextScope, WhatIsRefused) {
  tests::run_ranks(2, [](const RankGroup& group) {
    const ContextParallelism split{group, ContextMethod::kRing, SequenceOrder::kHeadAndTail};
    const at::Tensor x = at::ones({1, 2, 4, 3});
    {
      const ContextScope scope(split, {});
      tests::expect_error(Status::kUnsupported, "has a mask; expected none, or is_causal", [&] {
        at::scaled_dot_product_attention(x, x, x, at::ones({4, 4}, at::kBool));
      });
      tests::expect_error(Status::kUnsupported, "has a dropout of 0.1; expected 0",
                          [&] { at::scaled_dot_product_attention(x, x, x, {}, 0.1); });
      tests::expect_error(Status::kUnsupported, "is continued after 3 cached positions",
                          [] { nn::sequence_positions(3, 4, at::kCPU); });
    }
    const auto begin = [&](const std::vector<SplitBuffer>& buffers) { const ContextScope scope(split, buffers); };
    const at::Tensor first = at::arange(8);
    tests::expect_error(Status::kInvalidArgument,
                        "buffer 1 of a split sequence has 12 positions along dimension 0 and "
                        "buffer 0 has 8; expected as many",
                        [&] {
                          begin({{first, 0}, {at::arange(12), 0}});
                        });
    EXPECT_EQ(first.size(0), 8);
    tests::expect_error(Status::kInvalidArgument, "a buffer of a split sequence requires a gradient", [&] {
      begin({{at::ones({8}).requires_grad_(), 0}});
    });
    tests::expect_error(Status::kInvalidArgument, "a sequence of 6 positions cannot be split over 2 ranks", [&] {
      begin({{at::arange(6), 0}});
    });
    EXPECT_EQ(nn::SplitSequence::current(), nullptr);
  });
}

// Calls that are refused, or that ranks make with other lengths, are told by the path of the module.
TEST(ContextScope, ErrorsNameTheModule) {
  tests::run_ranks(2, [](const RankGroup& group) {
    const auto masked = std::make_shared<nn::CallbackModule>("Masked");
    masked->set_forward([](nn::Module&, const nn::Inputs& inputs) -> c10::IValue {
      const at::Tensor x = inputs[0].toTensor();
      return at::scaled_dot_product_attention(x, x, x, at::ones({4, 4}, at::kBool));
    });
    const auto block = std::make_shared<nn::CallbackModule>("Block"), model = std::make_shared<nn::CallbackModule>("M");
    block->add_child("mixer", masked);
    model->add_child("first", block);
    for (const auto& parent : {block, model})
      parent->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
        return self.children()[0].second->call(inputs);
      });
    const ContextScope scope({group, ContextMethod::kRing, SequenceOrder::kHeadAndTail}, {});
    const at::Tensor x = at::ones({1, 2, 4, 3});
    tests::expect_error(Status::kUnsupported, "in 'first.mixer': attention over a split sequence has a mask",
                        [&] { model->call(x); });
    tests::expect_error(Status::kUnsupported, "in 'mixer': attention over", [&] { block->call(x); });
    tests::expect_error(Status::kUnsupported, "in a module of kind 'Masked': attention over", [&] { masked->call(x); });
    const nn::ModulePtr dropping = std::make_shared<nn::SelfAttention>(8, 2, true, true, 0.1);
    tests::expect_error(Status::kUnsupported,
                        "in a module of kind 'SelfAttention': attention over a split sequence "
                        "has a dropout of 0.1",
                        [&] {
                          dropping->call(at::ones({1, 4, 8}));
                        });
  });
}

TEST(ContextScope, ABatchOfAnotherLengthIsAMismatchOnAllRanks) {
  tests::run_ranks(3, [](const RankGroup& group) {
    const nn::ModulePtr model = make_model("gpt2");
    const std::vector<at::Tensor> expected = step(*model, tokens(), labels());
    for (const auto& [method, order] : kSplits) {
      SCOPED_TRACE(static_cast<int>(method));
      const at::Tensor ids = tokens().narrow(1, 0, group->rank() == 2 ? 12 : 24).clone();
      try {
        const ContextScope scope({group, method, order}, {{ids, 1}});
        model->call(ids);
        ADD_FAILURE() << "no error";
      } catch (const comm::CollectiveError& error) {
        EXPECT_EQ(error.failure(), comm::CollectiveFailure::kMismatch) << error.what();
        EXPECT_EQ(std::string(error.what()).find("in 'transformer.h.0.attn': "), 0) << error.what();
      }
      const at::Tensor all = tokens(), targets = labels();
      const ContextScope scope({group, method, order}, {{all, 1}, {targets, 1}});
      EXPECT_TRUE(near(tensor::cross_entropy(model->call(all), targets), expected[0], 1e-11));
    }
  });
}

int64_t resident_bytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

#ifndef __SANITIZE_ADDRESS__  // which keeps what is freed
TEST(ContextScope, AThousandStepsLeaveNoMemory) {
  tests::run_ranks(2, [](const RankGroup& group) {
    const nn::ModulePtr model = make_model("gpt2");
    int64_t before = 0;
    for (int i = 0; i < 1200; i++) {
      if (i == 200) before = resident_bytes();
      const auto& [method, order] = kSplits[static_cast<size_t>(i) % kSplits.size()];
      const at::Tensor ids = tokens(), targets = labels();
      at::Tensor loss;
      {
        const ContextScope scope({group, method, order}, {{ids, 1}, {targets, 1}});
        loss = tensor::cross_entropy(model->call(ids), targets);
      }
      torch::autograd::grad({loss}, model->parameters());
    }
    EXPECT_LT(resident_bytes() - before, int64_t{4} << 20);
  });
}
#endif

}  // namespace context_scope_test
}  // namespace accel::parallel
