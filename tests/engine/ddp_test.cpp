// SPDX-License-Identifier: Apache-2.0
#include "parallel/ddp/distributed_data_parallel.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <future>
#include <mutex>
#include <stdexcept>

#include "accelerator_ranks.hpp"
#include "base/error.hpp"
#include "expect_error.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"
#include "rank_threads.hpp"
#include "tensor/autograd/backward.hpp"

namespace accel::parallel {
namespace ddp_test {

using tests::run_ranks;

// Two layers and one that is used only on demand. The same weights for the same seed.
nn::ModulePtr make_model(uint64_t seed) {
  const auto generator = at::detail::createCPUGenerator(seed);
  auto model = std::make_shared<nn::CallbackModule>("TwoLayers");
  const auto add = [&](const char* name, at::IntArrayRef shape) {
    model->add_parameter(name, at::randn(shape, generator, at::kFloat) * 0.3, true);
  };
  add("first", {8, 5});
  add("first_bias", {8});
  add("second", {1, 8});
  add("spare", {8, 5});
  model->set_forward([](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
    const auto parameter = [&](const char* name) { return nn::find_tensor(module, name); };
    const at::Tensor& x = inputs[0].toTensor();
    at::Tensor hidden = at::linear(x, parameter("first"), parameter("first_bias"));
    if (inputs.size() > 1) hidden = hidden + at::linear(x, parameter("spare"));
    return at::linear(at::tanh(hidden), parameter("second"));
  });
  return model;
}

at::Tensor rows(int64_t begin, int64_t end) {
  const auto generator = at::detail::createCPUGenerator(7);
  return at::randn({12, 5}, generator, at::kFloat).slice(0, begin, end);
}

void backward(const at::Tensor& output) { torch::autograd::backward({output.square().mean()}, {}); }

// The gradients of one process on the whole batch, by name.
std::map<std::string, at::Tensor> joined_gradients(bool with_spare) {
  const auto model = make_model(1);
  nn::Inputs inputs{rows(0, 12)};
  if (with_spare) inputs.emplace_back(true);
  backward(model->call(inputs).toTensor());
  std::map<std::string, at::Tensor> gradients;
  for (const auto& [name, parameter] : nn::named_parameters(*model)) gradients[name] = parameter.grad();
  return gradients;
}

void expect_equal_gradients(const nn::Module& model, const std::map<std::string, at::Tensor>& expected) {
  for (const auto& [name, parameter] : nn::named_parameters(model)) {
    const at::Tensor& other = expected.at(name);
    if (!other.defined()) continue;
    ASSERT_TRUE(parameter.grad().defined()) << name;
    EXPECT_TRUE(at::allclose(parameter.grad(), other, 1e-6, 1e-7)) << name;
  }
}

void forget_gradients(const nn::Module& model) {
  for (const auto& parameter : model.parameters())
    if (parameter.grad().defined()) parameter.mutable_grad().zero_();
}

// The file that is mapped where a tensor is.
std::string mapping_of(const at::Tensor& tensor) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end) == 2 && begin <= address && address < end)
      return line;
  }
  return "nothing";
}

// Also after the second forward, which lays the buckets out anew.
TEST(DdpGradients, AreInMemoryThatTheRanksShare) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    auto model = std::make_shared<nn::CallbackModule>("Wide");
    model->add_parameter("weight", at::full({100, 5}, 0.1, at::kFloat), true);
    model->add_parameter("wide", at::full({100, 100}, 0.1, at::kFloat), true);
    model->set_forward([](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
      return at::linear(at::linear(inputs[0].toTensor(), nn::find_tensor(module, "weight")),
                        nn::find_tensor(module, "wide"));
    });
    DdpSettings settings;
    settings.gradient_as_bucket_view = true;
    DistributedDataParallel ddp(model, communicator, settings);
    for (int step = 0; step < 3; step++) {
      backward(ddp.call(nn::Inputs{rows(0, 6)}).toTensor());
      EXPECT_NE(mapping_of(nn::find_tensor(*model, "wide").grad()).find("memfd:accel"), std::string::npos)
          << mapping_of(nn::find_tensor(*model, "wide").grad());
    }
  });
}

// Says when the exchange of a bucket has begun.
struct WatchedHook final : CommHook {
  Finish start(const GradientBucket& bucket) override {
    Finish finish = hook->start(bucket);
    posted();
    return finish;
  }

  CommHookPtr hook;
  std::function<void()> posted;
};

// Rank 1 comes to either only when rank 0 has posted both.
TEST(DdpGradients, ACollectiveStartedBeforeBackwardDoesNotHoldUpTheBuckets) {
  const auto expected = joined_gradients(true);
  std::promise<void> posted;
  const auto is_posted = posted.get_future().share();
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    const int rank = communicator->rank();
    DistributedDataParallel ddp(make_model(1), communicator, {});
    const at::Tensor part = at::full({4 << 20}, rank, at::kFloat), whole = at::zeros({8 << 20});
    std::shared_ptr<comm::Work> gathering;
    const auto watched = std::make_shared<WatchedHook>();
    watched->posted = [&] {
      if (rank == 1) return;
      EXPECT_FALSE(gathering->ended());
      posted.set_value();
    };
    watched->hook = ddp.set_comm_hook(watched);
    const at::Tensor output = ddp.call({rows(6 * rank, 6 * (rank + 1)), true}).toTensor();
    if (rank == 1) {
      ASSERT_EQ(is_posted.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    }
    gathering = communicator->start(comm::Collective::all_gather(part, whole));
    backward(output);
    expect_equal_gradients(*ddp.module(), expected);
    gathering->wait();
    gathering->result();
    EXPECT_EQ(whole.sum().item<float>(), 4 << 20);
  });
}

TEST(DdpGradients, EqualThoseOfTheJoinedBatch) {
  for (const int size : {2, 3, 4})
    for (const bool views : {true, false}) {
      const auto expected = joined_gradients(true);
      run_ranks(size, [&](const std::shared_ptr<comm::Communicator>& communicator) {
        DdpSettings options;
        options.gradient_as_bucket_view = views;
        options.bucket_cap_mb = 0.0001;                                     // several buckets
        const auto model = make_model(communicator->rank() == 0 ? 1 : 99);  // rank 0's weights count
        DistributedDataParallel ddp(model, communicator, options);
        const int64_t each = 12 / size, begin = communicator->rank() * each;
        for (int step = 0; step < 3; step++) {  // buckets are rebuilt after the first
          forget_gradients(*model);
          backward(ddp.call(nn::Inputs{rows(begin, begin + each), true}).toTensor());
          expect_equal_gradients(*model, expected);
        }
      });
    }
}

// Steps of two ranks, each on half of the batch, in which one layer is not used.
void expect_steps_without_spare(const DdpSettings& options, int steps) {
  const auto expected = joined_gradients(false);
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    const auto model = make_model(1);
    DistributedDataParallel ddp(model, communicator, options);
    for (int step = 0; step < steps; step++) {
      forget_gradients(*model);
      backward(ddp.call(nn::Inputs{rows(communicator->rank() * 6, communicator->rank() * 6 + 6)}).toTensor());
      expect_equal_gradients(*model, expected);
    }
  });
}

TEST(DdpGradients, UnusedParametersAreFound) {
  DdpSettings options;
  options.find_unused_parameters = true;
  expect_steps_without_spare(options, 2);
}

// The Reducer reports a change of the unused parameters to its logger.
TEST(DdpGradients, AnErrorNamesTheParametersThatGotNone) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    DistributedDataParallel model(make_model(1), communicator, {});
    backward(model.call(rows(0, 4)));
    for (int i = 0; i < 2; i++)
      tests::expect_error(Status::kInvalidState,
                          "1 of 4 trainable parameters got no gradient in the last backward: spare; expected each",
                          [&] { model.call(rows(0, 4)); });
  });
}

// The gradients of some parameters have come, and the ranks may have exchanged some buckets and not others.
// Regression: after a backward that an error ended in the middle, the next forward named parameters without gradients
// instead of the error.
TEST(DdpGradients, ABackwardThatFailedIsNamedAtTheNextForward) {
  tests::run_accelerators(2, {}, [](const tests::AcceleratorPtr& accelerator) {
    const auto inner = std::make_shared<nn::CallbackModule>("TwoLayers");
    inner->add_parameter("first", at::full({3, 5}, 0.1, at::kFloat), true);
    inner->add_parameter("second", at::full({1, 3}, 0.1, at::kFloat), true);
    bool fails = false;
    inner->set_forward([&](nn::Module& module, const nn::Inputs& inputs) -> c10::IValue {
      at::Tensor hidden = at::linear(inputs[0].toTensor(), nn::find_tensor(module, "first"));
      if (fails)
        hidden = tensor::watch_gradients({hidden}, [](const auto&) -> std::vector<at::Tensor> {
          throw std::runtime_error("the hook does not like the gradient");
        })[0];
      return at::linear(hidden, nn::find_tensor(module, "second"));
    });
    const nn::ModulePtr model = accelerator->preparation().prepare_model(inner);
    const auto step = [&] { accelerator->backward().run(model->call(nn::Inputs{rows(0, 4)}).toTensor().sum()); };
    step();
    step();
    fails = true;
    EXPECT_THROW(step(), std::runtime_error);
    fails = false;
    for (int i = 0; i < 2; i++)
      tests::expect_error(Status::kInvalidState,
                          "failed after 1 of 2 gradients: the hook does not like the gradient; other ranks", step);
  });
}

// Also when earlier backwards were complete: what was summed up until then would stay without the other ranks'.
// Regression: a parameter that got no gradient in a step after the first ones left that step's gradients unaveraged,
// without an error.
TEST(DdpGradients, AParameterThatGetsNoGradientLaterIsNamedToo) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    DistributedDataParallel model(make_model(1), communicator, {});
    for (int step = 0; step < 3; step++) backward(model.call(nn::Inputs{rows(0, 4), true}).toTensor());
    backward(model.call(rows(0, 4)));
    tests::expect_error(Status::kInvalidState,
                        "1 of 4 trainable parameters got no gradient in the last backward: spare",
                        [&] { model.call(rows(0, 4)); });
  });
}

// Regression: with `find_unused_parameters`, training crashed as soon as the set of unused parameters changed.
TEST(DdpGradients, WhichParametersAreUnusedMayChange) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    for (const bool views : {true, false}) {
      DdpSettings options;
      options.find_unused_parameters = true;
      options.gradient_as_bucket_view = views;
      const auto model = make_model(1);
      DistributedDataParallel ddp(model, communicator, options);
      const int64_t begin = communicator->rank() * 6;
      for (const bool with_spare : {false, false, true, false, true}) {
        for (const auto& parameter : model->parameters()) parameter.mutable_grad().reset();
        nn::Inputs inputs{rows(begin, begin + 6)};
        if (with_spare) inputs.emplace_back(true);
        backward(ddp.call(inputs).toTensor());
        expect_equal_gradients(*model, joined_gradients(with_spare));
        EXPECT_EQ(nn::find_tensor(*model, "spare").grad().defined(), with_spare);
      }
    }
  });
}

// Regression: without views of the buckets, the gradient of a parameter that only a backward without sync had used
// stayed that of its rank.
TEST(DdpGradients, WhatOnlyABackwardWithoutSyncUsedIsExchanged) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    for (const bool views : {true, false}) {
      DdpSettings options;
      options.find_unused_parameters = true;
      options.gradient_as_bucket_view = views;
      const auto model = make_model(1);
      DistributedDataParallel ddp(model, communicator, options);
      const int64_t begin = communicator->rank() * 6;
      ddp.set_gradient_sync(false);
      backward(ddp.call(nn::Inputs{rows(begin, begin + 3), true}).toTensor());
      const at::Tensor expected = nn::find_tensor(*model, "spare").grad().clone();
      communicator->all_reduce(expected, comm::ReduceOp::kMean);
      ddp.set_gradient_sync(true);
      backward(ddp.call(rows(begin + 3, begin + 6)));
      EXPECT_TRUE(at::allclose(nn::find_tensor(*model, "spare").grad(), expected)) << views;
    }
  });
}

TEST(DdpGradients, AStaticGraphLearnsWhatIsUnused) {
  DdpSettings options;
  options.static_graph = true;
  expect_steps_without_spare(options, 3);
}

// The first backward is one of those that are not exchanged.
// Regression: with `static_graph`, a first backward that only accumulated left all later gradients unaveraged or stale.
TEST(DdpGradients, AStaticGraphIsLearntWhileGradientsAccumulate) {
  const auto expected = joined_gradients(false);
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    DdpSettings options;
    options.static_graph = true;
    const auto model = make_model(1);
    DistributedDataParallel ddp(model, communicator, options);
    const int64_t begin = communicator->rank() * 6;
    for (int step = 0; step < 3; step++) {
      forget_gradients(*model);
      for (const int64_t half : {0, 3}) {
        ddp.set_gradient_sync(half == 3);
        const at::Tensor output = ddp.call(rows(begin + half, begin + half + 3));
        torch::autograd::backward({output.square().mean() / 2}, {});
      }
      expect_equal_gradients(*model, expected);
    }
  });
}

TEST(DdpGradients, WithoutSyncTheyStayLocalAndAreExchangedLater) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    const auto model = make_model(1);
    DistributedDataParallel ddp(model, communicator, {});
    const int64_t begin = communicator->rank() * 6;
    ddp.set_gradient_sync(false);
    backward(ddp.call(nn::Inputs{rows(begin, begin + 3), true}).toTensor());
    at::Tensor local = nn::find_tensor(*model, "first").grad().clone();
    at::Tensor both = local.clone();
    communicator->all_reduce(both, comm::ReduceOp::kMean);
    EXPECT_FALSE(at::allclose(local, both));
    ddp.set_gradient_sync(true);
    backward(ddp.call(nn::Inputs{rows(begin + 3, begin + 6), true}).toTensor());
    at::Tensor exchanged = nn::find_tensor(*model, "first").grad().clone();
    at::Tensor again = exchanged.clone();
    communicator->all_reduce(again, comm::ReduceOp::kMean);
    EXPECT_TRUE(at::allclose(exchanged, again));
  });
}

TEST(DdpModel, BuffersFollowRankZero) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    const auto model = make_model(1);
    model->add_buffer("seen", at::full({2}, communicator->rank(), at::kFloat), true);
    DistributedDataParallel ddp(model, communicator, {});
    EXPECT_TRUE(nn::find_tensor(*model, "seen").eq(0).all().item<bool>());
    nn::find_tensor(*model, "seen").fill_(5 + communicator->rank());
    ddp.call(nn::Inputs{rows(0, 2), true});
    EXPECT_TRUE(nn::find_tensor(*model, "seen").eq(5).all().item<bool>());
  });
}

TEST(DdpModel, DifferentModelsAreRefusedOnEveryRank) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    const auto model = make_model(1);
    if (communicator->rank() == 1) model->add_parameter("extra", at::zeros({3}), true);
    try {
      DistributedDataParallel ddp(model, communicator, {});
      ADD_FAILURE() << "different models were accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kCollectiveMismatch);
      EXPECT_NE(error.message().find("extra"), std::string::npos) << error.message();
    }
  });
}

TEST(DdpRecord, EveryCollectiveOfAStepStandsInTheFlightRecord) {
  run_ranks(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    DdpSettings options;
    options.bucket_cap_mb = 0.0001;  // several buckets
    options.find_unused_parameters = true;
    const auto model = make_model(1);
    DistributedDataParallel ddp(model, communicator, options);
    for (int step = 0; step < 2; step++) backward(ddp.call(nn::Inputs{rows(0, 6)}).toTensor());
    communicator->barrier();
    const auto latest = communicator->flight_record()->latest_done(~uint64_t{0});
    // No number is missing: whoever spoke, it was recorded.
    int64_t recorded = 0;
    while (const auto entry = communicator->flight_record()->find(static_cast<uint64_t>(recorded))) {
      if (entry->state == comm::FlightEntry::State::kRunning) continue;  // its end is noted just now
      EXPECT_EQ(entry->state, comm::FlightEntry::State::kDone) << entry->operation;
      recorded++;
    }
    EXPECT_EQ(recorded, static_cast<int64_t>(latest->sequence) + 1);
    EXPECT_GE(recorded, 10);
  });
}

}  // namespace ddp_test
}  // namespace accel::parallel
