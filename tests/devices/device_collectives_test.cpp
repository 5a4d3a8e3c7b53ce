// SPDX-License-Identifier: Apache-2.0
// What the collectives of every backend must do on any device, whatever its works are: staged ones, and those of
// other_works.hpp. Ranks are threads, each on its device.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "comm/backend/plugin.hpp"
#include "comm/collectives.hpp"
#include "comm/group.hpp"
#include "device_fixture.hpp"
#include "engine/expect_error.hpp"
#include "rank_threads.hpp"
#include "repeated.hpp"
#include "tensor/tree.hpp"

namespace accel::comm {
namespace device_collectives_test {

using tests::message_of;

using CommunicatorPtr = std::shared_ptr<Communicator>;
using Tensors = std::vector<at::Tensor>;

constexpr int64_t kChunk = 1 << 20;  // bytes, as in staging_pipeline.cpp

struct TestedBackend {
  const char* name;
  bool on_cpu = false;  // for tensors of the CPU
};

class DeviceCollectives : public tests::DeviceTest, public testing::WithParamInterface<TestedBackend> {
 protected:
  DeviceCollectives() : DeviceTest(tests::LateStreams{5, 300}) {}

  static c10::Device location(int rank) { return GetParam().on_cpu ? c10::Device(at::kCPU) : device(rank); }
  static std::string tested_backends() {
    return GetParam().on_cpu ? text("cpu:", GetParam().name) : backends(GetParam().name);
  }
  static void run_ranks(int size, const std::function<void(const CommunicatorPtr&)>& body) {
    load_plugin("ucx");
    tests::run_ranks(
        size,
        [&](const CommunicatorPtr& communicator) {
          const c10::DeviceGuard guard(device(communicator->rank()));
          body(communicator);
        },
        std::chrono::seconds(60), tested_backends());
  }
};

std::string name_of(const testing::TestParamInfo<TestedBackend>& info) {
  return std::string(info.param.name) + (info.param.on_cpu ? "_on_the_cpu" : "");
}

INSTANTIATE_TEST_SUITE_P(Works, DeviceCollectives,
                         testing::Values(TestedBackend{"staged"}, TestedBackend{"null"}, TestedBackend{"stream"},
                                         TestedBackend{"null", true}),
                         name_of);

at::Tensor values(int64_t numel, at::ScalarType dtype, int rank) {
  const at::Tensor numbers = at::arange(2200, at::kLong).remainder(11) + rank;
  if (dtype == at::kBool) return tests::repeated(numbers.remainder(2).to(at::kBool), numel);
  return tests::repeated(
      at::isIntegralType(dtype, false) ? numbers.to(dtype) : (numbers.to(at::kDouble) * 0.37).to(dtype), numel);
}

// Every collective on tensors of `numel` elements for each rank; the results are in host memory.
Tensors all_collectives(Communicator& communicator, c10::Device device, int64_t numel, at::ScalarType dtype,
                        const std::vector<ReduceOp>& reductions) {
  const int rank = communicator.rank(), size = communicator.size();
  const auto options = at::TensorOptions().dtype(dtype).device(device);
  const auto input = [&](int64_t count) { return values(count, dtype, rank).to(device); };
  Tensors results;
  for (const ReduceOp reduction : reductions) {
    at::Tensor reduced = input(numel);
    communicator.all_reduce(reduced, reduction);
    at::Tensor part = at::empty({numel}, options);
    communicator.run(comm::Collective::reduce_scatter(input(numel * size), reduction, part));
    results.insert(results.end(), {reduced.cpu(), part.cpu()});
  }
  at::Tensor sent = input(numel), gathered = at::empty({size * numel}, options);
  communicator.broadcast(sent, size - 1);
  communicator.all_gather(input(numel), gathered);
  at::Tensor exchanged = at::empty({size * numel}, options), scattered = at::empty({numel}, options);
  communicator.run(comm::Collective::all_to_all(input(numel * size), exchanged));
  communicator.run(comm::Collective::scatter(rank == 0 ? input(numel * size) : at::Tensor(), 0, scattered));
  at::Tensor received = at::zeros({numel}, options);
  const auto sending = communicator.start(Collective::send(input(numel), (rank + 1) % size, 3));
  communicator.receive(received, (rank + size - 1) % size, 3);
  sending->wait();
  sending->result();
  for (const at::Tensor& result : {sent, gathered, exchanged, scattered, received}) results.push_back(result.cpu());
  return results;
}

TEST_P(DeviceCollectives, EqualTheCpusBitForBit) {
  struct Case {
    at::ScalarType dtype;
    std::vector<ReduceOp> reductions;
  };
  const std::vector<ReduceOp> of_numbers{ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax,
                                         ReduceOp::kProduct};
  const std::vector<ReduceOp> of_bits{ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kAnd, ReduceOp::kOr, ReduceOp::kXor};
  const std::vector<Case> cases{{at::kFloat, of_numbers},
                                {at::kDouble, of_numbers},
                                {at::kHalf, of_numbers},
                                {at::kBFloat16, of_numbers},
                                {at::kLong, of_bits},
                                {at::kInt, of_bits},
                                {at::kShort, of_bits},
                                {at::kChar, of_bits},
                                {at::kByte, of_bits},
                                {at::kBool, {ReduceOp::kMax, ReduceOp::kAnd, ReduceOp::kOr}},
                                {at::kComplexFloat, {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kProduct}}};
  const auto lengths_of = [](at::ScalarType dtype) {
    const int64_t chunk = kChunk / static_cast<int64_t>(c10::elementSize(dtype));
    return dtype == at::kFloat ? std::vector<int64_t>{0, 1, 1000, chunk - 1, chunk, chunk + 1, 3 * chunk + 7}
                               : std::vector<int64_t>{5, chunk + 3};
  };
  constexpr int kRanks = 3;
  std::vector<std::vector<Tensors>> expected(kRanks);
  tests::run_ranks(kRanks, [&](const CommunicatorPtr& communicator) {
    for (const Case& one : cases)
      for (const int64_t numel : lengths_of(one.dtype))
        expected[static_cast<size_t>(communicator->rank())].push_back(
            all_collectives(*communicator, at::kCPU, numel, one.dtype, one.reductions));
  });
  run_ranks(kRanks, [&](const CommunicatorPtr& communicator) {
    auto right = expected[static_cast<size_t>(communicator->rank())].begin();
    for (const Case& one : cases)
      for (const int64_t numel : lengths_of(one.dtype)) {
        const Tensors results =
            all_collectives(*communicator, location(communicator->rank()), numel, one.dtype, one.reductions);
        for (size_t i = 0; i < results.size(); i++)
          EXPECT_TRUE(at::equal(results[i], (*right)[i])) << one.dtype << "[" << numel << "], result " << i;
        ++right;
      }
  });
}

TEST_P(DeviceCollectives, FollowTheCallersStreamAndItsStreamFollowsThem) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank();
    const c10::Device here = location(rank);
    for (int round = 0; round < 20; round++) {
      Tensors tensors;
      std::vector<std::shared_ptr<Work>> works;
      for (int i = 0; i < 4; i++) {
        keep_busy(device(rank), 300);
        tensors.push_back(at::full({100'000}, round + i, at::kFloat).to(here));
        tensors.back() += rank;
        works.push_back(communicator->start(Collective::all_reduce(tensors.back(), ReduceOp::kSum)));
      }
      at::Tensor last = at::ones({3}, here) * rank;
      communicator->all_reduce(last, ReduceOp::kSum, 2.0);
      last += 1;
      for (int i = 0; i < 4; i++) {
        works[i]->wait();
        works[i]->result();
        EXPECT_TRUE(at::equal(tensors[i].cpu(), at::full({100'000}, 2.0F * (round + i) + 1))) << round;
      }
      EXPECT_TRUE(at::equal(last.cpu(), at::full({3}, 3.0F)));
    }
  });
}

TEST_P(DeviceCollectives, ATreeMayHaveTensorsOfSeveralDevices) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank();
    const c10::Device here = location(rank);
    auto list = tree::new_list();
    const Tensors tensors{at::ones({2, 3}) * rank,
                          (at::ones({2, 3}) * rank).to(here),
                          at::full({700'000}, rank, at::kInt).to(here),
                          at::full({4}, rank, at::kInt),
                          at::full({5}, rank, at::kHalf).to(here),
                          at::full({}, rank, at::kDouble).to(here)};
    for (const at::Tensor& tensor : tensors) list.push_back(tensor);
    const c10::IValue sum = reduce(*communicator, list, ReduceOp::kSum, 1.0), gathered = gather(*communicator, list);
    for (size_t i = 0; i < tensors.size(); i++) {
      const at::Tensor reduced = sum.toListRef()[i].toTensor(), rows = gathered.toListRef()[i].toTensor();
      EXPECT_EQ(reduced.device().type(), tensors[i].device().type());
      EXPECT_TRUE(at::equal(reduced.cpu(), at::ones_like(reduced.cpu()))) << i;
      EXPECT_EQ(rows.cpu().sum().item<double>(), static_cast<double>(tensors[i].numel())) << i;
    }
    broadcast(*communicator, list, 1);
    for (const at::Tensor& tensor : tensors) EXPECT_TRUE(at::equal(tensor.cpu(), at::ones_like(tensor.cpu())));
  });
}

TEST_P(DeviceCollectives, TwoRanksMaySendBeforeTheyReceive) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank(), other = 1 - rank;
    const at::Tensor own = at::full({1'000'000}, rank, at::kFloat).to(location(rank));
    const auto sent = communicator->start(Collective::send(own, other, 0));
    at::Tensor sum = at::ones({10}, location(rank));
    communicator->all_reduce(sum, ReduceOp::kSum);  // not behind the message
    at::Tensor received = at::empty_like(own);
    communicator->receive(received, other, 0);
    sent->wait();
    sent->result();
    EXPECT_TRUE(at::equal(received.cpu(), at::full({1'000'000}, static_cast<float>(other))));
  });
}

// Regression: a call of several messages was done at once, while its receives were under way.
TEST_P(DeviceCollectives, ACallOfASendAndAReceiveEndsWhenBothHave) {
  run_ranks(3, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank(), next = (rank + 1) % 3, former = (rank + 2) % 3;
    for (const int64_t numel : {1, 1'000'000})
      for (const bool starts : {true, false}) {
        const at::Tensor received = at::full({numel}, -1, at::TensorOptions(location(rank)).dtype(at::kFloat));
        const at::Tensor sum = at::ones({10}, location(rank));
        const std::vector<Collective> call{
            Collective::send(at::full({numel}, rank, at::kFloat).to(location(rank)), next, 5),
            Collective::all_reduce(sum, ReduceOp::kSum), Collective::receive(received, former, 5)};
        if (starts)
          communicator->start(call)->synchronize();
        else
          communicator->run(call);
        EXPECT_TRUE(at::equal(received.cpu(), at::full({numel}, static_cast<float>(former))));
        EXPECT_TRUE(at::equal(sum.cpu(), at::full({10}, 3.0F)));
      }
  });
}

TEST_P(DeviceCollectives, GroupsOfAGroupHaveTheSameBackend) {
  run_ranks(4, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank();
    const auto half = split_group(*communicator, rank % 2, rank);
    at::Tensor sum = at::full({300'000}, rank, at::kFloat).to(location(rank));
    half->all_reduce(sum, ReduceOp::kSum);
    EXPECT_TRUE(at::equal(sum.cpu(), at::full({300'000}, 2.0F + 2.0F * (rank % 2))));
    const auto alone = create_group(*communicator, {rank});
    alone->all_reduce(sum, ReduceOp::kMean, 0.5);
    EXPECT_TRUE(at::equal(sum.cpu(), at::full({300'000}, 1.0F + static_cast<float>(rank % 2))));
  });
}

class LateDeviceCollectives : public DeviceCollectives {};
INSTANTIATE_TEST_SUITE_P(Works, LateDeviceCollectives,
                         testing::Values(TestedBackend{"late"}, TestedBackend{"late", true}), name_of);

// Calls that start, and fail when they are waited for: alone, behind others, and together in one call.
// Regression: the error of several collectives in one call was that the backend's work has no number.
TEST_P(LateDeviceCollectives, AFailureIsTheCallsErrorAndTheNextCallWorks) {
  run_ranks(2, [&](const CommunicatorPtr& communicator) {
    const c10::Device here = location(communicator->rank());
    const auto sum_of = [&](double number) {
      return Collective::all_reduce(at::full({1000}, number, at::kFloat).to(here), ReduceOp::kSum);
    };
    const std::string words = "the link went down";
    for (int round = 0; round < 3; round++) {
      EXPECT_NE(message_of([&] { communicator->run(sum_of(NAN)); }).find(words), std::string::npos);
      const auto good = communicator->start(sum_of(1)), bad = communicator->start(sum_of(NAN)),
                 after = communicator->start(sum_of(2));
      EXPECT_NE(message_of([&] { bad->wait(), bad->result(); }).find(words), std::string::npos);
      for (const auto& work : {good, after}) EXPECT_EQ(message_of([&] { work->wait(), work->result(); }), "no error");
      const std::vector<Collective> together{sum_of(1), sum_of(NAN), sum_of(2)};
      EXPECT_NE(message_of([&] { communicator->run(together); }).find(words), std::string::npos);
      const auto all = communicator->start(together);
      EXPECT_NE(message_of([&] { all->wait(), all->result(); }).find(words), std::string::npos);
      at::Tensor sum = at::full({1000}, 1, at::kFloat).to(here);
      communicator->all_reduce(sum, ReduceOp::kSum);
      EXPECT_TRUE(at::equal(sum.cpu(), at::full({1000}, 2.0F)));
    }
  });
}

}  // namespace device_collectives_test
}  // namespace accel::comm
