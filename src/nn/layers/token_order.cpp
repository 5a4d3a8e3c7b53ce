// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/token_order.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "tensor/autograd/autograd_node.hpp"

namespace accel::nn {

using torch::autograd::variable_list;

// Each of the maps is linear, and its gradient is one of the others: LibTorch's adds up row by row instead.
class TokenOrderBackward final : public torch::autograd::Node {
 public:
  enum class Map : uint8_t { kSpread, kToPlaces, kToRows };

  using Node::Node;

  std::string name() const override { return "TokenOrderBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const at::Tensor& gradient = gradients[0];
    if (!gradient.defined()) return variable_list(1);
    switch (map) {
      case Map::kSpread:
        return {order->to_places(gradient).sum(1)};
      case Map::kToPlaces:
        return {order->to_rows(gradient)};
      case Map::kToRows:
        return {order->to_places(gradient)};
    }
    fail(Status::kInternal, "a map of tokens of an unknown kind");
  }

  static at::Tensor with_gradient(at::Tensor output, const at::Tensor& input, TokenOrderPtr order, Map map) {
    if (!at::GradMode::is_enabled() || !input.requires_grad()) return output;
    const auto node = tensor::make_autograd_node<TokenOrderBackward>(torch::autograd::collect_next_edges(input));
    node->order = std::move(order);
    node->map = map;
    torch::autograd::set_history(output, node);
    return output;
  }

  TokenOrderPtr order;
  Map map{};
};

std::shared_ptr<const TokenOrder> TokenOrder::create(const at::Tensor& choice, int64_t experts, int64_t most) {
  const std::shared_ptr<TokenOrder> order(new TokenOrder());
  const at::Tensor on_host = choice.detach().to(at::kCPU, at::kLong).contiguous();
  const int64_t* const chosen = on_host.const_data_ptr<int64_t>();
  const int64_t places = on_host.numel();
  order->tokens_ = choice.size(0);
  order->per_token_ = choice.size(1);
  order->counts_.assign(static_cast<size_t>(experts), 0);
  for (int64_t place = 0; place < places; place++) order->counts_[static_cast<size_t>(chosen[place])]++;
  order->chosen_ = order->counts_;
  if (most > 0)
    for (int64_t& count : order->counts_) count = std::min(count, most);
  const int64_t rows = std::accumulate(order->counts_.begin(), order->counts_.end(), int64_t{0});
  order->drops_ = rows < places;
  order->places_ = at::empty({rows}, at::kLong);
  order->rows_ = at::empty({places}, at::kLong);
  int64_t* const place_of = order->places_.mutable_data_ptr<int64_t>();
  int64_t* const row_of = order->rows_.mutable_data_ptr<int64_t>();
  std::vector<int64_t> next(order->counts_.size()), end(order->counts_.size());
  std::partial_sum(order->counts_.begin(), order->counts_.end(), end.begin());
  for (size_t expert = 0; expert < next.size(); expert++) next[expert] = end[expert] - order->counts_[expert];
  for (int64_t place = 0; place < places; place++) {
    const auto expert = static_cast<size_t>(chosen[place]);
    row_of[place] = rows;
    if (next[expert] == end[expert]) continue;
    row_of[place] = next[expert];
    place_of[next[expert]++] = place;
  }
  order->places_ = order->places_.to(choice.device());
  order->rows_ = order->rows_.to(choice.device());
  return order;
}

at::Tensor TokenOrder::spread(const at::Tensor& tokens) const {
  at::Tensor rows;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    rows = at::index_select(tokens, 0, per_token_ == 1 ? places_ : at::floor_divide(places_, per_token_));
  }
  return TokenOrderBackward::with_gradient(std::move(rows), tokens, shared_from_this(),
                                           TokenOrderBackward::Map::kSpread);
}

at::Tensor TokenOrder::to_places(const at::Tensor& rows) const {
  at::Tensor places;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor source = drops_ ? at::cat({rows, at::zeros({1, rows.size(1)}, rows.options())}) : rows;
    places = at::index_select(source, 0, rows_).view({tokens_, per_token_, rows.size(1)});
  }
  return TokenOrderBackward::with_gradient(std::move(places), rows, shared_from_this(),
                                           TokenOrderBackward::Map::kToPlaces);
}

at::Tensor TokenOrder::to_rows(const at::Tensor& places) const {
  at::Tensor rows;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    rows = at::index_select(places.reshape({tokens_ * per_token_, places.size(-1)}), 0, places_);
  }
  return TokenOrderBackward::with_gradient(std::move(rows), places, shared_from_this(),
                                           TokenOrderBackward::Map::kToRows);
}

}  // namespace accel::nn
