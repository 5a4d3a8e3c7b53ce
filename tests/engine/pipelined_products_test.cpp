// SPDX-License-Identifier: Apache-2.0
// Models in stages beside several other kinds of parallelism at once: their training is that of one process, and stages
// receive as many bytes as the formula says.
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/record/flight_record.hpp"
#include "config/generated/choices/auto_wrap_policy.hpp"
#include "expect_error.hpp"
#include "nn/callback_module.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/sequential.hpp"
#include "parallel/context/context_scope.hpp"
#include "pipelined_model_fixture.hpp"
#include "settings_fixture.hpp"

namespace accel::parallel {
namespace pipelined_products_test {

using namespace pipelined_model_tests;

struct Product {
  std::string name;
  MeshSizes mesh;
  Case test;
  std::function<void(PrepareModelSettings& settings)> change = [](PrepareModelSettings&) {};
};

double mean_over(comm::Communicator& ranks, double value) {
  const at::Tensor mean = at::full({1}, value, at::kDouble);
  ranks.all_reduce(mean, comm::ReduceOp::kMean);
  return mean.item<double>();
}

void expect_weights(const Training& training, const std::map<std::string, at::Tensor>& expected) {
  const auto found = training.weights();
  EXPECT_FALSE(found.empty());
  for (const auto& [name, weight] : found)
    EXPECT_TRUE(at::allclose(weight, expected.at(name), kTolerance, kTolerance)) << name;
}

void expect_trains(const Product& product) {
  SCOPED_TRACE(product.name + ": " + name_of(product.test));
  const Trained expected = train_alone(product.test, product.mesh.replicas * product.mesh.shards);
  on_mesh(product.mesh, [&](const AcceleratorPtr& accelerator) {
    PrepareModelSettings settings = settings_of(product.test);
    product.change(settings);
    Training training(accelerator, product.test, settings);
    for (size_t step = 0; step < expected.losses.size(); step++) {
      const auto [loss, norm] = training.step(static_cast<int64_t>(step));
      EXPECT_NEAR(mean_over(*accelerator->state().groups().data_parallel(), loss), expected.losses[step], kTolerance);
      EXPECT_NEAR(norm, expected.norms[step], kTolerance);
    }
    expect_weights(training, expected.weights);
  });
}

void split_sequences(PrepareModelSettings& settings) { settings.tensor_parallel.sequence_parallel = true; }
void split_scores(PrepareModelSettings& settings) { settings.tensor_parallel.loss_parallel = true; }
void recompute(PrepareModelSettings& settings) {
  settings.fsdp.auto_wrap_policy = AutoWrapPolicy::kTransformerBasedWrap;
  settings.fsdp.transformer_cls_names_to_wrap = std::string("GPT2Block");
  settings.fsdp.activation_checkpointing = true;
}

TEST(PipelinedProducts, TrainAsOneProcess) {
  expect_trains({"sequences", {1, 1, 2, 1, 1, 2}, {"1f1b", 4, true, 2}, split_sequences});
  expect_trains({"scores", {1, 1, 2, 1, 1, 2}, {"interleaved", 4, false}, split_scores});
  expect_trains({"scores of a tied head, and sequences",
                 {1, 1, 2, 1, 1, 2},
                 {"zero_bubble_v", 3},
                 [](PrepareModelSettings& settings) {
                   split_sequences(settings);
                   split_scores(settings);
                 }});
  expect_trains({"replicas and sequences", {2, 1, 2, 1, 1, 2}, {"zero_bubble", 4}, split_sequences});
  expect_trains({"shards and layers", {1, 2, 2, 1, 1, 2}, {"1f1b", 4, true, 2, true}});
  expect_trains({"replicas of shards", {2, 2, 1, 1, 1, 2}, {"gpipe", 3, false, 1, true}});
  expect_trains({"shards, recomputed", {1, 2, 1, 1, 1, 2}, {"interleaved", 4, true, 1, true}, recompute});
  expect_trains({"shards, recomputed with layers", {1, 2, 2, 1, 1, 2}, {"1f1b", 4, true, 1, true}, recompute});
}

nn::ModulePtr llama() {
  return with_known_weights(nn::module_from_config(
      R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 4, "vocab_size": 13,
      "num_attention_heads": 4, "num_key_value_heads": 2})"));
}

// Rotary positions are those of whole sequences in each stage, and key heads are fewer than heads.
TEST(PipelinedProducts, LlamaHasTheGradientsOfOneProcess) {
  constexpr double kNear = 1e-6;  // its norms compute in float32
  const at::Tensor rows = tokens(kRows, 3);
  const nn::ModulePtr whole = llama();
  const at::Tensor loss = tensor::cross_entropy(whole->call(inputs_of(rows)), labels_of(rows));
  loss.backward();
  const double norm = optim::clip_gradients_by_norm(whole->parameters(), kLargestNorm, 2).item<double>();
  for (const auto change : {split_sequences, split_scores})
    for (const char* const schedule : {"1f1b", "interleaved"})
      on_mesh({1, 1, 2, 1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
        PrepareModelSettings settings = settings_of({schedule, 4});
        change(settings);
        const nn::ModulePtr model = accelerator->preparation().prepare_model(llama(), settings);
        auto& prepared = dynamic_cast<accelerator::PreparedModel&>(*model);
        const double found = accelerator->backward().run_in_stages(
            prepared, {tree::new_tuple({inputs_of(rows)}), labels_of(rows)}, cross_entropy());
        EXPECT_NEAR(found, loss.item<double>(), kNear);
        const auto clipped = accelerator->clipping().clip_gradients_by_norm(model, kLargestNorm, 2);
        EXPECT_NEAR(clipped->item<double>(), norm, kNear);
      });
}

// The ranks along the axis context have parts of the sequences in each stage.
TEST(PipelinedProducts, TrainsOnPartsOfSequences) {
  for (const auto method : {ContextMethod::kRing, ContextMethod::kUlysses}) {
    SCOPED_TRACE(static_cast<int>(method));
    const Case test{"1f1b", 4};
    const Trained expected = train_alone(test, 1);
    on_mesh({1, 1, 1, 2, 1, 2}, [&](const AcceleratorPtr& accelerator) {
      comm::Mesh& mesh = *accelerator->state().groups().mesh();
      const ContextParallelism split{mesh.group("context"), method, SequenceOrder::kContiguous};
      Training training(accelerator, test);
      for (int64_t step = 0; step < kSteps; step++) {
        const at::Tensor rows = rows_of(test, step, 0, 0), inputs = inputs_of(rows), labels = labels_of(rows);
        PipelineBatch batch;
        double loss = 0;
        {
          const ContextScope scope(split, {{inputs, 1}, {labels, 1}});
          if (mesh.coordinate("pipeline") == 0) batch.inputs = tree::new_tuple({inputs});
          if (training.prepared().pipeline().has_last_stage()) batch.targets = labels;
          loss = accelerator->backward().run_in_stages(training.prepared(), batch, cross_entropy());
        }
        const auto place = static_cast<size_t>(step);
        EXPECT_NEAR(mean_over(*mesh.group("context"), loss), expected.losses[place], kTolerance);
        const auto norm = accelerator->clipping().clip_gradients_by_norm(training.model(), kLargestNorm, 2);
        EXPECT_NEAR(norm->item<double>(), expected.norms[place], kTolerance);
        training.optimizer()->step();
        training.zero_grad();
      }
      expect_weights(training, expected.weights);
    });
  }
}

// Of the messages that this rank has got from other stages.
double received(const comm::Communicator& ranks) {
  double bytes = 0;
  const auto operations =
      tree::from_json(ranks.flight_record()->to_json(), "the record").toGenericDict().at("operations").toList();
  for (const c10::IValue& value : operations) {
    const auto operation = value.toGenericDict();
    if (operation.at("operation").toStringRef() == "recv") bytes += static_cast<double>(operation.at("bytes").toInt());
  }
  return bytes;
}

// Of both sides of each stage: activations of all rows, and gradients of as many. The outermost stages have one side,
// and in a V the last rank sends to itself.
TEST(PipelinedProducts, StagesReceiveWhatTheFormulaSays) {
  struct Schedule {
    const char* name;
    int stages;    // of a rank
    int at_first;  // sides that the first rank lacks
    int at_last;
  };
  constexpr double kWidth = 8;
  constexpr int64_t kManyRows = 96;  // beside which announcements are small
  for (const int64_t ranks : {2, 3, 4})
    for (const Schedule& schedule :
         {Schedule{"gpipe", 1, 1, 1}, Schedule{"1f1b", 1, 1, 1}, Schedule{"interleaved", 2, 1, 1},
          Schedule{"zero_bubble", 1, 1, 1}, Schedule{"zero_bubble_v", 2, 2, 2}}) {
      SCOPED_TRACE(std::string(schedule.name) + " on " + std::to_string(ranks));
      on_mesh(stages(ranks), [&](const AcceleratorPtr& accelerator) {
        Training training(accelerator, {schedule.name, ranks, false, 1, false, kManyRows});
        const auto& group = *accelerator->state().groups().mesh()->group("pipeline");
        training.step(0);  // which describes the values
        const double before = received(group);
        training.step(1);
        const double sides = 2.0 * schedule.stages - (group.rank() == 0 ? schedule.at_first : 0) -
                             (group.rank() == ranks - 1 ? schedule.at_last : 0);
        const double values = static_cast<double>(kManyRows * kLength) * kWidth * sizeof(double);
        EXPECT_NEAR((received(group) - before) / (sides * values), 1, 0.02);
      });
    }
}

TEST(PipelinedProducts, AnUnevenCutIsToldOnce) {
  const std::string words = "the most expensive of 2 stages costs ";
  for (const char* const split : {"1,7", "4,4"}) {
    const LoggedText logged;
    on_mesh(stages(2), [&](const AcceleratorPtr& accelerator) {
      PrepareModelSettings settings = settings_of({"1f1b", 4});
      settings.pipeline.split = std::string(split);
      accelerator->preparation().prepare_model(gpt2(false), settings);
    });
    const size_t first = logged.lines().find(words);
    EXPECT_EQ(first == std::string::npos, std::string(split) == "4,4") << logged.lines();
    if (first == std::string::npos) continue;
    EXPECT_EQ(logged.lines().find(words, first + 1), std::string::npos) << logged.lines();
  }
}

nn::ModulePtr with_other_outputs() {
  const auto map = std::make_shared<nn::CallbackModule>("Named");
  map->set_forward([](nn::Module&, const nn::Inputs& inputs) -> c10::IValue {
    return tree::new_map({{"scores", inputs[0]}});
  });
  return std::make_shared<nn::Sequential>(std::vector<nn::ModulePtr>{std::make_shared<nn::Linear>(2, 2, true), map});
}

TEST(PipelinedProducts, SayWhatIsWrong) {
  on_mesh(stages(2), [](const AcceleratorPtr& accelerator) {
    Training training(accelerator, {"1f1b", 4});
    const auto lomo = optim::make_optimizer(optim::lomo_rule());
    lomo->add_group(training.model()->parameters(), std::nullopt, std::nullopt);
    tests::expect_error(Status::kUnsupported, "the optimizer lomo computes an update from a whole parameter",
                        [&] { accelerator->preparation().prepare_optimizer(lomo); });
    training.model()->train(false);
    const bool is_last = training.prepared().pipeline().has_last_stage();
    const c10::IValue output = training.model()->call(is_last ? nn::Inputs{} : nn::Inputs{inputs_of(tokens(4, 1))});
    if (is_last)
      tests::expect_error(Status::kInvalidState, "or accel_pipeline_step() for a model in stages on several ranks",
                          [&] { accelerator->backward().run(output.toTensor().sum()); });
  });
  // Plans are of whole models.
  on_mesh({1, 1, 2, 1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    const auto refuse = [&](const std::string& words, const std::string& plan, bool splits_sequences) {
      PrepareModelSettings settings = settings_of({"1f1b", 4});
      settings.tensor_parallel.plan = plan;
      settings.tensor_parallel.sequence_parallel = splits_sequences;
      settings.tensor_parallel.loss_parallel = !splits_sequences;
      tests::expect_error(Status::kInvalidArgument, words,
                          [&] { accelerator->preparation().prepare_model(gpt2(false), settings); });
    };
    const std::string rules = "transformer.h.*.mlp.c_fc colwise; transformer.h.*.mlp.c_proj rowwise";
    refuse("the plan has no embedding and head where the split sequence begins", rules, true);
    refuse("loss_parallel is 1, and the plan has no head", rules, false);
    refuse("rule 'transformer.h.9.mlp colwise' of the plan matches no layer", rules + "; transformer.h.9.mlp colwise",
           true);
  });
  on_mesh(stages(2), [](const AcceleratorPtr& accelerator) {
    PrepareModelSettings settings;
    settings.pipeline.split = std::string("1,1");
    const nn::ModulePtr model = accelerator->preparation().prepare_model(with_other_outputs(), settings);
    auto& prepared = dynamic_cast<accelerator::PreparedModel&>(*model);
    tests::expect_error(Status::kTypeMismatch,
                        "the last stage returned a map; expected the loss, or the name or the callback of one", [&] {
                          accelerator->backward().run_in_stages(
                              prepared, {tree::new_tuple({at::full({4, 2}, 1.0)}), c10::IValue()}, PipelineLoss());
                        });
  });
}

}  // namespace pipelined_products_test
}  // namespace accel::parallel
