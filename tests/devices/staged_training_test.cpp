// SPDX-License-Identifier: Apache-2.0
// Data parallelism on a device whose collectives are staged: ranks are threads, each on its device. Equals the same
// training on the CPU.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "accelerator/batch_size_search.hpp"
#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "config/generated/choices/ddp_comm_hook.hpp"
#include "config/generated/settings/prepare/ddp.hpp"
#include "config/generated/settings/training_loop/local_sgd.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"
#include "parallel/ddp/distributed_data_parallel.hpp"
#include "parallel/localsgd/local_sgd.hpp"
#include "parallel/parameters/gradient_buckets.hpp"
#include "parallel/uneven_inputs.hpp"
#include "rank_threads.hpp"
#include "staged_ranks.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace staged_training_test {

using tests::Tensors;

class StagedTraining : public tests::StagedRanks {};

nn::ModulePtr make_model(c10::Device place, int64_t width = 40) {
  const auto generator = at::detail::createCPUGenerator(1);
  auto model = std::make_shared<nn::CallbackModule>("TwoLayers");
  const auto add = [&](const char* name, at::IntArrayRef shape) {
    model->add_parameter(name, (at::randn(shape, generator, at::kFloat) * 0.3).to(place), true);
  };
  add("first", {5, width});
  add("first_bias", {width});
  add("second", {width, 1});
  add("second_bias", {1});
  add("spare", {5, width});
  model->add_buffer("seen", at::zeros({3}, place));
  model->set_forward([](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
    const auto parameter = [&](const char* name) { return nn::find_tensor(module, name); };
    const at::Tensor& x = inputs[0].toTensor();
    at::Tensor hidden = at::addmm(parameter("first_bias"), x, parameter("first"));
    if (inputs.size() > 1) hidden = hidden + x.mm(parameter("spare"));
    return at::addmm(parameter("second_bias"), at::relu(hidden), parameter("second")) / hidden.size(1);
  });
  return model;
}

nn::Inputs batch(int step, int rank, c10::Device place, bool with_spare = true) {
  const auto generator = at::detail::createCPUGenerator(100 * step + rank);
  nn::Inputs inputs{at::randn({6, 5}, generator, at::kFloat).to(place)};
  if (with_spare) inputs.emplace_back(true);
  return inputs;
}

void backward(const at::Tensor& output) { torch::autograd::backward({output.square().mean()}, {}); }

void step(const nn::Module& model) {
  const at::NoGradGuard no_grad;
  for (at::Tensor parameter : model.parameters()) {
    if (!parameter.grad().defined()) continue;
    parameter.add_(parameter.grad(), -0.1);
    parameter.mutable_grad().zero_();
  }
}

Tensors train(const CommunicatorPtr& communicator, c10::Device place, const DdpSettings& settings,
              bool with_spare = true, int64_t width = 40) {
  const auto model = make_model(place, width);
  if (communicator->size() == 1) return {};
  DistributedDataParallel ddp(model, communicator, settings);
  Tensors results;
  for (int i = 0; i < 4; i++) {
    backward(ddp.call(batch(i, communicator->rank(), place, with_spare)).toTensor());
    for (const at::Tensor& parameter : model->parameters())
      if (parameter.grad().defined()) results.push_back(parameter.grad().cpu().clone());
    step(*model);
  }
  for (const at::Tensor& parameter : model->parameters()) results.push_back(parameter);
  return results;
}

// Regression: a backend that gave no work for a gradient bucket, as NCCL does where the caller waits, crashed the
// process.
TEST_F(StagedTraining, GradientsEqualTheCpus) {
  DdpSettings settings;
  for (const double megabytes : {25.0, 0.0001}) {
    settings.bucket_cap_mb = megabytes;
    for (const int size : {2, 4})
      expect_equal(
          size,
          [&](const CommunicatorPtr& communicator, c10::Device place) { return train(communicator, place, settings); },
          with_every_work());
  }
}

TEST_F(StagedTraining, BucketsOfSeveralChunksEqualTheCpus) {
  expect_equal(2, [](const CommunicatorPtr& communicator, c10::Device place) {
    return train(communicator, place, DdpSettings(), true, 100'003);
  });
}

TEST_F(StagedTraining, UnusedParametersAndStaticGraphsEqualTheCpus) {
  DdpSettings unused;
  unused.find_unused_parameters = true;
  DdpSettings fixed;
  fixed.static_graph = true;
  for (const DdpSettings& settings : {unused, fixed})
    expect_equal(
        2,
        [&](const CommunicatorPtr& communicator, c10::Device place) {
          return train(communicator, place, settings, /*with_spare=*/false);
        },
        with_every_work());
}

// Regression: PowerSGD read factors on a device before their exchange was in the order of its stream.
TEST_F(StagedTraining, CompressedGradientsEqualTheCpus) {
  std::vector<DdpSettings> hooks;
  for (const DdpCommHook hook :
       {DdpCommHook::kFp16, DdpCommHook::kBf16, DdpCommHook::kPowerSgd, DdpCommHook::kBatchedPowerSgd}) {
    DdpSettings settings;
    settings.comm_hook = hook;
    settings.comm_state_option.start_power_sgd_iter = 2;
    hooks.push_back(settings);
    settings.comm_wrapper = DdpCommHook::kBf16;
    if (hook == DdpCommHook::kPowerSgd) hooks.push_back(settings);
  }
  for (const DdpSettings& settings : hooks)
    expect_equal(
        2, [&](const CommunicatorPtr& communicator, c10::Device place) { return train(communicator, place, settings); },
        with_every_work(), at::kBFloat16);
}

TEST_F(StagedTraining, BuffersAndUnevenInputsEqualTheCpus) {
  expect_equal(2, [](const CommunicatorPtr& communicator, c10::Device place) -> Tensors {
    const int rank = communicator->rank();
    const auto model = make_model(place);
    const auto ddp = std::make_shared<DistributedDataParallel>(model, communicator, DdpSettings());
    {
      UnevenInputs uneven(communicator, {ddp});
      for (int i = 0; i < 2 + rank; i++) {
        nn::find_tensor(*model, "seen").add_(rank + 1);
        backward(ddp->call(batch(i, rank, place)).toTensor());
        step(*model);
      }
      uneven.finish();
    }
    Tensors results = model->parameters();
    results.push_back(nn::find_tensor(*model, "seen"));
    return results;
  });
}

TEST_F(StagedTraining, LocalSgdEqualsTheCpus) {
  expect_equal(2, [](const CommunicatorPtr& communicator, c10::Device place) -> Tensors {
    const auto model = make_model(place);
    const auto ddp = std::make_shared<DistributedDataParallel>(model, communicator, DdpSettings());
    LocalSgd local(ddp, communicator, 2, LocalSgdSettings(), nullptr);
    for (int i = 0; i < 5; i++) {
      backward(ddp->call(batch(i, communicator->rank(), place)).toTensor());
      step(*model);
      local.step();
    }
    return model->parameters();
  });
}

TEST_F(StagedTraining, ParametersOnlyEqualTheCpus) {
  expect_equal(2, [](const CommunicatorPtr& communicator, c10::Device place) -> Tensors {
    const auto model = make_model(place);
    GradientBuckets buckets(*model, communicator, 0.0005);
    Tensors results;
    for (int window = 0; window < 3; window++) {
      for (int micro = 0; micro < 2; micro++) {
        const GradientBuckets::Exchange exchange =
            micro == 1 ? GradientBuckets::Exchange(0.5) : GradientBuckets::Exchange();
        for (size_t i = 0; i < buckets.size(); i++)
          buckets.ready(i, at::full(buckets.gradient(i).sizes(), 0.1 * (communicator->rank() + micro + 1), place),
                        exchange);
        buckets.synchronize(exchange);
      }
      for (size_t i = 0; i < buckets.size(); i++) results.push_back(buckets.gradient(i).cpu().clone());
    }
    return results;
  });
}

// Their collectives would go through different backends, and wait for each other until the timeout.
// Regression: parameters on the CPU of one rank and on the accelerator of another waited for each other until the
// timeout.
TEST_F(StagedTraining, ModelsOnDifferentKindsOfDevicesAreRefused) {
  run_ranks(2, false, [](const CommunicatorPtr& communicator, c10::Device place) {
    const auto model = make_model(communicator->rank() == 0 ? c10::Device(c10::kCPU) : place);
    try {
      GradientBuckets(*model, communicator, 0.0005);
      ADD_FAILURE() << "rank " << communicator->rank() << " was not told";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kCollectiveMismatch);
      EXPECT_NE(error.message().find("parameter first Float[5, 40] is on cpu on rank 0 and on "), std::string::npos)
          << error.message();
    }
  });
}

TEST_F(StagedTraining, ObjectsMayHaveTensorsOfADevice) {
  run_ranks(2, false, [](const CommunicatorPtr& communicator, c10::Device place) {
    auto list = tree::new_list();
    list.push_back(at::full({3}, communicator->rank(), place));
    list.push_back(std::string("rank ") + std::to_string(communicator->rank()));
    const auto gathered = comm::gather_object(*communicator, list).toListRef().vec();
    ASSERT_EQ(gathered.size(), 4U);
    EXPECT_TRUE(at::equal(gathered[2].toTensor().cpu(), at::ones({3})));
    EXPECT_EQ(gathered[1].toStringRef(), "rank 0");
  });
}

TEST_F(StagedTraining, ABucketWithoutMemoryIsAnErrorAndGivesItsMemoryBack) {
  NEEDS_SIMULATION("a memory of any size");
  at::accelerator::emptyCache();
  configure([](auto& settings) { settings.memory_bytes = 6 << 20; });
  run_ranks(2, false, [](const CommunicatorPtr& communicator, c10::Device place) {
    const int rank = communicator->rank();
    {
      auto model = std::make_shared<nn::CallbackModule>("Large");
      model->add_parameter("weight", at::zeros({1 << 20}, place), true);
      const auto before = allocated(rank);
      EXPECT_THROW(DistributedDataParallel(model, communicator, DdpSettings()), c10::OutOfMemoryError);
      tensor::synchronize(place);
      EXPECT_EQ(allocated(rank), before);
    }
    tensor::synchronize(place);
    EXPECT_EQ(train(communicator, place, DdpSettings()).size(), 25U);  // what is smaller works
  });
}

// One rank runs out of memory while the other waits for it in collectives of the device and of the CPU.
// Regression: one rank without memory left the others waiting in collectives of another device than the CPU.
TEST_F(StagedTraining, ASmallerBatchIsAgreedOnAfterOneRankRanOutOfMemory) {
  using accelerator::AttemptResult;
  run_ranks(2, false, [](const CommunicatorPtr& communicator, c10::Device place) {
    accelerator::BatchSizeSearch search;
    search.release_memory = [] {};
    search.attempt = [&](int64_t size) -> accelerator::Attempt {
      if (communicator->rank() == 1 && size > 80) return {AttemptResult::kOutOfMemory, "full here"};
      at::Tensor there = at::ones({4}, place), here = at::ones({4});
      try {
        for (int i = 0; i < 3; i++) communicator->start(comm::Collective::all_reduce(there, comm::ReduceOp::kSum));
        communicator->all_reduce(here, comm::ReduceOp::kSum);
        communicator->all_reduce(there, comm::ReduceOp::kSum);
      } catch (const comm::CollectiveError& error) {
        EXPECT_EQ(error.failure(), comm::CollectiveFailure::kMismatch) << error.what();
        return {AttemptResult::kInterrupted, error.what()};
      }
      return {};
    };
    EXPECT_EQ(accelerator::find_executable_batch_size(*communicator, search, 100), 72);
  });
}

// The error of the bucket's work, on all ranks; a model that has not stepped can be trained on.
TEST_F(StagedTraining, ABucketThatFailsLateIsAnErrorOfTheBackwardAndTheNextOneWorks) {
  const auto train_on = [](const CommunicatorPtr& communicator, c10::Device place, const DdpSettings& settings) {
    const auto model = make_model(place);
    DistributedDataParallel ddp(model, communicator, settings);
    for (int i = 0; i < 6; i++) {
      const at::Tensor output = ddp.call(batch(i, communicator->rank(), place)).toTensor();
      if (i != 4) {
        backward(output);
        step(*model);
        continue;
      }
      try {
        backward(output * NAN);
        ADD_FAILURE() << "a bucket of NaN fails";
      } catch (const std::exception& error) {
        EXPECT_NE(std::string(error.what()).find("the link went down"), std::string::npos) << error.what();
      }
      for (at::Tensor parameter : model->parameters()) parameter.mutable_grad().reset();
    }
    for (const at::Tensor& parameter : model->parameters()) EXPECT_FALSE(parameter.isnan().any().item<bool>());
  };
  for (const DdpCommHook hook : {DdpCommHook::kNo, DdpCommHook::kFp16})
    for (const double megabytes : {25.0, 0.0001}) {
      DdpSettings settings;
      settings.comm_hook = hook;
      settings.bucket_cap_mb = megabytes;
      run_ranks(
          2, false,
          [&](const CommunicatorPtr& communicator, c10::Device place) { train_on(communicator, place, settings); },
          "late");
    }
}

// Its own error on the rank that lost it; the others learn of it when that rank gives up the group.
TEST_F(StagedTraining, ADeviceThatIsLostInBackwardIsAnErrorOfAllRanks) {
  NEEDS_SIMULATION("devices that can be lost");
  for (const DdpCommHook hook : {DdpCommHook::kNo, DdpCommHook::kFp16, DdpCommHook::kPowerSgd}) {
    std::vector<std::string> messages(2);
    const auto lose_one = [&](const CommunicatorPtr& communicator, c10::Device place) {
      const int rank = communicator->rank();
      DdpSettings settings;
      settings.comm_hook = hook;
      settings.comm_state_option.start_power_sgd_iter = 2;
      settings.bucket_cap_mb = 0.0001;
      const auto model = make_model(place);
      DistributedDataParallel ddp(model, communicator, settings);
      try {
        for (int i = 0; i < 6; i++) {
          const at::Tensor output = ddp.call(batch(i, rank, place)).toTensor();
          if (i == 4 && rank == 1) simulation().lose(1);
          backward(output);
          step(*model);
        }
      } catch (const std::exception& error) {
        messages[rank] = error.what();
        communicator->abort();
      }
    };
    EXPECT_THROW(run_ranks(2, false, lose_one), comm::CollectiveError);  // of the last barrier
    EXPECT_NE(messages[1].find("sim:1 is lost"), std::string::npos) << messages[1];
    EXPECT_NE(messages[0].find("rank 1"), std::string::npos) << messages[0];
    simulation().restore();
  }
}

}  // namespace staged_training_test
}  // namespace accel::parallel
