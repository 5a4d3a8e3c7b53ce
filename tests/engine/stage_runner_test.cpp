// SPDX-License-Identifier: Apache-2.0
// Steps of pipelines, with ranks as threads: equality with one process, values that pass, errors of a stage.
#include "parallel/pipeline/stage_runner.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor_split.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "comm/group.hpp"
#include "comm/record/flight_record.hpp"
#include "parallel/pipeline/schedule_simulator.hpp"
#include "parallel/pipeline/schedules/schedules.hpp"
#include "rank_threads.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace stage_runner_test {

using tests::run_ranks;

constexpr int kWidth = 6, kRows = 12;

at::Tensor values(int seed, at::IntArrayRef shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return at::sin(at::arange(numel, at::kDouble).mul(0.7).add(seed)).view(shape);
}

// A chain of layers of tanh, one a stage.
std::vector<at::Tensor> weights_of(int stages) {
  std::vector<at::Tensor> weights;
  for (int stage = 0; stage < stages; stage++) weights.push_back(values(stage, {kWidth, kWidth}).requires_grad_());
  return weights;
}

at::Tensor layer(const at::Tensor& input, const at::Tensor& weight) { return at::tanh(at::linear(input, weight)); }

at::Tensor loss_of(const at::Tensor& output) { return output.square().mean(); }

struct Step {
  double loss;
  std::vector<at::Tensor> gradients;  // of the stages
};

Step step_of_one_process(int stages, const std::vector<at::Tensor>& inputs, const std::vector<double>& shares) {
  const std::vector<at::Tensor> weights = weights_of(stages);
  Step step{0, {}};
  for (size_t i = 0; i < inputs.size(); i++) {
    at::Tensor value = inputs[i];
    for (const at::Tensor& weight : weights) value = layer(value, weight);
    const at::Tensor loss = loss_of(value) * shares[i];
    loss.backward();
    step.loss += loss.item<double>();
  }
  for (const at::Tensor& weight : weights) step.gradients.push_back(weight.grad());
  return step;
}

std::vector<PipelineSchedule> schedules_of(int ranks, int micro_batches) {
  std::vector<PipelineSchedule> schedules{gpipe_schedule(ranks, micro_batches),
                                          one_forward_one_backward_schedule(ranks, micro_batches)};
  schedules.push_back(zero_bubble_schedule(ranks, micro_batches));
  schedules.push_back(zero_bubble_v_schedule(ranks, micro_batches));
  if (can_interleave(ranks, micro_batches)) schedules.push_back(interleaved_schedule(ranks, micro_batches, 2));
  return schedules;
}

PipelineComputation computation_of(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& inputs,
                                   const std::vector<double>& shares) {
  return {[inputs](int micro_batch) { return c10::IValue(inputs[static_cast<size_t>(micro_batch)]); },
          [weights](int stage, int, const c10::IValue& input) {
            return c10::IValue(layer(input.toTensor(), weights[static_cast<size_t>(stage)]));
          },
          [](int, const c10::IValue& output) { return loss_of(output.toTensor()); },
          [shares](int micro_batch) { return shares[static_cast<size_t>(micro_batch)]; }};
}

TEST(StageRunner, StepsEqualThoseOfOneProcess) {
  for (const int ranks : {1, 2, 3, 4})
    for (const int micro_batches : {1, 3, 4, 8}) {
      std::vector<at::Tensor> inputs;
      for (const at::Tensor& rows : at::tensor_split(values(100, {kRows, kWidth}), micro_batches))
        inputs.push_back(rows);
      std::vector<double> shares;
      for (const at::Tensor& rows : inputs) shares.push_back(static_cast<double>(rows.size(0)) / kRows);
      for (const PipelineSchedule& schedule : schedules_of(ranks, micro_batches)) {
        const Step expected = step_of_one_process(schedule.shape.stages(), inputs, shares);
        run_ranks(ranks, [&](const CommunicatorPtr& communicator) {
          const std::vector<at::Tensor> weights = weights_of(schedule.shape.stages());
          StageRunner runner(schedule, communicator, c10::kCPU);
          for (int step = 0; step < 2; step++) {  // the second one uses the descriptions of the first
            EXPECT_NEAR(runner.run(computation_of(weights, inputs, shares)), expected.loss, 1e-12);
            for (int stage = 0; stage < schedule.shape.stages(); stage++) {
              const auto index = static_cast<size_t>(stage);
              if (schedule.shape.rank_of(stage) != communicator->rank()) {
                EXPECT_FALSE(weights[index].grad().defined());
                continue;
              }
              EXPECT_TRUE(at::allclose(weights[index].grad(), expected.gradients[index] * (step + 1), 1e-10, 1e-12));
            }
          }
        });
      }
    }
}

// The value has what the next stage needs beside its input: a mask that has no gradient, a number, a text.
TEST(StageRunner, PassesTreesWhoseShapesChange) {
  const std::vector<int64_t> lengths{3, 5, 5, 2};
  std::vector<at::Tensor> inputs;
  for (const int64_t length : lengths) inputs.push_back(values(static_cast<int>(length), {length, kWidth}));
  const std::vector<double> shares(inputs.size(), 1);
  run_ranks(3, [&](const CommunicatorPtr& communicator) {
    const std::vector<at::Tensor> weights = weights_of(3);
    StageRunner runner(one_forward_one_backward_schedule(3, 4), communicator, c10::kCPU);
    PipelineComputation computation = computation_of(weights, inputs, shares);
    computation.forward = [&](int stage, int micro_batch, const c10::IValue& input) -> c10::IValue {
      const auto index = static_cast<size_t>(micro_batch);
      if (stage == 0)
        return tree::new_map({{"hidden", layer(input.toTensor(), weights[0])},
                              {"mask", inputs[index].gt(0)},
                              {"length", lengths[index]},
                              {"name", "micro-batch"}});
      const c10::IValue *hidden = tree::find_member(input, "hidden"), *mask = tree::find_member(input, "mask");
      EXPECT_TRUE(at::equal(mask->toTensor(), inputs[index].gt(0)));
      EXPECT_FALSE(mask->toTensor().requires_grad());
      EXPECT_EQ(tree::find_member(input, "length")->toInt(), lengths[index]);
      EXPECT_EQ(tree::find_member(input, "name")->toStringRef(), "micro-batch");
      const at::Tensor output = layer(hidden->toTensor(), weights[static_cast<size_t>(stage)]);
      if (stage == 2) return output;
      return tree::map_tensors(
          input, [&](const at::Tensor& tensor) { return tensor.is_same(hidden->toTensor()) ? output : tensor; });
    };
    const Step expected = step_of_one_process(3, inputs, shares);
    EXPECT_NEAR(runner.run(computation), expected.loss, 1e-12);
    const auto own = static_cast<size_t>(communicator->rank());
    EXPECT_TRUE(at::allclose(weights[own].grad(), expected.gradients[own], 1e-10, 1e-12));
  });
}

// All values of the first rank wait at the second one before it takes any, and each is described otherwise.
TEST(StageRunner, EachValueKeepsItsDescription) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    constexpr int kMicroBatches = 3;
    const at::Tensor scale = at::ones({}, at::kDouble).requires_grad_();
    StageRunner runner(gpipe_schedule(2, kMicroBatches), communicator, c10::kCPU);
    std::vector<int64_t> numbers;
    PipelineComputation computation{
        [](int) { return c10::IValue(at::ones({2}, at::kDouble)); },
        [&](int stage, int micro_batch, const c10::IValue& input) -> c10::IValue {
          if (stage == 0) {
            std::vector<c10::IValue> items(static_cast<size_t>(micro_batch + 1), input.toTensor() * scale);
            items.emplace_back(static_cast<int64_t>(micro_batch));
            return tree::new_list(items);
          }
          if (micro_batch == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
          const auto items = tree::sequence_items(input);
          numbers.push_back(items.back().toInt());
          EXPECT_EQ(items.size(), static_cast<size_t>(micro_batch + 2));
          return items[0].toTensor() * scale;
        },
        [](int, const c10::IValue& output) { return output.toTensor().sum(); }, [](int) { return 1.0; }};
    runner.run(computation);
    if (communicator->rank() == 1) {
      EXPECT_EQ(numbers, (std::vector<int64_t>{0, 1, 2}));
    }
  });
}

size_t count_sends(const comm::Communicator& communicator) {
  const std::string record = communicator.flight_record()->to_json(), name = "\"send\"";
  size_t count = 0;
  for (size_t at = record.find(name); at != std::string::npos; at = record.find(name, at + 1)) count++;
  return count / 2;  // it is the operation, and the call that it is in
}

// A value with its product by the weight beside it; their shapes and those of the gradients change with the rows.
PipelineComputation two_tensors_of(const at::Tensor& weight, const std::vector<int64_t>& rows, int failing) {
  PipelineComputation computation;
  computation.input = [rows](int micro_batch) {
    return c10::IValue(values(micro_batch, {rows[static_cast<size_t>(micro_batch)], kWidth}));
  };
  computation.forward = [weight, failing](int stage, int micro_batch, const c10::IValue& input) -> c10::IValue {
    require(stage != 0 || micro_batch != failing, Status::kShapeMismatch, "the rows are odd");
    if (stage == 0) return tree::new_list({input.toTensor() * weight, input.toTensor() + weight});
    const auto items = tree::sequence_items(input);
    return items[0].toTensor() * items[1].toTensor();
  };
  computation.loss = [](int, const c10::IValue& output) { return output.toTensor().sum(); };
  computation.weight = [](int) { return 1.0; };
  return computation;
}

// A value like those before it is its tensors alone; else what was posted for it is used up.
TEST(StageRunner, ValuesLikeTheFormerOnesAreNotAnnounced) {
  struct Case {
    std::vector<int64_t> rows;
    int failing;   // -1: none
    size_t sends;  // of the first rank, without those of the end of the step; 0: not asked
  };
  // One value is posted ahead, the first by no description: it has an announcement, a description and two tensors.
  const std::vector<Case> cases{
      {{4, 4, 4, 4, 4}, -1, 2 + 5 * 2},  //
      {{4, 4, 4, 4, 4}, -1, 5 * 2},     {{4, 5, 4, 5, 5}, -1, 0},     {{3, 4, 4, 3, 3}, -1, 0},
      {{3, 3, 3, 3, 3}, 1, 0},          {{3, 3, 3, 3, 3}, -1, 5 * 2}, {{9, 3, 3, 3, 3}, 0, 0},
      {{1, 2, 3, 4, 5}, -1, 0},         {{5, 4, 3, 2, 1}, -1, 0},     {{1, 1, 1, 1, 1}, -1, 5 * 2}};
  run_ranks(2, [&](const CommunicatorPtr& communicator) {
    const at::Tensor weight = at::ones({}, at::kDouble).requires_grad_();
    StageRunner runner(one_forward_one_backward_schedule(2, 5), communicator, c10::kCPU);
    for (const Case& each : cases) {
      const size_t before = count_sends(*communicator);
      double expected = 0;
      for (size_t i = 0; i < each.rows.size(); i++) {
        const at::Tensor input = values(static_cast<int>(i), {each.rows[i], kWidth});
        expected += (input * (input + 1)).sum().item<double>();
      }
      const PipelineComputation computation = two_tensors_of(weight, each.rows, each.failing);
      if (each.failing >= 0) {
        EXPECT_THROW(runner.run(computation), std::exception);
        continue;
      }
      EXPECT_NEAR(runner.run(computation), expected, 1e-9);
      if (communicator->rank() == 0 && each.sends > 0) {
        EXPECT_EQ(count_sends(*communicator) - before, each.sends);
      }
    }
  });
}

// Tensors are sent in the smaller dtype, and arrive in their own.
TEST(StageRunner, SendsSmallerNumbers) {
  const at::Tensor numbers = values(3, {4, 5});
  const c10::IValue value = tree::new_list({numbers.clone().requires_grad_(), numbers.gt(0), numbers.to(at::kHalf)});
  const ValueLayout layout(describe(value, at::kBFloat16));
  std::vector<at::Tensor> sent = layout.allocate(c10::kCPU);
  EXPECT_EQ(sent[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(sent[1].scalar_type(), at::kBool);
  EXPECT_EQ(sent[2].scalar_type(), at::kHalf);
  const std::vector<at::Tensor> tensors = tensors_of(value);
  for (size_t i = 0; i < tensors.size(); i++) sent[i].copy_(sent_form(tensors[i], at::kBFloat16));
  const std::vector<at::Tensor> received = tensors_of(layout.value_of(sent));
  EXPECT_TRUE(at::equal(received[0], numbers.to(at::kBFloat16).to(at::kDouble)));
  EXPECT_TRUE(received[0].requires_grad() && received[0].is_leaf());
  EXPECT_TRUE(at::equal(received[1], tensors[1]) && at::equal(received[2], tensors[2]));
}

TEST(StageRunner, StepsWithSmallerNumbersAreNear) {
  const std::vector<at::Tensor> inputs{values(1, {2, kWidth}), values(2, {2, kWidth})};
  const std::vector<double> shares{0.5, 0.5};
  const Step expected = step_of_one_process(2, inputs, shares);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat})
    run_ranks(2, [&](const CommunicatorPtr& communicator) {
      const std::vector<at::Tensor> weights = weights_of(2);
      StageRunner runner(one_forward_one_backward_schedule(2, 2), communicator, c10::kCPU, {dtype});
      PipelineComputation computation = computation_of(weights, inputs, shares);
      computation.forward = [&](int stage, int, const c10::IValue& input) {
        const at::Tensor given = input.toTensor();
        EXPECT_EQ(given.scalar_type(), at::kDouble);
        if (stage == 1) {
          EXPECT_TRUE(at::equal(given, given.to(dtype).to(at::kDouble)));
        }
        return c10::IValue(layer(given, weights[static_cast<size_t>(stage)]));
      };
      const double tolerance = dtype == at::kFloat ? 1e-6 : 1e-2;
      EXPECT_NEAR(runner.run(computation), expected.loss, tolerance);
      const auto own = static_cast<size_t>(communicator->rank());
      EXPECT_TRUE(at::allclose(weights[own].grad(), expected.gradients[own], tolerance, tolerance));
    });
}

// Two ranks have the same values, and their next stages are on another host: tensors pass in halves, but for small ones
// and such of an odd number of elements.
TEST(StageRunner, RanksSendTheirPartsToAnotherHost) {
  run_ranks(4, [](const CommunicatorPtr& all) {
    const CommunicatorPtr tensor = comm::split_group(*all, all->rank() / 2, all->rank());
    const CommunicatorPtr pipeline = comm::split_group(*all, all->rank() % 2, all->rank());
    const std::vector<at::Tensor> sent{values(1, {16, 8}), values(2, {9, 9}), values(3, {4})};
    for (const BoundaryDtype dtype : {BoundaryDtype(), BoundaryDtype(at::kFloat)}) {
      const at::Tensor weight = at::ones({}, at::kDouble).requires_grad_();
      StageRunner runner(gpipe_schedule(2, 3), pipeline, c10::kCPU, {dtype, SplitBoundary(tensor, {0, 0, 1, 1})});
      PipelineComputation computation = two_tensors_of(weight, {1, 1, 1}, /*failing=*/-1);
      computation.forward = [&](int stage, int micro_batch, const c10::IValue& input) -> c10::IValue {
        if (stage == 0) {
          std::vector<c10::IValue> outputs;
          for (const at::Tensor& each : sent) outputs.emplace_back(each * weight + micro_batch);
          return tree::new_list(std::move(outputs));
        }
        at::Tensor sum = at::zeros({}, at::kDouble);
        const std::vector<at::Tensor> received = tensors_of(input);
        for (size_t i = 0; i < sent.size(); i++) {
          EXPECT_TRUE(at::allclose(received[i], sent[i] + micro_batch, 1e-6, 1e-6));
          sum = sum + (received[i] * sent[i]).sum();
        }
        return sum;
      };
      runner.run(computation);
      if (pipeline->rank() == 1) continue;
      double expected = 0;
      for (const at::Tensor& each : sent) expected += 3 * each.square().sum().item<double>();
      EXPECT_NEAR(weight.grad().item<double>(), expected, 1e-4);
    }
  });
}

TEST(StageRunner, AValueThatCannotBeSent) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const std::vector<at::Tensor> weights = weights_of(2);
    const at::Tensor rows = values(1, {2, kWidth});
    StageRunner runner(gpipe_schedule(2, 2), communicator, c10::kCPU);
    PipelineComputation computation = computation_of(weights, {rows, rows}, {1, 1});
    computation.forward = [&](int stage, int, const c10::IValue& input) -> c10::IValue {
      if (stage == 1) return layer(input.toTensor(), weights[1]);
      return tree::new_list(std::vector<c10::IValue>(2000, layer(input.toTensor(), weights[0])));
    };
    std::string said;
    try {
      runner.run(computation);
    } catch (const Error& error) {
      said = error.what();
    }
    EXPECT_NE(said.find("a stage returns 2000 tensors; expected at most"), std::string::npos) << said;
  });
}

TEST(StageRunner, TheFormerStageDoesNotWaitForGradientsOfWeights) {
  std::atomic<bool> is_former_at_it{false};
  run_ranks(2, [&](const CommunicatorPtr& communicator) {
    const std::vector<at::Tensor> weights = weights_of(2);
    StageRunner runner(one_forward_one_backward_schedule(2, 1), communicator, c10::kCPU);
    const PipelineComputation good = computation_of(weights, {values(1, {2, kWidth})}, {1});
    PipelineComputation computation = good;
    computation.forward = [&](int stage, int micro_batch, const c10::IValue& input) {
      c10::IValue output = good.forward(stage, micro_batch, input);
      if (stage == 0) output.toTensor().register_hook([&](const at::Tensor&) { is_former_at_it = true; });
      return output;
    };
    weights[1].register_hook([&](const at::Tensor&) {
      for (int waited = 0; waited < 10000 && !is_former_at_it; waited++)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_TRUE(is_former_at_it);
    });
    runner.run(computation);
  });
}

// An output that no later stage uses has the gradient zero.
TEST(StageRunner, OutputsThatNobodyUses) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const std::vector<at::Tensor> weights = weights_of(3);
    StageRunner runner(gpipe_schedule(2, 2), communicator, c10::kCPU);
    const at::Tensor rows = values(1, {2, kWidth});
    PipelineComputation computation = computation_of(weights, {rows, rows}, {1, 1});
    computation.forward = [&](int stage, int, const c10::IValue& input) -> c10::IValue {
      if (stage == 1) return layer(tree::sequence_items(input)[0].toTensor(), weights[1]);
      return tree::new_list({layer(input.toTensor(), weights[0]), layer(input.toTensor(), weights[2])});
    };
    runner.run(computation);
    if (communicator->rank() == 0) {
      EXPECT_GT(weights[0].grad().abs().sum().item<double>(), 0);
      EXPECT_EQ(weights[2].grad().abs().sum().item<double>(), 0);
    }
  });
}

// Every rank gets the error, and the next step runs.
TEST(StageRunner, AnErrorOfOneStageIsTheErrorOfAll) {
  enum class Where { kForward, kLoss, kBackward };
  for (const Where where : {Where::kForward, Where::kLoss, Where::kBackward})
    for (const int failing : {0, 1, 2}) {
      if (where == Where::kLoss && failing != 2) continue;
      const std::string name = where == Where::kBackward ? "B1" : "F1";
      run_ranks(3, [&](const CommunicatorPtr& communicator) {
        const std::vector<at::Tensor> weights = weights_of(3);
        const at::Tensor rows = values(1, {2, kWidth});
        const PipelineComputation good = computation_of(weights, {rows, rows, rows, rows}, {1, 1, 1, 1});
        PipelineComputation bad = good;
        const auto breaks = [failing](int stage, int micro_batch) { return stage == failing && micro_batch == 1; };
        bad.forward = [&](int stage, int micro_batch, const c10::IValue& input) -> c10::IValue {
          const c10::IValue output = good.forward(stage, micro_batch, input);
          if (!breaks(stage, micro_batch)) return output;
          if (where == Where::kForward) throw Error(Status::kShapeMismatch, "the rows are odd");
          if (where == Where::kBackward)
            output.toTensor().register_hook([](const at::Tensor&) { throw std::runtime_error("the rows are odd"); });
          return output;
        };
        if (where == Where::kLoss)
          bad.loss = [&](int micro_batch, const c10::IValue& output) {
            return micro_batch == 1 ? output.toTensor() : good.loss(micro_batch, output);
          };
        StageRunner runner(one_forward_one_backward_schedule(3, 4), communicator, c10::kCPU);
        std::string said;
        try {
          runner.run(bad);
        } catch (const std::exception& error) {
          said = error.what();
        }
        if (communicator->rank() != failing) {
          EXPECT_EQ(said.find("rank " + std::to_string(failing) + " of the pipeline failed in " + name + ": "), 0)
              << said;
        }
        EXPECT_NE(said.find(where == Where::kLoss ? "the loss of a micro-batch has shape [2, 6]" : "the rows are odd"),
                  std::string::npos)
            << said;
        for (const at::Tensor& weight : weights) weight.mutable_grad() = at::Tensor();
        const Step expected = step_of_one_process(3, {rows, rows, rows, rows}, {1, 1, 1, 1});
        EXPECT_NEAR(runner.run(good), expected.loss, 1e-12);
        const auto own = static_cast<size_t>(communicator->rank());
        EXPECT_TRUE(at::allclose(weights[own].grad(), expected.gradients[own], 1e-10, 1e-12));
      });
    }
}

// Values of so many MiB between all stages, while one rank sleeps.
void expect_end(const PipelineSchedule& schedule, int64_t mebibytes, int sleeping) {
  const int64_t elements = mebibytes << 18;
  const int stages = schedule.shape.stages(), micro_batches = schedule.shape.micro_batches;
  run_ranks(schedule.shape.ranks, [&](const CommunicatorPtr& communicator) {
    const at::Tensor scale = at::ones({}, at::kFloat).requires_grad_();
    StageRunner runner(schedule, communicator, c10::kCPU);
    const bool is_late = communicator->rank() == sleeping;
    const PipelineComputation computation{[&](int) { return c10::IValue(at::ones({elements}, at::kFloat)); },
                                          [&](int, int, const c10::IValue& input) {
                                            if (is_late) std::this_thread::sleep_for(std::chrono::milliseconds(50));
                                            return c10::IValue(input.toTensor() * scale);
                                          },
                                          [](int, const c10::IValue& output) { return output.toTensor().mean(); },
                                          [](int) { return 1.0; }};
    EXPECT_NEAR(runner.run(computation), micro_batches, 1e-3);
    const double expected = static_cast<double>(micro_batches) * stages / schedule.shape.ranks;
    EXPECT_NEAR(scale.grad().item<double>(), expected, 1e-2 * expected);
  });
}

// Boundaries far above what is sent eagerly, one micro-batch, messages that cross, and a rank that sleeps.
TEST(StageRunner, NothingHangsWithLargeValuesAndLateRanks) {
  expect_end(one_forward_one_backward_schedule(2, 1), 256, 0);
  for (const int sleeping : {0, 1})
    for (const PipelineSchedule& schedule :
         {gpipe_schedule(2, 3), one_forward_one_backward_schedule(2, 4), interleaved_schedule(2, 4, 2),
          zero_bubble_schedule(2, 4), zero_bubble_v_schedule(2, 3)})
      expect_end(schedule, 4, sleeping);
  for (const int sleeping : {0, 2, 3}) expect_end(one_forward_one_backward_schedule(4, 1), 4, sleeping);
}

// Costs that are slept, so that what else the machine does matters little: the fastest of some steps.
TEST(StageRunner, StepsTakeWhatTheSimulatorSays) {
  constexpr int kMostSteps = 30;  // other programs delay some of them
  const auto sleep = [](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); };
  std::vector<PipelineSchedule> schedules = schedules_of(2, 4);
  schedules.push_back(one_forward_one_backward_schedule(3, 4));
  schedules.push_back(zero_bubble_schedule(3, 4));
  for (const PipelineSchedule& schedule : schedules) {
    const int stages = schedule.shape.stages();
    PipelineCosts costs;
    for (int stage = 0; stage < stages; stage++)
      costs.stages.push_back({0.030 + 0.010 * (stage % 2), 0.035, 0.025 + 0.008 * (stage % 3)});
    const double expected = simulate(schedule, costs).seconds;
    double fastest = 1e9;
    std::mutex mutex;
    run_ranks(schedule.shape.ranks, [&](const CommunicatorPtr& communicator) {
      const std::vector<at::Tensor> weights = weights_of(stages);
      for (int stage = 0; stage < stages; stage++)
        weights[static_cast<size_t>(stage)].register_hook(
            [&, stage](const at::Tensor&) { sleep(costs.stages[static_cast<size_t>(stage)].weight_backward); });
      const at::Tensor rows = values(1, {2, kWidth});
      PipelineComputation computation = computation_of(weights, {rows, rows, rows, rows}, {1, 1, 1, 1});
      // A whole backward sends behind its products, as the simulator takes it.
      const PipelineActions& actions = schedule.ranks[0];
      computation.defers_products = std::any_of(actions.begin(), actions.end(), [](const PipelineAction& action) {
        return action.kind == PipelineAction::Kind::kWeightBackward;
      });
      computation.forward = [&](int stage, int, const c10::IValue& input) -> c10::IValue {
        const StageCost& cost = costs.stages[static_cast<size_t>(stage)];
        sleep(cost.forward);
        const at::Tensor output = layer(input.toTensor(), weights[static_cast<size_t>(stage)]);
        output.register_hook([&](const at::Tensor&) { sleep(cost.input_backward); });
        return output;
      };
      StageRunner runner(schedule, communicator, c10::kCPU);
      for (int step = 0; step < kMostSteps; step++) {
        communicator->barrier();
        const auto begun = std::chrono::steady_clock::now();
        runner.run(computation);
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
        {
          const std::lock_guard<std::mutex> lock(mutex);
          fastest = std::min(fastest, taken.count());
        }
        communicator->barrier();
        bool is_close = false;
        {
          const std::lock_guard<std::mutex> lock(mutex);
          is_close = fastest < expected * 1.05;
        }
        if (communicator->any_rank(is_close)) break;
      }
    });
    EXPECT_NEAR(fastest / expected, 1, 0.05) << text_of(schedule, 0);
  }
}

}  // namespace stage_runner_test
}  // namespace accel::parallel
