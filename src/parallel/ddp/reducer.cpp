// SPDX-License-Identifier: Apache-2.0
#include "parallel/ddp/reducer.hpp"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"

namespace accel::parallel {
namespace {

constexpr int64_t kFirstBucketBytes = kMegabyte;  // a small first bucket: communication starts early

std::vector<int64_t> bucket_limits(const DdpSettings& settings) {
  const int64_t cap = bucket_bytes(settings.bucket_cap_mb);
  return {std::min(kFirstBucketBytes, cap), cap};
}

// The parameters that a backward from these tensors will reach.
std::unordered_set<const torch::autograd::Node*> nodes_behind(const std::vector<at::Tensor>& outputs) {
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<const torch::autograd::Node*> left;
  for (const at::Tensor& output : outputs)
    if (const auto& node = output.grad_fn()) left.push_back(node.get());
  while (!left.empty()) {
    const torch::autograd::Node* const node = left.back();
    left.pop_back();
    for (const auto& edge : node->next_edges())
      if (edge.function && seen.insert(edge.function.get()).second) left.push_back(edge.function.get());
  }
  return seen;
}

std::vector<at::Tensor> tensors_of(const nn::NamedTensors& parameters) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, parameter] : parameters) tensors.push_back(parameter);
  return tensors;
}

[[noreturn]] void fail_with_missing_gradients(const GradientBuffer& buffer, const nn::NamedTensors& parameters) {
  constexpr size_t kMostNames = 10;
  std::string listed;
  size_t missing = 0;
  for (size_t number = 0; number < parameters.size(); number++) {
    if (buffer.is_ready(number)) continue;
    if (missing < kMostNames) listed += text(missing == 0 ? "" : ", ", parameters[number].first);
    missing += 1;
  }
  if (missing > kMostNames) listed += text(" and ", missing - kMostNames, " more");
  fail(
      Status::kInvalidState, missing, " of ", parameters.size(),
      " trainable parameters got no gradient in the last backward: ", listed,
      "; expected each to take part in the loss: set find_unused_parameters, or let those that are not trained require "
      "no gradient");
}

// Ranks that went on would average other buckets than those that this rank has posted already.
[[noreturn]] void fail_with_failed_backward(const GradientBuffer& buffer, const nn::NamedTensors& parameters,
                                            const std::string& error) {
  size_t ready = 0;
  for (size_t number = 0; number < parameters.size(); number++) ready += buffer.is_ready(number) ? 1 : 0;
  fail(Status::kInvalidState, "the backward before this forward failed after ", ready, " of ", parameters.size(),
       " gradients", error.empty() ? "" : ": ", error,
       "; other ranks may have exchanged gradients that this one has not, so the model cannot be trained on: end the "
       "ranks and restart them from a checkpoint");
}

}  // namespace

Reducer::Reducer(const nn::NamedTensors& parameters, GradientClasses classes, const DdpSettings& settings,
                 CommunicatorPtr ranks, std::vector<ClassExchange> exchanges, const BucketOrder& order)
    : parameters_(tensors_of(parameters)),
      settings_(settings),
      communicator_(std::move(ranks)),
      exchange_(parameters_, std::move(classes), settings.gradient_as_bucket_view, std::move(exchanges)),
      graph_(parameters.size()),
      use_(parameters.size(), communicator_),
      uncovered_(parameters) {
  exchange_.set_order(order.empty() ? fill_buckets_backwards(parameters_, bucket_limits(settings_), exchange_.classes())
                                    : order);
  make_hooks();
}

void Reducer::make_hooks() {
  hooks_.clear();
  for (size_t number = 0; number < parameters_.size(); number++)
    hooks_.emplace_back(parameters_[number]).set([this, number] { gradient_arrived(number); });
}

// Without memory for new buckets, the next forward tries again.
void Reducer::make_buckets(const BucketOrder& order) {
  const State former = std::exchange(state_, State::kBroken);
  exchange_.set_order(order);
  state_ = former;
}

void Reducer::prepare_for_forward() {
  if (state_ == State::kExchanged) state_ = State::kIdle;
  const bool is_under_way = state_ == State::kExchanging || state_ == State::kIncomplete;
  // In the second case a backward has ended with an error after all buckets were started.
  if (state_ == State::kBroken || (is_under_way && exchange_.buffer().all_taken())) {
    state_ = State::kIdle;
    arrivals_.forget();
    make_buckets(BucketOrder(exchange_.order()));  // what is still exchanged may write to the old ones
  }
  if (state_ == State::kExchanging) fail_with_failed_backward(exchange_.buffer(), uncovered_.parameters(), error_);
  if (state_ == State::kIncomplete) fail_with_missing_gradients(exchange_.buffer(), uncovered_.parameters());
  if (arrivals_.is_taken() || searches_unused()) return;
  const auto order = arrivals_.take(parameters_, bucket_limits(settings_), exchange_.classes(), *communicator_);
  if (order) make_buckets(*order);
}

void Reducer::prepare_for_backward(const std::vector<at::Tensor>& outputs) {
  const std::lock_guard<std::mutex> lock(mutex_);
  state_ = State::kExpecting;
  exchange_.begin_backward();
  graph_.begin_backward();
  if (!searches_unused()) return;
  unused_.clear();
  const auto reached = nodes_behind(outputs);
  for (size_t number = 0; number < parameters_.size(); number++)
    if (reached.count(hooks_[number].node()) == 0) unused_.push_back(number);
}

void Reducer::expect_no_backward() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == State::kExpecting || state_ == State::kReached) state_ = State::kIdle;
}

void Reducer::gradient_arrived(size_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (parameters_[number].grad().defined()) use_.note(number);  // the next exchange covers what accumulates without one
  const bool is_idle = state_ == State::kIdle || state_ == State::kExchanged;
  if (is_idle) uncovered_.note(number);
  if (is_idle || state_ == State::kBroken) return;
  if (settings_.static_graph && !graph_.is_known()) return graph_.learn_visit(number);
  const State former = state_;
  if (former == State::kExpecting || former == State::kIncomplete) {
    state_ = former == State::kExpecting ? State::kReached : State::kExchanging;
    // Autograd calls it only where the backward succeeds.
    torch::autograd::Engine::get_default_engine().queue_callback([this] {
      const std::lock_guard<std::mutex> in_callback(mutex_);
      if (state_ == State::kReached) state_ = State::kExpecting;
      if (state_ == State::kExchanging) state_ = State::kIncomplete;
    });
  }
  if (former == State::kExpecting)
    for (const size_t unused : unused_) mark_ready(unused);
  if (settings_.static_graph && !graph_.is_last_visit(number)) return;
  if (!arrivals_.is_taken() && !searches_unused()) arrivals_.note(number);
  mark_ready(number);
}

void Reducer::mark_ready(size_t number) {
  state_ = State::kExchanging;
  require(!exchange_.buffer().is_ready(number), Status::kInvalidState, "the gradient of '",
          uncovered_.parameters()[number].first,
          "' came twice in one backward; expected each parameter in one forward for each backward: with parts of the "
          "model that run again in backward, set static_graph");
  exchange_.add(number);
  start_complete_buckets();
  if (!exchange_.buffer().all_taken()) return;
  if (searches_unused()) use_.start_count();
  torch::autograd::Engine::get_default_engine().queue_callback([this] {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (settings_.static_graph && !arrivals_.is_taken() && !searches_unused()) arrivals_.note(unused_);
    finish();
  });
}

void Reducer::start_complete_buckets() {
  const State former = std::exchange(state_, State::kBroken);
  exchange_.start_complete();
  state_ = former;
}

void Reducer::reduce_static_graph() {
  const std::lock_guard<std::mutex> lock(mutex_);
  use_.start_count();
  state_ = State::kIncomplete;
  unused_ = graph_.unreached();
  for (size_t number = 0; number < parameters_.size(); number++) exchange_.add(number);
  start_complete_buckets();
  graph_.set_known();
  finish();
}

// A parameter that no rank has used keeps its former gradient.
void Reducer::finish() {
  state_ = State::kBroken;
  exchange_.finish([this](size_t number) { return use_.is_used_anywhere(number); });
  use_.wait();
  if (searches_unused()) use_.forget();
  uncovered_.forget();  // buckets have what has accumulated, too
  state_ = State::kExchanged;
}

void Reducer::exchange_accumulated() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == State::kExchanged || state_ == State::kIncomplete) return;  // others wait for nothing
  const bool is_under_way = std::exchange(state_, State::kBroken) == State::kExchanging;
  if (!is_under_way) exchange_.begin_backward();
  for (size_t number = 0; number < parameters_.size(); number++)
    if (!exchange_.buffer().is_ready(number)) exchange_.add(number);
  exchange_.start_complete();
  exchange_.finish([](size_t) { return true; });
  if (searches_unused()) use_.forget();
  uncovered_.forget();
  state_ = State::kExchanged;
}

void Reducer::shadow_backward() {
  exchange_.start_zeros();
  if (searches_unused()) {
    use_.start_count();
    use_.wait();
    use_.forget();
  }
  exchange_.finish_zeros();
  if (!arrivals_.is_taken() && !searches_unused()) arrivals_.note_any(parameters_.size());
}

}  // namespace accel::parallel
