// SPDX-License-Identifier: Apache-2.0
// Tokens of all ranks come to the ranks of their experts and back: results and gradients are those of one process.
#include "parallel/expert/token_exchange.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/record/flight_record.hpp"
#include "expect_error.hpp"
#include "nn/layers/grouped_product.hpp"
#include "rank_threads.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace token_exchange_test {

constexpr int64_t kExperts = 4, kSize = 5;

at::Tensor numbers(const std::vector<int64_t>& sizes, double seed) {
  return at::linspace(-40.0 * seed, 53.0, c10::multiply_integers(sizes), at::kDouble).sin().view(sizes);
}

at::Tensor weights() { return numbers({kExperts, kSize, kSize}, 0.8); }

// The numbers of rows that each rank has for each expert.
using Loads = std::vector<std::vector<int64_t>>;

int64_t sum_of(const std::vector<int64_t>& counts) {
  int64_t sum = 0;
  for (const int64_t count : counts) sum += count;
  return sum;
}

at::Tensor rows_of(const Loads& loads, int rank) {
  return numbers({sum_of(loads[static_cast<size_t>(rank)]), kSize}, 0.3 + 0.1 * rank);
}

void expect_as_alone(const Loads& loads) {
  const int ranks = static_cast<int>(loads.size());
  tests::run_ranks(ranks, [&](const RankGroup& group) {
    const int64_t own = kExperts / ranks;
    // Each rank's rows with all experts; the gradient of the experts is the sum over the ranks.
    const at::Tensor all_weights = weights().requires_grad_();
    at::Tensor expected, expected_gradient;
    for (int rank = 0; rank < ranks; rank++) {
      const at::Tensor rows = rows_of(loads, rank).requires_grad_();
      const at::Tensor results = nn::grouped_product(rows, all_weights, loads[static_cast<size_t>(rank)]);
      results.pow(2).sum().backward();
      if (rank != group->rank()) continue;
      expected = results.detach();
      expected_gradient = rows.grad();
    }
    const at::Tensor own_weights = weights().narrow(0, group->rank() * own, own).clone().requires_grad_();
    const at::Tensor rows = rows_of(loads, group->rank()).requires_grad_();
    const TokenExchange exchange(group, {1, kSize});
    const at::Tensor results = exchange.run(rows, loads[static_cast<size_t>(group->rank())],
                                            [&](const at::Tensor& of_experts, const std::vector<int64_t>& counts) {
                                              EXPECT_EQ(static_cast<int64_t>(counts.size()), own);
                                              return nn::grouped_product(of_experts, own_weights, counts);
                                            });
    results.pow(2).sum().backward();
    EXPECT_TRUE(at::allclose(results, expected, 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(rows.grad(), expected_gradient, 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(own_weights.grad(), all_weights.grad().narrow(0, group->rank() * own, own), 1e-12, 1e-12));
  });
}

TEST(TokenExchange, IsOneProcessForAnyLoads) {
  expect_as_alone({{3, 1, 2, 4}});
  expect_as_alone({{3, 1, 2, 4}, {2, 5, 1, 1}});
  expect_as_alone({{0, 7, 0, 0}, {0, 5, 0, 0}});  // one expert has all tokens
  expect_as_alone({{0, 0, 0, 0}, {1, 0, 2, 0}});  // a rank has none
  expect_as_alone({{0, 0, 0, 0}, {0, 0, 0, 0}});
  expect_as_alone({{1, 2, 3, 4}, {4, 0, 0, 1}, {0, 0, 0, 0}, {2, 2, 2, 2}});
}

TEST(TokenExchange, BytesAreThoseOfTheory) {
  constexpr int64_t kTokens = 96, kPerToken = 2, kWidth = 64;
  for (const int ranks : {2, 4})
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
      tests::run_ranks(ranks, [&](const RankGroup& group) {
        const auto received = [&] {
          double bytes = 0;
          const auto operations = tree::from_json(group->flight_record()->to_json(), "the record")
                                      .toGenericDict()
                                      .at("operations")
                                      .toList();
          for (const c10::IValue& item : operations) {
            const auto operation = item.toGenericDict();
            const std::string name = operation.at("operation").toStringRef();
            const auto of_operation = static_cast<double>(operation.at("bytes").toInt());
            if (name == "recv") bytes += of_operation;
            if (name == "all_to_all") bytes += of_operation * (ranks - 1) / ranks;
          }
          return bytes;
        };
        const at::Tensor rows = numbers({kTokens * kPerToken, kWidth}, 0.7).to(dtype).requires_grad_();
        const TokenExchange exchange(group, {kPerToken, kWidth});
        const double before = received();
        const at::Tensor results =
            exchange.run(rows, std::vector<int64_t>(kExperts, kTokens * kPerToken / kExperts),
                         [](const at::Tensor& of_experts, const std::vector<int64_t>&) { return of_experts * 2; });
        const double forward = received() - before;
        results.sum().backward();
        const double backward = received() - before - forward;
        const double theory =
            2.0 * kTokens * kPerToken * kWidth * static_cast<double>(rows.element_size()) * (ranks - 1) / ranks;
        EXPECT_NEAR(forward / theory, 1, 0.02);
        EXPECT_NEAR(backward / theory, 1, 0.02);
      });
}

// All ranks get an error, before any rows are sent, and the group can be used on.
TEST(TokenExchange, RanksWithAnotherLayerAreNamed) {
  struct Case {
    ExpertLayerSizes odd;
    int64_t experts, width;
    std::string part;
  };
  for (const Case& test :
       {Case{{2, 7}, 4, kSize, "experts for a token"}, Case{{1, 8}, 4, kSize, "intermediate features"},
        Case{{1, 7}, 4, kSize + 1, "features"}, Case{{1, 7}, 8, kSize, ""}}) {
    const auto messages = tests::messages_of(2, std::chrono::seconds(20), [&](comm::Communicator& ranks) {
      const bool is_odd = ranks.rank() == 1;
      const RankGroup group(&ranks, [](comm::Communicator*) {});
      const at::Tensor rows = numbers({4, is_odd ? test.width : kSize}, 0.4);
      std::vector<int64_t> counts(static_cast<size_t>(is_odd ? test.experts : 4), 0);
      counts[1] = 4;
      TokenExchange(group, is_odd ? test.odd : ExpertLayerSizes{1, 7})
          .run(rows, counts, [](const at::Tensor& own, const std::vector<int64_t>&) { return own; });
    });
    for (const std::string& message : messages) {
      EXPECT_FALSE(message.empty());
      EXPECT_NE(message.find(test.part), std::string::npos) << message;
    }
  }
}

TEST(TokenExchange, ResultsComeBackAsTheyWereDispatched) {
  tests::run_ranks(2, [](const RankGroup& group) {
    const TokenExchange exchange(group, {1, kSize});
    const auto refuse = [&](const std::vector<int64_t>& counts, const nn::ExpertCounts& received, const char* message) {
      tests::expect_error(Status::kShapeMismatch, message, [&] {
        exchange.combine(numbers({4, kSize}, 0.4), counts, received);
      });
    };
    refuse({4}, {{2}, {2}}, "there are numbers of tokens for 1 experts, which 2 ranks share out");
    refuse({1, 1, 2}, {{2}, {2}}, "there are numbers of tokens for 3 experts, which 2 ranks share out");
    refuse({2, 2}, {}, "received has the shape [0, 0]; expected [2, 1]");
    refuse({2, 2}, {{4}}, "received has the shape [1, 1]; expected [2, 1]");
    refuse({2, 2}, {{2, 0}, {2, 0}}, "received has the shape [2, 2]; expected [2, 1]");
    refuse({2, 2}, {{2}, {1, 1}}, "expected [2, 1], ranks and experts of each, as dispatch_tokens() has returned it");
  });
}

}  // namespace token_exchange_test
}  // namespace accel::parallel
