// SPDX-License-Identifier: Apache-2.0
// Models in stages, with ranks as threads: a model trains as in one process, beside other kinds of parallelism.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "accelerator/join_uneven_inputs.hpp"
#include "config/generated/choices/auto_wrap_policy.hpp"
#include "expect_error.hpp"
#include "nn/callback_module.hpp"
#include "nn/generation/continuous_batch.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/normalization.hpp"
#include "nn/layers/sequential.hpp"
#include "parallel/pipeline/pipeline.hpp"
#include "parallel/pipeline/schedules/schedules.hpp"
#include "pipelined_model_fixture.hpp"
#include "settings_fixture.hpp"
#include "tensor/tensor_chunk.hpp"

namespace accel::parallel {
namespace pipelined_model_test {

using namespace pipelined_model_tests;

void expect_parameters(const nn::Module& model, const std::map<std::string, at::Tensor>& expected) {
  for (const auto& [name, parameter] : nn::named_parameters(model))
    EXPECT_TRUE(at::allclose(parameter, expected.at(name), kTolerance, kTolerance)) << name;
}

void expect_equality(const AcceleratorPtr& accelerator, const Case& test, const PrepareModelSettings& settings,
                     const Trained& expected) {
  SCOPED_TRACE(name_of(test));
  Training training(accelerator, test, settings);
  comm::Communicator& data = *accelerator->state().groups().data_parallel();
  for (int64_t step = 0; step < kSteps; step++) {
    const auto [loss, norm] = training.step(step);
    at::Tensor mean = at::full({1}, loss, at::kDouble);
    data.all_reduce(mean, comm::ReduceOp::kMean);
    EXPECT_NEAR(mean.item<double>(), expected.losses[static_cast<size_t>(step)], kTolerance);
    EXPECT_NEAR(norm, expected.norms[static_cast<size_t>(step)], kTolerance);
  }
  expect_weights(training.inner(), expected.weights);
}

void expect_equality(const MeshSizes& mesh, const std::vector<Case>& tests) {
  std::vector<Trained> expected;
  for (const Case& test : tests) expected.push_back(train_alone(test, mesh.replicas * mesh.shards));
  on_mesh(mesh, [&](const AcceleratorPtr& accelerator) {
    for (size_t i = 0; i < tests.size(); i++)
      expect_equality(accelerator, tests[i], settings_of(tests[i]), expected[i]);
  });
}

std::vector<Case> schedules(int64_t ranks) {
  std::vector<Case> tests;
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zero_bubble", "zero_bubble_v", "auto"})
    for (const int64_t micro_batches : {1, 3, 4, 8}) {
      const bool is_interleaved = std::string(schedule) == "interleaved";
      if (is_interleaved && micro_batches % ranks != 0) continue;
      tests.push_back({schedule, micro_batches, micro_batches != 3});
    }
  return tests;
}

TEST(PipelinedModel, TrainsOnTwoRanks) { expect_equality(stages(2), schedules(2)); }
TEST(PipelinedModel, TrainsOnThreeRanks) { expect_equality(stages(3), schedules(3)); }
TEST(PipelinedModel, TrainsOnFourRanks) { expect_equality(stages(4), schedules(4)); }

TEST(PipelinedModel, AccumulatesAndTakesUnevenRows) {
  expect_equality(stages(2), {{"1f1b", 4, true, 3}, {"zero_bubble_v", 4, true, 2}, {"1f1b", 4, true, 1, false, 7}});
}

// The mesh has one rank along the axis: one stage, of which accumulation, clipping and the loss are the same.
TEST(PipelinedModel, OneRankIsOneStage) {
  const std::vector<Case> tests{{"1f1b", 4}, {"1f1b", 3, true, 2}};
  for (const Case& test : tests) {
    const Trained expected = train_alone(test, 1);
    on_mesh(stages(1), [&](const AcceleratorPtr& accelerator) {
      Training training(accelerator, test);
      for (int64_t step = 0; step < kSteps; step++)
        EXPECT_NEAR(training.step(step).first, expected.losses[static_cast<size_t>(step)], kTolerance);
      expect_parameters(training.inner(), expected.weights);
    });
  }
}

// Where the graph of a backward says what is exchanged, that of the last micro-batch does not do for all of them.
TEST(PipelinedModel, OneStageHasReplicas) {
  const Case test{"1f1b", 4};
  const Trained expected = train_alone(test, 2);
  on_mesh({2, 1, 1, 1, 1, 1}, [&](const AcceleratorPtr& accelerator) {
    for (const int kind : {0, 1, 2}) {
      SCOPED_TRACE(kind);
      PrepareModelSettings settings = settings_of(test);
      settings.ddp.find_unused_parameters = kind == 1;
      settings.ddp.static_graph = kind == 2;
      Training training(accelerator, test, settings);
      for (int64_t step = 0; step < kSteps; step++)
        EXPECT_NEAR(training.step(step).second, expected.norms[static_cast<size_t>(step)], kTolerance);
      expect_parameters(training.inner(), expected.weights);
    }
  });
}

TEST(PipelinedModel, ReplicasHaveEqualBuffers) {
  const at::Tensor rows = at::linspace(-1, 1, 40, at::kDouble).sin().view({8, 5}), labels = at::arange(8) % 3;
  for (const int64_t ranks : {1, 2})
    on_mesh({2, 1, 1, 1, 1, ranks}, [&](const AcceleratorPtr& accelerator) {
      const nn::ModulePtr inner = with_known_weights(std::make_shared<nn::Sequential>(
          std::vector<nn::ModulePtr>{std::make_shared<nn::Linear>(5, 7, true), std::make_shared<nn::BatchNorm>(7),
                                     std::make_shared<nn::Linear>(7, 3, true)}));
      PrepareModelSettings settings;
      settings.pipeline.split = std::string(ranks == 1 ? "parameters" : "1,2");
      const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, settings);
      auto& prepared = dynamic_cast<accelerator::PreparedModel&>(*model);
      comm::Communicator& data = *accelerator->state().groups().data_parallel();
      const auto step = [&] {
        accelerator->backward().run_in_stages(prepared, {tree::new_tuple({rows}), labels}, cross_entropy());
      };
      step();
      std::vector<at::Tensor> buffers;
      for (const auto& [name, buffer] : nn::named_buffers(*inner))
        if (buffer.is_floating_point() && !buffer.is_meta()) buffers.push_back(buffer);
      for (const at::Tensor& buffer : buffers) buffer.fill_(1 + data.rank());
      step();
      for (const at::Tensor& buffer : buffers) {
        at::Tensor mean = buffer.clone();
        data.all_reduce(mean, comm::ReduceOp::kMean);
        EXPECT_TRUE(at::allclose(mean, buffer, kTolerance, kTolerance)) << buffer;
      }
    });
}

TEST(PipelinedModel, TrainsBesideReplicas) {
  expect_equality(
      {2, 1, 1, 1, 1, 2},
      {{"1f1b", 4}, {"gpipe", 4, false, 2}, {"interleaved", 4}, {"zero_bubble", 4, true, 2}, {"zero_bubble_v", 3}});
}

// What a step that failed in its last backward leaves behind.
TEST(PipelinedModel, NoFirstBackwardExchangesWhatAFailedStepExpected) {
  const Case test{"1f1b", 4};
  const Trained expected = train_alone(test, 2);
  on_mesh({2, 1, 1, 1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, test);
    for (int64_t step = 0; step < kSteps; step++) {
      training.prepared().parallel()->exchange()->expect_backward();
      training.step(step);
    }
    expect_weights(training.inner(), expected.weights);
  });
}

TEST(PipelinedModel, TrainsBesideShards) {
  expect_equality({1, 2, 1, 1, 1, 2}, {{"1f1b", 4, true, 1, true},
                                       {"gpipe", 4, false, 2, true},
                                       {"interleaved", 4, true, 1, true},
                                       {"zero_bubble", 4, true, 1, true},
                                       {"auto", 4, true, 1, true}});
}

// No stage calls the modules that have its parts, such as "transformer".
TEST(PipelinedModel, ShardsWhatStagesCall) {
  const Case test{"1f1b", 4, true, 1, true};
  PrepareModelSettings settings = settings_of(test);
  settings.fsdp.auto_wrap_policy = AutoWrapPolicy::kSizeBasedWrap;
  settings.fsdp.min_num_params = 1000;  // more than a block has
  const Trained expected = train_alone(test, 2);
  on_mesh({1, 2, 1, 1, 1, 2},
          [&](const AcceleratorPtr& accelerator) { expect_equality(accelerator, test, settings, expected); });
}

TEST(PipelinedModel, TrainsWithSplitLayers) {
  expect_equality({1, 1, 2, 1, 1, 2}, {{"1f1b", 4}, {"interleaved", 4, false}, {"zero_bubble", 4}});
}

// To all ranks, or to those with the last stage alone.
TEST(PipelinedModel, BroadcastsItsLoss) {
  for (const char* const schedule : {"1f1b", "zero_bubble_v"}) {
    const Case test{schedule, 4};
    const Trained expected = train_alone(test, 1);
    on_mesh(stages(2), [&](const AcceleratorPtr& accelerator) {
      for (const bool broadcasts : {true, false}) {
        PrepareModelSettings settings = settings_of(test);
        settings.pipeline.broadcast_loss = broadcasts;
        Training training(accelerator, test, settings);
        const auto [loss, norm] = training.step(0);
        EXPECT_NEAR(norm, expected.norms[0], kTolerance);
        if (broadcasts || training.prepared().pipeline().has_last_stage()) {
          EXPECT_NEAR(loss, expected.losses[0], kTolerance);
        } else {
          EXPECT_TRUE(std::isnan(loss)) << loss;
        }
      }
    });
  }
}

TEST(PipelinedModel, EvaluatesForwardsAlone) {
  const nn::ModulePtr whole = gpt2(true);
  for (const int64_t rows : {1, 3, 8, 9}) {
    const at::Tensor batch = inputs_of(tokens(rows, 5));
    const at::Tensor expected = whole->call(batch).detach();
    on_mesh(stages(2), [&](const AcceleratorPtr& accelerator) {
      for (const bool gathers : {false, true}) {
        PrepareModelSettings settings = settings_of({"1f1b", 4});
        settings.pipeline.gather_output = gathers;
        const nn::ModulePtr model = accelerator->preparation().prepare_model(gpt2(true), settings);
        model->train(false);
        const bool is_last = accelerator->state().process_index() == 1;
        const c10::IValue output = model->call(is_last ? nn::Inputs{} : nn::Inputs{batch});
        ASSERT_EQ(output.isTensor(), is_last || gathers);
        if (output.isTensor()) {
          EXPECT_TRUE(at::allclose(output.toTensor(), expected, kTolerance, kTolerance));
        }
      }
    });
  }
}

// A stage without parameters takes part in clipping and in steps, and the optimizer may be older than the stages, or
// younger.
TEST(PipelinedModel, SequentialModelsAreChains) {
  const auto make = [] {
    return with_known_weights(std::make_shared<nn::Sequential>(
        std::vector<nn::ModulePtr>{std::make_shared<nn::Linear>(5, 7, true), std::make_shared<nn::Activation>("tanh"),
                                   std::make_shared<nn::Linear>(7, 3, true)}));
  };
  const at::Tensor rows = at::linspace(-1, 1, 40, at::kDouble).sin().view({8, 5}), labels = at::arange(8) % 3;
  const nn::ModulePtr whole = make();
  const auto alone = adamw(*whole);
  const at::Tensor expected = tensor::cross_entropy(whole->call(rows), labels);
  expected.backward();
  const double norm = optim::clip_gradients_by_norm(whole->parameters(), kLargestNorm, 2).item<double>();
  alone->step();
  const auto test = [&](const char* split, bool is_younger) {
    on_mesh(stages(3), [&](const AcceleratorPtr& accelerator) {
      const nn::ModulePtr inner = make();
      auto own = adamw(*inner);
      PrepareModelSettings settings;
      settings.pipeline.split = std::string(split);
      const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, settings);
      if (is_younger) {
        const auto younger = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.01}});
        younger->add_group(inner->parameters(), std::nullopt, std::nullopt);
        own = younger;
      }
      const auto optimizer = accelerator->preparation().prepare_optimizer(own);
      auto& prepared = dynamic_cast<accelerator::PreparedModel&>(*model);
      EXPECT_NE(prepared.pipeline().describe(), "");
      EXPECT_NEAR(accelerator->backward().run_in_stages(prepared, {tree::new_tuple({rows}), labels}, cross_entropy()),
                  expected.item<double>(), kTolerance);
      // The norm is float32 on a rank without parameters.
      EXPECT_NEAR(accelerator->clipping().clip_gradients_by_norm(model, kLargestNorm, 2)->item<double>(), norm, 1e-7);
      optimizer->step();
      for (const auto& [name, parameter] : nn::named_parameters(*inner))
        EXPECT_TRUE(at::allclose(parameter, nn::find_tensor(*whole, name), kTolerance, kTolerance)) << name;
      EXPECT_FALSE(optimizer->groups().empty());
    });
  };
  test("1,1,1", false);
  test("1,1,1", true);
  test("flops", false);
}

// Each rank has a module without a forward, with the values of the first one.
TEST(PipelinedModel, ModulesBesideThePartsAreFrozen) {
  on_mesh(stages(2), [](const AcceleratorPtr& accelerator) {
    const auto tables = std::make_shared<nn::CallbackModule>("Tables");
    const int rank = accelerator->state().groups().mesh()->coordinate("pipeline");
    const at::Tensor weight = at::full({3}, 1.0 + rank, at::kDouble);
    tables->add_parameter("weight", weight);
    const std::vector<nn::ModulePtr> parts{std::make_shared<nn::Linear>(5, 7, true),
                                           std::make_shared<nn::Linear>(7, 3, true)};
    const auto model = std::make_shared<nn::Sequential>(parts, nn::kProgramChain);
    model->add_child("tables", tables);
    with_known_weights(model);
    const at::NoGradGuard no_grad;
    weight.fill_(1.0 + rank);
    tests::expect_error(Status::kUnsupported,
                        "the parameter 'tables.weight' is trained, and in a module that is no part",
                        [&] { accelerator->preparation().prepare_model(model, {}); });
    weight.set_requires_grad(false);
    const nn::ModulePtr prepared = accelerator->preparation().prepare_model(model, {});
    EXPECT_TRUE(at::equal(weight, at::ones({3}, at::kDouble)));
    const at::Tensor rows = at::linspace(-1, 1, 40, at::kDouble).view({8, 5}), labels = at::arange(8) % 3;
    auto& in_stages = dynamic_cast<accelerator::PreparedModel&>(*prepared);
    const at::AutoGradMode grad(true);
    EXPECT_GT(accelerator->backward().run_in_stages(in_stages, {tree::new_tuple({rows}), labels}, cross_entropy()), 0);
    EXPECT_FALSE(weight.grad().defined());
    accelerator->free_memory();
  });
}

TEST(PipelinedModel, RefusesUnevenInputs) {
  for (const int64_t ranks : {1, 2})
    on_mesh({2, 1, 1, 1, 1, ranks}, [&](const AcceleratorPtr& accelerator) {
      Training training(accelerator, {"1f1b", 4});
      if (ranks == 2)
        return tests::expect_error(Status::kUnsupported, "of a model in stages", [&] {
          const accelerator::JoinedInputs joined(accelerator, {training.model()}, false);
        });
      const accelerator::JoinedInputs joined(accelerator, {training.model()}, false);
      tests::expect_error(Status::kUnsupported, "steps of a pipeline", [&] { training.backward(tokens(kRows, 1)); });
    });
}

// The rank with the last stage has the output alone, and an error of its rows is that of all.
TEST(PipelinedModel, AnOutputThatCannotBeGathered) {
  on_mesh(stages(2), [](const AcceleratorPtr& accelerator) {
    int calls = 0;  // of the last stage
    const auto compute = [&](int stage, const c10::IValue& value) -> c10::IValue {
      if (stage == 0) return tree::sequence_items(value)[0];
      return value.toTensor().narrow(1, 0, ++calls);
    };
    const ParallelModelPtr model = single_process_model(std::make_shared<nn::Linear>(2, 2, true));
    Pipeline pipeline(*model, *model, gpipe_schedule(2, 2), accelerator->state().groups().mesh()->group("pipeline"),
                      c10::kCPU, PipelineStages{compute, {}, {}, ""});
    EXPECT_ANY_THROW(pipeline.evaluate(tree::new_tuple({at::ones({4, 3})}), /*on_all_ranks=*/true));
  });
}

// Stages have whole parameters.
TEST(PipelinedModel, TakesOptimizersOfWholeParameters) {
  on_mesh(stages(2), [](const AcceleratorPtr& accelerator) {
    const Training training(accelerator, {"1f1b", 4});
    const auto optimizer = optim::make_optimizer(optim::lamb_rule(), {{"lr", 0.01}});
    optimizer->add_group(training.model()->parameters(), std::nullopt, std::nullopt);
    EXPECT_NO_THROW(accelerator->preparation().prepare_optimizer(optimizer));
  });
}

nn::ModulePtr layers_of(const std::vector<int64_t>& widths) {
  std::vector<nn::ModulePtr> layers;
  for (size_t i = 0; i + 1 < widths.size(); i++)
    layers.push_back(std::make_shared<nn::Linear>(widths[i], widths[i + 1], true));
  return with_known_weights(std::make_shared<nn::Sequential>(layers));
}

// Inputs of a micro-batch say what parts cost, of models that take no token ids, too.
TEST(PipelinedModel, CostsAreThoseOfTheSample) {
  on_mesh(stages(2), [](const AcceleratorPtr& accelerator) {
    const auto cut = [&](const char* split, bool has_sample) {
      PrepareModelSettings settings;
      settings.pipeline.split = std::string(split);
      const bool is_first = accelerator->state().process_index() == 0;  // others need none
      const c10::IValue sample =
          has_sample && is_first ? c10::IValue(tree::new_tuple({at::ones({16, 8}, at::kDouble)})) : c10::IValue();
      const nn::ModulePtr model =
          accelerator->preparation().prepare_model(layers_of({8, 8, 8, 8, 8}), settings, sample);
      return dynamic_cast<accelerator::PreparedModel&>(*model).pipeline().describe();
    };
    EXPECT_NE(cut("flops", false).find("256"), std::string::npos);  // two layers of 2 x 8 x 8, for a row
    EXPECT_NE(cut("flops", true).find("4096"), std::string::npos);  // for 16 rows
    EXPECT_NE(cut("measured", true).find(" ms"), std::string::npos);
    tests::expect_error(Status::kInvalidArgument, "expected sample inputs", [&] { cut("measured", false); });
  });
}

TEST(PipelinedModel, WarnsOfAnUnevenCutOnce) {
  for (const bool checks : {true, false}) {
    const LoggedText logged;
    on_mesh(stages(2), [&](const AcceleratorPtr& accelerator) {
      PrepareModelSettings settings;
      settings.pipeline.split = std::string("1,1");
      settings.pipeline.check_balance = checks;
      accelerator->preparation().prepare_model(layers_of({4, 40, 80}), settings);
    });
    const size_t said = logged.lines().find("the most expensive of 2 stages costs 1.9");
    EXPECT_EQ(said != std::string::npos, checks) << logged.lines();
    EXPECT_EQ(logged.lines().find("the most expensive", said + 1) == std::string::npos, true);
  }
}

TEST(PipelinedModel, StagesKeepToTheirMemory) {
  on_mesh(stages(2), [](const AcceleratorPtr& accelerator) {
    const auto prepare = [&](const char* split, const char* limits) {
      PrepareModelSettings settings;
      settings.pipeline.split = std::string(split);
      settings.pipeline.max_memory = std::string(limits);
      const nn::ModulePtr model = accelerator->preparation().prepare_model(layers_of({8, 8, 8, 8, 8}), settings);
      return dynamic_cast<accelerator::PreparedModel&>(*model).pipeline().describe();
    };
    const std::string described = prepare("flops", "600, 2KB");  // a layer has 576 bytes
    EXPECT_NE(described.find("0      0     0       72          0.0005493 MiB"), std::string::npos) << described;
    EXPECT_NE(described.find("1      1     1 to 3  216         0.001648 MiB"), std::string::npos) << described;
    for (const char* split : {"flops", "2,2"})
      tests::expect_error(Status::kOutOfMemory, "needs 1152 bytes for its parameters, and max_memory allows 1024",
                          [&] { prepare(split, "1200,1KiB"); });
    tests::expect_error(Status::kInvalidArgument, "has 3 sizes; expected one, or one for each of 2 stages",
                        [&] { prepare("flops", "1GB,1GB,1GB"); });
  });
}

// Losses are near those of one process, and the same in each run.
TEST(PipelinedModel, BoundariesHaveSmallerNumbers) {
  const Case test{"1f1b", 4};
  const Trained expected = train_alone(test, 1);
  on_mesh(stages(2), [&](const AcceleratorPtr& accelerator) {
    for (const char* dtype : {"bfloat16", "fp16"}) {
      PrepareModelSettings settings = settings_of(test);
      settings.pipeline.boundary_dtype = std::string(dtype);
      Training training(accelerator, test, settings);
      const double loss = training.step(0).first;
      EXPECT_NEAR(loss, expected.losses[0], 1e-2);
      EXPECT_NE(loss, expected.losses[0]);
    }
    PrepareModelSettings settings = settings_of(test);
    settings.pipeline.boundary_dtype = std::string("int8");
    tests::expect_error(Status::kInvalidArgument, "boundary_dtype is 'int8'; expected bfloat16, float16 or float32",
                        [&] { accelerator->preparation().prepare_model(gpt2(true), settings); });
  });
}

TEST(PipelinedModel, SaysWhatIsWrong) {
  on_mesh(stages(2), [](const AcceleratorPtr& accelerator) {
    Training training(accelerator, {"1f1b", 4});
    const at::Tensor rows = tokens(kRows, 1);
    tests::expect_error(Status::kInvalidState, "expected accel_pipeline_step()",
                        [&] { training.model()->call({inputs_of(rows)}); });
    training.model()->train(false);
    nn::ContinuousBatch batch(training.model(), {});
    batch.add({1, 2}, {});
    tests::expect_error(Status::kUnsupported, "is in stages on several ranks, which cannot generate",
                        [&] { batch.step(); });
    training.model()->train(true);
    tests::expect_error(Status::kInvalidArgument, "3 rows for 4 micro-batches",
                        [&] { training.backward(tokens(3, 1)); });
    const auto prepare = [&](const Case& test) {
      accelerator->preparation().prepare_model(gpt2(true), settings_of(test));
    };
    tests::expect_error(Status::kInvalidArgument, "the schedule \"2f2b\" is not known", [&] { prepare({"2f2b", 4}); });
    tests::expect_error(Status::kInvalidArgument, "micro_batches 5 cannot be shared", [&] {
      prepare({"interleaved", 5});
    });
    PipelineLoss bad = cross_entropy();
    bad.of_output = [](const c10::IValue&, const c10::IValue&) -> at::Tensor {
      throw Error(Status::kTypeMismatch, "labels of another kind");
    };
    tests::expect_error(Status::kTypeMismatch, "labels of another kind", [&] { training.backward(rows, bad); });
    const PipelineBatch misshapen{tree::new_tuple({inputs_of(rows)}), labels_of(rows)};
    bad.of_output = [](const c10::IValue& output, const c10::IValue&) {
      return output.toTensor().view({-1, 7}).sum();  // an error of LibTorch, of which other ranks hear in one line
    };
    const auto train = [&] { accelerator->backward().run_in_stages(training.prepared(), misshapen, bad); };
    if (training.prepared().pipeline().has_last_stage()) {
      EXPECT_THROW(train(), c10::Error);
    } else {
      tests::expect_error(Status::kTorch, "shape '[-1, 7]' is invalid", train);
    }
    PipelineBatch unread;  // on the rank that has the inputs
    if (training.prepared().pipeline().has_last_stage())
      unread.targets = labels_of(rows);
    else
      unread.error = std::make_exception_ptr(Error(Status::kNotFound, "the model has no input 'rows'"));
    tests::expect_error(Status::kNotFound, "no input 'rows'",
                        [&] { accelerator->backward().run_in_stages(training.prepared(), unread, cross_entropy()); });
    training.zero_grad();
    const auto [loss, norm] = training.step(0);
    EXPECT_GT(loss, 0);
  });
}

}  // namespace pipelined_model_test
}  // namespace accel::parallel
