// Collectives of tensors on a device without collectives of its own: ranks are threads, each on its simulated device,
// whose streams are late by random times.
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

#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "comm/group.hpp"
#include "rank_threads.hpp"
#include "repeated.hpp"
#include "simulated_device/simulated_device_fixture.hpp"
#include "tensor/tree.hpp"

namespace accel::comm {
namespace staged_backend_test {

using simulated_device::tests::library;
using CommunicatorPtr = std::shared_ptr<Communicator>;
using Tensors = std::vector<at::Tensor>;

constexpr char kBackends[] = "cpu:ucx,sim:staged";
constexpr int64_t kChunk = 1 << 20;  // bytes, as in staging_pipeline.cpp

class StagedBackend : public simulated_device::tests::SimulatedDeviceTest {
 protected:
  StagedBackend() {
    configure([](auto& settings) {
      settings.seed = 5;
      settings.random_delay_us = 300;
    });
  }

  static void run_ranks(int size, const std::function<void(const CommunicatorPtr&)>& body,
                        std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    tests::run_ranks(
        size,
        [&](const CommunicatorPtr& communicator) {
          const c10::DeviceGuard guard(device(communicator->rank()));
          body(communicator);
        },
        timeout, kBackends);
  }

  static std::string message_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  }
};

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
    communicator.reduce_scatter(input(numel * size), reduction, part);
    results.insert(results.end(), {reduced.cpu(), part.cpu()});
  }
  at::Tensor sent = input(numel), gathered = at::empty({size * numel}, options);
  communicator.broadcast(sent, size - 1);
  communicator.all_gather(input(numel), gathered);
  at::Tensor exchanged = at::empty({size * numel}, options), scattered = at::empty({numel}, options);
  communicator.all_to_all(input(numel * size), exchanged);
  communicator.scatter(rank == 0 ? input(numel * size) : at::Tensor(), 0, scattered);
  at::Tensor received = at::zeros({numel}, options);
  const auto sending = communicator.start(Collective::send(input(numel), (rank + 1) % size, 3));
  communicator.receive(received, (rank + size - 1) % size, 3);
  sending->wait();
  sending->result();
  for (const at::Tensor& result : {sent, gathered, exchanged, scattered, received}) results.push_back(result.cpu());
  return results;
}

TEST_F(StagedBackend, CollectivesEqualTheCpusBitForBit) {
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
  run_ranks(3, [&](const CommunicatorPtr& communicator) {
    for (const Case& one : cases) {
      const int64_t chunk = kChunk / static_cast<int64_t>(c10::elementSize(one.dtype));
      const std::vector<int64_t> lengths =
          one.dtype == at::kFloat ? std::vector<int64_t>{0, 1, 1000, chunk - 1, chunk, chunk + 1, 3 * chunk + 7}
                                  : std::vector<int64_t>{5, chunk + 3};
      for (const int64_t numel : lengths) {
        const Tensors expected = all_collectives(*communicator, at::kCPU, numel, one.dtype, one.reductions);
        const Tensors results =
            all_collectives(*communicator, device(communicator->rank()), numel, one.dtype, one.reductions);
        for (size_t i = 0; i < results.size(); i++)
          EXPECT_TRUE(at::equal(results[i], expected[i])) << one.dtype << "[" << numel << "], result " << i;
      }
    }
  });
}

TEST_F(StagedBackend, CallsFollowTheCallersStreamAndItsStreamFollowsThem) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank();
    for (int round = 0; round < 20; round++) {
      Tensors tensors;
      std::vector<std::shared_ptr<Work>> works;
      for (int i = 0; i < 4; i++) {
        library().run_kernel(rank, 300);
        tensors.push_back(at::full({100'000}, round + i, at::kFloat).to(device(rank)));
        tensors.back() += rank;
        works.push_back(communicator->start(Collective::all_reduce(tensors.back(), ReduceOp::kSum)));
      }
      at::Tensor last = at::ones({3}, device(rank)) * rank;
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

TEST_F(StagedBackend, ATreeMayHaveTensorsOfSeveralDevices) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank();
    auto list = tree::new_list();
    const Tensors tensors{at::ones({2, 3}) * rank,
                          (at::ones({2, 3}) * rank).to(device(rank)),
                          at::full({700'000}, rank, at::kInt).to(device(rank)),
                          at::full({4}, rank, at::kInt),
                          at::full({5}, rank, at::kHalf).to(device(rank)),
                          at::full({}, rank, at::kDouble).to(device(rank))};
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

TEST_F(StagedBackend, AMismatchHasTheWordsOfTheCpu) {
  const auto message_on = [](Communicator& communicator, c10::Device device, const at::IntArrayRef& shape) {
    return message_of([&] { communicator.all_reduce(at::ones(shape, device), ReduceOp::kSum); });
  };
  run_ranks(2, [&](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank();
    const std::vector<std::vector<int64_t>> shapes{{2, 3}, {1000, 1000}};
    for (const auto& shape : shapes) {
      std::vector<int64_t> own = shape;
      if (rank == 1) std::swap(own[0], own[1]), own[0] += 1;
      const std::string expected = message_on(*communicator, at::kCPU, own);
      EXPECT_NE(expected.find("all ranks must pass the same shape"), std::string::npos) << expected;
      const std::string message = message_on(*communicator, device(rank), own);
      EXPECT_EQ(message.substr(message.find("rank 0 has")), expected.substr(expected.find("rank 0 has")));
      at::Tensor after = at::ones({4}, device(rank));
      communicator->all_reduce(after, ReduceOp::kSum);  // the ranks are in step
      EXPECT_TRUE(at::equal(after.cpu(), at::full({4}, 2.0F)));
    }
  });
}

TEST_F(StagedBackend, TwoRanksMaySendBeforeTheyReceive) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank(), other = 1 - rank;
    const at::Tensor own = at::full({1'000'000}, rank, at::kFloat).to(device(rank));
    const auto sent = communicator->start(Collective::send(own, other, 0));
    at::Tensor sum = at::ones({10}, device(rank));
    communicator->all_reduce(sum, ReduceOp::kSum);  // not behind the message
    at::Tensor received = at::empty_like(own);
    communicator->receive(received, other, 0);
    sent->wait();
    sent->result();
    EXPECT_TRUE(at::equal(received.cpu(), at::full({1'000'000}, static_cast<float>(other))));
  });
}

TEST_F(StagedBackend, ALostDeviceEndsTheExchangeOnAllRanks) {
  tests::run_ranks(
      2,
      [](const CommunicatorPtr& communicator) {
        const int rank = communicator->rank();
        const c10::DeviceGuard guard(device(rank));
        at::Tensor tensor = at::ones({4'000'000}, device(rank));
        const auto work = communicator->start(Collective::all_reduce(tensor, ReduceOp::kSum));
        if (rank == 1) library().lose(1);
        const std::string message = message_of([&] {
          work->wait();
          work->result();
          for (int i = 0; i < 3; i++) communicator->all_reduce(tensor, ReduceOp::kSum);
        });
        EXPECT_NE(message.find("sim:1 is lost"), std::string::npos) << message;
        communicator->barrier();  // of the CPU's group
      },
      std::chrono::seconds(20), kBackends);
}

TEST_F(StagedBackend, AFailedCopyIsAnErrorOfItsRank) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank();
    at::Tensor tensor = at::ones({4'000'000}, device(rank));
    communicator->barrier();
    if (rank == 0) library().fail_copy(0, 3);
    const std::string message = message_of([&] { communicator->all_reduce(tensor, ReduceOp::kSum); });
    EXPECT_NE(message.find("all_reduce of sim tensors failed on rank 0: a copy of sim:0 failed"), std::string::npos)
        << message;
  });
}

TEST_F(StagedBackend, ADeviceThatHangsEndsByTheTimeout) {
  run_ranks(
      2,
      [](const CommunicatorPtr& communicator) {
        const int rank = communicator->rank();
        at::Tensor tensor = at::ones({10}, device(rank));
        if (rank == 0) library().run_kernel(0, 9'000'000);
        const std::string message = message_of([&] { communicator->all_reduce(tensor, ReduceOp::kSum); });
        EXPECT_NE(message.find(rank == 0 ? "has not copied a tensor after 5000 ms" : "rank 0"), std::string::npos)
            << message;
      },
      std::chrono::seconds(5));
}

TEST_F(StagedBackend, AnAbortEndsTheWaitForADevice) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank();
    const auto group = create_group(*communicator, {0, 1});
    at::Tensor tensor = at::ones({10}, device(rank));
    library().run_kernel(rank, 1'000'000);
    const auto work = group->start(Collective::all_reduce(tensor, ReduceOp::kSum));
    group->abort();
    EXPECT_TRUE(work->wait(std::chrono::milliseconds(20'000)));
    EXPECT_NE(work->error(), nullptr);
    EXPECT_NE(message_of([&] { group->all_reduce(tensor, ReduceOp::kSum); }), "no error");
  });
}

TEST_F(StagedBackend, GroupsOfAGroupAreStagedToo) {
  run_ranks(4, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank();
    const auto half = split_group(*communicator, rank % 2, rank);
    at::Tensor sum = at::full({300'000}, rank, at::kFloat).to(device(rank));
    half->all_reduce(sum, ReduceOp::kSum);
    EXPECT_TRUE(at::equal(sum.cpu(), at::full({300'000}, 2.0F + 2.0F * (rank % 2))));
    const auto alone = create_group(*communicator, {rank});
    alone->all_reduce(sum, ReduceOp::kMean, 0.5);
    EXPECT_TRUE(at::equal(sum.cpu(), at::full({300'000}, 1.0F + static_cast<float>(rank % 2))));
  });
}

TEST_F(StagedBackend, HasNoDeviceMemoryOfItsOwnAndGivesTensorsBack) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank();
    const auto before = statistics(rank).allocated_bytes;
    {
      at::Tensor tensor = at::ones({1'000'000}, device(rank));
      const auto held = statistics(rank).allocated_bytes;
      communicator->all_reduce(tensor, ReduceOp::kSum);
      EXPECT_EQ(statistics(rank).allocated_bytes, held);
    }
    impl().synchronizeDevice(static_cast<c10::DeviceIndex>(rank));
    EXPECT_EQ(statistics(rank).allocated_bytes, before);
  });
}

}  // namespace staged_backend_test
}  // namespace accel::comm
