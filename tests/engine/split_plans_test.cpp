// SPDX-License-Identifier: Apache-2.0
// Plans of random trees of modules: they train as one process does, and the ranks' parts are the whole.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "nn/callback_module.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/attention.hpp"
#include "nn/layers/conv1d.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/normalization.hpp"
#include "parallel/tensor/matched_plan.hpp"
#include "parallel/tensor/plan.hpp"
#include "parallel/tensor/split_parameters.hpp"
#include "split_model_fixture.hpp"
#include "tensor/tensor_chunk.hpp"

namespace accel::parallel {
namespace split_plans_test {

using namespace split_model_tests;

constexpr int64_t kWidth = 12, kHeads = 6;

// A tree of modules on [rows, positions, features], of which each block adds something to its input; and its plan.
class RandomTree {
 public:
  explicit RandomTree(uint32_t seed) : random_(seed) {
    model_ = std::make_shared<nn::CallbackModule>("Tree");
    model_->add_child("words", std::make_shared<nn::Embedding>(kVocabulary, kWidth));
    rule("words", {"embedding_rowwise", "embedding_colwise", "replicate", ""});
    model_->add_child("blocks", group("blocks", 2));
    model_->add_child("norm", std::make_shared<nn::LayerNorm>(kWidth, 1e-5));
    model_->add_child("head", std::make_shared<nn::Linear>(kWidth, kVocabulary, chance()));
    rule("head", {"colwise_gather_output", "rowwise_split_input", "colwise_rep", "rowwise_rep"});
    model_->set_forward(&RandomTree::run_in_order);
    with_known_weights(model_);
  }

  static Case make_case(uint32_t seed) {
    const RandomTree tree(seed);
    return {"tree " + std::to_string(seed) + ": " + tree.plan_,
            [seed]() -> nn::ModulePtr { return RandomTree(seed).model_; }, tree.plan_};
  }

 private:
  int64_t draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool chance() { return draw(0, 1) == 1; }

  static c10::IValue run_in_order(nn::Module& self, const nn::Inputs& inputs) {
    at::Tensor x = inputs[0].toTensor();
    for (const auto& [name, child] : self.children()) x = child->call(x);
    return x;
  }

  // One of the styles; "" is none.
  void rule(const std::string& path, const std::vector<std::string>& styles) {
    const std::string& style = styles[static_cast<size_t>(draw(0, static_cast<int64_t>(styles.size()) - 1))];
    if (!style.empty()) plan_ += path + " " + style + (chance() ? ";" : "\n");
  }

  nn::ModulePtr linear(int64_t from, int64_t to) {
    if (chance()) return std::make_shared<nn::Linear>(from, to, chance());
    return std::make_shared<nn::Conv1d>(at::zeros({from, to}), at::zeros({to}));
  }

  nn::ModulePtr group(const std::string& path, int depth) {
    const auto module = std::make_shared<nn::CallbackModule>("Group");
    const int64_t children = draw(1, 3);
    for (int64_t i = 0; i < children; i++) {
      const std::string name = "m" + std::to_string(i), child = path + "." + name;
      module->add_child(name, depth > 0 && chance() ? group(child, depth - 1) : block(child));
    }
    module->set_forward(&RandomTree::run_in_order);
    return module;
  }

  nn::ModulePtr block(const std::string& path) {
    const auto module = std::make_shared<nn::CallbackModule>("Block");
    const int64_t inner = draw(3, 17);
    switch (draw(0, 4)) {
      case 0:  // two layers
        module->add_child("up", linear(kWidth, inner));
        module->add_child("down", linear(inner, kWidth));
        if (chance()) {
          rule(path + ".up", {"colwise"});
          rule(path + ".down", {"rowwise"});
        }
        module->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
          const at::Tensor x = inputs[0].toTensor();
          return x + self.children()[1].second->call(self.children()[0].second->call(x).tanh());
        });
        return module;
      case 1:  // two packed ones, the first of which is a gate
        module->add_child("both", linear(kWidth, 2 * inner));
        module->add_child("down", linear(inner, kWidth));
        if (chance()) {
          rule(path + ".both",
               {"packed_colwise(2)", "packed_colwise(" + std::to_string(inner) + "," + std::to_string(inner) + ")"});
          rule(path + ".down", {"rowwise"});
        }
        module->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
          const at::Tensor x = inputs[0].toTensor();
          const auto halves = self.children()[0].second->call(x).chunk(2, -1);
          return x + self.children()[1].second->call(halves[0].sigmoid() * halves[1]);
        });
        return module;
      case 2:  // one layer
        module->add_child("layer", linear(kWidth, kWidth));
        rule(path + ".layer", {"colwise_gather_output", "rowwise_split_input", "replicate", ""});
        break;
      case 3:
        module->add_child("attention", std::make_shared<nn::SelfAttention>(kWidth, kHeads, chance(), chance(), 0.0));
        if (chance()) {
          rule(path + ".attention.in_proj", {"packed_colwise(3)"});
          rule(path + ".attention.out_proj", {"rowwise"});
        }
        break;
      default:
        module->add_child("norm", std::make_shared<nn::LayerNorm>(kWidth, 1e-5));
        rule(path + ".norm", {"replicate", ""});
        break;
    }
    module->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
      const at::Tensor x = inputs[0].toTensor();
      return x + self.children()[0].second->call(x);
    });
    return module;
  }

  std::mt19937 random_;
  std::shared_ptr<nn::CallbackModule> model_;
  std::string plan_;
};

TEST(SplitPlans, OfRandomTreesTrainAsOneProcess) {
  constexpr int kSteps = 3;
  for (uint32_t seed = 0; seed < 16; seed++) {
    const Case test = RandomTree::make_case(seed);
    const Trained expected = train_alone(test, kSteps);
    expect_trains_as(expected, test, seed % 2 == 0 ? MeshSizes{1, 1, 2} : MeshSizes{1, 1, 3});
    if (seed % 8 == 0) expect_trains_as(expected, test, {1, 2, 2});
  }
}

void expect_whole(nn::Module& model, const std::string& plan, int64_t ranks) {
  const MatchedPlan matched(model, plan == "auto" ? plan_of(model, false) : read_plan(plan), ranks, false);
  for (const PlannedParameter& planned : matched.parameters()) {
    if (!planned.cut) continue;
    const at::Tensor counted = at::zeros(planned.shape);
    for (int64_t rank = 0; rank < ranks; rank++) {
      const tensor::Placement placement = split_placement(planned.shape, *planned.cut, rank, ranks, "tensor");
      const at::Tensor stored = at::zeros(placement.stored_sizes());
      for (const tensor::PlacedBox& box : placement.boxes) {
        if (box.counts) tensor::narrow(counted, box.whole).add_(1);
        tensor::narrow(stored, {box.local, box.whole.sizes}).add_(1);
      }
      EXPECT_TRUE(stored.equal(at::ones_like(stored))) << planned.path << " on rank " << rank;
    }
    EXPECT_TRUE(counted.equal(at::ones_like(counted))) << planned.path << " over " << ranks << " ranks";
  }
}

TEST(SplitPlans, EachElementCountsOnce) {
  for (const int64_t ranks : {2, 3}) {
    for (uint32_t seed = 0; seed < 100; seed++) {
      const Case test = RandomTree::make_case(seed);
      expect_whole(*test.make(), test.plan, ranks);
    }
    expect_whole(*gpt2(), "auto", ranks);
  }
  for (const auto& [key_heads, ranks] : {std::pair{1, 2}, {1, 3}, {1, 4}, {1, 12}, {2, 4}, {2, 12}, {3, 2}, {4, 12}})
    expect_whole(*llama("", key_heads, 12), "auto", ranks);
}

}  // namespace split_plans_test
}  // namespace accel::parallel
