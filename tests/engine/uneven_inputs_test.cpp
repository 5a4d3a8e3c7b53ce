// SPDX-License-Identifier: Apache-2.0
// Ranks with different numbers of batches, and batch sizes that do not fit on every rank.
#include "accelerator/join_uneven_inputs.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <mutex>

#include "accel.h"
#include "accelerator/batch_size_search.hpp"
#include "accelerator/prepared_model.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "accelerator_ranks.hpp"
#include "base/error.hpp"
#include "capi/calls/handles.hpp"
#include "comm/collective_error.hpp"
#include "config/generated/settings/prepare/dataloader_config.hpp"
#include "config/generated/settings/state/state.hpp"
#include "data/datasets/tensor_dataset.hpp"
#include "data/prepared_dataloader.hpp"
#include "data/sampler.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace uneven_inputs_test {

using tests::AcceleratorPtr;
using tests::run_accelerators;

// Two layers of weights and a buffer that counts forwards.
nn::ModulePtr make_model() {
  auto model = std::make_shared<nn::CallbackModule>("Two");
  model->add_parameter("first", at::full({4, 2}, 0.2));
  model->add_parameter("second", at::full({1, 4}, 0.1));
  model->add_buffer("calls", at::zeros({1}));
  model->set_forward([](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
    nn::find_tensor(module, "calls").add_(1);
    return at::linear(at::tanh(at::linear(inputs[0].toTensor(), nn::find_tensor(module, "first"))),
                      nn::find_tensor(module, "second"));
  });
  return model;
}

std::shared_ptr<optim::Optimizer> momentum(const nn::ModulePtr& model) {
  accel_sgd_options_t options = ACCEL_SGD_OPTIONS_INIT;
  options.lr = 0.1;
  options.momentum = 0.9;
  accel_optimizer_t* made = nullptr;
  const auto module = std::make_unique<accel_module>(model);
  EXPECT_EQ(accel_optimizer_sgd(module.get(), &options, &made), ACCEL_OK);
  auto optimizer = made->optimizer;
  accel_optimizer_release(made);
  return optimizer;
}

at::Tensor input_of(int rank, int step) { return at::full({3, 2}, 0.1 * (1 + rank) + 0.3 * step); }

// What the ranks with inputs left compute, divided by the number of all ranks. Rank r has r + more inputs.
at::Tensor expected_first(int size, int more) {
  const nn::ModulePtr model = make_model();
  const auto optimizer = momentum(model);
  for (int step = 0; step < size - 1 + more; step++) {
    for (int rank = 0; rank < size; rank++)
      if (step < rank + more)
        (model->call(nn::Inputs{input_of(rank, step)}).toTensor().square().mean() / size).backward();
    optimizer->step();
    optimizer->zero_grad(/*set_to_none=*/true);
  }
  return nn::find_tensor(*model, "first").detach().clone();
}

// In a second round only the first rank has an input.
void expect_training_with_those_that_are_left(bool find_unused, int more, double bucket_cap_mb) {
  constexpr int kRanks = 3;
  std::vector<at::Tensor> first(kRanks), after_second(kRanks);
  std::vector<double> calls(kRanks);
  run_accelerators(kRanks, {}, [&](const AcceleratorPtr& accelerator) {
    const int rank = accelerator->state().process_index();
    const nn::ModulePtr inner = make_model();
    const auto plain = momentum(inner);
    DdpSettings options;
    options.find_unused_parameters = find_unused;
    options.bucket_cap_mb = bucket_cap_mb;
    const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, tests::prepared_by(options));
    const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
    const auto train = [&](int steps) {
      JoinedInputs joined(accelerator, {model}, std::nullopt);
      for (int step = 0; step < steps; step++) {
        accelerator->backward().run(model->call(nn::Inputs{input_of(rank, step)}).toTensor().square().mean());
        optimizer->step();
        optimizer->zero_grad(/*set_to_none=*/true);
      }
      joined.finish();
    };
    train(rank + more);
    first[rank] = nn::find_tensor(*inner, "first").detach().clone();
    calls[rank] = nn::find_tensor(*inner, "calls").item<double>();
    train(rank == 0 ? 1 : 0);
    after_second[rank] = nn::find_tensor(*inner, "first").detach().clone();
  });
  for (int rank = 0; rank < kRanks; rank++) {
    EXPECT_TRUE(at::allclose(first[rank], expected_first(kRanks, more), 1e-6, 1e-7)) << "rank " << rank;
    EXPECT_TRUE(at::equal(first[rank], first[0]));
    EXPECT_TRUE(at::equal(after_second[rank], after_second[0]));
    EXPECT_EQ(calls[rank], kRanks - 1 + more);
  }
  EXPECT_FALSE(at::equal(first[0], after_second[0]));
}

TEST(UnevenInputsJoin, TrainsWithThoseThatAreLeft) {
  for (const bool find_unused : {false, true})
    for (const int more : {0, 1})
      for (const double bucket_cap_mb : {25.0, 0.00001})
        expect_training_with_those_that_are_left(find_unused, more, bucket_cap_mb);
}

// A rank without inputs hands on what its error feedback still holds, as one whose loss is 0 does.
TEST(UnevenInputsJoin, PowerSgdTakesRanksWithoutInputsAsGradientsOfZero) {
  for (const int ranks : {2, 3})
    for (const DdpCommHook hook : {DdpCommHook::kPowerSgd, DdpCommHook::kBatchedPowerSgd})
      for (const double bucket_cap_mb : {25.0, 0.00001}) {
        const int steps = ranks + 4;
        std::vector<at::Tensor> weights(2 * ranks);
        for (const bool joins : {false, true})
          run_accelerators(ranks, {}, [&](const AcceleratorPtr& accelerator) {
            const int rank = accelerator->state().process_index();
            const nn::ModulePtr inner = make_model();
            const auto plain = momentum(inner);
            DdpSettings options;
            options.bucket_cap_mb = bucket_cap_mb;
            options.comm_hook = hook;
            options.comm_state_option.start_power_sgd_iter = 2;
            options.comm_state_option.min_compression_rate = 0.1;
            const nn::ModulePtr model = accelerator->preparation().prepare_model(inner, tests::prepared_by(options));
            const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
            std::optional<JoinedInputs> joined;
            if (joins) joined.emplace(accelerator, std::vector<nn::ModulePtr>{model}, std::nullopt);
            const int own_steps = 5 + rank;
            for (int step = 0; step < (joins ? own_steps : steps); step++) {
              const double weight = step < own_steps ? 1 : 0;
              const at::Tensor output = model->call(nn::Inputs{input_of(rank, step)}).toTensor();
              accelerator->backward().run(output.square().mean() * weight);
              optimizer->step();
              optimizer->zero_grad(/*set_to_none=*/true);
            }
            if (joined) joined->finish();
            weights[2 * rank + (joins ? 1 : 0)] = nn::find_tensor(*inner, "first").detach().clone();
          });
        for (int rank = 0; rank < ranks; rank++) {
          EXPECT_TRUE(at::equal(weights[2 * rank], weights[2 * rank + 1])) << "rank " << rank << " of " << ranks;
          EXPECT_TRUE(at::equal(weights[2 * rank], weights[0]));
        }
      }
}

TEST(UnevenInputsJoin, NeedsTheSameExchangesOnAllRanks) {
  StateSettings options;
  options.gradient_accumulation_steps = 2;
  std::mutex lock;
  int refused = 0;
  run_accelerators(2, options, [&](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr model = accelerator->preparation().prepare_model(make_model());
    JoinedInputs joined(accelerator, {model}, std::nullopt);
    const MicroBatch micro_batch(accelerator, {model});
    accelerator->state().gradient_state()->set_sync_gradients(true);
    std::optional<NoSyncGuard> exchanges_here;
    parallel_model_of(model)->set_gradient_sync(accelerator->state().process_index() == 0);
    try {
      model->call(nn::Inputs{input_of(0, 0)});
    } catch (const Error& error) {
      const std::lock_guard<std::mutex> guard(lock);
      EXPECT_EQ(error.status(), Status::kCollectiveMismatch);
      EXPECT_NE(error.message().find("rank 0 exchanges gradients in this micro-batch and rank 1 does not"),
                std::string::npos)
          << error.message();
      refused++;
    }
  });
  EXPECT_EQ(refused, 2);
}

// Loaders follow the scope's choice in the epochs that begin inside.
TEST(UnevenInputsJoin, ChangesTheEvennessOfLoadersMeanwhile) {
  run_accelerators(2, {}, [](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr model = accelerator->preparation().prepare_model(make_model());
    const data::DataLoader plain(std::make_shared<data::TensorDataset>(std::vector<at::Tensor>{at::ones({3, 2})}),
                                 std::make_shared<data::SequentialSampler>(3), data::LoaderOptions{});
    const auto loader = accelerator->preparation().prepare_data_loader(plain, {});
    const int rank = accelerator->state().process_index();
    EXPECT_EQ(loader->length(), 2);
    {
      JoinedInputs joined(accelerator, {model}, false);
      EXPECT_EQ(loader->length(), 2 - rank);
      while (const auto batch = loader->next())
        accelerator->backward().run(model->call(nn::Inputs{batch->toListRef()[0]}).toTensor().sum());
      joined.finish();
    }
    EXPECT_EQ(loader->length(), 2);
    JoinedInputs unchanged(accelerator, {model}, std::nullopt);  // even: nothing to join
    if (rank == 0) return;
    unchanged.finish();
  });
}

// One rank runs out of memory while the others wait for it in a collective.
TEST(UnevenInputsBatchSize, IsAgreedOnByAllRanks) {
  run_accelerators(3, {}, [](const AcceleratorPtr& accelerator) {
    comm::Communicator& communicator = *accelerator->state().communicator();
    std::vector<int64_t> tried;
    std::vector<std::string> reasons;
    BatchSizeSearch search;
    search.release_memory = [&] { accelerator->release_cached_memory(); };
    search.attempt = [&](int64_t size) -> Attempt {
      tried.push_back(size);
      if (communicator.rank() == 1 && size > 80) return {AttemptResult::kOutOfMemory, "full here"};
      at::Tensor numbers = at::ones({4});
      try {
        for (int i = 0; i < 3; i++) communicator.all_reduce(numbers, comm::ReduceOp::kSum);
      } catch (const comm::CollectiveError& error) {
        EXPECT_EQ(error.failure(), comm::CollectiveFailure::kMismatch);
        return {AttemptResult::kInterrupted, error.what()};
      }
      return {};
    };
    search.reduce = [&](int64_t, int64_t proposed, const std::string& reason) {
      reasons.push_back(reason);
      return proposed;
    };
    EXPECT_EQ(find_executable_batch_size(communicator, search, 100 + communicator.rank()), 72);
    EXPECT_EQ(tried, (std::vector<int64_t>{100, 90, 81, 72}));
    EXPECT_EQ(reasons.size(), 3u);
    for (const std::string& reason : reasons)
      EXPECT_EQ(reason, communicator.rank() == 1 ? "full here" : "another rank ran out of memory");
  });
}

// The same in the middle of a training step, with a model that each attempt makes anew.
TEST(UnevenInputsBatchSize, RecoversFromAStepThatOneRankDidNotTake) {
  run_accelerators(2, {}, [](const AcceleratorPtr& accelerator) {
    comm::Communicator& communicator = *accelerator->state().communicator();
    BatchSizeSearch search;
    search.release_memory = [&] { accelerator->release_cached_memory(); };
    search.attempt = [&](int64_t size) -> Attempt {
      accelerator->free_memory();
      const nn::ModulePtr model = accelerator->preparation().prepare_model(make_model());
      if (communicator.rank() == 1 && size > 8) return {AttemptResult::kOutOfMemory, "full"};
      try {
        for (int step = 0; step < 3; step++)
          accelerator->backward().run(model->call(nn::Inputs{at::ones({size, 2})}).toTensor().mean());
      } catch (const comm::CollectiveError& error) {
        EXPECT_EQ(error.failure(), comm::CollectiveFailure::kMismatch);
        return {AttemptResult::kInterrupted, error.what()};
      }
      return {};
    };
    EXPECT_EQ(find_executable_batch_size(communicator, search, 10), 8);
  });
}

TEST(UnevenInputsBatchSize, EndsWithTheErrorOfOneRank) {
  run_accelerators(2, {}, [](const AcceleratorPtr& accelerator) {
    comm::Communicator& communicator = *accelerator->state().communicator();
    BatchSizeSearch search;
    search.release_memory = [] {};
    search.attempt = [&](int64_t) -> Attempt {
      require(communicator.rank() == 0, Status::kShapeMismatch, "of rank 1");
      return {};
    };
    try {
      find_executable_batch_size(communicator, search, 8);
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), communicator.rank() == 0 ? Status::kCancelled : Status::kShapeMismatch);
    }
    search.attempt = [](int64_t) -> Attempt { return {AttemptResult::kOutOfMemory, "full"}; };
    search.reduce = [&](int64_t size, int64_t, const std::string&) { return size + communicator.rank() - 1; };
    try {
      find_executable_batch_size(communicator, search, 8);
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kInvalidArgument) << error.message();
    }
  });
}

// What LibTorch's own allocator says.
TEST(UnevenInputsBatchSize, ShrinksAfterARealFailure) {
  comm::BackendCommunicator alone;
  BatchSizeSearch search;
  search.release_memory = [] {};
  search.attempt = [](int64_t size) -> Attempt {
    try {
      at::empty({size, int64_t{1} << 40});
      return {};
    } catch (const c10::Error& error) {
      const std::string message = error.what_without_backtrace();
      if (is_out_of_memory(Status::kTorch, message)) return {AttemptResult::kOutOfMemory, message};
      throw;
    }
  };
  search.reduce = [](int64_t size, int64_t, const std::string& reason) {
    EXPECT_NE(reason.find("can't allocate memory"), std::string::npos) << reason;
    return size / 2;
  };
  try {
    find_executable_batch_size(alone, search, 1 << 16);
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kOutOfMemory);
    EXPECT_NE(error.message().find("down to 0 from 65536"), std::string::npos) << error.message();
  }
}

}  // namespace uneven_inputs_test
}  // namespace accel::accelerator
