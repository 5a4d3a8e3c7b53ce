// SPDX-License-Identifier: Apache-2.0
// The bytes of a step of sharded training are those of theory: what a rank receives, from its flight record.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <string>
#include <vector>

#include "comm/record/flight_record.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "fsdp_fixture.hpp"
#include "nn/module_walks.hpp"
#include "parallel/fsdp/sharded_parameter.hpp"
#include "rank_threads.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace sharded_traffic_test {

constexpr int64_t kWidth = 61;  // so that every number of ranks pads
constexpr int kBlocks = 6;

nn::ModulePtr block() {
  auto module = std::make_shared<nn::CallbackModule>("Block");
  module->add_parameter("weight", at::linspace(-0.1, 0.1, kWidth * kWidth).view({kWidth, kWidth}), true);
  module->add_parameter("bias", at::linspace(-0.1, 0.1, kWidth), true);
  module->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    return at::tanh(at::linear(inputs[0].toTensor(), self.parameter(0), self.parameter(1)));
  });
  return module;
}

// The root has few parameters: its group stays whole between forward and backward.
std::shared_ptr<nn::CallbackModule> make_model() {
  auto model = std::make_shared<nn::CallbackModule>("Net");
  model->add_parameter("scale", at::ones({kWidth}), true);
  for (int i = 0; i < kBlocks; i++) model->add_child("block" + std::to_string(i), block());
  model->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    at::Tensor x = inputs[0].toTensor() * self.parameter(0);
    for (const auto& [name, child] : self.children()) x = child->call(x);
    return x;
  });
  return model;
}

c10::List<c10::IValue> operations_of(const comm::FlightRecord& record) {
  return tree::from_json(record.to_json(), "the record").toGenericDict().at("operations").toList();
}

// What a rank receives of all that was posted, in the algorithms that send least: the parts of the other ranks once,
// and twice for an all_reduce.
double received_bytes(const comm::FlightRecord& record, size_t first, int ranks) {
  double received = 0;
  const c10::List<c10::IValue> operations = operations_of(record);
  for (size_t i = first; i < operations.size(); i++) {
    const auto operation = operations.get(i).toGenericDict();
    const std::string name = operation.at("operation").toStringRef();
    const auto bytes = static_cast<double>(operation.at("bytes").toInt());
    EXPECT_EQ(operation.at("state").toStringRef(), "done");
    if (name == "all_gather")  // of the part that this rank sends
      received += bytes * (ranks - 1);
    else if (name == "reduce_scatter")
      received += bytes * (ranks - 1) / ranks;
    else if (name == "all_reduce")
      received += 2 * bytes * (ranks - 1) / ranks;
    else
      EXPECT_EQ(bytes, 0) << name;
  }
  return received;
}

// Of the third step.
double bytes_of_step(ShardingStrategy strategy, int ranks, const std::string& param_dtype = "") {
  std::atomic<double> received{0};
  tests::run_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& all) {
    PrepareModelSettings settings;
    settings.fsdp = fsdp_fixture::by_blocks();
    settings.fsdp.sharding_strategy = strategy;
    settings.fsdp.param_dtype = param_dtype;
    const ParallelModelPtr model = parallelize(make_model(), {all, all, nullptr, "shard"}, settings, at::kCPU);
    const auto step = [&] {
      const at::Tensor loss =
          model->call(nn::Inputs{at::linspace(-1, 1, 2 * kWidth).view({2, kWidth})}).toTensor().square().mean();
      model->exchange()->expect_backward();
      torch::autograd::backward({loss}, {});
      model->finish_step();
    };
    step();
    step();  // data parallelism lays its buckets out anew before it
    const size_t before = operations_of(*all->flight_record()).size();
    step();
    const double own = received_bytes(*all->flight_record(), before, ranks);
    ASSERT_LT(operations_of(*all->flight_record()).size(), comm::FlightRecord::kOperations);  // nothing was overwritten
    if (all->rank() == 0) received = own;
  });
  return received;
}

int64_t padded_elements(const nn::Module& module, int ranks) {
  int64_t elements = 0;
  for (const at::Tensor& parameter : module.parameters())
    elements += rows_per_rank(parameter.size(0), ranks) * ranks * (parameter.numel() / parameter.size(0));
  return elements;
}

TEST(ShardedTraffic, IsThatOfTheory) {
  for (const int ranks : {2, 3, 4}) {
    SCOPED_TRACE(ranks);
    const auto model = make_model();
    const double others = static_cast<double>(ranks - 1) / ranks;
    const auto all = static_cast<double>(padded_elements(*model, ranks));
    const auto root = static_cast<double>(rows_per_rank(kWidth, ranks) * ranks);
    const double ddp = bytes_of_step(ShardingStrategy::kNoShard, ranks);
    EXPECT_NEAR(ddp, 2 * 4 * others * static_cast<double>(nn::num_parameters(*model)), 1);
    for (const auto& [dtype, size] : {std::pair("", 4), std::pair("bfloat16", 2)}) {
      SCOPED_TRACE(dtype);
      const double grad_op = bytes_of_step(ShardingStrategy::kShardGradOp, ranks, dtype);
      const double full = bytes_of_step(ShardingStrategy::kFullShard, ranks, dtype);
      // To the byte, with padding: parameters are gathered once or twice, gradients reduced once.
      EXPECT_NEAR(grad_op, size * others * 2 * all, 1);
      EXPECT_NEAR(full, size * others * (3 * (all - root) + 2 * root), 1);
      // Against data parallelism with the same padding.
      const double of_ddp = ddp * size / 4 * all / static_cast<double>(nn::num_parameters(*model));
      EXPECT_NEAR(grad_op / of_ddp, 1.0, 0.02);
      EXPECT_NEAR(full / of_ddp, 1.5, 0.02 * 1.5);
    }
  }
}

}  // namespace sharded_traffic_test
}  // namespace accel::parallel
