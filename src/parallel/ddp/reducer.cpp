#include "parallel/ddp/reducer.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <algorithm>
#include <numeric>
#include <unordered_set>

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

}  // namespace

struct Reducer::Accumulators {
  using NodePtr = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

  ~Accumulators() {
    for (size_t i = 0; i < hooks.size(); i++) nodes[i]->del_post_hook(hooks[i]);
  }

  std::vector<NodePtr> nodes;
  std::vector<uintptr_t> hooks;
};

Reducer::Reducer(const nn::NamedTensors& parameters, const DdpSettings& settings, CommunicatorPtr communicator,
                 CommHookPtr hook, const BucketOrder& order)
    : settings_(settings),
      communicator_(std::move(communicator)),
      hook_(std::move(hook)),
      accumulators_(std::make_unique<Accumulators>()),
      visits_(parameters.size(), 0),
      visits_left_(parameters.size(), 0),
      used_(parameters.size(), 0) {
  for (const auto& [name, parameter] : parameters) {
    names_.push_back(name);
    parameters_.push_back(parameter);
  }
  make_buffer(order.empty() ? fill_buckets_backwards(parameters_, bucket_limits(settings_)) : order);
  for (size_t number = 0; number < parameters_.size(); number++) {
    const auto& node = accumulators_->nodes.emplace_back(torch::autograd::impl::grad_accumulator(parameters_[number]));
    accumulators_->hooks.push_back(node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [this, number](const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) {
          gradient_arrived(number);
          return outputs;
        })));
  }
}

Reducer::~Reducer() = default;

// Existing gradients are moved too; they keep the memory of the former buffer, which otherwise is free before that of
// the new one is taken. Without memory for that, the next forward tries again.
void Reducer::make_buffer(const BucketOrder& order) {
  const at::NoGradGuard no_grad;
  failed_ = true;
  order_ = order;
  buffer_ = {};
  buffer_ = GradientBuffer(parameters_, order_, GradientLayout::kPacked, *communicator_);
  failed_ = false;
  exchanged_.assign(buffer_.buckets().size(), nullptr);
  if (!settings_.gradient_as_bucket_view) return;
  for (size_t number = 0; number < parameters_.size(); number++) {
    at::Tensor& gradient = parameters_[number].mutable_grad();
    if (!gradient.defined()) continue;
    buffer_.gradient(number).copy_(gradient);
    gradient = buffer_.gradient(number);
  }
}

void Reducer::fail_with_missing_gradients() const {
  constexpr size_t kMostNames = 10;
  std::string names;
  size_t missing = 0;
  for (size_t number = 0; number < parameters_.size(); number++) {
    if (buffer_.is_ready(number)) continue;
    if (missing < kMostNames) names += text(missing == 0 ? "" : ", ", names_[number]);
    missing += 1;
  }
  if (missing > kMostNames) names += text(" and ", missing - kMostNames, " more");
  fail(
      Status::kInvalidState, missing, " of ", parameters_.size(),
      " trainable parameters got no gradient in the last backward: ", names,
      "; expected each to take part in the loss: set find_unused_parameters, or let those that are not trained require "
      "no gradient");
}

// Ranks that went on would average other buckets than those that this rank has posted already.
void Reducer::fail_with_failed_backward() const {
  size_t ready = 0;
  for (size_t number = 0; number < parameters_.size(); number++) ready += buffer_.is_ready(number) ? 1 : 0;
  fail(Status::kInvalidState, "the backward before this forward failed after ", ready, " of ", parameters_.size(),
       " gradients", error_.empty() ? "" : ": ", error_,
       "; other ranks may have exchanged gradients that this one has not, so the model cannot be trained on: end the "
       "ranks and restart them from a checkpoint");
}

void Reducer::prepare_for_forward() {
  if (failed_ || (under_way_ && buffer_.all_taken())) {  // that backward ended with an error
    expects_gradients_ = under_way_ = in_backward_ = false;
    arrived_.clear();
    make_buffer(order_);  // what is still exchanged may write to the old one
  }
  if (under_way_ && in_backward_) fail_with_failed_backward();
  if (under_way_) fail_with_missing_gradients();
  if (!takes_order() || arrived_.empty()) return;
  const BucketOrder order = order_of_rank_0(fill_buckets(parameters_, arrived_, bucket_limits(settings_)));
  order_taken_ = true;
  arrived_.clear();
  make_buffer(order);
}

BucketOrder Reducer::order_of_rank_0(const BucketOrder& own) const {
  std::vector<int64_t> bucket_ends(parameters_.size(), 0), numbers;
  for (const std::vector<size_t>& bucket : own) {
    numbers.insert(numbers.end(), bucket.begin(), bucket.end());
    bucket_ends[numbers.size() - 1] = 1;
  }
  numbers.insert(numbers.end(), bucket_ends.begin(), bucket_ends.end());
  at::Tensor sent = at::tensor(numbers, at::kLong).to(communicator_->device());
  communicator_->broadcast(sent, /*from=*/0);
  const at::Tensor received = sent.cpu();
  const auto* const values = received.const_data_ptr<int64_t>();
  BucketOrder order(1);
  for (size_t i = 0; i < parameters_.size(); i++) {
    order.back().push_back(static_cast<size_t>(values[i]));
    if (values[parameters_.size() + i] != 0) order.emplace_back();
  }
  order.pop_back();
  return order;
}

void Reducer::prepare_for_backward(const std::vector<at::Tensor>& outputs) {
  const std::lock_guard<std::mutex> lock(mutex_);
  expects_gradients_ = true;
  unused_marked_ = false;
  buffer_.start();
  visits_left_ = visits_;
  if (!searches_unused()) return;
  unused_.clear();
  const auto reached = nodes_behind(outputs);
  for (size_t number = 0; number < parameters_.size(); number++)
    if (reached.count(accumulators_->nodes[number].get()) == 0) unused_.push_back(number);
}

void Reducer::gradient_arrived(size_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!expects_gradients_) return;
  if (parameters_[number].grad().defined()) used_[number] = 1;
  if (learns_static_graph()) {
    visits_[number] += 1;
    return;
  }
  if (!std::exchange(in_backward_, true))  // autograd calls it only where the backward succeeds
    torch::autograd::Engine::get_default_engine().queue_callback([this] {
      const std::lock_guard<std::mutex> in_callback(mutex_);
      in_backward_ = false;
    });
  if (!std::exchange(unused_marked_, true))
    for (const size_t unused : unused_) mark_ready(unused);
  if (settings_.static_graph && --visits_left_[number] != 0) return;
  if (takes_order()) arrived_.push_back(number);
  mark_ready(number);
}

void Reducer::mark_ready(size_t number) {
  under_way_ = true;
  require(!buffer_.is_ready(number), Status::kInvalidState, "the gradient of '", names_[number],
          "' came twice in one backward; expected each parameter in one forward for each backward: with parts of the "
          "model that run again in backward, set static_graph");
  copy_to_bucket(number);
  buffer_.set_ready(number);
  while (const auto complete = buffer_.take_complete()) start_bucket(*complete);
  if (!buffer_.all_taken()) return;
  if (searches_unused()) start_use_counts();
  torch::autograd::Engine::get_default_engine().queue_callback([this] {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (settings_.static_graph && takes_order()) arrived_.insert(arrived_.end(), unused_.begin(), unused_.end());
    finish();
  });
}

void Reducer::reduce_static_graph() {
  const std::lock_guard<std::mutex> lock(mutex_);
  start_use_counts();
  under_way_ = true;
  unused_.clear();
  for (size_t number = 0; number < parameters_.size(); number++) {
    if (visits_[number] == 0) unused_.push_back(number);
    copy_to_bucket(number);
    buffer_.set_ready(number);
  }
  while (const auto complete = buffer_.take_complete()) start_bucket(*complete);
  static_graph_known_ = true;
  finish();
}

// Autograd records the copy of a gradient with a graph.
void Reducer::copy_to_bucket(size_t number) {
  at::Tensor& gradient = parameters_[number].mutable_grad();
  const at::Tensor& memory = buffer_.gradient(number);
  if (!gradient.defined()) {
    memory.zero_();
  } else if (!gradient.is_alias_of(memory)) {
    memory.copy_(gradient);
    if (settings_.gradient_as_bucket_view) gradient = memory;
  }
}

c10d::GradBucket Reducer::grad_bucket(size_t index, at::Tensor memory) const {
  const GradientBuffer::Bucket& bucket = buffer_.buckets()[index];
  std::vector<size_t> lengths;
  std::vector<c10::IntArrayRef> sizes;
  std::vector<at::Tensor> parameters;
  for (const size_t number : bucket.gradients) {
    const at::Tensor& parameter = parameters.emplace_back(parameters_[number]);
    lengths.push_back(static_cast<size_t>(parameter.numel()));
    sizes.push_back(parameter.sizes());
  }
  return c10d::GradBucket(index, buffer_.buckets().size(), std::move(memory), bucket.offsets, std::move(lengths),
                          std::move(sizes), std::move(parameters), std::nullopt);
}

void Reducer::start_bucket(size_t index) {
  failed_ = true;
  c10d::GradBucket bucket = grad_bucket(index, buffer_.buckets()[index].memory);
  exchanged_[index] = hook_->runHook(bucket);
  failed_ = false;
}

void Reducer::start_use_counts() {
  use_counts_ = at::tensor(used_, at::kInt).to(communicator_->device());
  std::vector<at::Tensor> tensors{use_counts_};
  const auto backend = communicator_->process_group()->getBackend(use_counts_.device().type());
  counting_ = backend->allreduce(tensors, c10d::AllreduceOptions());
}

bool Reducer::is_used_anywhere(size_t number) {
  if (used_[number] != 0 || !use_counts_.defined()) return true;
  if (const auto counting = std::exchange(counting_, nullptr)) {
    counting->wait();
    use_counts_ = use_counts_.cpu();
  }
  return use_counts_.const_data_ptr<int32_t>()[number] != 0;
}

void Reducer::finish() {
  expects_gradients_ = false;
  failed_ = true;
  for (size_t i = 0; i < exchanged_.size(); i++) {
    const Future future = std::exchange(exchanged_[i], nullptr);
    future->waitAndThrow();
    const at::Tensor mean = hook_->parseHookResult(future->value());
    const GradientBuffer::Bucket& bucket = buffer_.buckets()[i];
    if (!mean.is_alias_of(bucket.memory)) bucket.memory.copy_(mean);
    for (const size_t number : bucket.gradients) copy_from_bucket(number);
  }
  if (const auto counting = std::exchange(counting_, nullptr)) counting->wait();
  if (searches_unused()) {
    std::fill(used_.begin(), used_.end(), 0);
    use_counts_.reset();
  }
  failed_ = under_way_ = false;
}

// A parameter that no rank has used keeps its former gradient.
void Reducer::copy_from_bucket(size_t number) {
  if (!is_used_anywhere(number)) return;
  const at::Tensor& memory = buffer_.gradient(number);
  at::Tensor& gradient = parameters_[number].mutable_grad();
  if (settings_.gradient_as_bucket_view) {
    gradient = memory;
  } else if (gradient.defined()) {
    gradient.copy_(memory);
  } else {
    gradient = at::empty_strided(memory.sizes(), memory.strides(), memory.options()).copy_(memory);
  }
}

void Reducer::shadow_backward() {
  std::vector<Future> exchanged;
  for (size_t i = 0; i < buffer_.buckets().size(); i++) {
    c10d::GradBucket bucket = grad_bucket(i, at::zeros_like(buffer_.buckets()[i].memory));
    exchanged.push_back(hook_->runHook(bucket));
  }
  if (searches_unused()) {
    start_use_counts();
    std::exchange(counting_, nullptr)->wait();
    use_counts_.reset();
  }
  for (const Future& future : exchanged) {
    future->waitAndThrow();
    hook_->parseHookResult(future->value());  // hooks may have collectives there too
  }
  if (!takes_order() || !arrived_.empty()) return;
  arrived_.resize(parameters_.size());
  std::iota(arrived_.begin(), arrived_.end(), size_t{0});
}

}  // namespace accel::parallel
