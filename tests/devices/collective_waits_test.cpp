// SPDX-License-Identifier: Apache-2.0
// Collectives of a device hold its streams and not the host. What fails late is told all the same. Ranks are threads,
// each on its device.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/late_failure.hpp"
#include "config/generated/settings/prepare/ddp.hpp"
#include "engine/expect_error.hpp"
#include "nn/callback_module.hpp"
#include "parallel/ddp/distributed_data_parallel.hpp"
#include "parallel/fsdp/fully_sharded_data_parallel.hpp"
#include "staged_ranks.hpp"

namespace accel::parallel {
namespace collective_waits_test {

using comm::Collective;
using comm::CollectiveFailure;
using comm::Communicator;
using comm::ReduceOp;
using tests::message_of;
using tests::Tensors;

constexpr int64_t kWidth = 24;

class CollectiveWaits : public tests::StagedRanks {
 protected:
  static simulated_device_statistics statistics(int rank) {
    simulated_device_statistics now{};
    simulation().get_statistics(device(rank).index(), &now);
    return now;
  }
  static void make_copies_take(std::chrono::microseconds time) {
    configure([time](auto& settings) { settings.copy_delay_us = time.count(); });
  }
};

nn::ModulePtr make_model(c10::Device place) {
  auto model = std::make_shared<nn::CallbackModule>("Model");
  for (int i = 0; i < 3; i++) {
    auto layer = std::make_shared<nn::CallbackModule>("Layer");
    layer->add_parameter("weight", at::full({kWidth, kWidth}, 0.01, place), true);
    layer->add_parameter("bias", at::full({kWidth}, 0.1, place), true);
    layer->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
      return at::tanh(at::addmm(self.parameter(1), inputs[0].toTensor(), self.parameter(0)));
    });
    model->add_child("layer" + std::to_string(i), layer);
  }
  model->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    at::Tensor x = inputs[0].toTensor();
    for (const auto& [name, layer] : self.children()) x = x + layer->call(x);
    return x;
  });
  return model;
}

using MakeModel = std::function<std::shared_ptr<ParallelModel>(const nn::ModulePtr& module,
                                                               const tests::CommunicatorPtr&, c10::Device place)>;

std::shared_ptr<ParallelModel> make_data_parallel(const nn::ModulePtr& module, const tests::CommunicatorPtr& ranks,
                                                  c10::Device /*place*/) {
  return std::make_shared<DistributedDataParallel>(module, ranks, DdpSettings());
}

std::shared_ptr<ParallelModel> make_sharded(const nn::ModulePtr& module, const tests::CommunicatorPtr& ranks,
                                            c10::Device place) {
  FsdpSettings settings;
  settings.enabled = true;
  settings.auto_wrap_policy = AutoWrapPolicy::kTransformerBasedWrap;
  settings.transformer_cls_names_to_wrap = std::string("Layer");
  return FullyShardedDataParallel::create(module, {ranks, ranks, nullptr, "shard"}, settings, place);
}

// A staged collective holds the host while its bytes are exchanged, but has no wait for a device to end its work.
TEST_F(CollectiveWaits, AStepHasNone) {
  NEEDS_SIMULATION("counts of waits");
  for (const MakeModel& make : {MakeModel(make_data_parallel), MakeModel(make_sharded)})
    for (const std::string& backend : with_every_work())
      run_ranks(
          2, /*on_cpu=*/false,
          [&](const tests::CommunicatorPtr& ranks, c10::Device place) {
            const auto inner = make_model(place);
            const auto model = make(inner, ranks, place);
            const at::Tensor batch = at::ones({6, kWidth}, place);
            int64_t before = 0, pageable = 0;
            for (int step = 0; step < 4; step++) {
              if (step == 2) {  // the first ones make buckets and learn the order of modules
                const simulated_device_statistics now = statistics(ranks->rank());
                before = now.host_waits;
                pageable = now.pageable_copies;
              }
              torch::autograd::backward({model->call(nn::Inputs{batch}).toTensor().square().mean()}, {});
              model->finish_step();
              const at::NoGradGuard no_grad;
              for (at::Tensor parameter : inner->parameters()) {
                parameter.add_(parameter.grad(), -0.1);
                parameter.mutable_grad().reset();
              }
            }
            EXPECT_EQ(statistics(ranks->rank()).host_waits, before) << backend;
            EXPECT_EQ(statistics(ranks->rank()).pageable_copies, pageable) << backend;
          },
          backend);
}

TEST_F(CollectiveWaits, ACallReturnsBeforeTheDeviceHasTheResult) {
  NEEDS_SIMULATION("copies that take as long as they are told");
  for (const std::string& backend : with_every_work())
    run_ranks(
        2, /*on_cpu=*/false,
        [&](const tests::CommunicatorPtr& ranks, c10::Device place) {
          const at::Tensor sum = at::ones({100}, place);
          ranks->barrier();
          if (ranks->rank() == 0) make_copies_take(std::chrono::milliseconds(200));
          ranks->barrier();
          ranks->all_reduce(sum, ReduceOp::kSum);
          EXPECT_GT(statistics(ranks->rank()).pending_tasks, 0) << backend;
          EXPECT_TRUE(at::equal(sum.cpu(), at::full({100}, 2.0F))) << backend;  // in the order of the stream
          ranks->barrier();
          if (ranks->rank() == 0) make_copies_take(std::chrono::milliseconds(0));
        },
        backend);
}

TEST_F(CollectiveWaits, ATensorMayBeGivenBackAtOnce) {
  for (const std::string& backend : with_every_work())
    run_ranks(
        2, /*on_cpu=*/false,
        [&](const tests::CommunicatorPtr& ranks, c10::Device place) {
          Tensors sums;
          for (int i = 0; i < 40; i++) {
            at::Tensor given = at::full({5000}, i + ranks->rank(), at::TensorOptions(place).dtype(at::kFloat));
            if (i % 2 == 0)
              ranks->all_reduce(given, ReduceOp::kSum);
            else
              ranks->start(Collective::all_reduce(given, ReduceOp::kSum))->synchronize();
            sums.push_back(given + 1);
            given.reset();
            at::full({5000}, -7, at::TensorOptions(place).dtype(at::kFloat));  // takes its memory
          }
          for (int i = 0; i < 40; i++)
            EXPECT_TRUE(at::equal(sums[static_cast<size_t>(i)].cpu(), at::full({5000}, 2.0F * i + 2))) << backend;
        },
        backend);
}

TEST_F(CollectiveWaits, TensorsOfTheHostInTheSameCallAreThere) {
  for (const std::string& backend : with_every_work())
    run_ranks(
        2, /*on_cpu=*/false,
        [&](const tests::CommunicatorPtr& ranks, c10::Device place) {
          for (int i = 0; i < 10; i++) {
            const at::Tensor here = at::ones({3000}), there = at::ones({3000}, place);
            const std::vector<Collective> both{Collective::all_reduce(there, ReduceOp::kSum),
                                               Collective::all_reduce(here, ReduceOp::kSum)};
            ranks->run(both);
            EXPECT_TRUE(at::equal(here, at::full({3000}, 2.0F)));
            EXPECT_TRUE(at::equal(there.cpu(), here));
          }
        },
        backend);
}

TEST_F(CollectiveWaits, ACallThatAStreamIsBehindKeepsNoTensor) {
  NEEDS_SIMULATION("copies that take as long as they are told");
  run_ranks(
      2, /*on_cpu=*/false,
      [&](const tests::CommunicatorPtr& ranks, c10::Device place) {
        make_copies_take(std::chrono::milliseconds(100));
        ranks->barrier();
        at::Tensor given = at::ones({100'000}, place);
        const auto work = ranks->start(Collective::all_reduce(given, ReduceOp::kSum));
        EXPECT_GT(given.use_count(), 1U);
        work->synchronize();
        const auto is_under_way = [&] { return statistics(ranks->rank()).pending_tasks > 0; };
        while (given.use_count() > 1 && is_under_way())
          std::this_thread::yield();  // the thread that watches looks at it
        EXPECT_TRUE(is_under_way());
      },
      "null");
}

// No call hangs that is queued when another rank gives up.
TEST_F(CollectiveWaits, ARankThatAbortsIsTheErrorOfWhatIsQueued) {
  struct Ended : std::exception {};
  for (const std::string& backend : with_every_work()) {
    SCOPED_TRACE(backend);
    const auto body = [&](const tests::CommunicatorPtr& ranks, c10::Device place) {
      const at::Tensor sum = at::ones({2'000'000}, place);
      ranks->all_reduce(sum, ReduceOp::kSum);
      keep_busy(place, 20'000);
      if (ranks->rank() == 1) {
        ranks->abort();
        throw Ended();
      }
      const std::string message = message_of([&] {
        for (int i = 0; i < 3; i++) ranks->start(Collective::all_reduce(sum, ReduceOp::kSum))->synchronize();
        ranks->all_reduce(sum, ReduceOp::kSum);
      });
      EXPECT_NE(message.find("rank 1"), std::string::npos) << message;
      throw Ended();  // without the barrier at the end
    };
    EXPECT_THROW(run_ranks(2, /*on_cpu=*/false, body, backend), Ended);
  }
}

// Where a program makes no further call, the wait for its device tells.
TEST_F(CollectiveWaits, AWaitForADeviceTellsOfGroupsThatFailedThere) {
  const auto of_device = std::make_shared<comm::LateFailure>(), of_other = std::make_shared<comm::LateFailure>();
  of_device->set(std::make_exception_ptr(std::runtime_error("the first")), device_type());
  of_device->set(std::make_exception_ptr(std::runtime_error("what follows from it")), device_type());
  of_other->set(std::make_exception_ptr(std::runtime_error("of meta")), c10::DeviceType::Meta);
  const auto message_for = [](c10::DeviceType device) {
    return message_of([device] { comm::rethrow_late_failure(device); });
  };
  EXPECT_EQ(message_for(device_type()), "the first");
  EXPECT_EQ(message_for(device_type()), "no error") << "told once";
  EXPECT_EQ(message_of([&] { of_other->rethrow(); }), "of meta");
  EXPECT_EQ(message_for(c10::DeviceType::Meta), "no error");
}

// What the device does not finish is the error of the next call.
TEST_F(CollectiveWaits, ATimeoutIsToldByTheNextCall) {
  NEEDS_SIMULATION("copies that take as long as they are told");
  for (const bool starts : {true, false}) {
    SCOPED_TRACE(starts);
    const auto body = [&](const tests::CommunicatorPtr& ranks) {
      const int rank = ranks->rank();
      const c10::DeviceGuard guard(device(rank));
      const at::Tensor sum = at::ones({100}, device(rank));
      ranks->barrier();
      if (rank == 0) make_copies_take(std::chrono::milliseconds(2000));
      ranks->barrier();
      if (starts)
        ranks->start(Collective::all_reduce(sum, ReduceOp::kSum))->synchronize();
      else
        ranks->all_reduce(sum, ReduceOp::kSum);
      tensor::synchronize(device(rank));                                  // longer than the timeout
      const std::string message = message_of([&] { ranks->barrier(); });  // of the CPU's backend
      EXPECT_NE(message.find(text("rank ", rank, " waits in all_reduce #")), std::string::npos) << message;
      EXPECT_NE(message.find("has not done it after 1000 ms"), std::string::npos) << message;
      if (starts) return;
      EXPECT_NE(message_of([&] { ranks->all_reduce(sum, ReduceOp::kSum); }), "no error");
    };
    tests::run_ranks(2, body, std::chrono::milliseconds(1000), backends("stream"));
  }
}

}  // namespace collective_waits_test
}  // namespace accel::parallel
