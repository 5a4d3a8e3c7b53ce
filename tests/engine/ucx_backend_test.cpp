// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <future>
#include <string>
#include <thread>

#include "comm/backend/coalescing.hpp"
#include "comm/backend/job_group.hpp"
#include "ucx_fixture.hpp"

namespace accel::comm {
namespace ucx_backend_test {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

TEST(UcxGroup, MoreRanksThanCores) {
  const int size = 12;
  run_ranks(size, [](const BackendPointer& backend, int rank) {
    for (int round = 0; round < 30; round++) {
      Tensors tensors{at::full({round % 3 == 0 ? 40000 : 10}, rank, at::kFloat)};
      backend->allreduce(tensors, at_once<c10d::AllreduceOptions>())->wait();
      EXPECT_EQ(tensors[0][-1].item<float>(), size * (size - 1) / 2);
      backend->barrier(at_once<c10d::BarrierOptions>())->wait();
    }
  });
}

TEST(UcxGroup, TimeoutNamesTheRankAndEndsTheGroup) {
  std::atomic<bool> both_done{false};
  run_ranks(2, [&](const BackendPointer& backend, int rank) {
    Tensors tensors{at::ones({4})};
    auto options = at_once<c10d::AllreduceOptions>();
    backend->barrier(at_once<c10d::BarrierOptions>())->wait();
    if (rank == 0) {
      options.timeout = milliseconds(200);
      const auto error = expect_error([&] { backend->allreduce(tensors, options)->wait(); });
      EXPECT_EQ(error.failure(), CollectiveFailure::kTimeout);
      EXPECT_STREQ(error.what(),
                   "all_reduce #1 on rank 0 timed out after 200 ms: no answer from rank 1; rank 1 is in no call since "
                   "wait_for_everyone #0, rank 0 waits in all_reduce #1");
    } else {
      std::this_thread::sleep_for(milliseconds(500));
      backend->allreduce(tensors, options)->wait();  // the header of rank 0 is there
      const auto start = Clock::now();
      const auto error = expect_error([&] { backend->barrier(at_once<c10d::BarrierOptions>())->wait(); });
      EXPECT_EQ(error.failure(), CollectiveFailure::kTimeout);
      EXPECT_NE(std::string(error.what()).find("timed out after 200 ms"), std::string::npos) << error.what();
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(3));
    }
    const auto later = expect_error([&] { backend->allreduce(tensors, options); });
    EXPECT_EQ(later.failure(), CollectiveFailure::kTimeout);
    EXPECT_NE(std::string(later.what()).find("timed out"), std::string::npos) << later.what();
    if (rank == 1) both_done = true;
    while (!both_done) std::this_thread::sleep_for(milliseconds(1));  // a rank that is gone would be another failure
  });
}

// A signal holds rank 1 wherever it is, most likely in the middle of a large all-reduce.
TEST(UcxGroup, TimeoutNamesARankThatStopsOnTheWay) {
  struct sigaction hold {
  }, before{};
  hold.sa_handler = [](int) {
    const timespec time{1, 500000000};
    nanosleep(&time, nullptr);
  };
  sigaction(SIGUSR1, &hold, &before);
  std::promise<pthread_t> held;
  std::atomic<bool> both_done{false};
  run_ranks(2, [&](const BackendPointer& backend, int rank) {
    Tensors tensors{at::zeros({8 << 20})};
    auto options = at_once<c10d::AllreduceOptions>();
    std::thread holder;
    if (rank == 0) {
      options.timeout = milliseconds(400);
      holder = std::thread([&] {
        const pthread_t thread = held.get_future().get();
        std::this_thread::sleep_for(milliseconds(50));
        pthread_kill(thread, SIGUSR1);
      });
    } else {
      held.set_value(pthread_self());
    }
    const auto error = expect_error([&] {
      for (;;) backend->allreduce(tensors, options)->wait();
    });
    EXPECT_EQ(error.failure(), CollectiveFailure::kTimeout);  // also on rank 1, which hears of it from rank 0
    EXPECT_NE(std::string(error.what()).find("no answer from rank 1"), std::string::npos) << error.what();
    if (holder.joinable()) holder.join();
    if (rank == 1) both_done = true;
    while (!both_done) std::this_thread::sleep_for(milliseconds(1));  // a rank that is gone would be another failure
  });
  sigaction(SIGUSR1, &before, nullptr);
}

TEST(UcxGroup, SendsCross) {
  for (const int64_t numel : {1, 3000, 3000000})
    run_ranks(2, [numel](const BackendPointer& backend, int rank) {
      Tensors mine{at::full({numel}, rank, at::kFloat)}, theirs{at::full({numel}, -1, at::kFloat)};
      const auto sent = backend->send(mine, 1 - rank, 7), received = backend->recv(theirs, 1 - rank, 7);
      received->wait();
      sent->wait();
      EXPECT_EQ(received->sourceRank(), 1 - rank);
      EXPECT_TRUE(at::equal(theirs[0], at::full({numel}, 1 - rank, at::kFloat)));
    });
}

TEST(UcxGroup, PointToPointBesideCollectives) {
  run_ranks(3, [](const BackendPointer& backend, int rank) {
    if (rank == 0) {
      Tensors first{at::zeros({5})}, second{at::zeros({5, 2}).t()};
      const auto one = backend->recvAnysource(first, 1), two = backend->recvAnysource(second, 2);
      Tensors tensors{at::ones({100000})};
      backend->allreduce(tensors, at_once<c10d::AllreduceOptions>())->wait();
      one->wait();
      two->wait();
      EXPECT_EQ(one->sourceRank(), 1);
      EXPECT_EQ(two->sourceRank(), 2);
      EXPECT_EQ(first[0][0].item<float>(), 1);
      EXPECT_TRUE(at::equal(second[0], at::full({2, 5}, 2, at::kFloat)));
    } else {
      Tensors tensors{at::ones({100000})};
      backend->allreduce(tensors, at_once<c10d::AllreduceOptions>())->wait();
      Tensors mine{at::full({rank == 1 ? 5 : 10}, rank, at::kFloat)};
      backend->send(mine, 0, rank)->wait();
    }
    backend->barrier(at_once<c10d::BarrierOptions>())->wait();
    // A receive of another length fails alone.
    Tensors tensors{at::ones({rank == 0 ? 3 : 4})};
    if (rank == 0) {
      const auto error = expect_error([&] { backend->recv(tensors, 1, 0)->wait(); });
      EXPECT_EQ(error.failure(), CollectiveFailure::kMismatch);
    } else if (rank == 1) {
      backend->send(tensors, 0, 0)->wait();
    }
    backend->barrier(at_once<c10d::BarrierOptions>())->wait();
  });
}

// A peer that is gone before a slow rank shuts down is another failure.
class PeerThatStays {
 public:
  void leave() { has_left_.set_value(); }
  void stay() { has_left_.get_future().wait_for(std::chrono::seconds(30)); }

 private:
  std::promise<void> has_left_;
};

TEST(UcxGroup, ShutdownWithCallsOutstanding) {
  PeerThatStays peer;
  run_ranks(2, [&peer](const BackendPointer& backend, int rank) {
    if (rank == 1) return peer.stay();
    Tensors tensors{at::ones({4})}, received{at::ones({4})};
    const auto work = backend->allreduce(tensors, c10d::AllreduceOptions());
    const auto receive = backend->recv(received, 1, 3);
    const auto future = work->getFuture();
    backend->shutdown();
    peer.leave();
    EXPECT_EQ(expect_error([&] { work->wait(); }).failure(), CollectiveFailure::kAborted);
    EXPECT_EQ(expect_error([&] { receive->wait(); }).failure(), CollectiveFailure::kAborted);
    EXPECT_TRUE(future->hasError());
    EXPECT_EQ(expect_error([&] { backend->allreduce(tensors, c10d::AllreduceOptions()); }).failure(),
              CollectiveFailure::kAborted);
  });
}

TEST(UcxGroup, ALargeMessageFromAnyRank) {
  run_ranks(2, [](const BackendPointer& backend, int rank) {
    Tensors tensors{at::full({3000000}, rank, at::kFloat)};
    const auto work = rank == 0 ? backend->recvAnysource(tensors, 4) : backend->send(tensors, 0, 4);
    work->wait();
    EXPECT_TRUE(rank == 1 || work->sourceRank() == 1);
    EXPECT_TRUE(at::equal(tensors[0], at::ones({3000000})));
  });
}

TEST(UcxGroup, ShutdownWithALargeMessageThatNobodyTook) {
  PeerThatStays peer;
  run_ranks(2, [&peer](const BackendPointer& backend, int rank) {
    if (rank == 1) return peer.stay();
    Tensors tensors{at::ones({3000000})};
    const auto work = backend->send(tensors, 1, 3);
    backend->shutdown();
    peer.leave();
    EXPECT_EQ(expect_error([&] { work->wait(); }).failure(), CollectiveFailure::kAborted);
  });
}

TEST(UcxGroup, AbortReachesThePeers) {
  run_ranks(2, [](const BackendPointer& backend, int rank) {
    if (rank == 1) return backend->abort();
    const auto error = expect_error([&] { backend->barrier(at_once<c10d::BarrierOptions>())->wait(); });
    EXPECT_EQ(error.failure(), CollectiveFailure::kAborted);
    EXPECT_NE(std::string(error.what()).find("rank 1 aborted the group"), std::string::npos) << error.what();
  });
}

// A store whose reader loses its core at the worst moment: it knows the others' addresses and is not connected yet.
class SlowReader final : public c10d::PrefixStore {
 public:
  using PrefixStore::PrefixStore;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override {
    auto values = PrefixStore::multiGet(keys);
    std::this_thread::sleep_for(milliseconds(200));
    return values;
  }
};

// As where there is no memory for the rest of a call: a part of it would be a mismatch for the other rank.
// Regression: a rank without memory for the second part of a call sent the first: the others were told of calls that
// differ.
TEST(UcxGroup, ACancelledCallHasSentNothing) {
  run_ranks(2, [](const BackendPointer& backend, int rank) {
    Tensors tensors{at::full({4}, rank)};
    if (rank == 1) {
      backend->startCoalescing();
      backend->allreduce(tensors, at_once<c10d::AllreduceOptions>());
      dynamic_cast<Coalescing&>(*backend).cancel_coalescing();
    }
    for (int time = 0; time < 2; time++) {
      const auto work = backend->allreduce(tensors, at_once<c10d::AllreduceOptions>());
      ASSERT_NE(work, nullptr);
      work->wait();
    }
    EXPECT_TRUE(tensors[0].eq(2).all().item<bool>());
  });
}

// Regression: the work of a coalesced call was complete at once, while its messages were under way.
TEST(UcxGroup, RefusesAMessageInACoalescedCall) {
  run_ranks(2, [](const BackendPointer& backend, int rank) {
    Tensors tensors{at::full({4}, rank)};
    backend->startCoalescing();
    const auto error = expect_error([&] { backend->recv(tensors, 1 - rank, 0); });
    dynamic_cast<Coalescing&>(*backend).cancel_coalescing();
    EXPECT_EQ(error.failure(), CollectiveFailure::kInvalid);
    EXPECT_NE(std::string(error.what()).find("a message is a call of its own"), std::string::npos) << error.what();
    backend->barrier(at_once<c10d::BarrierOptions>())->wait();
  });
}

TEST(UcxGroup, IsNumberedAnewIfOneSawTheEndOfTheFormer) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto store_of = [&store](const char* name) { return c10::make_intrusive<c10d::PrefixStore>(name, store); };
  const auto numbers = [](const BackendPointer& backend) {
    const auto& group = dynamic_cast<const JobGroup&>(*backend);
    return std::vector{group.job_rank(0), group.job_rank(1)};
  };
  run_threads(3, [&](int rank) {
    const auto job = make_backend(store_of("job"), rank, 3);
    if (rank > 0) {
      const auto former = make_backend(store_of("former"), rank - 1, 2, 20000, job);
      EXPECT_EQ(numbers(former), (std::vector{1, 2}));
      if (rank == 1) former->abort();
      const auto next = make_backend(store_of("next"), rank - 1, 2, 20000, former);
      EXPECT_EQ(numbers(next), (std::vector{0, 1})) << rank;
      next->shutdown();
      former->shutdown();
    }
    job->shutdown();
  });
}

TEST(UcxGroup, LeavesOnlyWhenAllHaveCome) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::thread leaves_at_once(
      [&] { make_backend(c10::make_intrusive<c10d::PrefixStore>("group", store), 1, 2)->shutdown(); });
  EXPECT_NO_THROW(make_backend(c10::make_intrusive<SlowReader>("group", store), 0, 2)->shutdown());
  leaves_at_once.join();
}

TEST(UcxGroup, BadArguments) {
  run_ranks(1, [](const BackendPointer& backend, int) {
    const auto refused = [](const std::function<void()>& call, const std::string& part) {
      const auto error = expect_error(call);
      EXPECT_EQ(error.failure(), CollectiveFailure::kInvalid);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    };
    Tensors sparse{at::ones({3}).to_sparse()}, undefined{at::Tensor()}, fine{at::ones({3})},
        two{at::ones({1}), at::ones({1})};
    Tensors meta{at::empty({3}, at::TensorOptions().device(at::kMeta))};
    refused([&] { backend->allreduce(sparse, c10d::AllreduceOptions()); }, "sparse");
    refused([&] { backend->allreduce(undefined, c10d::AllreduceOptions()); }, "undefined");
    refused([&] { backend->allreduce(meta, c10d::AllreduceOptions()); }, "meta");
    refused([&] { backend->allreduce(two, c10d::AllreduceOptions()); }, "2 tensors");
    c10d::BroadcastOptions options;
    options.rootRank = 4;
    refused([&] { backend->broadcast(fine, options); }, "root 4 is not a rank");
    refused([&] { backend->send(fine, 0, 0); }, "another rank");
    at::Tensor output = at::ones({5});
    refused([&] { backend->_allgather_base(output, fine[0], c10d::AllgatherOptions()); }, "expected 1 x 3 float32");
  });
}

TEST(UcxGroup, VariablesOfTheUserReachUcx) {
  const Variable transports("UCX_TLS", "no_such_transport");
  EXPECT_STREQ(std::getenv("UCX_TLS"), "no_such_transport");
  try {
    make_backend(c10::make_intrusive<c10d::HashStore>(), 0, 1);
    FAIL() << "UCX was told to use a transport that it does not have";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("UCX on rank 0 could not"), std::string::npos) << error.what();
  }
}

TEST(UcxGroup, MissingRankIsNamedWhenTheGroupForms) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  try {
    make_backend(store, 0, 2, 100);
    FAIL() << "rank 1 never came";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("no sign of rank 1"), std::string::npos) << error.what();
  }
}

}  // namespace ucx_backend_test
}  // namespace accel::comm
