// SPDX-License-Identifier: Apache-2.0
// Staged collectives, beside what device_collectives_test.cpp expects of every backend: their errors, and their memory.
// Ranks are threads, each on its device.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/group.hpp"
#include "comm/staged/staged_backend.hpp"
#include "device_fixture.hpp"
#include "engine/expect_error.hpp"
#include "engine/ucx_fixture.hpp"
#include "rank_threads.hpp"

namespace accel::comm {
namespace staged_backend_test {

using tests::message_of;
using CommunicatorPtr = std::shared_ptr<Communicator>;

class StagedBackend : public tests::DeviceTest {
 protected:
  StagedBackend() : DeviceTest(tests::LateStreams{5, 300}) {}

  static void run_ranks(int size, const std::function<void(const CommunicatorPtr&)>& body,
                        std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    tests::run_ranks(
        size,
        [&](const CommunicatorPtr& communicator) {
          const c10::DeviceGuard guard(device(communicator->rank()));
          body(communicator);
        },
        timeout, backends());
  }

  // The backends themselves, as another caller of c10d has them.
  static void run_backends(int size, const std::function<void(c10d::Backend*, int rank)>& body) {
    comm::run_ranks(size, [&](const BackendPointer& host, int rank) {
      const c10::DeviceGuard guard(device(rank));
      const auto backend =
          c10::make_intrusive<comm::StagedBackend>(device(rank).type(), host, std::chrono::seconds(20));
      body(backend.get(), rank);
    });
  }
};

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

// The forms of c10d that the library does not call itself.
TEST_F(StagedBackend, TakesListsRootsAndAnySource) {
  run_backends(2, [](c10d::Backend* backend, int rank) {
    const auto full = [&](double value) { return at::full({3}, value, at::TensorOptions(device(rank))); };
    const auto expect = [](const at::Tensor& tensor, double value) {
      EXPECT_TRUE(at::equal(tensor.cpu(), at::full({3}, value))) << tensor.cpu();
    };
    Tensors own{full(rank + 1)};
    std::vector<Tensors> lists{{full(0), full(0)}};
    backend->allgather(lists, own)->wait();
    expect(lists[0][0], 1), expect(lists[0][1], 2);

    std::vector<Tensors> parts{{full(10 * rank), full(10 * rank + 1)}};
    Tensors sum{full(0)};
    backend->reduce_scatter(sum, parts)->wait();
    expect(sum[0], rank == 0 ? 10 : 12);

    c10d::GatherOptions at_one;
    at_one.rootRank = 1;
    std::vector<Tensors> gathered;
    if (rank == 1) gathered.push_back({full(0), full(0)});
    backend->gather(gathered, own, at_one)->wait();
    if (rank == 1) expect(gathered[0][0], 1), expect(gathered[0][1], 2);

    c10d::ScatterOptions from_one;
    from_one.rootRank = 1;
    std::vector<Tensors> scattered;
    if (rank == 1) scattered.push_back({full(5), full(6)});
    Tensors received{full(0)};
    backend->scatter(received, scattered, from_one)->wait();
    expect(received[0], 5 + rank);

    c10d::ReduceOptions to_zero;
    to_zero.rootRank = 0;
    Tensors reduced{full(rank + 1)};
    backend->reduce(reduced, to_zero)->wait();
    if (rank == 0) expect(reduced[0], 3);

    Tensors message{full(rank)};
    if (rank == 1)
      backend->send(message, 0, 7)->wait();
    else
      backend->recvAnysource(message, 7)->wait();
    expect(message[0], 1);
  });
}

TEST_F(StagedBackend, RefusesBlocksThatDiffer) {
  run_backends(2, [](c10d::Backend* backend, int rank) {
    const auto ones = [&](int64_t count, c10::ScalarType dtype = at::kFloat) {
      return at::ones({count}, at::TensorOptions(device(rank)).dtype(dtype));
    };
    Tensors four{ones(4)};
    std::vector<Tensors> larger{{ones(8), ones(8)}}, doubles{{ones(4, at::kDouble), ones(4, at::kDouble)}}, none{{}};
    EXPECT_NE(message_of([&] { backend->allgather(larger, four)->wait(); }).find("expected equal blocks"),
              std::string::npos);
    EXPECT_NE(message_of([&] { backend->allgather(doubles, four)->wait(); }).find("of one dtype"), std::string::npos);
    EXPECT_NE(message_of([&] { backend->allgather(none, four)->wait(); }).find("expected one for each of 2 ranks"),
              std::string::npos);
    std::vector<Tensors> lists{{ones(4), ones(4)}};
    c10d::GatherOptions no_root;
    no_root.rootRank = -1;
    EXPECT_NE(message_of([&] { backend->gather(lists, four, no_root)->wait(); }).find("root -1 is not a rank"),
              std::string::npos);
    backend->allreduce(four)->wait();  // the group stays
    EXPECT_TRUE(at::equal(four[0].cpu(), at::full({4}, 2.0F)));
  });
}

TEST_F(StagedBackend, ALostDeviceEndsTheExchangeOnAllRanks) {
  NEEDS_SIMULATION("devices that can be lost");
  tests::run_ranks(
      2,
      [](const CommunicatorPtr& communicator) {
        const int rank = communicator->rank();
        const c10::DeviceGuard guard(device(rank));
        at::Tensor tensor = at::ones({4'000'000}, device(rank));
        const auto work = communicator->start(Collective::all_reduce(tensor, ReduceOp::kSum));
        if (rank == 1) simulation().lose(1);
        const std::string message = message_of([&] {
          work->wait();
          work->result();
          for (int i = 0; i < 3; i++) communicator->all_reduce(tensor, ReduceOp::kSum);
        });
        EXPECT_NE(message.find("sim:1 is lost"), std::string::npos) << message;
        communicator->barrier();  // of the CPU's group
      },
      std::chrono::seconds(20), backends());
}

TEST_F(StagedBackend, AFailedCopyIsAnErrorOfItsRank) {
  NEEDS_SIMULATION("copies that fail");
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank();
    at::Tensor tensor = at::ones({4'000'000}, device(rank));
    communicator->barrier();
    if (rank == 0) simulation().fail_copy(0, 3);
    const std::string message = message_of([&] { communicator->all_reduce(tensor, ReduceOp::kSum); });
    EXPECT_NE(message.find("all_reduce of sim tensors failed on rank 0: a copy of sim:0 failed"), std::string::npos)
        << message;
  });
}

TEST_F(StagedBackend, ADeviceThatHangsEndsByTheTimeout) {
  NEEDS_SIMULATION("kernels that take as long as they are told");
  run_ranks(
      2,
      [](const CommunicatorPtr& communicator) {
        const int rank = communicator->rank();
        at::Tensor tensor = at::ones({10}, device(rank));
        if (rank == 0) simulation().run_kernel(0, 9'000'000);
        const std::string message = message_of([&] { communicator->all_reduce(tensor, ReduceOp::kSum); });
        EXPECT_NE(message.find(rank == 0 ? "has not copied a tensor after 5000 ms" : "rank 0"), std::string::npos)
            << message;
      },
      std::chrono::seconds(5));
}

TEST_F(StagedBackend, AnAbortEndsTheWaitForADevice) {
  NEEDS_SIMULATION("kernels that take as long as they are told");
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank();
    const auto group = create_group(*communicator, {0, 1});
    at::Tensor tensor = at::ones({10}, device(rank));
    simulation().run_kernel(rank, 1'000'000);
    const auto work = group->start(Collective::all_reduce(tensor, ReduceOp::kSum));
    group->abort();
    EXPECT_TRUE(work->wait(std::chrono::milliseconds(20'000)));
    EXPECT_NE(work->error(), nullptr);
    EXPECT_NE(message_of([&] { group->all_reduce(tensor, ReduceOp::kSum); }), "no error");
  });
}

TEST_F(StagedBackend, HasNoDeviceMemoryOfItsOwnAndGivesTensorsBack) {
  NEEDS_DEVICES(2);  // the memory of each rank is counted alone
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank();
    const auto before = allocated(rank);
    {
      at::Tensor tensor = at::ones({1'000'000}, device(rank));
      const auto held = allocated(rank);
      communicator->all_reduce(tensor, ReduceOp::kSum);
      EXPECT_EQ(allocated(rank), held);
    }
    tensor::synchronize(device(rank));
    EXPECT_EQ(allocated(rank), before);
  });
}

}  // namespace staged_backend_test
}  // namespace accel::comm
