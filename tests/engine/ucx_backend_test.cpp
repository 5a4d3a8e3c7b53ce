#include <ATen/ATen.h>

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <future>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "ucx_fixture.hpp"

namespace accel::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr c10::ScalarType kReducible[] = {at::kFloat,
                                          at::kDouble,
                                          at::kHalf,
                                          at::kBFloat16,
                                          at::kByte,
                                          at::kChar,
                                          at::kShort,
                                          at::kInt,
                                          at::kLong,
                                          at::kBool,
                                          at::kUInt16,
                                          at::kUInt32,
                                          at::kUInt64,
                                          at::kComplexFloat,
                                          at::kComplexDouble,
                                          at::kFloat8_e5m2,
                                          at::kFloat8_e4m3fn,
                                          at::kFloat8_e5m2fnuz,
                                          at::kFloat8_e4m3fnuz,
                                          at::kComplexHalf};
constexpr c10::ScalarType kMovedOnly[] = {at::kFloat8_e8m0fnu};
// Around the sizes where the data stops travelling with the header, one chunk, several chunks.
constexpr int64_t kSizes[] = {0, 7, 2049, 40001};

// Small whole numbers: exact in every dtype.
at::Tensor sample(int64_t numel, c10::ScalarType dtype, int rank) {
  const auto numbers =
      (at::arange(numel, at::kLong) * 7 + rank * 3).remainder(5) + (dtype == at::kFloat8_e8m0fnu ? 1 : 0);
  if (dtype == at::kBool) return numbers.remainder(2).to(at::kBool);
  if (dtype == at::kFloat8_e8m0fnu) return at::ones({numel}, at::kByte).mul_(120 + rank).view(dtype);
  return numbers.to(at::kFloat).to(dtype);
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const auto left = a.contiguous(), right = b.contiguous();
  return a.numel() == 0 || std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

// The plain computation: in a wide type, in rank order, rounded once.
at::Tensor expected(const Tensors& inputs, c10d::ReduceOp::RedOpType op) {
  const auto dtype = inputs[0].scalar_type();
  const bool complex = c10::isComplexType(dtype), floating = c10::isFloatingType(dtype);
  const auto wide = dtype == at::kBool ? at::kLong : complex ? at::kComplexDouble : floating ? at::kDouble : at::kLong;
  at::Tensor total = inputs[0].to(dtype == at::kComplexHalf ? at::kComplexFloat : dtype).to(wide);
  for (size_t i = 1; i < inputs.size(); i++) {
    const auto next = inputs[i].to(dtype == at::kComplexHalf ? at::kComplexFloat : dtype).to(wide);
    switch (op) {
      case c10d::ReduceOp::PRODUCT:
        total = total * next;
        break;
      case c10d::ReduceOp::MIN:
        total = at::minimum(total, next);
        break;
      case c10d::ReduceOp::MAX:
        total = at::maximum(total, next);
        break;
      case c10d::ReduceOp::BAND:
        total = at::bitwise_and(total, next);
        break;
      case c10d::ReduceOp::BOR:
        total = at::bitwise_or(total, next);
        break;
      case c10d::ReduceOp::BXOR:
        total = at::bitwise_xor(total, next);
        break;
      default:
        total = total + next;
    }
  }
  const auto ranks = static_cast<int64_t>(inputs.size());
  if (op == c10d::ReduceOp::AVG) {
    if (complex)
      total = at::view_as_complex(at::view_as_real(total) / ranks);
    else
      total = floating ? total / ranks : at::div(total, ranks, "trunc");
  }
  if (dtype == at::kDouble || dtype == at::kComplexDouble) return total;
  if (complex) return total.to(at::kComplexFloat).to(dtype);
  return floating ? total.to(at::kFloat).to(dtype) : total.to(dtype);
}

Tensors samples(int size, int64_t numel, c10::ScalarType dtype) {
  Tensors inputs;
  for (int rank = 0; rank < size; rank++) inputs.push_back(sample(numel, dtype, rank));
  return inputs;
}

bool is_bitwise(c10d::ReduceOp::RedOpType op) {
  return op == c10d::ReduceOp::BAND || op == c10d::ReduceOp::BOR || op == c10d::ReduceOp::BXOR;
}

bool is_defined(c10::ScalarType dtype, c10d::ReduceOp::RedOpType op) {
  if (is_bitwise(op)) return c10::isIntegralType(dtype, true);
  if (op == c10d::ReduceOp::AVG) return dtype != at::kBool;
  if (op == c10d::ReduceOp::MIN || op == c10d::ReduceOp::MAX) return !c10::isComplexType(dtype);
  return true;
}

class UcxRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, UcxRanks, testing::Values(1, 2, 3, 4));

TEST_P(UcxRanks, AllReduceEveryDtypeAndReduction) {
  const int size = GetParam();
  run_ranks(size, [size](const BackendPointer& backend, int rank) {
    for (const auto dtype : kReducible)
      for (int op = 0; op < c10d::ReduceOp::PREMUL_SUM; op++) {
        const auto type = static_cast<c10d::ReduceOp::RedOpType>(op);
        auto options = at_once<c10d::AllreduceOptions>();
        options.reduceOp = type;
        for (const int64_t numel : kSizes) {
          Tensors tensors{sample(numel, dtype, rank)};
          if (!is_defined(dtype, type)) {
            const auto error = expect_error([&] { backend->allreduce(tensors, options); });
            EXPECT_EQ(error.failure(), CollectiveFailure::kInvalid);
            EXPECT_NE(std::string(error.what()).find("is not defined"), std::string::npos) << error.what();
            break;
          }
          backend->allreduce(tensors, options)->wait();
          const auto right = expected(samples(size, numel, dtype), type);
          EXPECT_TRUE(same_bytes(tensors[0], right)) << toString(dtype) << " op " << op << " numel " << numel;
        }
      }
  });
}

TEST_P(UcxRanks, MovesEveryDtype) {
  const int size = GetParam();
  run_ranks(size, [size](const BackendPointer& backend, int rank) {
    std::vector<c10::ScalarType> dtypes(std::begin(kReducible), std::end(kReducible));
    dtypes.insert(dtypes.end(), std::begin(kMovedOnly), std::end(kMovedOnly));
    for (const auto dtype : dtypes)
      for (const int64_t numel : kSizes) {
        const Tensors inputs = samples(size, numel, dtype);
        const int root = static_cast<int>(numel) % size;
        const auto what = std::string(toString(dtype)) + " numel " + std::to_string(numel);

        Tensors tensors{inputs[rank].clone()};
        auto broadcast = at_once<c10d::BroadcastOptions>();
        broadcast.rootRank = root;
        backend->broadcast(tensors, broadcast)->wait();
        EXPECT_TRUE(same_bytes(tensors[0], inputs[root])) << "broadcast " << what;

        Tensors mine{inputs[rank]}, none;
        std::vector<Tensors> lists{Tensors()};
        for (int peer = 0; peer < size; peer++) lists[0].push_back(at::empty_like(mine[0]));
        backend->allgather(lists, mine, at_once<c10d::AllgatherOptions>())->wait();
        for (int peer = 0; peer < size; peer++)
          EXPECT_TRUE(same_bytes(lists[0][peer], inputs[peer])) << "allgather " << what;

        at::Tensor flat = at::empty({size, numel}, dtype);
        backend->_allgather_base(flat, mine[0], at_once<c10d::AllgatherOptions>())->wait();
        for (int peer = 0; peer < size; peer++)
          EXPECT_TRUE(same_bytes(flat[peer], inputs[peer])) << "all_gather " << what;

        for (auto& output : lists[0]) output = at::empty_like(mine[0]);
        std::vector<Tensors> no_lists;
        auto gather = at_once<c10d::GatherOptions>();
        gather.rootRank = root;
        backend->gather(rank == root ? lists : no_lists, mine, gather)->wait();
        for (int peer = 0; rank == root && peer < size; peer++)
          EXPECT_TRUE(same_bytes(lists[0][peer], inputs[peer])) << "gather " << what;

        std::vector<Tensors> sources{inputs};
        auto scatter = at_once<c10d::ScatterOptions>();
        scatter.rootRank = root;
        Tensors output{at::empty_like(mine[0])};
        backend->scatter(output, rank == root ? sources : no_lists, scatter)->wait();
        EXPECT_TRUE(same_bytes(output[0], inputs[rank])) << "scatter " << what;

        // Every rank sends its own sample to all: what arrives is the list of all samples.
        Tensors sent(size, inputs[rank]), received;
        for (int peer = 0; peer < size; peer++) received.push_back(at::empty_like(mine[0]));
        backend->alltoall(received, sent, at_once<c10d::AllToAllOptions>())->wait();
        for (int peer = 0; peer < size; peer++)
          EXPECT_TRUE(same_bytes(received[peer], inputs[peer])) << "alltoall " << what;
      }
  });
}

TEST_P(UcxRanks, ReduceAndReduceScatter) {
  const int size = GetParam();
  run_ranks(size, [size](const BackendPointer& backend, int rank) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong, at::kDouble})
      for (const int64_t numel : kSizes) {
        const Tensors inputs = samples(size, numel * size, dtype);
        const auto total = expected(inputs, c10d::ReduceOp::SUM);
        const int root = size - 1;
        Tensors tensors{inputs[rank].clone()};
        auto reduce = at_once<c10d::ReduceOptions>();
        reduce.rootRank = root;
        backend->reduce(tensors, reduce)->wait();
        EXPECT_TRUE(same_bytes(tensors[0], rank == root ? total : inputs[rank])) << toString(dtype) << numel;

        at::Tensor input = inputs[rank].clone(), output = at::empty({numel}, dtype);
        backend->_reduce_scatter_base(output, input, at_once<c10d::ReduceScatterOptions>())->wait();
        EXPECT_TRUE(same_bytes(output, total.narrow(0, rank * numel, numel))) << toString(dtype) << numel;
        EXPECT_TRUE(same_bytes(input, inputs[rank]));

        Tensors outputs{at::empty({numel}, dtype)};
        std::vector<Tensors> lists{Tensors()};
        for (int peer = 0; peer < size; peer++) lists[0].push_back(input.narrow(0, peer * numel, numel));
        backend->reduce_scatter(outputs, lists, at_once<c10d::ReduceScatterOptions>())->wait();
        EXPECT_TRUE(same_bytes(outputs[0], output));
      }
  });
}

TEST_P(UcxRanks, CoalescedCallsAndUnevenSplits) {
  const int size = GetParam();
  run_ranks(size, [size](const BackendPointer& backend, int rank) {
    Tensors tensors{sample(5, at::kFloat, rank), sample(30000, at::kInt, rank)};
    backend->allreduce_coalesced(tensors, c10d::AllreduceCoalescedOptions())->wait();
    EXPECT_TRUE(same_bytes(tensors[0], expected(samples(size, 5, at::kFloat), c10d::ReduceOp::SUM)));
    EXPECT_TRUE(same_bytes(tensors[1], expected(samples(size, 30000, at::kInt), c10d::ReduceOp::SUM)));

    Tensors inputs{at::full({3}, rank), at::full({4000}, rank, at::kDouble)};
    Tensors outputs{at::empty({size, 3}, at::kLong), at::empty({size, 4000}, at::kDouble)};
    inputs[0] = inputs[0].to(at::kLong);
    backend->allgather_into_tensor_coalesced(outputs, inputs, c10d::AllgatherOptions())->wait();
    Tensors parts{at::empty({3}, at::kLong), at::empty({4000}, at::kDouble)};
    backend->reduce_scatter_tensor_coalesced(parts, outputs, c10d::ReduceScatterOptions())->wait();
    EXPECT_TRUE(at::equal(parts[0], at::full({3}, rank * size, at::kLong)));
    EXPECT_TRUE(at::equal(parts[1], at::full({4000}, rank * size, at::kDouble)));

    // Rank r sends r + p + 1 rows of 1000 to rank p.
    std::vector<int64_t> sent, received;
    int64_t rows = 0;
    for (int peer = 0; peer < size; peer++)
      sent.push_back(rank + peer + 1), received.push_back(rank + peer + 1), rows += rank + peer + 1;
    at::Tensor input = at::full({rows, 1000}, rank, at::kFloat), output = at::full({rows, 1000}, -1, at::kFloat);
    backend->alltoall_base(output, input, received, sent, c10d::AllToAllOptions())->wait();
    int64_t row = 0;
    for (int peer = 0; peer < size; row += received[peer++])
      EXPECT_TRUE(at::equal(output.narrow(0, row, received[peer]), at::full({received[peer], 1000}, peer, at::kFloat)));
  });
}

TEST_P(UcxRanks, TensorsThatAreNotContiguous) {
  const int size = GetParam();
  run_ranks(size, [size](const BackendPointer& backend, int rank) {
    for (const int64_t rows : {3, 200}) {
      const auto base = at::full({rows, 64}, rank + 1, at::kFloat);
      Tensors tensors{base.t()};
      ASSERT_TRUE(size == 0 || !tensors[0].is_contiguous());
      backend->allreduce(tensors, at_once<c10d::AllreduceOptions>())->wait();
      EXPECT_TRUE(at::equal(base, at::full({rows, 64}, size * (size + 1) / 2, at::kFloat)));
      const auto columns = at::full({rows, 64}, rank, at::kFloat);
      Tensors views{columns.narrow(1, 3, 9)};
      backend->broadcast(views, c10d::BroadcastOptions())->wait();
      EXPECT_TRUE(at::equal(views[0], at::zeros({rows, 9})));
      EXPECT_EQ(columns[0][0].item<float>(), rank);
    }
  });
}

// The Reducer's pattern: many asynchronous all-reduces of different sizes, waited for through their futures.
TEST_P(UcxRanks, ManyAsynchronousCalls) {
  const int size = GetParam();
  run_ranks(size, [size](const BackendPointer& backend, int rank) {
    for (int round = 0; round < 5; round++) {
      std::vector<Tensors> buckets;
      std::vector<c10::intrusive_ptr<c10d::Work>> works;
      std::atomic<int> callbacks{0};
      for (int bucket = 0; bucket < 20; bucket++) {
        buckets.push_back({at::full({1 + bucket * 3001}, rank + bucket, at::kFloat)});
        works.push_back(backend->allreduce(buckets.back(), c10d::AllreduceOptions()));
        works.back()->getFuture()->addCallback([&](c10::ivalue::Future&) { callbacks++; });
      }
      for (int bucket = 19; bucket >= 0; bucket--) {
        if (bucket % 2)
          works[bucket]->getFuture()->wait();
        else
          works[bucket]->wait();
        const auto value = works[bucket]->getFuture()->value().toTensorVector()[0];
        EXPECT_TRUE(at::equal(value, at::full_like(value, size * bucket + size * (size - 1) / 2)));
      }
      while (callbacks < 20) std::this_thread::yield();
    }
  });
}

// Buckets in memory that the peers map, as the Reducer asks for them; a rank with a tensor elsewhere is no obstacle.
TEST_P(UcxRanks, AllReduceInPlace) {
  const int size = GetParam();
  run_ranks(size, [size](const BackendPointer& backend, int rank) {
    const char* const use = std::getenv("ACCEL_SHARED_MEMORY");
    const bool possible = size > 1 && (use == nullptr || std::strcmp(use, "0") != 0);
    ASSERT_EQ(backend->supportsTensorAlloc(-1), possible);
    if (!possible) return;
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kByte, at::kComplexDouble})
      for (const int64_t numel : {5, 2049, 100003})
        for (const bool everywhere : {true, false}) {
          const bool shared = everywhere || rank > 0;
          Tensors tensors{shared ? backend->allocateTensor(numel, dtype) : at::zeros({numel}, dtype)};
          EXPECT_EQ(at::count_nonzero(tensors[0]).item<int64_t>(), 0);
          tensors[0].copy_(sample(numel, dtype, rank));
          auto options = at_once<c10d::AllreduceOptions>();
          options.reduceOp = c10d::ReduceOp::AVG;
          backend->allreduce(tensors, options)->wait();
          EXPECT_TRUE(same_bytes(tensors[0], expected(samples(size, numel, dtype), c10d::ReduceOp::AVG)))
              << toString(dtype);
          Tensors part{tensors[0].narrow(0, numel / 3, numel / 2)};
          part[0].fill_(rank);
          backend->allreduce(part, at_once<c10d::AllreduceOptions>())->wait();
          EXPECT_TRUE(at::equal(part[0], at::full_like(part[0], size * (size - 1) / 2)));
        }
  });
}

TEST(UcxGroup, MoreRanksThanCores) {
  const int size = 12;
  run_ranks(size, [size](const BackendPointer& backend, int rank) {
    for (int round = 0; round < 30; round++) {
      Tensors tensors{at::full({round % 3 == 0 ? 40000 : 10}, rank, at::kFloat)};
      backend->allreduce(tensors, at_once<c10d::AllreduceOptions>())->wait();
      EXPECT_EQ(tensors[0][-1].item<float>(), size * (size - 1) / 2);
      backend->barrier(at_once<c10d::BarrierOptions>())->wait();
    }
  });
}

TEST(UcxGroup, SameBitsOnEveryRank) {
  std::vector<at::Tensor> results(3);
  run_ranks(3, [&](const BackendPointer& backend, int rank) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(17 + rank);
    Tensors tensors{at::randn({100003}, generator, at::kFloat).to(at::kBFloat16)};
    backend->allreduce(tensors, at_once<c10d::AllreduceOptions>())->wait();
    results[rank] = tensors[0];
  });
  EXPECT_TRUE(same_bytes(results[0], results[1]));
  EXPECT_TRUE(same_bytes(results[0], results[2]));
}

TEST(UcxGroup, MismatchIsSeenByAllAndTheGroupStays) {
  std::vector<std::string> lines(3);
  run_ranks(3, [&](const BackendPointer& backend, int rank) {
    const auto all_reduce = [&](const at::Tensor& tensor) {
      Tensors tensors{tensor};
      backend->allreduce(tensors, at_once<c10d::AllreduceOptions>())->wait();
    };
    const auto check = [&](const std::function<void()>& call, const std::string& part) {
      const auto error = expect_error(call);
      EXPECT_EQ(error.failure(), CollectiveFailure::kMismatch);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      lines[rank] = error.what();
      const auto tensor = at::ones({4});
      all_reduce(tensor);
      EXPECT_EQ(tensor[0].item<float>(), 3);
    };
    check(
        [&] {
          all_reduce(at::ones({3, rank == 1 ? 5 : 4}));
        },
        "all_reduce #0: rank 0 has float32[3, 4], rank 1 has float32[3, 5]");
    check([&] { all_reduce(at::ones({6}, rank == 2 ? at::kDouble : at::kFloat)); }, "rank 2 has float64[6]");
    check([&] { all_reduce(at::ones({rank == 2 ? 1000000 : 6})); }, "rank 2 has float32[1000000]");
    check(
        [&] {
          Tensors tensors{at::ones({2})};
          if (rank == 0)
            backend->broadcast(tensors, at_once<c10d::BroadcastOptions>())->wait();
          else
            all_reduce(tensors[0]);
        },
        "rank 0 called broadcast of float32[2]");
    check(
        [&] {
          Tensors tensors{at::ones({2})};
          auto options = at_once<c10d::BroadcastOptions>();
          options.rootRank = rank == 1;
          backend->broadcast(tensors, options)->wait();
        },
        "with root 1");
    check(
        [&] {
          Tensors tensors{at::ones({2})};
          auto options = at_once<c10d::AllreduceOptions>();
          options.reduceOp = rank == 1 ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
          backend->allreduce(tensors, options)->wait();
        },
        "(max)");
    check(
        [&] {
          std::vector<int64_t> sent{1, 1, 1}, received{1, 1, rank == 1 ? 2 : 1};
          at::Tensor input = at::ones({3}), output = at::ones({rank == 1 ? 4 : 3});
          backend->alltoall_base(output, input, received, sent, at_once<c10d::AllToAllOptions>())->wait();
        },
        "rank 2 sends 1 elements to rank 1, which expects 2");
  });
  EXPECT_EQ(lines[0], lines[1]);
  EXPECT_EQ(lines[0], lines[2]);
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
      EXPECT_STREQ(error.what(), "all_reduce #1 on rank 0 timed out after 200 ms: no answer from rank 1");
    } else {
      std::this_thread::sleep_for(milliseconds(500));
      backend->allreduce(tensors, options)->wait();  // the header of rank 0 is there
      const auto start = Clock::now();
      const auto error = expect_error([&] { backend->barrier(at_once<c10d::BarrierOptions>())->wait(); });
      EXPECT_EQ(error.failure(), CollectiveFailure::kAborted);
      EXPECT_NE(std::string(error.what()).find("timed out after 200 ms"), std::string::npos) << error.what();
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(3));
    }
    const auto later = expect_error([&] { backend->allreduce(tensors, options); });
    EXPECT_EQ(later.failure(), CollectiveFailure::kAborted);
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
    EXPECT_EQ(error.failure(), rank == 0 ? CollectiveFailure::kTimeout : CollectiveFailure::kAborted);
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

TEST(UcxGroup, ShutdownWithCallsOutstanding) {
  run_ranks(2, [](const BackendPointer& backend, int rank) {
    if (rank == 1) return std::this_thread::sleep_for(milliseconds(50));
    Tensors tensors{at::ones({4})}, received{at::ones({4})};
    const auto work = backend->allreduce(tensors, c10d::AllreduceOptions());
    const auto receive = backend->recv(received, 1, 3);
    const auto future = work->getFuture();
    backend->shutdown();
    EXPECT_EQ(expect_error([&] { work->wait(); }).failure(), CollectiveFailure::kAborted);
    EXPECT_EQ(expect_error([&] { receive->wait(); }).failure(), CollectiveFailure::kAborted);
    EXPECT_TRUE(future->hasError());
    EXPECT_EQ(expect_error([&] { backend->allreduce(tensors, c10d::AllreduceOptions()); }).failure(),
              CollectiveFailure::kAborted);
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

TEST(UcxGroup, LeavesOnlyWhenAllHaveCome) {
  const auto environment = backend_environment();
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

TEST(UcxGroup, MissingRankIsNamedWhenTheGroupForms) {
  const auto environment = backend_environment();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  try {
    make_backend(store, 0, 2, 100);
    FAIL() << "rank 1 never came";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("no sign of rank 1"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace accel::comm
