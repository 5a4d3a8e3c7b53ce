// SPDX-License-Identifier: Apache-2.0
// Preparation of split models: what is refused, and what a failed one leaves.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/parameters/prepared_parameters.hpp"
#include "accelerator/prepared_model.hpp"
#include "accelerator/prepared_object.hpp"
#include "config/generated/choices/context_method.hpp"
#include "config/generated/choices/ddp_comm_hook.hpp"
#include "config/generated/choices/overlap.hpp"
#include "config/generated/choices/sharding_strategy.hpp"
#include "config/generated/settings/parallelism/tensor_parallel.hpp"
#include "config/generated/settings/prepare/fsdp.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "config/generated/settings/training_loop/local_sgd.hpp"
#include "expect_error.hpp"
#include "machine/processors.hpp"
#include "nn/callback_module.hpp"
#include "nn/layers/attention.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/mixture_of_experts.hpp"
#include "nn/layers/sequential.hpp"
#include "parallel/gradient_exchange.hpp"
#include "parallel/localsgd/local_sgd.hpp"
#include "settings_fixture.hpp"
#include "split_model_fixture.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace split_preparation_test {

using namespace split_model_tests;

const Case kSequences{"GPT-2, sequences", gpt2, "auto", 1e-9, true};

GradientExchange& exchange_of(const Training& training) {
  return *std::dynamic_pointer_cast<accelerator::PreparedModel>(training.model())->parallel()->exchange();
}

// One rank has no room for what goes on meanwhile, and the others would cut products into chunks.
TEST(SplitPreparation, RanksDecideTogetherWhetherExchangesOverlap) {
  on_mesh({1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    const int former = at::get_num_threads();
    at::set_num_threads(accelerator->state().process_index() == 0 ? 1 : static_cast<int>(usable_processors()));
    PrepareModelSettings settings;
    settings.tensor_parallel.overlap = Overlap::kAuto;
    settings.tensor_parallel.overlap_chunks = 3;
    Training training(accelerator, kSequences, settings);
    at::set_num_threads(former);
    training.step(0);
  });
}

TEST(SplitPreparation, GradientsOfTheProgramHaveNoTerms) {
  on_mesh({1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr model = gpt2();
    TensorParallelSettings settings;
    settings.sequence_parallel = true;
    accelerator->preparation().split_layers(model, settings);
    tests::expect_error(Status::kUnsupported, "expected accel_prepare_model(), or a sharded model",
                        [&] { accelerator->preparation().prepare_parameters(model, 25, FsdpSettings()); });
  });
}

TEST(SplitPreparation, SavedBucketsMustHaveGradientsOfOneKind) {
  on_mesh({2, 1, 2}, [](const AcceleratorPtr& accelerator) {
    PrepareModelSettings settings;
    settings.ddp.comm_hook = DdpCommHook::kPowerSgd;
    const Training training(accelerator, kSequences, settings);
    GradientExchange& exchange = exchange_of(training);
    const auto saved = exchange.reduction_state().toGenericDict();
    exchange.load_reduction_state(saved);
    auto joined = tree::new_list(), buckets = tree::new_list();
    for (const c10::IValue& bucket : saved.at("buckets").toListRef())
      for (const c10::IValue& number : bucket.toListRef()) joined.push_back(number);
    buckets.push_back(joined);
    auto mixed = tree::new_map();
    mixed.insert("buckets", buckets);
    mixed.insert("memory", saved.at("memory"));
    tests::expect_error(Status::kInvalidState, "expected the same sequence_parallel and plan",
                        [&] { exchange.load_reduction_state(mixed); });
  });
}

// Before any of them waits for an exchange that another one does not make.
TEST(SplitPreparation, RanksWithOtherPlansAreNamed) {
  on_mesh({1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    const bool is_first = accelerator->state().process_index() == 0;
    const auto refuse = [&](const std::string& words, const Case& first, const Case& other) {
      tests::expect_error(Status::kCollectiveMismatch, words, [&] { Training(accelerator, is_first ? first : other); });
    };
    const std::string mlp = "transformer.h.*.mlp.c_fc colwise; transformer.h.*.mlp.c_proj rowwise";
    const std::string embedding = "; transformer.wpe embedding_colwise";
    refuse(
        "rank 1 of those that share layers has the rule 'transformer.wpe embedding_colwise', and rank 0 has nothing "
        "further",
        {"", gpt2, mlp}, {"", gpt2, mlp + embedding});
    refuse("has sequence_parallel 1, and rank 0 has sequence_parallel 0", {"", gpt2, "auto"}, kSequences);
    refuse("has loss_parallel 0, and rank 0 has loss_parallel 1", {"", gpt2, "auto", 1e-9, false, true},
           {"", gpt2, "auto"});
    const std::string stays =
        "rank 1 of those that share layers has layers that are split, and rank 0 has layers that "
        "stay as they are";
    refuse(stays, {"", gpt2, "none"}, {"", gpt2, mlp});
    refuse(stays, {"", gpt2, "transformer.h.*.mlp grouped_gemm"}, {"", gpt2, mlp});
  });
  on_mesh({1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    const bool is_first = accelerator->state().process_index() == 0;
    tests::expect_error(Status::kInvalidArgument,
                        is_first ? "has the style 'columns'" : "rank 0 of those that share layers failed in", [&] {
                          Training(accelerator, {"", gpt2, is_first ? "transformer.wte columns" : "auto"});
                        });
  });
}

nn::ModulePtr in_two_parts(const nn::ModulePtr& first) {
  return with_known_weights(std::make_shared<nn::Sequential>(
      std::vector<nn::ModulePtr>{first, std::make_shared<nn::Linear>(8, 8, true)}, nn::kProgramChain));
}

PrepareModelSettings settings_of_stages() {
  PrepareModelSettings settings;
  settings.pipeline.split = std::string("1,1");
  return settings;
}

// The second stage has no layer with a plan.
TEST(SplitPreparation, StagesWithoutAKnownKindAreWhole) {
  on_mesh({1, 1, 2, 1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr model = in_two_parts(std::make_shared<nn::SelfAttention>(8, 2, true, true, 0.0));
    accelerator->preparation().prepare_model(model, settings_of_stages());
    const bool is_first = accelerator->state().groups().mesh()->coordinate("pipeline") == 0;
    EXPECT_EQ(model->find(is_first ? "0" : "1")->parameter(0).size(0), is_first ? 12 : 8);
  });
}

// A stage cannot tell a rule of another one from a rule of no layer.
TEST(SplitPreparation, RulesOfExpertsAreOfTheWholeModel) {
  const LoggedText logged;
  on_mesh({1, 2, 1, 1, 2, 2}, [](const AcceleratorPtr& accelerator) {
    const auto make = [] {
      return in_two_parts(std::make_shared<nn::MixtureOfExperts>(nn::MixtureSettings{8, 12, 4, 2}));
    };
    PrepareModelSettings settings = settings_of_stages();
    settings.tensor_parallel.plan = std::string("0.expertz grouped_gemm");
    tests::expect_error(Status::kInvalidArgument, "rule '0.expertz grouped_gemm' of the plan matches no module",
                        [&] { accelerator->preparation().prepare_model(make(), settings); });
    settings.tensor_parallel.plan = std::string("0.gate ep_router; 0.experts grouped_gemm");
    const nn::ModulePtr model = make();
    accelerator->preparation().prepare_model(model, settings);
    if (accelerator->state().groups().mesh()->coordinate("pipeline") == 0) {
      EXPECT_EQ(model->find("0.experts")->parameter(0).size(0), 2);
    }
    PrepareModelSettings evaluation = settings_of_stages();
    evaluation.evaluation_mode = true;
    evaluation.fsdp.enabled = true;
    evaluation.fsdp.sharding_strategy = ShardingStrategy::kFullShard;
    accelerator->preparation().prepare_model(make(), evaluation);
  });
  for (const char* const words : {"the model has no mixture of experts", "no layer is split", "the model is in stages"})
    EXPECT_EQ(logged.lines().find(words), std::string::npos) << logged.lines();
}

TEST(SplitPreparation, LayersOfAPreparedModelAreNotSplit) {
  on_mesh({1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    const auto refuse = [&](const std::string& words, const nn::ModulePtr& model) {
      tests::expect_error(Status::kInvalidState, words, [&] { accelerator->preparation().split_layers(model, {}); });
    };
    const Training split(accelerator, kSequences), whole(accelerator, {"", gpt2, "none"});
    refuse("this rank has a part of it", split.inner());
    refuse("expected that its layers are split before", whole.inner());
    refuse("expected that its layers are split before", whole.inner()->find("transformer.h.0"));
    const auto tied = std::make_shared<nn::CallbackModule>("Tied");
    tied->add_child("head", whole.inner()->find("transformer.wte"));
    refuse("parameter 'head.weight' belongs to a model that is prepared already", tied);
  });
}

TEST(SplitPreparation, AFailedOneLeavesTheChoiceOfSequences) {
  on_mesh({1, 1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    const auto object = [](ContextMethod method) {
      accelerator::PreparedObject made;
      made.model = std::make_shared<nn::Linear>(2, 2, true);
      made.model_settings.context_parallel.method = method;
      return made;
    };
    tests::expect_error(Status::kInvalidArgument, "context_parallel.method is another one", [&] {
      accelerator->preparation().prepare({object(ContextMethod::kUlysses), object(ContextMethod::kRing)});
    });
    EXPECT_EQ(accelerator->preparation().prepare({object(ContextMethod::kRing)}).size(), 1U);
  });
}

// The gradients of which each rank computes a term are exchanged, although there is one replica.
TEST(SplitPreparation, LocalSgdOfOneReplicaIsNone) {
  constexpr int kSteps = 3;
  const Trained expected = train_alone(kSequences, kSteps);
  on_mesh({1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, kSequences);
    const auto local_sgd = accelerator->preparation().begin_local_sgd(training.model(), 2, LocalSgdSettings(), nullptr);
    for (int step = 0; step < kSteps; step++) {
      EXPECT_NEAR(training.step(step).second, expected.steps[static_cast<size_t>(step)].second, 1e-9);
      EXPECT_FALSE(local_sgd->step());
    }
    expect_close(training.weights(), expected.weights, 1e-9);
  });
}

}  // namespace split_preparation_test
}  // namespace accel::parallel
