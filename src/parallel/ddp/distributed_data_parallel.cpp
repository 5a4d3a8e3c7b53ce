// SPDX-License-Identifier: Apache-2.0
#include "parallel/ddp/distributed_data_parallel.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/core/Layout.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "nn/module_walks.hpp"
#include "parallel/ddp/gradient_averaging.hpp"
#include "parallel/ddp/make_comm_hook.hpp"
#include "parallel/ddp/reducer.hpp"
#include "parallel/ddp/reducer_sink.hpp"
#include "parallel/sync_module_states.hpp"
#include "parallel/uneven_inputs.hpp"
#include "tensor/device/device_graph.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

enum GradientClass : size_t { kComplete, kWithTerms, kOfExperts };

bool is_of_experts(const tensor::PlacementPtr& placement) {
  return placement != nullptr && tensor::has_any_axis(placement->axes, kExpertAxes);
}

// The ranks that have the same experts start from those of the first one.
void synchronize_states(const nn::Module& module, comm::Communicator& ranks, const ClassRanks& class_ranks) {
  if (class_ranks.experts == nullptr) return sync_module_states(module, ranks);
  check_same_model(module, ranks);
  const nn::Placements placements = nn::placements(module);
  std::vector<at::Tensor> others, of_experts;
  for (const at::Tensor& parameter : module.parameters())
    (is_of_experts(placements.find(parameter)) ? of_experts : others).push_back(parameter);
  for (const auto& [name, buffer] : nn::named_buffers(module)) others.push_back(buffer);
  broadcast_tensors(others, /*from=*/0, ranks);
  broadcast_tensors(of_experts, /*from=*/0, *class_ranks.experts->gradient);
}

// The host has to do something in each forward or backward; empty if not.
std::string recording_obstacle(const DdpSettings& options, bool has_buffers, const ClassRanks& class_ranks,
                               bool has_uneven_inputs) {
  if (has_uneven_inputs) return "ranks may be without inputs";
  if (class_ranks.are_some()) return "ranks have parts of its layers";
  if (options.find_unused_parameters) return "find_unused_parameters looks at each backward on the host";
  if (options.static_graph) return "static_graph looks at a backward on the host";
  if (options.broadcast_buffers && has_buffers)
    return "rank 0 broadcasts buffers before each forward (broadcast_buffers)";
  return "";
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(nn::ModulePtr module, std::shared_ptr<comm::Communicator> communicator,
                                                 const DdpSettings& options, ClassRanks class_ranks)
    : ParallelModel("DistributedDataParallel", std::move(module)),
      communicator_(std::move(communicator)),
      gradient_group_(communicator_),
      options_(options),
      class_ranks_(std::move(class_ranks)) {
  bucket_bytes(options_.bucket_cap_mb);  // refused ahead of the collectives
  hook_ = make_comm_hook(options_, communicator_);
  add_child("module", this->module());
  synchronize_states(*this->module(), *communicator_, class_ranks_);
  for (const auto& [name, buffer] : nn::named_buffers(*this->module())) buffers_.push_back(buffer);
  make_reducer();
}

void DistributedDataParallel::make_reducer(const BucketOrder& order) {
  nn::NamedTensors trainable;
  GradientClasses classes;
  frozen_.clear();
  const bool has_terms = class_ranks_.terms != nullptr;
  const nn::Placements summed = has_terms ? nn::summed_placements(*module()) : nn::Placements();
  const nn::Placements placements = class_ranks_.experts != nullptr ? nn::placements(*module()) : nn::Placements();
  for (const auto& [name, parameter] : nn::named_parameters(*module())) {
    const GradientClass of_parameter = is_of_experts(placements.find(parameter)) ? kOfExperts
                                       : summed.find(parameter) != nullptr       ? kWithTerms
                                                                                 : kComplete;
    if (communicator_->size() == 1 && of_parameter == kComplete) continue;
    (parameter.requires_grad() ? trainable : frozen_).emplace_back(name, parameter);
    if (parameter.requires_grad()) classes.push_back(of_parameter);
  }
  if (trainable.empty()) return;  // nothing to exchange
  reducer_ = nullptr;             // its hooks are gone before those of the next one come
  const CommunicatorPtr& ranks = class_ranks_.all != nullptr ? class_ranks_.all : communicator_;
  const CommunicatorPtr of_experts = class_ranks_.experts == nullptr ? nullptr : class_ranks_.experts->gradient;
  const std::vector<CommHookPtr> hooks = current_hooks();
  reducer_ = std::make_shared<Reducer>(
      trainable, std::move(classes), options_, ranks,
      std::vector<ClassExchange>{
          {communicator_, hooks[kComplete]}, {ranks, hooks[kWithTerms]}, {of_experts, hooks[kOfExperts]}},
      order);
  former_forward_.is_learned = false;
}

// The next forward broadcasts buffers, as behind one that ran with the exchange on.
void DistributedDataParallel::expect_backward(bool is_expected) {
  if (reducer_ == nullptr) return;
  if (!is_expected) return reducer_->expect_no_backward();
  if (gradient_group_ == nullptr && !class_ranks_.are_some()) return;
  reducer_->prepare_for_backward({});
  former_forward_.is_synced = true;
}

void DistributedDataParallel::exchange_accumulated() {
  if (reducer_ == nullptr || (gradient_group_ == nullptr && !class_ranks_.are_some())) return;
  reducer_->exchange_accumulated();
  former_forward_.is_synced = true;
}

void DistributedDataParallel::synchronize_buffers(int from) {
  if (options_.broadcast_buffers && former_forward_.is_synced) broadcast_tensors(buffers_, from, *communicator_);
}

std::vector<CommHookPtr> DistributedDataParallel::current_hooks() const {
  const bool is_whole = gradient_group_ == communicator_;
  CommHookPtr complete, terms, experts;
  if (is_whole)
    complete = hook_;
  else if (gradient_group_ == nullptr)
    complete = make_comm_hook([](const at::Tensor&, int64_t, bool) {});
  else
    complete = make_comm_hook(DdpSettings{}, gradient_group_);
  if (class_ranks_.terms != nullptr && is_whole)
    terms = std::make_shared<GradientSumming>(class_ranks_.all, 1.0 / communicator_->size());
  else if (class_ranks_.terms != nullptr)
    terms = std::make_shared<NestedGradientSumming>(class_ranks_.terms, gradient_group_);
  if (class_ranks_.experts != nullptr) {
    const ModelRanks& ranks = *class_ranks_.experts;
    experts = std::make_shared<GradientSumming>(ranks.gradient, ranks.gradient_scale / ranks.gradient->size());
  }
  return {complete, terms, experts};
}

CommHookPtr DistributedDataParallel::set_comm_hook(CommHookPtr hook) {
  CommHookPtr former = std::exchange(hook_, std::move(hook));
  if (reducer_ != nullptr) reducer_->exchange().set_hooks(current_hooks());
  return former;
}

CommunicatorPtr DistributedDataParallel::set_gradient_group(CommunicatorPtr group) {
  if (group != nullptr && group->size() == 1) group = nullptr;
  require(class_ranks_.experts == nullptr || group == communicator_ || communicator_->size() == 1, Status::kUnsupported,
          "the ranks have different experts of the model, and gradients shall be averaged over some ranks only; "
          "expected all ranks, or expert_parallel_size 1");
  CommunicatorPtr former = std::exchange(gradient_group_, std::move(group));
  if (reducer_ != nullptr) reducer_->exchange().set_hooks(current_hooks());
  return former;
}

void DistributedDataParallel::note_failed_backward(const std::string& error) {
  if (reducer_ != nullptr) reducer_->note_failed_backward(error);
}

// Forwards exchange nothing then: one may fail on a rank alone.
bool DistributedDataParallel::begin_micro_batches(MicroBatches kind) {
  const bool follow_failure = kind == MicroBatches::kTrainedAfterFailure;
  former_forward_.is_synced = former_forward_.is_synced || follow_failure;
  if (reducer_ != nullptr && follow_failure) reducer_->note_failed_backward("", /*all_know=*/true);
  if (reducer_ != nullptr) reducer_->prepare_for_forward();
  synchronize_buffers(/*from=*/0);
  former_forward_.is_synced = false;
  return true;
}

void DistributedDataParallel::register_comm_hook(BucketCallback callback) {
  set_comm_hook(make_comm_hook(std::move(callback)));
}

c10::IValue DistributedDataParallel::reduction_state() const {
  const tensor::Stateful* const memory = memory_of(hook_);
  if (memory == nullptr || reducer_ == nullptr) return {};
  auto buckets = tree::new_list();
  for (const std::vector<size_t>& bucket : reducer_->exchange().order()) {
    auto parameters = tree::new_list();
    for (const size_t number : bucket) parameters.push_back(static_cast<int64_t>(number));
    buckets.push_back(parameters);
  }
  auto state = tree::new_map();
  state.insert("buckets", buckets);
  state.insert("memory", memory->state_dict());
  return state;
}

void DistributedDataParallel::load_reduction_state(const c10::IValue& saved) {
  tensor::Stateful* const memory = memory_of(hook_);
  if (memory == nullptr || reducer_ == nullptr) return;
  if (saved.isNone()) return memory->load_state_dict(saved);
  const auto map = saved.toGenericDict();
  size_t parameters = 0;
  for (const std::vector<size_t>& bucket : reducer_->exchange().order()) parameters += bucket.size();
  std::vector<bool> seen(parameters, false);
  BucketOrder buckets;
  const c10::IValue saved_buckets = map.at("buckets");
  for (const c10::IValue& bucket : saved_buckets.toListRef()) {
    buckets.emplace_back();
    for (const c10::IValue& item : bucket.toListRef()) {
      const auto place = static_cast<size_t>(item.toInt());
      require(place < seen.size() && !seen[place], Status::kCorrupt, "the saved buckets of gradients have parameter ",
              place, " of ", seen.size(), " in a wrong place; expected those of the same model");
      seen[place] = true;
      buckets.back().push_back(place);
    }
  }
  require(std::find(seen.begin(), seen.end(), false) == seen.end(), Status::kCorrupt,
          "the saved buckets of gradients lack parameters of the model; expected those of the same model");
  const GradientClasses& classes = reducer_->exchange().classes();
  for (const std::vector<size_t>& bucket : buckets)
    for (const size_t number : bucket)
      require(classes.empty() || classes[number] == classes[bucket.front()], Status::kInvalidState,
              "the saved buckets have gradients that are exchanged otherwise now; expected the same sequence_parallel "
              "and plan");
  memory->load_state_dict(map.at("memory"));
  make_reducer(buckets);
}

std::vector<UncoveredGradient> DistributedDataParallel::uncovered_gradients() {
  std::vector<UncoveredGradient> found;
  if (!exchanges()) return found;
  if (reducer_ != nullptr) reducer_->uncovered().add_to(found);
  for (const auto& [name, parameter] : frozen_)
    if (parameter.grad().defined() && parameter.grad().layout() == at::kStrided)
      found.push_back({name, parameter, /*was_frozen=*/true});
  return found;
}

bool DistributedDataParallel::covers(const at::Tensor& parameter) {
  return reducer_ != nullptr && reducer_->uncovered().covers(parameter);
}

// The order around a forward is that of torch's wrapper: buckets are rebuilt before memory peaks, and buffers
// are broadcast only if the former step exchanged gradients.
c10::IValue DistributedDataParallel::forward(const nn::Inputs& inputs) {
  const bool recording = reducer_ != nullptr && at::GradMode::is_enabled();
  if (tensor::DeviceGraph::is_capturing()) {
    const std::string obstacle = recording_obstacle(options_, !buffers_.empty(), class_ranks_, has_uneven_inputs());
    require(obstacle.empty(), Status::kUnsupported, "a step of several processes cannot be captured: ", obstacle,
            "; expected a step without a capture, or none of that");
    former_forward_.is_captured = recording && exchanges();
    if (former_forward_.is_captured) {
      reducer_->expect_no_backward();
      reducer_->make_hooks();
    }
    return module()->call(inputs);
  }
  int source = 0;
  if (has_uneven_inputs()) source = uneven_inputs()->announce(*this, {recording, recording && exchanges()});
  if (recording) reducer_->prepare_for_forward();
  synchronize_buffers(source);
  c10::IValue output = module()->call(inputs);
  former_forward_.is_synced = at::GradMode::is_enabled() && exchanges();
  if (!recording) return output;
  const bool search = options_.find_unused_parameters && !options_.static_graph;
  if (exchanges()) {
    std::vector<at::Tensor> outputs;
    if (search) tree::for_each_tensor(output, [&](const at::Tensor& tensor) { outputs.push_back(tensor); });
    reducer_->prepare_for_backward(outputs);
  }
  const bool learns = options_.static_graph && exchanges() && !former_forward_.is_learned;
  if (!search && !learns) return output;
  former_forward_.is_learned = former_forward_.is_learned || learns;
  return pass_through_sink(output, reducer_, learns);
}

// Each time the ranks do here together what they do around a forward and in a backward. The gradients stay where the
// recorded backward has written them.
void DistributedDataParallel::record_exchange() {
  if (!std::exchange(former_forward_.is_captured, false)) return;
  std::vector<at::Tensor> parameters, gradients;
  for (const auto& [name, parameter] : reducer_->uncovered().parameters()) {
    require(parameter.grad().defined(), Status::kUnsupported, "the parameter '", name,
            "' got no gradient in the captured step; expected each to take part in the loss where several processes "
            "exchange gradients");
    parameters.push_back(parameter);
    gradients.push_back(parameter.grad());
  }
  tensor::DeviceGraph::interrupt([this, parameters, gradients] {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); i++) parameters[i].mutable_grad() = gradients[i];
    begin_micro_batches(MicroBatches::kTrained);
    exchange_accumulated();
    for (size_t i = 0; i < parameters.size(); i++) {
      at::Tensor& gradient = parameters[i].mutable_grad();
      if (!gradient.is_alias_of(gradients[i])) gradients[i].copy_(gradient);
      gradient = gradients[i];
    }
  });
  reducer_->uncovered().forget();
}

// The collectives of forward() and of the backward that follows, in their order, with gradients of 0.
void DistributedDataParallel::shadow(const ForwardNotice& others, int source) {
  if (others.records) reducer_->prepare_for_forward();
  synchronize_buffers(source);
  former_forward_.is_synced = others.exchanges;
  if (others.exchanges) reducer_->shadow_backward();
}

}  // namespace accel::parallel
