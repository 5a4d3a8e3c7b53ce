// SPDX-License-Identifier: Apache-2.0
// The hooks that exchange gradients. What is compared with torch's was recorded by fixtures/make_comm_hook_fixtures.py.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <fstream>
#include <iterator>
#include <mutex>

#include "base/error.hpp"
#include "nn/callback_module.hpp"
#include "nn_fixture.hpp"
#include "parallel/ddp/distributed_data_parallel.hpp"
#include "parallel/ddp/make_comm_hook.hpp"
#include "rank_threads.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace gradient_hooks_test {

using tests::pattern_tensor;
using tests::run_ranks;
using Shapes = std::vector<std::vector<int64_t>>;

// Whose gradients are the inputs themselves.
nn::ModulePtr make_model(const Shapes& shapes) {
  auto model = std::make_shared<nn::CallbackModule>("Weights");
  for (size_t i = 0; i < shapes.size(); i++) model->add_parameter("w" + std::to_string(i), at::zeros(shapes[i]), true);
  model->set_forward([](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
    at::Tensor sum = at::zeros({});
    for (size_t i = 0; i < inputs.size(); i++) sum = sum + (module.parameter(i) * inputs[i].toTensor()).sum();
    return sum;
  });
  return model;
}

nn::Inputs gradients_of(const Shapes& shapes, int step, int rank) {
  nn::Inputs gradients;
  for (size_t p = 0; p < shapes.size(); p++)
    gradients.emplace_back(pattern_tensor(shapes[p], 7 * step + 3 * rank + static_cast<int>(p)));
  return gradients;
}

std::vector<at::Tensor> flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.reshape(-1));
  return result;
}

// The gradients of all parameters after a backward with those of this rank.
at::Tensor exchanged(DistributedDataParallel& ddp, const Shapes& shapes, int step, int rank) {
  for (const at::Tensor& parameter : ddp.parameters())
    if (parameter.grad().defined()) parameter.mutable_grad().zero_();
  torch::autograd::backward({ddp.call(gradients_of(shapes, step, rank)).toTensor()}, {});
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : ddp.parameters()) gradients.push_back(parameter.grad());
  return at::cat(flat(gradients)).clone();
}

at::Tensor exact_mean(const Shapes& shapes, int step, int ranks) {
  at::Tensor sum;
  for (int rank = 0; rank < ranks; rank++) {
    std::vector<at::Tensor> gradients;
    for (const auto& gradient : gradients_of(shapes, step, rank)) gradients.push_back(gradient.toTensor());
    const at::Tensor own = at::cat(flat(gradients));
    sum = sum.defined() ? sum + own : own;
  }
  return sum / ranks;
}

const Shapes& mixed_shapes() {
  static const Shapes* const shapes = new Shapes{{6, 5}, {6, 5}, {3}, {4, 2, 3}, {8, 3}};
  return *shapes;
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

// --- As torch -------------------------------------------------------------------------------------------------------

DdpSettings settings_of(const c10::impl::GenericDict& recorded) {
  static constexpr std::array<const char*, 5> kNames = {"no", "fp16", "bf16", "power_sgd", "batched_power_sgd"};
  const auto named = [&](const std::string& name) {
    return static_cast<DdpCommHook>(std::find(kNames.begin(), kNames.end(), name) - kNames.begin());
  };
  DdpSettings settings;
  settings.comm_hook = named(recorded.at("hook").toStringRef());
  if (recorded.contains("wrapper")) settings.comm_wrapper = named(recorded.at("wrapper").toStringRef());
  if (!recorded.contains("state")) return settings;
  PowerSgdSettings& power = settings.comm_state_option;
  for (const auto& entry : recorded.at("state").toGenericDict()) {
    const std::string& key = entry.key().toStringRef();
    const c10::IValue& value = entry.value();
    if (key == "matrix_approximation_rank")
      power.matrix_approximation_rank = value.toInt();
    else if (key == "start_powerSGD_iter")
      power.start_power_sgd_iter = value.toInt();
    else if (key == "min_compression_rate")
      power.min_compression_rate = value.toScalar().toDouble();
    else if (key == "orthogonalization_epsilon")
      power.orthogonalization_epsilon = value.toDouble();
    else if (key == "random_seed")
      power.random_seed = value.toInt();
    else if (key == "warm_start")
      power.warm_start = value.toBool();
    else if (key == "use_error_feedback")
      power.use_error_feedback = value.toBool();
    else if (key == "batch_tensors_with_same_shape")
      power.batch_tensors_with_same_shape = value.toBool();
    else
      ADD_FAILURE() << key;
  }
  return settings;
}

TEST(GradientHookAsTorch, LeavesTheSameGradients) {
  const std::string path = tests::fixture_path("comm_hooks.json");
  std::ifstream file(path, std::ios::binary);
  const auto document =
      tree::from_json({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}, path).toGenericDict();
  const int ranks = static_cast<int>(document.at("ranks").toInt());
  for (const c10::IValue& entry : document.at("cases").toListRef()) {
    const auto recorded = entry.toGenericDict();
    const DdpSettings settings = settings_of(recorded);
    const bool half = settings.comm_wrapper != DdpCommHook::kNo || settings.comm_hook < DdpCommHook::kPowerSgd;
    const c10::IValue steps = recorded.at("gradients");
    run_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& communicator) {
      DistributedDataParallel ddp(make_model(mixed_shapes()), communicator, settings);
      for (size_t step = 0; step < steps.toListRef().size(); step++) {
        std::vector<double> expected;
        for (const auto& value : steps.toListRef()[step].toListRef()) expected.push_back(value.toScalar().toDouble());
        const at::Tensor gradients = exchanged(ddp, mixed_shapes(), static_cast<int>(step), communicator->rank());
        EXPECT_LE(largest_difference(gradients.to(at::kDouble), at::tensor(expected, at::kDouble)), half ? 4e-3 : 1e-5)
            << recorded.at("hook").toStringRef() << " step " << step << " rank " << communicator->rank();
      }
    });
  }
}

// --- Against the exact mean -----------------------------------------------------------------------------------------

TEST(GradientHook, RoundedGradientsAreTheMeanButForTheirRounding) {
  for (const auto& [hook, precision] : std::vector<std::pair<DdpCommHook, double>>{
           {DdpCommHook::kNo, 1e-7}, {DdpCommHook::kFp16, 1e-3}, {DdpCommHook::kBf16, 8e-3}})
    for (const int ranks : {2, 3})
      for (const double cap : {25.0, 0.0001}) {  // one bucket, or several
        run_ranks(ranks, [&, hook = hook, precision = precision](const auto& communicator) {
          DdpSettings options;
          options.bucket_cap_mb = cap;
          options.comm_hook = hook;
          DistributedDataParallel ddp(make_model(mixed_shapes()), communicator, options);
          for (int step = 0; step < 3; step++) {
            const at::Tensor mean = exact_mean(mixed_shapes(), step, ranks);
            const double difference =
                largest_difference(exchanged(ddp, mixed_shapes(), step, communicator->rank()), mean);
            EXPECT_LE(difference, precision * mean.abs().max().item<double>()) << "step " << step;
            EXPECT_EQ(difference > 1e-7, hook != DdpCommHook::kNo);
          }
        });
      }
}

// What a step loses comes back later: over many steps the sum of the compressed gradients is near that of the means.
TEST(GradientHook, PowerSgdLosesNothingForEver) {
  for (const DdpCommHook hook : {DdpCommHook::kPowerSgd, DdpCommHook::kBatchedPowerSgd})
    for (const double cap : {25.0, 0.0001}) {
      run_ranks(3, [&](const std::shared_ptr<comm::Communicator>& communicator) {
        DdpSettings options;
        options.bucket_cap_mb = cap;
        options.comm_hook = hook;
        options.comm_state_option.start_power_sgd_iter = 2;
        options.comm_state_option.min_compression_rate = 1;
        DistributedDataParallel ddp(make_model(mixed_shapes()), communicator, options);
        at::Tensor sum, sum_of_means;
        constexpr int kSteps = 60;
        for (int step = 0; step < kSteps; step++) {
          const int same = 1;  // a gradient that does not change: the approximation can catch up with it
          const at::Tensor gradients = exchanged(ddp, mixed_shapes(), same, communicator->rank());
          at::Tensor others = gradients.clone();
          communicator->all_reduce(others, comm::ReduceOp::kMean);
          EXPECT_LE(largest_difference(others, gradients), 1e-6) << "step " << step;  // all ranks have the same
          const at::Tensor mean = exact_mean(mixed_shapes(), same, 3);
          EXPECT_LE(largest_difference(gradients, mean), step < 2 ? 1e-6 : 1.0) << "step " << step;
          sum = step == 0 ? gradients : sum + gradients;
          sum_of_means = step == 0 ? mean : sum_of_means + mean;
        }
        EXPECT_LE(((sum - sum_of_means) / kSteps).norm().item<double>(),
                  0.15 * (sum_of_means / kSteps).norm().item<double>());
      });
    }
}

TEST(GradientHook, PowerSgdIsExactForWhatHasLowRank) {
  const Shapes shapes{{12, 9}, {7}};
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    DdpSettings options;
    options.comm_hook = DdpCommHook::kPowerSgd;
    options.comm_state_option.start_power_sgd_iter = 0;
    options.comm_state_option.use_error_feedback = false;
    options.comm_state_option.warm_start = false;
    const auto model = make_model(shapes);
    DistributedDataParallel ddp(model, communicator, options);
    const double mine = communicator->rank() + 1;
    const at::Tensor direction = at::outer(pattern_tensor({12}, 3), pattern_tensor({9}, 5));
    for (int step = 0; step < 3; step++) {
      for (const at::Tensor& parameter : model->parameters())
        if (parameter.grad().defined()) parameter.mutable_grad().zero_();
      torch::autograd::backward({ddp.call(nn::Inputs{direction * mine, at::full({7}, mine)}).toTensor()}, {});
      EXPECT_LE(largest_difference(model->parameters()[0].grad(), direction * 1.5), 1e-6);
      EXPECT_LE(largest_difference(model->parameters()[1].grad(), at::full({7}, 1.5)), 1e-6);
    }
  });
}

TEST(GradientHook, PowerSgdSendsLess) {
  const Shapes shapes{{64, 48}, {32, 64}};
  int64_t bytes = 0;
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    DdpSettings options;
    options.comm_hook = DdpCommHook::kPowerSgd;
    options.comm_state_option.start_power_sgd_iter = 2;
    DistributedDataParallel ddp(make_model(shapes), communicator, options);
    for (int step = 0; step < 2; step++) exchanged(ddp, shapes, step, communicator->rank());
    communicator->barrier();
    const auto& record = *communicator->flight_record();
    uint64_t number = 0;
    while (record.find(number)) number++;
    exchanged(ddp, shapes, 2, communicator->rank());
    if (communicator->rank() != 0) return;
    for (; const auto entry = record.find(number); number++)
      if (entry->operation == std::string("all_reduce")) bytes += entry->bytes;
  });
  EXPECT_EQ(bytes, static_cast<int64_t>(sizeof(float)) * ((64 + 48) + (32 + 64)));
}

// --- The program's own ----------------------------------------------------------------------------------------------

TEST(GradientHookOfTheProgram, SeesEveryBucketAndDecidesWhatIsThere) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    DdpSettings options;
    options.bucket_cap_mb = 0.0001;
    DistributedDataParallel ddp(make_model(mixed_shapes()), communicator, options);
    std::vector<int64_t> buckets;
    int last = 0;
    ddp.set_comm_hook(make_comm_hook([&](const at::Tensor& buffer, int64_t bucket, bool is_last) {
      buckets.push_back(bucket);
      last += is_last ? 1 : 0;
      communicator->all_reduce(buffer, comm::ReduceOp::kMax);
    }));
    for (int step = 0; step < 3; step++) {
      buckets.clear();
      const at::Tensor gradients = exchanged(ddp, mixed_shapes(), step, communicator->rank());
      std::vector<at::Tensor> mine, theirs;
      for (const auto& gradient : gradients_of(mixed_shapes(), step, 0)) mine.push_back(gradient.toTensor());
      for (const auto& gradient : gradients_of(mixed_shapes(), step, 1)) theirs.push_back(gradient.toTensor());
      EXPECT_TRUE(at::equal(gradients, at::maximum(at::cat(flat(mine)), at::cat(flat(theirs)))));
      ASSERT_GT(buckets.size(), 1u);
      for (size_t i = 0; i < buckets.size(); i++) EXPECT_EQ(buckets[i], static_cast<int64_t>(i));
    }
    EXPECT_EQ(last, 3);
  });
}

TEST(GradientHookOfTheProgram, ItsFailureComesOutOfBackwardAndTheModelGoesOn) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    DistributedDataParallel ddp(make_model(mixed_shapes()), communicator, {});
    exchanged(ddp, mixed_shapes(), 0, communicator->rank());
    const CommHookPtr averaging = ddp.set_comm_hook(
        make_comm_hook([](const at::Tensor&, int64_t, bool) { fail(Status::kIo, "the wire is cut"); }));
    try {
      exchanged(ddp, mixed_shapes(), 1, communicator->rank());
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.message(), "the wire is cut");
      EXPECT_EQ(error.status(), Status::kIo);
    }
    ddp.set_comm_hook(averaging);
    for (int step = 2; step < 5; step++)
      EXPECT_LE(largest_difference(exchanged(ddp, mixed_shapes(), step, communicator->rank()),
                                   exact_mean(mixed_shapes(), step, 2)),
                1e-6);
  });
}

TEST(GradientHook, BadSettingsAreRefused) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    const auto refused = [&](const char* part, const std::function<void(DdpSettings&)>& spoil) {
      DdpSettings options;
      options.comm_hook = DdpCommHook::kPowerSgd;
      spoil(options);
      tests::expect_error(Status::kInvalidArgument, part,
                          [&] { DistributedDataParallel ddp(make_model(mixed_shapes()), communicator, options); });
    };
    refused("matrix_approximation_rank is 0", [](auto& hook) { hook.comm_state_option.matrix_approximation_rank = 0; });
    refused("start_power_sgd_iter is 1", [](auto& hook) { hook.comm_state_option.start_power_sgd_iter = 1; });
    refused("min_compression_rate is 0", [](auto& hook) { hook.comm_state_option.min_compression_rate = 0; });
    refused("random_seed is -1", [](auto& hook) { hook.comm_state_option.random_seed = -1; });
    refused("comm_wrapper is a PowerSGD hook", [](auto& hook) { hook.comm_wrapper = DdpCommHook::kPowerSgd; });
  });
}

}  // namespace gradient_hooks_test
}  // namespace accel::parallel
