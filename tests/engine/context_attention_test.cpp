// SPDX-License-Identifier: Apache-2.0
// Attention over split sequences: outputs and gradients are those of one process, and so are the bytes of theory.
#include "parallel/context/context_attention.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/collective_error.hpp"
#include "comm/record/flight_record.hpp"
#include "expect_error.hpp"
#include "kernels/attention/attention_dispatch.hpp"
#include "kernels/cached_results.hpp"
#include "kernels/compute_policy.hpp"
#include "parallel/context/sequence_parts.hpp"
#include "rank_threads.hpp"
#include "tensor/tree.hpp"
#include "trace/span.hpp"

namespace accel::parallel {
namespace context_attention_test {

constexpr ContextMethod kMethods[] = {ContextMethod::kAllGather, ContextMethod::kRing, ContextMethod::kUlysses};

std::string name_of(ContextMethod method) {
  return method == ContextMethod::kAllGather ? "all-gather" : method == ContextMethod::kRing ? "ring" : "ulysses";
}

at::Tensor numbers(const std::vector<int64_t>& sizes, double seed) {
  return at::linspace(-40.0 * seed, 53.0, c10::multiply_integers(sizes), at::kDouble).sin().view(sizes);
}

// One attention of the whole sequence, in float64.
struct Problem {
  int64_t batch = 2, heads = 4, key_heads = 4, length = 24, size = 5;
  bool is_causal = false;
  std::optional<double> scale = std::nullopt;

  std::vector<at::Tensor> inputs() const {
    return {numbers({batch, heads, length, size}, 0.7), numbers({batch, key_heads, length, size}, 0.9),
            numbers({batch, key_heads, length, size}, 1.3)};
  }
  at::Tensor seed() const { return numbers({batch, heads, length, size}, 0.4); }
};

// The output and the gradients of query, key and value.
std::vector<at::Tensor> whole_results(const Problem& problem) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : problem.inputs()) leaves.push_back(input.requires_grad_());
  const int64_t shared_by = problem.heads / problem.key_heads;
  const at::Tensor out = at::scaled_dot_product_attention(leaves[0], leaves[1].repeat_interleave(shared_by, 1),
                                                          leaves[2].repeat_interleave(shared_by, 1), {}, 0.0,
                                                          problem.is_causal, problem.scale);
  std::vector<at::Tensor> results = torch::autograd::grad({out}, leaves, {problem.seed()});
  results.insert(results.begin(), out.detach());
  return results;
}

// Those of this rank, in one sequence again.
std::vector<at::Tensor> split_results(const Problem& problem, const ContextParallelism& split, at::ScalarType dtype) {
  const auto own = [&](const at::Tensor& whole) {
    return split_sequence(whole.to(dtype), 2, split.order, split.group).contiguous();
  };
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : problem.inputs()) leaves.push_back(own(input).requires_grad_());
  const at::Tensor out =
      context_parallel_attention(leaves[0], leaves[1], leaves[2], problem.is_causal, problem.scale, split);
  std::vector<at::Tensor> results = torch::autograd::grad({out}, leaves, {own(problem.seed())});
  results.insert(results.begin(), out.detach());
  for (at::Tensor& result : results) {
    EXPECT_EQ(result.scalar_type(), dtype);
    result = join_sequence(result, 2, split.order, GatheredGradient::kReplicated, split.group);
  }
  return results;
}

void expect_near(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected, double tolerance) {
  const char* const names[] = {"output", "gradient of query", "gradient of key", "gradient of value"};
  for (size_t i = 0; i < found.size(); i++) {
    ASSERT_EQ(found[i].sizes(), expected[i].sizes()) << names[i];
    EXPECT_LE((found[i].to(at::kDouble) - expected[i]).abs().max().item<double>(), tolerance) << names[i];
  }
}

void on_ranks(const std::function<void(const RankGroup&)>& body) {
  for (const int size : {1, 2, 3, 4}) {
    SCOPED_TRACE(size);
    tests::run_ranks(size, body);
  }
}

std::vector<ContextParallelism> splits(const RankGroup& group, bool is_causal) {
  std::vector<ContextParallelism> all;
  for (const ContextMethod method : kMethods)
    for (const SequenceOrder order : {SequenceOrder::kContiguous, SequenceOrder::kHeadAndTail})
      if (method != ContextMethod::kUlysses || order == SequenceOrder::kContiguous || !is_causal)
        all.push_back({group, method, order});
  return all;
}

TEST(ContextAttention, IsThatOfTheWholeSequence) {
  on_ranks([](const RankGroup& group) {
    for (const bool is_causal : {false, true})
      for (const std::optional<double> scale : {std::optional<double>(), std::optional<double>(0.8)}) {
        Problem problem;
        problem.is_causal = is_causal;
        problem.scale = scale;
        const auto expected = whole_results(problem);
        for (const ContextParallelism& split : splits(group, is_causal)) {
          SCOPED_TRACE(name_of(split.method) + (is_causal ? " causal" : "") +
                       (split.order == SequenceOrder::kHeadAndTail ? " head and tail" : ""));
          expect_near(split_results(problem, split, at::kDouble), expected, 1e-12);
          expect_near(split_results(problem, split, at::kFloat), expected, 1e-5);
          expect_near(split_results(problem, split, at::kBFloat16), expected, 0.06);
        }
      }
  });
}

// Scores of hundreds, whose exponentials overflow.
TEST(ContextAttention, LargeScores) {
  on_ranks([](const RankGroup& group) {
    Problem problem;
    problem.is_causal = true;
    problem.scale = 200;
    const auto expected = whole_results(problem);
    for (const ContextParallelism& split : splits(group, true)) {
      SCOPED_TRACE(name_of(split.method));
      const auto found = split_results(problem, split, at::kDouble);
      expect_near(found, expected, 1e-9);
    }
  });
}

TEST(ContextAttention, HeadsOfKeysAreShared) {
  on_ranks([](const RankGroup& group) {
    for (const int64_t key_heads : {1, 2, 12}) {
      Problem problem;
      problem.heads = 12;
      problem.key_heads = key_heads;
      problem.is_causal = true;
      const auto expected = whole_results(problem);
      for (const ContextParallelism& split : splits(group, true)) {
        if (split.method == ContextMethod::kUlysses && key_heads == 2 && group->size() == 3) continue;
        SCOPED_TRACE(name_of(split.method) + " " + std::to_string(key_heads));
        expect_near(split_results(problem, split, at::kDouble), expected, 1e-12);
      }
    }
  });
}

// Ulysses: 5 heads on 2, 3 and 4 ranks.
TEST(ContextAttention, HeadsOfUnequalNumbers) {
  on_ranks([](const RankGroup& group) {
    Problem problem;
    problem.heads = problem.key_heads = 5;
    problem.is_causal = true;
    const ContextParallelism split{group, ContextMethod::kUlysses, SequenceOrder::kContiguous};
    expect_near(split_results(problem, split, at::kDouble), whole_results(problem), 1e-12);
  });
}

// In calls of ours, where the kernels are ours too.
TEST(ContextAttention, ByTunedKernels) {
  kernels::install_attention_dispatch();
  on_ranks([](const RankGroup& group) {
    const kernels::ComputeScope scope({true, false});
    Problem problem;
    problem.length = 144;
    problem.size = 32;
    problem.is_causal = true;
    const auto expected = whole_results(problem);
    for (const ContextParallelism& split : splits(group, true)) {
      SCOPED_TRACE(name_of(split.method));
      expect_near(split_results(problem, split, at::kFloat), expected, 1e-5);
      expect_near(split_results(problem, split, at::kBFloat16), expected, 0.06);
    }
  });
}

TEST(ContextAttention, BlocksMergeInTheSameOrderInEveryRun) {
  tests::run_ranks(3, [](const RankGroup& group) {
    Problem problem;
    problem.is_causal = true;
    for (const ContextParallelism& split : splits(group, true)) {
      const auto first = split_results(problem, split, at::kFloat), second = split_results(problem, split, at::kFloat);
      for (size_t i = 0; i < first.size(); i++) EXPECT_TRUE(first[i].equal(second[i]));
    }
  });
}

// A second forward takes the results of the first, without messages.
TEST(ContextAttention, ResultsAreKeptForARecomputation) {
  tests::run_ranks(2, [](const RankGroup& group) {
    const ContextParallelism split{group, ContextMethod::kRing, SequenceOrder::kHeadAndTail};
    const at::Tensor x = numbers({1, 2, 4, 3}, 0.3);
    kernels::CachedResults kept;
    const auto attend = [&] { return context_parallel_attention(x, x, x, true, std::nullopt, split); };
    at::Tensor first, second;
    {
      const kernels::CachedResults::Scope scope(&kept);
      first = attend();
    }
    {
      const kernels::CachedResults::Scope scope(&kept, true);
      if (group->rank() == 0) second = attend();  // the other rank would be missed
    }
    EXPECT_TRUE(group->rank() != 0 || second.equal(first));
  });
}

// A rank that waits for a collective may go on shortly before the thread that ends it has noted so.
c10::List<c10::IValue> ended_operations(const comm::FlightRecord& record) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (;;) {
    const std::string text = record.to_json();
    if (text.find("\"running\"") == std::string::npos || std::chrono::steady_clock::now() > deadline)
      return tree::from_json(text, "the record").toGenericDict().at("operations").toList();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The bytes that a rank receives, by its flight record.
double received_bytes(const comm::FlightRecord& record, size_t first, int ranks) {
  double received = 0;
  const auto operations = ended_operations(record);
  for (size_t i = first; i < operations.size(); i++) {
    const auto operation = operations.get(i).toGenericDict();
    const std::string name = operation.at("operation").toStringRef();
    const auto bytes = static_cast<double>(operation.at("bytes").toInt());
    EXPECT_EQ(operation.at("state").toStringRef(), "done");
    if (name == "all_gather")
      received += bytes * (ranks - 1);
    else if (name == "reduce_scatter" || name == "all_to_all")
      received += bytes * (ranks - 1) / ranks;
    else if (name == "recv")
      received += bytes;
    else
      EXPECT_EQ(name, "send");
  }
  return received;
}

size_t operations_of(const comm::FlightRecord& record) {
  return tree::from_json(record.to_json(), "the record").toGenericDict().at("operations").toList().size();
}

TEST(ContextAttention, BytesAreThoseOfTheory) {
  for (const int ranks : {2, 3, 4})
    tests::run_ranks(ranks, [ranks](const RankGroup& group) {
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
        for (const ContextMethod method : kMethods)
          for (const int64_t key_heads : {12, 6, 1}) {
            SCOPED_TRACE(name_of(method) + " " + std::to_string(ranks) + " " + std::to_string(key_heads));
            if (method == ContextMethod::kUlysses && key_heads == 6 && ranks == 4) continue;
            const ContextParallelism split{
                group, method,
                method == ContextMethod::kUlysses ? SequenceOrder::kContiguous : SequenceOrder::kHeadAndTail};
            constexpr int64_t kBatch = 2, kHeads = 12, kLength = 8, kSize = 16;  // of a rank
            const auto leaf = [dtype](int64_t heads) {
              return numbers({kBatch, heads, kLength, kSize}, 0.7).to(dtype).requires_grad_();
            };
            const at::Tensor query = leaf(kHeads), key = leaf(key_heads), value = leaf(key_heads);
            const auto element = static_cast<double>(query.element_size()), others = ranks - 1.0;
            const size_t before = operations_of(*group->flight_record());
            const at::Tensor out = context_parallel_attention(query, key, value, true, std::nullopt, split);
            const double forward = received_bytes(*group->flight_record(), before, ranks);
            out.sum().backward();
            const double both = received_bytes(*group->flight_record(), before, ranks);
            const double block = 2.0 * kBatch * static_cast<double>(key_heads) * kSize * kLength * element;
            double of_forward = others * block, of_backward = others * block * (1 + 4 / element);
            if (method == ContextMethod::kUlysses) {
              const double exchanged = 2.0 * kHeads + 2.0 * static_cast<double>(std::max<int64_t>(key_heads, ranks));
              of_forward = of_backward = kBatch * kLength * kSize * element * exchanged * others / ranks;
            }
            EXPECT_NEAR(forward / of_forward, 1, 0.02);
            EXPECT_NEAR((both - forward) / of_backward, 1, 0.02);
            ASSERT_LT(operations_of(*group->flight_record()), comm::FlightRecord::kOperations);
          }
    });
}

// Ranks that map each other's memory have the same bits, in block after block, and let go of what the others have read.
TEST(ContextAttention, BlocksAreReadInPlace) {
  for (const int ranks : {2, 3, 4})
    tests::run_ranks(ranks, [](const RankGroup& group) {
      const auto memory = std::make_shared<ExchangeMemory>(group);
      ASSERT_TRUE(memory->is_mapped());
      for (const ContextMethod method : {ContextMethod::kAllGather, ContextMethod::kRing})
        for (const bool is_causal : {false, true})
          for (const int64_t key_heads : {1, 4}) {
            SCOPED_TRACE(name_of(method) + (is_causal ? " causal " : " ") + std::to_string(key_heads));
            ContextParallelism split{group, method, SequenceOrder::kHeadAndTail};
            const auto of_copies = [&](int64_t layer) {
              Problem problem;
              problem.key_heads = key_heads;
              problem.length = 192;
              problem.size = 16;
              problem.is_causal = is_causal;
              problem.scale = 0.1 * static_cast<double>(layer + 1);
              return problem;
            };
            for (int64_t layer = 0; layer < 3; layer++) {
              const Problem problem = of_copies(layer);
              split.memory = nullptr;
              const auto expected = split_results(problem, split, at::kFloat);
              split.memory = memory;
              const auto found = split_results(problem, split, at::kFloat);
              expect_near(found, expected, 1e-5);
              EXPECT_TRUE(found[0].equal(expected[0]));
            }
          }
    });
}

// What a rank sends is not in the record twice.
TEST(ContextAttention, BytesInPlaceAreThoseOfTheory) {
  for (const int ranks : {2, 4})
    tests::run_ranks(ranks, [ranks](const RankGroup& group) {
      const auto memory = std::make_shared<ExchangeMemory>(group);
      for (const ContextMethod method : {ContextMethod::kAllGather, ContextMethod::kRing}) {
        const ContextParallelism split{group, method, SequenceOrder::kHeadAndTail, memory};
        const at::Tensor x = numbers({2, 12, 64, 16}, 0.7).to(at::kBFloat16).requires_grad_();
        const size_t before = operations_of(*group->flight_record());
        const at::Tensor out = context_parallel_attention(x, x, x, true, std::nullopt, split);
        const double forward = received_bytes(*group->flight_record(), before, ranks);
        out.sum().backward();
        const double both = received_bytes(*group->flight_record(), before, ranks);
        const double blocks = (ranks - 1.0) * 2 * static_cast<double>(x.nbytes());
        EXPECT_NEAR(forward / blocks, 1, 0.02);
        EXPECT_NEAR((both - forward) / (3 * blocks), 1, 0.02);
      }
    });
}

TEST(ContextAttention, SequencesAreSplitAndJoined) {
  on_ranks([](const RankGroup& group) {
    for (const SequenceOrder order : {SequenceOrder::kContiguous, SequenceOrder::kHeadAndTail}) {
      const at::Tensor whole = numbers({2, 24, 3}, 0.5).requires_grad_();
      const at::Tensor part = split_sequence(whole, -2, order, group);
      const at::Tensor positions = sequence_positions(24, group->rank(), group->size(), order);
      EXPECT_TRUE(part.equal(whole.index_select(1, positions)));
      const at::Tensor joined = join_sequence(part, 1, order, GatheredGradient::kReplicated, group);
      EXPECT_TRUE(joined.equal(whole));
      const at::Tensor weight = numbers({2, 24, 3}, 1.1);
      (joined * weight).sum().backward();
      EXPECT_TRUE(whole.grad().index_select(1, positions).equal(weight.index_select(1, positions)));
      EXPECT_EQ(whole.grad().count_nonzero().item<int64_t>(), part.numel());
    }
  });
}

TEST(ContextAttention, HeadAndTailHaveTheSameWork) {
  for (int64_t rank = 0; rank < 4; rank++) {
    const at::Tensor positions = sequence_positions(32, rank, 4, SequenceOrder::kHeadAndTail);
    EXPECT_EQ(positions.sum().item<int64_t>(), 31 * 32 / 2 / 4);
  }
}

TEST(ContextAttention, WrongLengths) {
  tests::expect_error(Status::kInvalidArgument,
                      "a sequence of 10 positions cannot be split over 2 ranks in 4 equal chunks; expected a multiple "
                      "of 4, pad it to 12",
                      [] { sequence_parts(10, 0, 2, SequenceOrder::kHeadAndTail); });
  tests::expect_error(Status::kInvalidArgument,
                      "over 3 ranks in 3 equal chunks; expected a multiple of 3, pad it to 12",
                      [] { sequence_parts(10, 0, 3, SequenceOrder::kContiguous); });
  tests::run_ranks(2, [](const RankGroup& group) {
    const ContextParallelism split{group, ContextMethod::kRing, SequenceOrder::kHeadAndTail};
    const auto attend = [&](const std::vector<int64_t>& query, const std::vector<int64_t>& key,
                            const ContextParallelism& with) {
      context_parallel_attention(at::ones(query), at::ones(key), at::ones(key), true, std::nullopt, with);
    };
    tests::expect_error(Status::kUnsupported, "has 4 queries and 6 keys; expected as many, without a cache", [&] {
      attend({1, 2, 4, 3}, {1, 2, 6, 3}, split);
    });
    tests::expect_error(Status::kShapeMismatch, "heads of queries that are a multiple of those of keys", [&] {
      attend({1, 3, 4, 3}, {1, 2, 4, 3}, split);
    });
    tests::expect_error(Status::kShapeMismatch, "this rank has 5 positions; expected an even number", [&] {
      attend({1, 2, 5, 3}, {1, 2, 5, 3}, split);
    });
    tests::expect_error(Status::kInvalidArgument, "expected contiguous parts", [&] {
      attend({1, 2, 4, 3}, {1, 2, 4, 3}, {group, ContextMethod::kUlysses, SequenceOrder::kHeadAndTail});
    });
    tests::expect_error(Status::kInvalidArgument, "has 1 heads for 2 ranks; expected one or more for each rank", [&] {
      attend({1, 1, 4, 3}, {1, 1, 4, 3}, {group, ContextMethod::kUlysses, SequenceOrder::kContiguous});
    });
    tests::expect_error(
        Status::kInvalidArgument, "has 9 heads with 3 key heads for 2 ranks; expected ranks that divide", [&] {
          attend({1, 9, 4, 3}, {1, 3, 4, 3}, {group, ContextMethod::kUlysses, SequenceOrder::kContiguous});
        });
    tests::expect_error(Status::kTypeMismatch, "expected one dtype", [&] {
      context_parallel_attention(at::ones({1, 2, 4, 3}), at::ones({1, 2, 4, 3}, at::kDouble),
                                 at::ones({1, 2, 4, 3}, at::kDouble), true, std::nullopt, split);
    });
  });
}

TEST(ContextAttention, RanksOfOtherLengthsAreAMismatch) {
  for (const ContextMethod method : kMethods) {
    SCOPED_TRACE(name_of(method));
    tests::run_ranks(2, [method](const RankGroup& group) {
      const at::Tensor x = at::ones({1, 2, group->rank() == 0 ? 4 : 8, 3});
      try {
        context_parallel_attention(x, x, x, false, std::nullopt, {group, method, SequenceOrder::kContiguous});
        ADD_FAILURE() << "no error";
      } catch (const comm::CollectiveError& error) {
        EXPECT_EQ(error.failure(), comm::CollectiveFailure::kMismatch) << error.what();
      }
    });
  }
}

// Ranks that get no block of it hear of it too, and the group goes on.
TEST(ContextAttention, EachRankHearsOfAnotherLength) {
  for (const ContextMethod method : kMethods) {
    SCOPED_TRACE(name_of(method));
    tests::run_ranks(4, [method](const RankGroup& group) {
      const ContextParallelism split{group, method, SequenceOrder::kContiguous};
      for (int round = 0; round < 3; round++) {
        const at::Tensor x = at::ones({1, 4, group->rank() == 2 ? 8 : 4, 3});
        try {
          context_parallel_attention(x, x, x, false, std::nullopt, split);
          ADD_FAILURE() << "no error";
        } catch (const comm::CollectiveError& error) {
          EXPECT_EQ(error.failure(), comm::CollectiveFailure::kMismatch) << error.what();
          EXPECT_TRUE(method != ContextMethod::kRing ||
                      std::string(error.what()).find("positions and rank ") != std::string::npos)
              << error.what();
        }
        Problem problem;
        expect_near(split_results(problem, split, at::kDouble), whole_results(problem), 1e-12);
      }
    });
  }
}

// A rank that computes something else is named at the deadline.
TEST(ContextAttention, ARankThatDoesNotComeIsNamed) {
  for (const ContextMethod method : kMethods) {
    SCOPED_TRACE(name_of(method));
    const auto messages = tests::messages_of(3, std::chrono::milliseconds(1500), [method](comm::Communicator& rank) {
      if (rank.rank() == 1) return;
      const RankGroup group(&rank, [](const comm::Communicator*) {});
      const at::Tensor x = at::ones({1, 3, 4, 3});
      context_parallel_attention(x, x, x, false, std::nullopt, {group, method, SequenceOrder::kContiguous});
    });
    for (const int rank : {0, 2}) EXPECT_NE(messages[rank].find("rank 1"), std::string::npos) << messages[rank];
  }
}

// The spans of a kind and name, in seconds.
double seconds_of(const Spans::Recording& recording, SpanKind kind, const std::string& name) {
  double seconds = 0;
  for (const auto& [span, thread] : recording.spans)
    if (span.kind == kind && name == span.name)
      seconds += static_cast<double>(recording.to_unix(span.ended) - recording.to_unix(span.begun)) * 1e-9;
  return seconds;
}

// A profile tells by them how much of the messages is hidden.
TEST(ContextAttention, MessagesAndWaitsForThemAreInProfiles) {
  Spans::begin(false);
  tests::run_ranks(3, [](const RankGroup& group) {
    const ContextParallelism split{group, ContextMethod::kRing, SequenceOrder::kHeadAndTail};
    Problem problem;
    problem.length = 96;
    problem.size = 32;
    problem.is_causal = true;
    split_results(problem, split, at::kFloat);
  });
  const Spans::Recording recording = Spans::end();
  EXPECT_GT(seconds_of(recording, SpanKind::kCollective, "recv"), 0);
  EXPECT_GT(seconds_of(recording, SpanKind::kWait, "wait for block"), 0);
}

TEST(ContextAttention, IsDifferentiatedOnce) {
  tests::run_ranks(2, [](const RankGroup& group) {
    const at::Tensor x = numbers({1, 2, 4, 3}, 0.3).requires_grad_();
    const ContextParallelism split{group, ContextMethod::kRing, SequenceOrder::kHeadAndTail};
    const at::Tensor out = context_parallel_attention(x, x, x, true, std::nullopt, split).sum();
    const auto kept = torch::autograd::grad({out}, {x}, {}, true);
    const auto last = torch::autograd::grad({out}, {x});
    EXPECT_TRUE(kept[0].equal(last[0]));
    tests::expect_error(Status::kInvalidState, "differentiated a second time",
                        [&] { torch::autograd::grad({out}, {x}); });
    const at::Tensor again = context_parallel_attention(x, x, x, true, std::nullopt, split).sum();
    tests::expect_error(Status::kUnsupported, "no second derivative",
                        [&] { torch::autograd::grad({again}, {x}, {}, true, true); });
  });
}

}  // namespace context_attention_test
}  // namespace accel::parallel
