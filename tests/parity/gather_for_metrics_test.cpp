// SPDX-License-Identifier: Apache-2.0
// Every sample once in what is gathered for a metric, against Accelerate's Accelerator. The ranks are threads.
#include <gtest/gtest.h>

#include <mutex>

#include "accelerator/metrics.hpp"
#include "loader_input.hpp"
#include "rank_threads.hpp"

namespace accel::parity {
namespace gather_for_metrics_test {

c10::IValue as_objects(const c10::IValue& batch) {
  auto list = tree::new_list();
  for (const int64_t number : tests::numbers_of(batch)) list.push_back(number);
  return list;
}

tests::Numbers gathered_numbers(const c10::IValue& gathered) {
  return gathered.isTensor() ? tests::numbers_of(gathered) : integers(gathered);
}

TEST(GatherForMetricsParity, SameRowsAsTheReference) {
  const auto cases = read_cases("gather_for_metrics");
  for (const int64_t ranks : {1, 2, 3}) {
    std::mutex mutex;  // of GoogleTest's messages
    tests::run_ranks(static_cast<int>(ranks), [&](const std::shared_ptr<comm::Communicator>& communicator) {
      for (const auto& [name, input, expected] : cases) {
        if (member(input, "processes").toInt() != ranks) continue;
        const auto gradients = std::make_shared<state::GradientState>(state::AccumulationSettings{});
        data::ShardOptions sharding;
        sharding.num_processes = ranks;
        sharding.process_index = communicator->rank();
        sharding.split_batches = member(input, "split_batches").toBool();
        sharding.dispatch_batches = member(input, "dispatch_batches").toBool();
        sharding.device = c10::Device(c10::kCPU);
        sharding.communicator = communicator;
        sharding.gradient_state = gradients;
        const auto loader = tests::prepared(*plain_loader(input), sharding);
        tests::Batches steps;
        while (const auto batch = loader->next()) {
          const c10::IValue tensor = batch->isTensor() ? *batch : batch->toListRef()[0];
          const c10::IValue value = member(input, "gather_object").toBool() ? as_objects(tensor) : tensor;
          steps.push_back(
              gathered_numbers(accelerator::gather_for_metrics(*communicator, value, *gradients->active())));
        }
        const std::lock_guard lock(mutex);
        SCOPED_TRACE(name + " rank " + std::to_string(communicator->rank()));
        auto of_reference = list_of_lists(member(expected, "gathered"));
        const bool stream = member(input, "dataset").toStringRef() != "map";
        const int64_t size = member(input, "size").toInt();
        // Of a stream that is not dispatched Accelerate gives repetitions too, behind the items (P3).
        if (stream && !sharding.dispatch_batches && ranks > 1 && !of_reference.empty()) {
          const int64_t surplus = member(expected, "rows").toInt() - size;
          for (int64_t i = 0; i < surplus; ++i) of_reference.back().pop_back();
        }
        EXPECT_EQ(steps, of_reference);
      }
    });
  }
}

}  // namespace gather_for_metrics_test
}  // namespace accel::parity
