// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "accelerator/parameters/prepared_parameters.hpp"
#include "base/error.hpp"
#include "expect_error.hpp"
#include "nn/module_walks.hpp"
#include "parallel/parameters/gradient_buckets.hpp"
#include "rank_threads.hpp"

namespace accel::parallel {
namespace parameters_test {

using tests::expect_error;
using tests::run_ranks;
using CommunicatorPointer = std::shared_ptr<comm::Communicator>;

// Enough for several buckets of `kSmallBuckets`, of two dtypes, with one parameter that does not train.
constexpr double kSmallBuckets = 0.001;

nn::ModulePtr make_parameters() {
  auto module = std::make_shared<nn::Module>("Parameters");
  module->add_parameter("a", at::ones({7, 31}));
  module->add_parameter("frozen", at::ones({3}), /*requires_grad=*/false);
  module->add_parameter("b", at::ones({5}, at::kDouble));
  module->add_parameter("c", at::ones({300}));
  module->add_parameter("d", at::tensor(1.5f));
  module->add_parameter("e", at::ones({0, 4}));
  return module;
}

constexpr size_t kTrainable = 5;

// What rank `rank` has of gradient `index` in a micro-batch.
at::Tensor share(const at::Tensor& like, size_t index, int rank, int step) {
  return at::arange(like.numel(), like.options()).view(like.sizes()) * (rank + 1) + static_cast<double>(index) + step;
}

at::Tensor mean_of_shares(const at::Tensor& like, size_t index, int size, int first_step, int steps) {
  at::Tensor sum = at::zeros_like(like);
  for (int step = first_step; step < first_step + steps; step++)
    for (int rank = 0; rank < size; rank++) sum += share(like, index, rank, step);
  return sum / (size * steps);
}

void expect_means(GradientBuckets& buckets, int size, int first_step, int steps) {
  for (size_t i = 0; i < buckets.size(); i++) {
    const at::Tensor& gradient = buckets.gradient(i);
    EXPECT_TRUE(at::allclose(gradient, mean_of_shares(gradient, i, size, first_step, steps), 1e-6)) << i;
  }
}

TEST(Parameters, GradientsBecomeTheirMeanInWhateverOrderTheyCome) {
  for (const int size : {1, 2, 3})
    run_ranks(size, [size](const CommunicatorPointer& communicator) {
      const auto module = make_parameters();
      if (communicator->rank() > 0) nn::find_tensor(*module, "a").detach().fill_(9);  // rank 0's values count
      GradientBuckets buckets(*module, communicator, kSmallBuckets);
      ASSERT_EQ(buckets.size(), kTrainable);
      EXPECT_TRUE(at::equal(nn::find_tensor(*module, "a").detach(), at::ones({7, 31})));
      for (int step = 0; step < 4; step++) {
        std::vector<size_t> order{0, 1, 2, 3, 4};
        std::rotate(order.begin(), order.begin() + (step + communicator->rank()) % 5, order.end());
        for (const size_t i : order) {
          const at::Tensor mine = share(buckets.gradient(i), i, communicator->rank(), step);
          if (step % 2 == 0) {
            buckets.ready(i, mine, 1.0);
          } else {
            at::Tensor memory = buckets.gradient(i);
            memory.copy_(mine);
            buckets.ready(i, {}, 1.0);
          }
        }
        buckets.synchronize(1.0);
        expect_means(buckets, size, step, 1);
      }
    });
}

TEST(Parameters, AreTheGradientsOfOptimizersAndStayWhereTheyAre) {
  run_ranks(1, [](const CommunicatorPointer& communicator) {
    const auto module = make_parameters();
    GradientBuckets buckets(*module, communicator, 25);
    const at::Tensor parameter = nn::find_tensor(*module, "c");
    EXPECT_TRUE(at::equal(parameter.grad(), at::zeros({300})));
    EXPECT_EQ(parameter.grad().data_ptr(), buckets.gradient(2).data_ptr());
    EXPECT_FALSE(nn::find_tensor(*module, "frozen").grad().defined());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buckets.gradient(3).data_ptr()) % 64, 0U);
    buckets.ready(2, at::ones({300}), std::nullopt);
    EXPECT_TRUE(at::equal(parameter.grad(), at::ones({300})));
  });
}

TEST(Parameters, AGroupOfMicroBatchesIsExchangedOnce) {
  constexpr int kSteps = 3;
  run_ranks(2, [](const CommunicatorPointer& communicator) {
    GradientBuckets buckets(*make_parameters(), communicator, /*bucket_cap_mb=*/25);
    // Those that were begun: that one has ended is recorded a moment after who waited for it goes on.
    const auto count_operations = [&] {
      uint64_t count = 0;
      while (communicator->flight_record()->find(count)) count++;
      return count;
    };
    const uint64_t before = count_operations();
    for (int group = 0; group < 2; group++) {
      for (int step = 0; step < kSteps; step++) {
        const GradientBuckets::Exchange exchange =
            step + 1 == kSteps ? GradientBuckets::Exchange(1.0 / kSteps) : std::nullopt;
        for (size_t i = 0; i < buckets.size(); i++)
          buckets.ready(i, share(buckets.gradient(i), i, communicator->rank(), group * kSteps + step), exchange);
        buckets.synchronize(exchange);
      }
      expect_means(buckets, 2, group * kSteps, kSteps);
    }
    EXPECT_EQ(count_operations() - before, 4U);  // two dtypes, two groups
  });
}

TEST(Parameters, ThreadsMayReportTogether) {
  run_ranks(2, [](const CommunicatorPointer& communicator) {
    GradientBuckets buckets(*make_parameters(), communicator, kSmallBuckets);
    for (int step = 0; step < 20; step++) {
      std::vector<std::thread> threads;
      for (size_t i = 0; i < buckets.size(); i++)
        threads.emplace_back(
            [&, i] { buckets.ready(i, share(buckets.gradient(i), i, communicator->rank(), step), 1.0); });
      for (std::thread& thread : threads) thread.join();
      buckets.synchronize(1.0);
      expect_means(buckets, 2, step, 1);
    }
  });
}

TEST(Parameters, SynchronizingGoesOnInTheBackground) {
  run_ranks(2, [](const CommunicatorPointer& communicator) {
    const auto gradient_state = std::make_shared<state::GradientState>(state::AccumulationSettings{2});
    accelerator::PreparedParameters parameters(
        {nullptr, std::make_shared<GradientBuckets>(*make_parameters(), communicator, kSmallBuckets)}, {}, communicator,
        gradient_state, std::make_shared<state::AccumulationWindow>());
    for (int step = 0; step < 4; step++) {
      gradient_state->begin_micro_batch();
      for (size_t i = 0; i < kTrainable; i++)
        parameters.grad_ready(i, share(parameters.gradients().gradient(i), i, communicator->rank(), step));
      const auto work = parameters.start_synchronize();
      ASSERT_TRUE(work->wait(std::chrono::seconds(60)));
      work->result();
      if (!gradient_state->sync_gradients()) continue;
      for (size_t i = 0; i < kTrainable; i++) {
        const at::Tensor& gradient = parameters.gradients().gradient(i);
        EXPECT_TRUE(at::allclose(gradient, mean_of_shares(gradient, i, 2, step - 1, 2), 1e-6)) << i;
      }
    }
  });
}

TEST(Parameters, MistakesAreNamedAndLoseNothing) {
  run_ranks(1, [](const CommunicatorPointer& communicator) {
    GradientBuckets buckets(*make_parameters(), communicator, 25);
    buckets.ready(0, at::ones({7, 31}), 1.0);
    expect_error(
        Status::kInvalidState,
        "the gradient of 'a' is ready already in this micro-batch; call accel_parameters_synchronize() at its end",
        [&] { buckets.ready(0, {}, 1.0); });
    expect_error(Status::kShapeMismatch, "the gradient of 'b' has shape [6]; expected [5]",
                 [&] { buckets.ready(1, at::ones({6}), 1.0); });
    expect_error(Status::kInvalidArgument, "index is 5; expected 0 to 4, a trainable parameter of the module",
                 [&] { buckets.ready(5, {}, 1.0); });
    buckets.ready(3, {}, 1.0);
    buckets.ready(4, {}, 1.0);
    expect_error(Status::kInvalidState,
                 "gradients are not ready: 'b', 'c'; expected accel_parameters_grad_ready() for each parameter in each "
                 "micro-batch",
                 [&] { buckets.synchronize(1.0); });
    buckets.ready(1, at::full({5}, 2, at::kDouble), 1.0);
    buckets.ready(2, at::ones({300}), 1.0);
    buckets.synchronize(1.0);
    EXPECT_TRUE(at::equal(buckets.gradient(0), at::ones({7, 31})));
    EXPECT_TRUE(at::equal(buckets.gradient(1), at::full({5}, 2, at::kDouble)));

    nn::Module frozen("Frozen");
    frozen.add_parameter("a", at::ones({2}), /*requires_grad=*/false);
    expect_error(Status::kInvalidArgument, "", [&] { GradientBuckets none(frozen, communicator, 25); });
    expect_error(Status::kInvalidArgument, "", [&] { GradientBuckets none(*make_parameters(), communicator, 0); });
  });
}

TEST(Parameters, RanksWithOtherParametersHearOfIt) {
  const auto messages = tests::messages_of(2, std::chrono::seconds(60), [](comm::Communicator& communicator) {
    const auto module = make_parameters();
    if (communicator.rank() == 1) module->add_parameter("more", at::ones({1}));
    // The communicator outlives the buckets: they fail before they are made.
    GradientBuckets buckets(*module, CommunicatorPointer(CommunicatorPointer(), &communicator), 25);
  });
  for (const std::string& message : messages)
    EXPECT_NE(message.find("tensor 6 is nothing on rank 0 and parameter more Float[1] on rank 1"), std::string::npos)
        << message;
}

}  // namespace parameters_test
}  // namespace accel::parallel
