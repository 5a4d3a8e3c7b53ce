// SPDX-License-Identifier: Apache-2.0
#include "parallel/expert/token_exchange.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "base/error.hpp"
#include "comm/collective.hpp"
#include "comm/collective_error.hpp"
#include "comm/job_rank.hpp"
#include "tensor/autograd/autograd_node.hpp"

namespace accel::parallel {
namespace {

using comm::Collective;
using torch::autograd::variable_list;

// The tag of messages with rows. Those of one rank to another arrive in the order in which they are sent.
constexpr int kRowTag = 0x4558;

// The numbers that precede those of tokens.
constexpr std::array<const char*, 4> kHeader = {"experts for a token", "features", "intermediate features",
                                                "bytes for a feature"};
constexpr auto kHeaderSize = static_cast<int64_t>(kHeader.size());

int64_t sum_of(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

// Which rows of a call go where. A segment is the rows of one rank for one expert.
struct Routes {
  RankGroup ranks;
  std::vector<int64_t> sent;  // the number of this rank's rows for the experts of each rank
  nn::ExpertCounts segments;

  int64_t own_experts() const { return static_cast<int64_t>(segments.front().size()); }
};
using RoutesPtr = std::shared_ptr<const Routes>;

void require_counts(const std::vector<int64_t>& counts, const RankGroup& ranks) {
  require(!counts.empty() && counts.size() % static_cast<size_t>(ranks->size()) == 0, Status::kShapeMismatch,
          "there are numbers of tokens for ", counts.size(), " experts, which ", ranks->size(),
          " ranks share out; expected a number for each expert of all ranks");
}

// The experts are shared out evenly, in the order of the ranks.
RoutesPtr routes_of(const std::vector<int64_t>& counts, const nn::ExpertCounts& received, const RankGroup& ranks) {
  const auto routes = std::make_shared<Routes>();
  routes->ranks = ranks;
  const auto experts = static_cast<ptrdiff_t>(counts.size()) / ranks->size();
  for (auto next = counts.begin(); next != counts.end(); next += experts)
    routes->sent.push_back(std::accumulate(next, next + experts, int64_t{0}));
  routes->segments = received;
  return routes;
}

// Throws the same on all ranks if the sizes of two differ: each rank has those of all.
void check_headers(const at::Tensor& received, const std::vector<int64_t>& own, const comm::Communicator& ranks) {
  for (int rank = 0; rank < ranks.size(); rank++) {
    const int32_t* const header = received[rank].const_data_ptr<int32_t>();
    for (size_t i = 0; i < own.size(); i++)
      if (header[i] != own[i])
        throw comm::CollectiveError(
            comm::CollectiveFailure::kMismatch, comm::job_rank(ranks, ranks.rank()),
            text("a mixture of experts: rank ", comm::job_rank(ranks, ranks.rank()), " has ", own[i], " ", kHeader[i],
                 " and rank ", comm::job_rank(ranks, rank), " has ", header[i], "; expected the same layer on all"));
  }
}

nn::ExpertCounts exchange_counts(const std::vector<int64_t>& counts, const std::vector<int64_t>& header,
                                 const RankGroup& ranks) {
  const int64_t size = ranks->size(), experts = static_cast<int64_t>(counts.size()) / size;
  const at::Tensor sent = at::empty({size, kHeaderSize + experts}, at::kInt);
  int32_t* next = sent.mutable_data_ptr<int32_t>();
  for (int64_t rank = 0; rank < size; rank++) {
    for (const int64_t number : header) *next++ = static_cast<int32_t>(number);
    for (int64_t expert = 0; expert < experts; expert++)
      *next++ = static_cast<int32_t>(counts[static_cast<size_t>(rank * experts + expert)]);
  }
  const at::Tensor on_device = sent.to(ranks->device());
  const at::Tensor arrived = at::empty_like(on_device);
  ranks->run(Collective::all_to_all(on_device, arrived));
  const at::Tensor all = arrived.cpu();
  check_headers(all, header, *ranks);
  nn::ExpertCounts received;
  for (int64_t rank = 0; rank < size; rank++) {
    const int32_t* const of_rank = all[rank].const_data_ptr<int32_t>() + kHeaderSize;
    received.emplace_back(of_rank, of_rank + experts);
  }
  return received;
}

// Calls `take` with the rank and the first row of each block of rows, in the order of the ranks.
template <typename Take>
void for_each_destination(const std::vector<int64_t>& rows, const Take& take) {
  int64_t begin = 0;
  for (size_t rank = 0; rank < rows.size(); rank++) {
    take(static_cast<int>(rank), begin, rows[rank]);
    begin += rows[rank];
  }
}

// Adds a message unless it would have no rows, which both ranks know.
void add_message(std::vector<Collective>& messages, Collective message, const at::Tensor& rows) {
  if (rows.size(0) > 0) messages.push_back(std::move(message));
}

// [rows of this rank's experts, size], one expert after the other.
at::Tensor to_experts(const at::Tensor& given, const Routes& routes) {
  const at::Tensor rows = given.contiguous();
  comm::Communicator& ranks = *routes.ranks;
  std::vector<Collective> messages;
  std::vector<at::Tensor> blocks(routes.sent.size());
  for_each_destination(routes.sent, [&](int rank, int64_t begin, int64_t count) {
    const at::Tensor block = rows.narrow(0, begin, count);
    at::Tensor& received = blocks[static_cast<size_t>(rank)];
    if (rank == ranks.rank()) {
      received = block;
      return;
    }
    received = at::empty({sum_of(routes.segments[static_cast<size_t>(rank)]), rows.size(1)}, rows.options());
    add_message(messages, Collective::send(block, rank, kRowTag), block);
    add_message(messages, Collective::receive(received, rank, kRowTag), received);
  });
  if (!messages.empty()) ranks.run(messages);
  std::vector<at::Tensor> segments;
  std::vector<int64_t> begins(blocks.size(), 0);
  for (size_t expert = 0; expert < static_cast<size_t>(routes.own_experts()); expert++)
    for (size_t rank = 0; rank < blocks.size(); rank++) {
      const int64_t count = routes.segments[rank][expert];
      segments.push_back(blocks[rank].narrow(0, begins[rank], count));
      begins[rank] += count;
    }
  return at::cat(segments);
}

// The reverse: [rows of this rank, size], in the order of all experts.
at::Tensor to_tokens(const at::Tensor& rows, const Routes& routes) {
  comm::Communicator& ranks = *routes.ranks;
  std::vector<std::vector<at::Tensor>> segments(routes.sent.size());
  int64_t begin = 0;
  for (size_t expert = 0; expert < static_cast<size_t>(routes.own_experts()); expert++)
    for (size_t rank = 0; rank < segments.size(); rank++) {
      const int64_t count = routes.segments[rank][expert];
      segments[rank].push_back(rows.narrow(0, begin, count));
      begin += count;
    }
  const at::Tensor result = at::empty({sum_of(routes.sent), rows.size(1)}, rows.options());
  std::vector<Collective> messages;
  for_each_destination(routes.sent, [&](int rank, int64_t first, int64_t count) {
    const at::Tensor block = at::cat(segments[static_cast<size_t>(rank)]);
    at::Tensor received = result.narrow(0, first, count);
    if (rank == ranks.rank()) {
      received.copy_(block);
      return;
    }
    add_message(messages, Collective::send(block, rank, kRowTag), block);
    add_message(messages, Collective::receive(received, rank, kRowTag), received);
  });
  if (!messages.empty()) ranks.run(messages);
  return result;
}

at::Tensor exchange_rows(const at::Tensor& rows, const RoutesPtr& routes, bool to_the_experts);

// Each direction is the adjoint of the other one.
class TokenExchangeBackward final : public torch::autograd::Node {
 public:
  using Node::Node;

  std::string name() const override { return "TokenExchangeBackward"; }

  // A missing gradient is zeros here: other ranks may have one, and wait.
  variable_list apply(variable_list&& gradients) override {
    const at::Tensor gradient = gradients[0].defined() ? std::move(gradients[0]) : at::zeros(sizes, options);
    return {exchange_rows(gradient, routes, !to_the_experts)};
  }

  RoutesPtr routes;
  bool to_the_experts = false;
  std::vector<int64_t> sizes;  // of the output
  at::TensorOptions options;
};

at::Tensor exchange_rows(const at::Tensor& rows, const RoutesPtr& routes, bool to_the_experts) {
  at::Tensor output;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    output = to_the_experts ? to_experts(rows, *routes) : to_tokens(rows, *routes);
  }
  if (!at::GradMode::is_enabled() || !rows.requires_grad()) return output;
  const auto node = tensor::make_autograd_node<TokenExchangeBackward>(torch::autograd::collect_next_edges(rows));
  node->routes = routes;
  node->to_the_experts = to_the_experts;
  node->sizes = output.sizes().vec();
  node->options = output.options();
  torch::autograd::set_history(output, node);
  return output;
}

}  // namespace

nn::DispatchedTokens TokenExchange::dispatch(const at::Tensor& rows, const std::vector<int64_t>& counts) const {
  require_counts(counts, ranks_);
  const auto bytes = static_cast<int64_t>(rows.element_size());
  nn::ExpertCounts received =
      exchange_counts(counts, {sizes_.experts_per_token, rows.size(1), sizes_.intermediate_size, bytes}, ranks_);
  const at::Tensor own = exchange_rows(rows, routes_of(counts, received, ranks_), /*to_the_experts=*/true);
  return {own, std::move(received)};
}

at::Tensor TokenExchange::combine(const at::Tensor& results, const std::vector<int64_t>& counts,
                                  const nn::ExpertCounts& received) const {
  require_counts(counts, ranks_);
  const size_t ranks = static_cast<size_t>(ranks_->size()), experts = counts.size() / ranks;
  const bool are_of_ranks =
      received.size() == ranks &&
      std::all_of(received.begin(), received.end(), [&](const auto& of_rank) { return of_rank.size() == experts; });
  require(are_of_ranks, Status::kShapeMismatch, "received has the shape [", received.size(), ", ",
          received.empty() ? 0 : received.front().size(), "]; expected [", ranks, ", ", experts,
          "], ranks and experts of each, as dispatch_tokens() has returned it");
  return exchange_rows(results, routes_of(counts, received, ranks_), /*to_the_experts=*/false);
}

}  // namespace accel::parallel
