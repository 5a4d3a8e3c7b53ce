// SPDX-License-Identifier: Apache-2.0
// What every backend must do, whatever lies between its ranks: one memory, messages, TCP alone, or several hosts.
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "repeated.hpp"
#include "ucx_fixture.hpp"

namespace accel::comm {
namespace conformance_test {

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
  if (dtype == at::kFloat8_e8m0fnu) return at::full({numel}, 120 + rank, at::kByte).view(dtype);
  const at::Tensor numbers = (at::arange(2000, at::kLong) * 7 + rank * 3).remainder(5);
  if (dtype == at::kBool) return tests::repeated(numbers.remainder(2).to(at::kBool), numel);
  return tests::repeated(numbers.to(at::kFloat).to(dtype), numel);
}

// Of one rank among many.
at::Tensor multiples(int64_t numel, int rank) {
  return tests::repeated((at::arange(1009, at::kInt) * (rank + 1)).remainder(1009), numel);
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

// Where parts are reduced on their way, the mean of each is rounded.
bool is_close(const at::Tensor& a, const at::Tensor& b) {
  const auto dtype = b.scalar_type();
  const bool complex = c10::isComplexType(dtype);
  const double digits = dtype == at::kFloat || dtype == at::kComplexFloat     ? 1e-6
                        : dtype == at::kDouble || dtype == at::kComplexDouble ? 1e-15
                        : c10::isFloat8Type(dtype)                            ? 0.3
                                                                              : 0.02;
  const auto wide = complex ? at::kComplexDouble : at::kDouble;
  const auto widened = [&](const at::Tensor& tensor) {
    return dtype == at::kComplexHalf ? tensor.to(at::kComplexFloat).to(wide) : tensor.to(wide);
  };
  return a.scalar_type() == dtype && a.sizes() == b.sizes() && at::allclose(widened(a), widened(b), digits, digits);
}

bool is_mean_of_parts(c10::ScalarType dtype, c10d::ReduceOp::RedOpType op, const Route& route) {
  return op == c10d::ReduceOp::AVG && !c10::isIntegralType(dtype, true) && route.ranks() > 2 &&
         std::string(route.hosts).find_first_not_of(route.hosts[0]) != std::string::npos;
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

class Conformance : public testing::TestWithParam<Route> {};
INSTANTIATE_TEST_SUITE_P(Alone, Conformance, testing::Values(Route{"a"}), name_of);
INSTANTIATE_TEST_SUITE_P(SharedMemory, Conformance, testing::Values(Route{"aa"}, Route{"aaa"}, Route{"aaaa"}), name_of);
INSTANTIATE_TEST_SUITE_P(Messages, Conformance, testing::Values(Route{"aaa", Between::kMessages}), name_of);
INSTANTIATE_TEST_SUITE_P(Tcp, Conformance,
                         testing::Values(Route{"aa", Between::kTcp}, Route{"aaa", Between::kTcp},
                                         Route{"aaaa", Between::kTcp}),
                         name_of);
// Each letter is a host: of one rank, of equally many, of different numbers, mixed.
INSTANTIATE_TEST_SUITE_P(Hosts, Conformance,
                         testing::Values(Route{"ab"}, Route{"abc"}, Route{"aabb"}, Route{"aaabb"}, Route{"abcab"}),
                         name_of);

TEST_P(Conformance, AllReduceEveryDtypeAndReduction) {
  const int size = GetParam().ranks();
  run_ranks(GetParam(), [size](const BackendPointer& backend, int rank) {
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
          const bool close = is_mean_of_parts(dtype, type, GetParam()) && is_close(tensors[0], right);
          EXPECT_TRUE(close || same_bytes(tensors[0], right)) << toString(dtype) << " op " << op << " numel " << numel;
        }
      }
  });
}

c10d::ReduceOp premul_sum(double factor) {
  c10d::ReduceOp sum;
  sum.op_ = c10d::ReduceOp::PREMUL_SUM;
  sum.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(factor);
  return sum;
}

TEST_P(Conformance, ScaledSums) {
  const int size = GetParam().ranks();
  run_ranks(GetParam(), [size](const BackendPointer& backend, int rank) {
    for (const auto dtype : kReducible)
      for (const double factor : {0.25, 1.0 / 3}) {
        auto options = at_once<c10d::AllreduceOptions>();
        options.reduceOp = premul_sum(factor);
        for (const int64_t numel : kSizes) {
          Tensors tensors{sample(numel, dtype, rank)};
          if (c10::isIntegralType(dtype, true)) {
            EXPECT_EQ(expect_error([&] { backend->allreduce(tensors, options); }).failure(),
                      CollectiveFailure::kInvalid);
            break;
          }
          backend->allreduce(tensors, options)->wait();
          at::Tensor total = expected(samples(size, numel, dtype), c10d::ReduceOp::SUM);
          const auto wide = dtype == at::kDouble          ? at::kDouble
                            : dtype == at::kComplexDouble ? at::kComplexDouble
                            : c10::isComplexType(dtype)   ? at::kComplexFloat
                                                          : at::kFloat;
          const at::Tensor right = (total.to(wide) * factor).to(dtype);
          EXPECT_TRUE(is_close(tensors[0], right)) << toString(dtype) << " times " << factor << " numel " << numel;
        }
      }
  });
}

// What does not fit into a half in the sum, but does in the mean.
TEST_P(Conformance, MeanOfLargeHalves) {
  run_ranks(GetParam(), [](const BackendPointer& backend, int) {
    for (const int64_t numel : kSizes) {
      Tensors tensors{at::full({numel}, 40000, at::kHalf)};
      auto options = at_once<c10d::AllreduceOptions>();
      options.reduceOp = c10d::ReduceOp::AVG;
      backend->allreduce(tensors, options)->wait();
      EXPECT_TRUE(is_close(tensors[0], at::full({numel}, 40000, at::kHalf))) << numel;
    }
  });
}

// Through the wide loads, past their ends, and past the largest and smallest numbers.
TEST_P(Conformance, HalvesOfEveryKind) {
  const int size = GetParam().ranks();
  run_ranks(GetParam(), [size](const BackendPointer& backend, int rank) {
    for (const auto dtype : {at::kHalf, at::kBFloat16})
      for (const int64_t numel : {1, 31, 33, 65536}) {
        const at::Tensor bits = (at::arange(65536, at::kInt) % 65536).to(at::kUInt16).view(dtype).narrow(0, 0, numel);
        Tensors tensors{rank == 0 ? bits.clone() : at::zeros({numel}, dtype)};
        backend->allreduce(tensors, at_once<c10d::AllreduceOptions>())->wait();
        // The sum with zeros: itself, but -0 becomes 0 and a NaN any NaN.
        const at::Tensor right = size == 1 ? bits : bits + at::zeros({numel}, dtype);
        const at::Tensor same = tensors[0].view(at::kShort).eq(right.view(at::kShort));
        EXPECT_TRUE(same.logical_or(right.isnan().logical_and(tensors[0].isnan())).all().item<bool>())
            << toString(dtype) << " numel " << numel;
      }
  });
}

TEST_P(Conformance, FactorsThatDifferAreAMismatch) {
  if (GetParam().ranks() == 1) return;
  run_ranks(GetParam(), [](const BackendPointer& backend, int rank) {
    Tensors tensors{at::ones({3})};
    auto options = at_once<c10d::AllreduceOptions>();
    options.reduceOp = premul_sum(rank == 1 ? 0.5 : 0.25);
    const auto error = expect_error([&] { backend->allreduce(tensors, options)->wait(); });
    EXPECT_EQ(error.failure(), CollectiveFailure::kMismatch);
    EXPECT_NE(std::string(error.what()).find("times 0.25"), std::string::npos) << error.what();
  });
}

TEST_P(Conformance, MovesEveryDtype) {
  const int size = GetParam().ranks();
  run_ranks(GetParam(), [size](const BackendPointer& backend, int rank) {
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

TEST_P(Conformance, ReduceAndReduceScatter) {
  const int size = GetParam().ranks();
  run_ranks(GetParam(), [size](const BackendPointer& backend, int rank) {
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

TEST_P(Conformance, CoalescedCallsAndUnevenSplits) {
  const int size = GetParam().ranks();
  run_ranks(GetParam(), [size](const BackendPointer& backend, int rank) {
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

TEST_P(Conformance, TensorsThatAreNotContiguous) {
  const int size = GetParam().ranks();
  run_ranks(GetParam(), [size](const BackendPointer& backend, int rank) {
    for (const int64_t rows : {3, 200}) {
      const auto base = at::full({rows, 64}, rank + 1, at::kFloat);
      Tensors tensors{base.t()};
      ASSERT_FALSE(tensors[0].is_contiguous());
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

// A row of float32 from each rank: what every operation makes of it, with as many bytes as matter to an algorithm.
TEST_P(Conformance, SizesAroundEachThreshold) {
  const int size = GetParam().ranks();
  run_ranks(GetParam(), [size](const BackendPointer& backend, int rank) {
    for (const int64_t threshold : {4 << 10, 8 << 10, 16 << 10, 64 << 10, 128 << 10, 512 << 10, 2 << 20})
      for (const int64_t numel : {threshold / 4 - 1, threshold / 4, threshold / 4 + 1}) {
        const Tensors inputs = samples(size, numel, at::kFloat);
        const auto total = expected(inputs, c10d::ReduceOp::SUM);
        const int root = static_cast<int>(numel) % size;
        const auto what = text(numel, " numbers from ", root);

        Tensors tensors{inputs[rank].clone()};
        backend->allreduce(tensors, at_once<c10d::AllreduceOptions>())->wait();
        EXPECT_TRUE(same_bytes(tensors[0], total)) << "all_reduce " << what;

        tensors[0] = inputs[rank].clone();
        auto reduce = at_once<c10d::ReduceOptions>();
        reduce.rootRank = root;
        backend->reduce(tensors, reduce)->wait();
        EXPECT_TRUE(same_bytes(tensors[0], rank == root ? total : inputs[rank])) << "reduce " << what;

        tensors[0] = inputs[rank].clone();
        auto broadcast = at_once<c10d::BroadcastOptions>();
        broadcast.rootRank = root;
        backend->broadcast(tensors, broadcast)->wait();
        EXPECT_TRUE(same_bytes(tensors[0], inputs[root])) << "broadcast " << what;

        at::Tensor rows = at::empty({size, numel}), mine = inputs[rank];
        backend->_allgather_base(rows, mine, at_once<c10d::AllgatherOptions>())->wait();
        EXPECT_TRUE(same_bytes(rows, at::stack(inputs))) << "all_gather " << what;

        at::Tensor part = at::empty({numel});
        backend->_reduce_scatter_base(part, rows, at_once<c10d::ReduceScatterOptions>())->wait();
        EXPECT_TRUE(same_bytes(part, mine * size)) << "reduce_scatter " << what;
      }
  });
}

// The Reducer's pattern: many asynchronous all-reduces of different sizes, waited for through their futures.
TEST_P(Conformance, ManyAsynchronousCalls) {
  const int size = GetParam().ranks();
  run_ranks(GetParam(), [size](const BackendPointer& backend, int rank) {
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

// Buckets in memory that the peers map, as the Reducer asks for them; a rank with a tensor elsewhere is not an
// obstacle.
TEST_P(Conformance, AllReduceInPlace) {
  const int size = GetParam().ranks();
  run_ranks(GetParam(), [size](const BackendPointer& backend, int rank) {
    const Route& route = GetParam();
    const bool one_host = std::string(route.hosts).find_first_not_of(route.hosts[0]) == std::string::npos;
    const bool possible = size > 1 && one_host && route.within == Between::kMemory;
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

TEST_P(Conformance, ReduceScatterOfSharedMemory) {
  const int size = GetParam().ranks();
  run_ranks(GetParam(), [size](const BackendPointer& backend, int rank) {
    if (!backend->supportsTensorAlloc(-1)) return;
    for (const auto dtype : {at::kFloat, at::kBFloat16})
      for (const int64_t numel : {5, 5003, 100003})
        for (const bool everywhere : {true, false}) {
          const bool shared = everywhere || rank > 0;
          at::Tensor blocks = shared ? backend->allocateTensor(numel * size, dtype) : at::zeros({numel * size}, dtype);
          blocks.copy_(sample(numel * size, dtype, rank));
          at::Tensor own = at::zeros({numel}, dtype);
          backend->_reduce_scatter_base(own, blocks, at_once<c10d::ReduceScatterOptions>())->wait();
          const at::Tensor all = expected(samples(size, numel * size, dtype), c10d::ReduceOp::SUM);
          EXPECT_TRUE(same_bytes(own, all.narrow(0, rank * numel, numel))) << toString(dtype) << " " << numel;
          EXPECT_TRUE(same_bytes(blocks, sample(numel * size, dtype, rank)));
        }
  });
}

TEST_P(Conformance, SameBitsOnEveryRank) {
  std::vector<at::Tensor> results(GetParam().ranks());
  run_ranks(GetParam(), [&](const BackendPointer& backend, int rank) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(17 + rank);
    Tensors tensors{at::randn({100003}, generator, at::kFloat).to(at::kBFloat16)};
    backend->allreduce(tensors, at_once<c10d::AllreduceOptions>())->wait();
    results[rank] = tensors[0];
  });
  for (const auto& result : results) EXPECT_TRUE(same_bytes(results[0], result));
}

class ManyHosts : public Conformance {};
// Of one rank each: few, many, 2^k, with neighbours, and more than exchange preambles directly.
INSTANTIATE_TEST_SUITE_P(Conformance, ManyHosts,
                         testing::Values(Route{"abcde"}, Route{"abcdefghi"}, Route{"abcdefghijklmnop"},
                                         Route{"aabbccddeeffgghhii"}, Route{"abcdefghijklmnopqrs"}),
                         name_of);

TEST_P(ManyHosts, AgreeOnWhatTheyMove) {
  const int size = GetParam().ranks();
  constexpr int64_t kMost = 600001;
  at::Tensor sum = at::zeros({kMost}, at::kInt);
  for (int rank = 0; rank < size; rank++) sum += multiples(kMost, rank);
  run_ranks(GetParam(), [size, &sum](const BackendPointer& backend, int rank) {
    for (const int64_t numel : {int64_t{1}, int64_t{200}, int64_t{3000}, int64_t{50003}, kMost}) {
      const at::Tensor mine = multiples(numel, rank), total = sum.narrow(0, 0, numel);
      const int root = static_cast<int>(numel) % size;

      Tensors tensors{mine.clone()};
      backend->allreduce(tensors, at_once<c10d::AllreduceOptions>())->wait();
      EXPECT_TRUE(at::equal(tensors[0], total)) << "all_reduce of " << numel;

      tensors[0] = mine.clone();
      auto broadcast = at_once<c10d::BroadcastOptions>();
      broadcast.rootRank = root;
      backend->broadcast(tensors, broadcast)->wait();
      EXPECT_TRUE(at::equal(tensors[0], multiples(numel, root))) << "broadcast of " << numel;

      at::Tensor numbers = at::full({size}, rank, at::kInt), others = at::empty({size}, at::kInt),
                 part = at::empty({1}, at::kInt);
      std::vector<int64_t> equal;
      backend->alltoall_base(others, numbers, equal, equal, at_once<c10d::AllToAllOptions>())->wait();
      EXPECT_TRUE(at::equal(others, at::arange(size, at::kInt)));
      backend->_reduce_scatter_base(part, others, at_once<c10d::ReduceScatterOptions>())->wait();
      EXPECT_EQ(part[0].item<int>(), rank * size);
    }
    Tensors tensors{at::ones({rank == size - 1 ? 3 : 4})};
    const auto error = expect_error([&] { backend->allreduce(tensors, at_once<c10d::AllreduceOptions>())->wait(); });
    EXPECT_NE(std::string(error.what()).find(text("rank ", size - 1, " has float32[3]")), std::string::npos);
    backend->barrier(at_once<c10d::BarrierOptions>())->wait();
  });
}

TEST_P(ManyHosts, HaveTheSameBits) {
  const int size = GetParam().ranks();
  const auto numbers_of = [](int rank) {
    return at::randn({30011}, at::make_generator<at::CPUGeneratorImpl>(17 + rank), at::kFloat);
  };
  at::Tensor sum = at::zeros({30011}, at::kDouble);
  for (int rank = 0; rank < size; rank++) sum += numbers_of(rank);
  for (const auto& [reduction, factor] : {std::pair<c10d::ReduceOp, double>(c10d::ReduceOp::SUM, 1.0),
                                          {c10d::ReduceOp::AVG, 1.0 / size},
                                          {premul_sum(0.3), 0.3}}) {
    std::vector<at::Tensor> results(size);
    run_ranks(GetParam(), [&, reduction = reduction](const BackendPointer& backend, int rank) {
      Tensors tensors{numbers_of(rank)};
      auto options = at_once<c10d::AllreduceOptions>();
      options.reduceOp = reduction;
      backend->allreduce(tensors, options)->wait();
      results[rank] = tensors[0];
    });
    EXPECT_TRUE(at::allclose(results[0].to(at::kDouble), sum * factor, 1e-5, 1e-5)) << factor;
    for (const auto& result : results) EXPECT_TRUE(same_bytes(results[0], result)) << factor;
  }
}

TEST_P(Conformance, DisagreementIsSeenByAllAndTheGroupStays) {
  const int size = GetParam().ranks(), odd = size - 1;
  if (size == 1) GTEST_SKIP() << "one rank agrees with itself";
  const auto odd_has = text("rank ", odd, " has ");
  std::vector<std::string> lines(size);
  run_ranks(GetParam(), [&](const BackendPointer& backend, int rank) {
    const bool is_odd = rank == odd;
    const auto all_reduce = [&](const at::Tensor& tensor, c10d::ReduceOp::RedOpType type = c10d::ReduceOp::SUM) {
      Tensors tensors{tensor};
      auto options = at_once<c10d::AllreduceOptions>();
      options.reduceOp = type;
      backend->allreduce(tensors, options)->wait();
    };
    const auto broadcast = [&](const at::Tensor& tensor, int root) {
      Tensors tensors{tensor};
      auto options = at_once<c10d::BroadcastOptions>();
      options.rootRank = root;
      backend->broadcast(tensors, options)->wait();
    };
    const auto check = [&](const std::function<void()>& call, const std::string& part) {
      const auto error = expect_error(call);
      EXPECT_EQ(error.failure(), CollectiveFailure::kMismatch);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      lines[rank] += error.what();
      const auto tensor = at::ones({4});
      all_reduce(tensor);
      EXPECT_EQ(tensor[0].item<float>(), size);
    };
    check(
        [&] {
          all_reduce(at::ones({3, is_odd ? 5 : 4}));
        },
        "all_reduce #0: rank 0 has float32[3, 4], " + odd_has + "float32[3, 5]");
    check([&] { all_reduce(at::ones({6}, is_odd ? at::kDouble : at::kFloat)); }, odd_has + "float64[6]");
    check([&] { all_reduce(at::ones({is_odd ? 1000000 : 6})); }, odd_has + "float32[1000000]");
    check([&] { all_reduce(at::ones({is_odd ? 6 : 1000000})); }, odd_has + "float32[6]");
    check([&] { all_reduce(is_odd ? at::ones({1}) : at::ones({})); }, odd_has + "float32[1]");
    check([&] { rank == 0 ? broadcast(at::ones({2}), 0) : all_reduce(at::ones({2})); },
          "rank 0 called broadcast of float32[2]");
    check([&] { broadcast(at::ones({70000}), is_odd ? 1 : 0); }, "with root 1");
    check([&] { all_reduce(at::ones({2}), is_odd ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM); }, "(max)");
    check(
        [&] {
          std::vector<int64_t> sent(size, 1), received(size, 1);
          if (is_odd) received[0] = 2;
          at::Tensor input = at::ones({size}), output = at::ones({is_odd ? size + 1 : size});
          backend->alltoall_base(output, input, received, sent, at_once<c10d::AllToAllOptions>())->wait();
        },
        text("rank 0 sends 1 elements to rank ", odd, ", which expects 2"));
  });
  for (const auto& line : lines) EXPECT_EQ(line, lines[0]);
}

TEST_P(Conformance, WrongArgumentsAreRefusedAndTheGroupStays) {
  const int size = GetParam().ranks();
  run_ranks(GetParam(), [&](const BackendPointer& backend, int) {
    const auto refused = [](const std::function<void()>& call, const std::string& part) {
      const auto error = expect_error(call);
      EXPECT_EQ(error.failure(), CollectiveFailure::kInvalid);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    };
    Tensors three{at::ones({3})}, four{at::ones({4})};
    std::vector<Tensors> lists{Tensors(size + 1, at::ones({3}))}, doubles{Tensors(size, at::ones({3}, at::kDouble))};
    c10d::BroadcastOptions options;
    options.rootRank = size;
    refused([&] { backend->broadcast(three, options); }, text("root ", size, " is not a rank"));
    at::Tensor output = at::ones({size * 3 + 1}), rows = at::ones({size + 1, 2});
    const auto expected_numbers = text("expected ", size, " x 3 float32");
    refused([&] { backend->_allgather_base(output, three[0], c10d::AllgatherOptions()); }, expected_numbers);
    refused([&] { backend->_reduce_scatter_base(three[0], output, c10d::ReduceScatterOptions()); }, expected_numbers);
    refused([&] { backend->allgather(lists, three, c10d::AllgatherOptions()); }, "expected one for each of");
    refused([&] { backend->allgather(doubles, three, c10d::AllgatherOptions()); }, "expected 3 float32");
    std::vector<int64_t> none, short_splits(size, 1);
    refused([&] { backend->alltoall_base(rows, rows, none, short_splits, c10d::AllToAllOptions()); }, "add up to");
    backend->allreduce(four, at_once<c10d::AllreduceOptions>())->wait();
    EXPECT_EQ(four[0][3].item<float>(), size);
  });
}

}  // namespace conformance_test
}  // namespace accel::comm
