#include "parallel/fsdp/fully_sharded_data_parallel.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "comm/group.hpp"
#include "nn/placements.hpp"
#include "parallel/sync_module_states.hpp"
#include "parallel/uneven_inputs.hpp"
#include "tensor/dtype.hpp"
#include "tensor/file_memory.hpp"
#include "tensor/set_data.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

std::optional<at::ScalarType> floating_dtype(const std::string& name, const char* field) {
  if (name.empty()) return std::nullopt;
  const at::ScalarType dtype = tensor::dtype_from_name(name);
  require(at::isFloatingType(dtype), Status::kInvalidArgument, field, " is '", name,
          "'; expected float32, bfloat16 or float16");
  return dtype;
}

c10::IValue cast_floating(const c10::IValue& value, at::ScalarType dtype) {
  return tree::map_tensors(value, [dtype](const at::Tensor& tensor) {
    return tensor.defined() && tensor.is_floating_point() ? tensor.to(dtype) : tensor;
  });
}

}  // namespace

ShardOptions shard_options(const FsdpSettings& settings) {
  return {floating_dtype(settings.param_dtype, "param_dtype"), floating_dtype(settings.reduce_dtype, "reduce_dtype"),
          settings.cpu_offload, settings.offload_optimizer, settings.offload_folder};
}

FullyShardedDataParallel::FullyShardedDataParallel(nn::ModulePtr module, const ModelRanks& ranks,
                                                   const FsdpSettings& settings)
    : ParallelModel("FullyShardedDataParallel", std::move(module)),
      ranks_(ranks),
      settings_(settings),
      param_dtype_(shard_options(settings).param_dtype),
      output_dtype_(floating_dtype(settings.output_dtype, "output_dtype")) {
  add_child("module", this->module());
}

std::shared_ptr<FullyShardedDataParallel> FullyShardedDataParallel::create(nn::ModulePtr module,
                                                                           const ModelRanks& ranks,
                                                                           const FsdpSettings& settings,
                                                                           c10::Device device) {
  ModelRanks with_reshard = ranks;
  if (settings.reshard_group_size > 1) {
    const int64_t size = settings.reshard_group_size;
    require(ranks.shard->size() % size == 0, Status::kInvalidArgument, "reshard_group_size is ", size, " of ",
            ranks.shard->size(), " ranks; expected a divisor of their number");
    if (size < ranks.shard->size())
      with_reshard.reshard =
          comm::split_group(*ranks.shard, ranks.shard->rank() / static_cast<int>(size), ranks.shard->rank());
  }
  std::shared_ptr<FullyShardedDataParallel> model(
      new FullyShardedDataParallel(std::move(module), with_reshard, settings));
  model->shard_model(device);
  return model;
}

FullyShardedDataParallel::~FullyShardedDataParallel() {
  for (const HookedModule& hooked : hooked_)
    for (const int64_t hook : hooked.hooks) hooked.module->remove_hook(hook);
}

// The tensor, or memory for one without that rank 0 has.
at::Tensor FullyShardedDataParallel::with_memory(const at::Tensor& tensor, const std::string& name,
                                                 c10::Device device) const {
  if (!tensor.is_meta()) return tensor;
  require(settings_.sync_module_states && settings_.cpu_ram_efficient_loading && ranks_.gradient->rank() != 0,
          Status::kInvalidState, "'", name, "' has no memory on rank ", ranks_.gradient->rank(),
          "; expected weights on rank 0, and elsewhere too unless cpu_ram_efficient_loading is 1, or zero3_init_flag "
          "of DeepSpeed's settings");
  return at::empty(tensor.sizes(), tensor.options().device(device).requires_grad(false));
}

void FullyShardedDataParallel::shard_model(c10::Device device) {
  const at::NoGradGuard no_grad;
  require_unsharded();
  const std::vector<WrappedModule> modules = wrap_modules(module(), settings_);
  const ShardOptions options = shard_options(settings_);
  for (const WrappedModule& wrapped : modules)
    groups_.push_back(std::make_unique<ParameterGroup>(wrapped.path, wrapped.parameters, options, ranks_));
  schedule_.emplace(registration_order(*module(), modules), settings_);
  check_same_model(*module(), *ranks_.gradient);
  const bool sync = settings_.sync_module_states;
  for (const auto& group : groups_) {
    // One parameter after the other, so that memory for one more is enough.
    group->shard(device, [&](size_t index) {
      const ShardedParameter& parameter = *group->parameters()[index];
      at::Tensor whole = with_memory(parameter.tensor(), parameter.name(), device);
      if (sync) ranks_.gradient->broadcast(whole, /*from=*/0);
      return whole;
    });
  }
  place_parameters();
  nn::NamedTensors others = module()->named_buffers();
  for (const auto& [name, parameter] : module()->named_parameters())
    if (find(parameter) == nullptr) others.emplace_back(name, parameter);
  std::vector<at::Tensor> sent;
  for (const auto& [name, tensor] : others) {
    if (tensor.is_meta()) tensor::set_data(tensor, with_memory(tensor, name, device));
    sent.push_back(tensor);
  }
  if (sync) broadcast_tensors(sent, /*from=*/0, *ranks_.gradient);
  prepared_parameters_ = module()->named_parameters();
  add_hooks(modules);
  watch_calls_outside(modules);
}

void FullyShardedDataParallel::require_unsharded() const {
  const nn::Placements former = module()->placements();
  for (const auto& [name, parameter] : module()->named_parameters()) {
    const tensor::PlacementPtr placed = former.find(parameter);
    require(placed == nullptr || !tensor::has_any_axis(placed->axes, ranks_.shard_axes), Status::kInvalidState,
            "parameter '", name,
            "' is a part that a sharded model left behind, which exists no more; expected a model whose parameters are "
            "whole: make it again");
  }
}

// A parameter that another kind of parallelism has cut is cut once more.
void FullyShardedDataParallel::place_parameters() {
  const nn::Placements former = module()->placements();
  nn::Placements placements;
  for (const auto& group : groups_)
    for (const auto& parameter : group->parameters()) {
      tensor::Box rows{tensor::whole_offset(parameter->shape().size()), parameter->shape()};
      rows.offset[0] = parameter->rows().begin;
      rows.sizes[0] = parameter->rows().size();
      const tensor::PlacementPtr placed = former.find(parameter->tensor());
      placements.set(parameter->tensor(), placed == nullptr ? tensor::place(parameter->shape(), rows, ranks_.shard_axes)
                                                            : std::make_shared<const tensor::Placement>(
                                                                  placed->cut(rows, ranks_.shard_axes)));
    }
  module()->set_placements(placements);
}

void FullyShardedDataParallel::add_hooks(const std::vector<WrappedModule>& modules) {
  using nn::HookOrder;
  for (size_t i = 0; i < modules.size(); i++) {
    const nn::ModulePtr& wrapped = modules[i].module;
    HookedModule hooked{wrapped, {}};
    hooked.hooks.push_back(wrapped->add_pre_hook(
        [this, i](nn::Module&, const nn::Inputs& inputs) { return before_forward(i, inputs); }, HookOrder::kPlacement));
    hooked.hooks.push_back(wrapped->add_post_hook(
        [this, i](nn::Module&, const nn::Inputs&, const c10::IValue& output) { return after_forward(i, output); },
        HookOrder::kPlacement));
    if (groups_[i]->has_frozen())
      hooked.hooks.push_back(wrapped->add_backward_hook([this, i](nn::Module&, const nn::Inputs& gradients) {
        if (!gradients.empty()) inputs_arrived(i);  // without any the module's backward only begins now
        return std::nullopt;
      }));
    hooked_.push_back(std::move(hooked));
    groups_[i]->watch_gradients([this, i](size_t parameter) { gradient_arrived(i, parameter); });
  }
}

// A module whose parameters belong to the group of a module around it has their rows of this rank alone when it is
// called by itself.
void FullyShardedDataParallel::watch_calls_outside(const std::vector<WrappedModule>& modules) {
  struct Place {
    size_t group;
    std::string name;
  };
  std::unordered_map<const at::TensorImpl*, Place> places;
  for (size_t group = 0; group < groups_.size(); group++)
    for (const auto& parameter : groups_[group]->parameters())
      places[parameter->tensor().unsafeGetTensorImpl()] = {group, parameter->name()};
  for (const auto& [path, found] : module()->named_modules()) {
    std::vector<Place> used;
    for (const auto& [name, parameter] : found->named_parameters()) {
      if (name.find('.') != std::string::npos) continue;
      const auto place = places.find(parameter.unsafeGetTensorImpl());
      if (place != places.end() && modules[place->second.group].module.get() != found) used.push_back(place->second);
    }
    if (used.empty()) continue;
    const nn::ModulePtr watched = module()->find(path);
    const auto check = [this, path = path, used](nn::Module&, const nn::Inputs&) {
      const std::lock_guard<std::recursive_mutex> lock(mutex_);
      for (const Place& place : used)
        require(
            groups_[place.group]->is_unsharded(), Status::kInvalidState, "'", place.name, "' of the module '", path,
            "' is not gathered, because the module was called outside of its model; expected a call of the prepared "
            "model, or a policy of auto_wrap_policy by which this module has a group of its own");
      return std::nullopt;
    };
    try {
      hooked_.push_back({watched, {watched->add_pre_hook(check, nn::HookOrder::kPlacement)}});
    } catch (const Error& error) {
      if (error.status() != Status::kUnsupported) throw;  // within TorchScript nobody can call it
    }
  }
}

// Parameters that came or went after the model was prepared would be neither gathered nor reduced.
void FullyShardedDataParallel::check_parameters() const {
  const std::vector<at::Tensor> now = module()->parameters();
  const auto is_same = [](const at::Tensor& tensor, const nn::NamedTensor& known) {
    return tensor.is_same(known.second);
  };
  if (std::equal(now.begin(), now.end(), prepared_parameters_.begin(), prepared_parameters_.end(), is_same)) return;
  const auto missing = [](const nn::NamedTensors& tensors, const nn::NamedTensor& wanted) {
    return std::none_of(tensors.begin(), tensors.end(),
                        [&](const nn::NamedTensor& other) { return other.second.is_same(wanted.second); });
  };
  constexpr const char* kExpected =
      " after the model was prepared; expected the parameters that it had then: change the model before it is prepared";
  const nn::NamedTensors named = module()->named_parameters();
  for (const nn::NamedTensor& parameter : named)
    require(!missing(prepared_parameters_, parameter), Status::kInvalidState, "parameter '", parameter.first,
            "' was added or replaced", kExpected);
  for (const nn::NamedTensor& parameter : prepared_parameters_)
    require(!missing(named, parameter), Status::kInvalidState, "parameter '", parameter.first, "' was removed",
            kExpected);
}

CommunicatorPtr FullyShardedDataParallel::set_gradient_group(CommunicatorPtr /*group*/) {
  fail(Status::kUnsupported,
       "the ranks of a sharded model cannot train apart, because each has a part of the parameters; expected a model "
       "without sharding for local SGD and for LOMO");
}

void FullyShardedDataParallel::register_comm_hook(BucketCallback /*callback*/) {
  fail(Status::kUnsupported,
       "a sharded model has no buckets of gradients for a communication hook; expected a model without sharding");
}

void FullyShardedDataParallel::note_failed_backward(const std::string& error) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (!schedule_->in_backward()) return;
  failed_backward_ = error;
  schedule_->abandon_backward();
}

void FullyShardedDataParallel::begin_forward(bool records) {
  require(!failed_backward_, Status::kInvalidState,
          "the backward before this forward failed: ", failed_backward_.value_or(""),
          "; other ranks may have reduced gradients that this one has not, so the model cannot be trained on: end the "
          "ranks and restart them from a checkpoint");
  require(num_gathered_ == 0, Status::kInvalidState, num_gathered_,
          " parameters of the model are gathered; expected the end of that scope before a forward");
  check_parameters();
  execute(schedule_->begin_forward(records));
  // Whoever changed them: an optimizer, or the application by the address of their memory.
  for (const auto& group : groups_) group->note_update();
  if (records && !repeats_) events_.clear();
}

c10::IValue FullyShardedDataParallel::forward(const nn::Inputs& inputs) {
  const bool records = at::GradMode::is_enabled();
  if (has_uneven_inputs()) uneven_inputs()->announce(*this, {records, records && gradient_sync()});
  {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    begin_forward(records);
  }
  c10::IValue output = module()->call(inputs);
  return output_dtype_ ? cast_floating(output, *output_dtype_) : output;
}

void FullyShardedDataParallel::note(const Event& event) {
  if (!repeats_ && (schedule_->in_backward() || at::GradMode::is_enabled())) events_.push_back(event);
}

void FullyShardedDataParallel::repeat(const Event& event, bool records) {
  switch (event.kind) {
    case Event::Kind::kForward:
      before_forward(event.group, {});
      return;
    case Event::Kind::kForwardEnd:
      execute(schedule_->end_module(event.group, {event.output.is_recorded && records, event.output.has_parameters}));
      return;
    case Event::Kind::kBackward:
      before_backward(event.group);
      return;
    case Event::Kind::kInputs:
      inputs_arrived(event.group);
      return;
    case Event::Kind::kBackwardEnd:
      end_backward();
      return;
    case Event::Kind::kGradient:
      break;
  }
  ParameterGroup& group = *groups_[event.group];
  begin_backward(event.group);
  if (gradient_sync()) group.parameters()[event.parameter]->add_zero_gradient();
  gradient_arrived(event.group, event.parameter);
}

void FullyShardedDataParallel::shadow(const ForwardNotice& others, int /*source*/) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const bool former_sync = set_gradient_sync(others.exchanges);
  repeats_ = true;
  const auto restored = c10::make_scope_exit([&] {
    repeats_ = false;
    set_gradient_sync(former_sync);
  });
  begin_forward(others.records);
  for (const Event& event : former_events_) {
    const bool is_of_forward = event.kind == Event::Kind::kForward || event.kind == Event::Kind::kForwardEnd;
    if (!is_of_forward && !others.records) break;
    repeat(event, others.records);
  }
}

std::optional<nn::Inputs> FullyShardedDataParallel::before_forward(size_t group, const nn::Inputs& inputs) {
  {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    note({Event::Kind::kForward, group, 0, {}});
    execute(schedule_->begin_module(group));
  }
  if (!param_dtype_ || !settings_.cast_forward_inputs) return std::nullopt;
  nn::Inputs cast;
  for (const c10::IValue& input : inputs) cast.push_back(cast_floating(input, *param_dtype_));
  return cast;
}

bool FullyShardedDataParallel::returns_parameters(size_t group, const std::vector<at::Tensor>& outputs) const {
  return std::any_of(outputs.begin(), outputs.end(), [&](const at::Tensor& output) {
    return output.defined() && output.has_storage() &&
           groups_[group]->has_storage(output.storage().unsafeGetStorageImpl());
  });
}

std::optional<c10::IValue> FullyShardedDataParallel::after_forward(size_t group, const c10::IValue& output) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  std::vector<at::Tensor> outputs;
  tree::for_each_tensor(output, [&](const at::Tensor& tensor) { outputs.push_back(tensor); });
  bool is_recorded = false;
  for (const at::Tensor& tensor : outputs) {
    if (!tensor.defined() || !tensor.requires_grad() || !at::GradMode::is_enabled()) continue;
    is_recorded = true;
    tensor.register_hook([weak = weak_from_this(), group](const at::Tensor& /*gradient*/) {
      if (const auto self = weak.lock()) static_cast<FullyShardedDataParallel&>(*self).before_backward(group);
    });
  }
  const ModuleOutput kind{is_recorded, returns_parameters(group, outputs)};
  note({Event::Kind::kForwardEnd, group, 0, kind});
  execute(schedule_->end_module(group, kind));
  return std::nullopt;
}

void FullyShardedDataParallel::execute(const ShardingActions& actions) {
  using Kind = ShardingAction::Kind;
  for (const ShardingAction& action : actions) {
    ParameterGroup& group = *groups_[action.group];
    switch (action.kind) {
      case Kind::kStartUnshard:
        group.start_unshard();
        break;
      case Kind::kUnshard:
        group.unshard();
        break;
      case Kind::kReshard:
        group.reshard();
        break;
      case Kind::kReshardForBackward:
        group.reshard_for_backward();
        break;
      case Kind::kStartReduce:
        group.start_reduce();
        break;
      case Kind::kFinishReduce:
        group.finish_reduce();
        break;
      case Kind::kKeepGradients:
        group.keep_gradients();
        break;
      case Kind::kReduceKept:
        reduce_kept_gradients(group);
        break;
    }
  }
}

void FullyShardedDataParallel::begin_backward(size_t group) {
  if (schedule_->begin_backward(group) && !repeats_)
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
      if (const auto self = weak.lock()) static_cast<FullyShardedDataParallel&>(*self).end_backward();
    });
  groups_[group]->begin_backward();
}

void FullyShardedDataParallel::before_backward(size_t group) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  begin_backward(group);
  note({Event::Kind::kBackward, group, 0, {}});
  execute(schedule_->begin_module_backward(group));
}

void FullyShardedDataParallel::gradient_arrived(size_t group, size_t parameter) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  ParameterGroup& own = *groups_[group];
  require(own.is_unsharded(), Status::kInvalidState, "the gradient of '", own.parameters()[parameter]->name(),
          "' was computed while the parameter was not gathered; expected that a loss depends on the module '",
          own.name(), "' through the values that it returned only");
  begin_backward(group);
  note({Event::Kind::kGradient, group, parameter, {}});
  if (own.gradient_arrived(parameter)) execute(schedule_->complete_gradients(group, gradient_sync(), own.has_frozen()));
}

void FullyShardedDataParallel::inputs_arrived(size_t group) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  note({Event::Kind::kInputs, group, 0, {}});
  execute(schedule_->complete_inputs(group, groups_[group]->all_arrived()));
}

void FullyShardedDataParallel::end_backward() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (!schedule_->in_backward()) return;
  execute(schedule_->end_backward(gradient_sync()));
  if (!repeats_) keep_events();
}

// A further backward over the same forward belongs to the same step.
void FullyShardedDataParallel::keep_events() {
  events_.push_back({Event::Kind::kBackwardEnd, 0, 0, {}});
  if (events_.front().kind == Event::Kind::kForward) former_events_.clear();
  former_events_.insert(former_events_.end(), events_.begin(), events_.end());
  events_.clear();
}

// A backward keeps gradients without an exchange; a later one may not reach their group.
void FullyShardedDataParallel::reduce_kept_gradients(ParameterGroup& group) {
  if (!group.has_kept_gradients()) return;
  group.begin_backward();
  group.start_reduce();
  group.finish_reduce();
}

void FullyShardedDataParallel::finish_step() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (schedule_->in_backward()) return;
  for (const auto& group : groups_) reduce_kept_gradients(*group);
  for (const auto& group : groups_) group->reshard();
}

std::vector<at::Tensor> FullyShardedDataParallel::gradients() const {
  std::vector<at::Tensor> gradients = ParallelModel::gradients();
  for (const auto& group : groups_)
    for (const auto& parameter : group->parameters())
      if (parameter->kept_gradient().defined()) gradients.push_back(parameter->kept_gradient());
  return gradients;
}

std::vector<ShardedModule> FullyShardedDataParallel::sharded_modules() const {
  std::vector<ShardedModule> modules;
  for (const auto& group : groups_) {
    ShardedModule& module = modules.emplace_back();
    module.path = group->name();
    for (const auto& parameter : group->parameters()) {
      module.parameters.push_back(parameter->tensor());
      module.elements += c10::multiply_integers(parameter->shape());
      module.shard_elements += parameter->shard().numel();
    }
  }
  return modules;
}

// Collective: all rows of a parameter, in its own dtype.
at::Tensor FullyShardedDataParallel::gather_rows(const ShardedParameter& parameter) const {
  const at::NoGradGuard no_grad;
  const at::Tensor padded = parameter.padded_shard().detach();
  const at::Tensor all = at::empty({parameter.padded_elements()}, padded.options());
  ranks_.shard->all_gather(padded, all);
  return all.narrow(0, 0, c10::multiply_integers(parameter.shape())).view(parameter.shape());
}

ShardedParameter* FullyShardedDataParallel::find(const at::Tensor& tensor) const {
  for (const auto& group : groups_)
    for (const auto& parameter : group->parameters())
      if (parameter->tensor().is_same(tensor)) return parameter.get();
  return nullptr;
}

// Parameters with as many rows on each rank are gathered where they are wanted, the others with their padding first.
void FullyShardedDataParallel::gather_into(const std::vector<at::Tensor>& parameters,
                                           const std::vector<at::Tensor>& memory) {
  finish_step();
  const at::NoGradGuard no_grad;
  std::unordered_map<const at::TensorImpl*, const at::Tensor*> wanted;
  for (size_t i = 0; i < parameters.size(); i++) wanted.emplace(parameters[i].unsafeGetTensorImpl(), &memory[i]);
  struct Padded {
    at::Tensor memory, whole;
  };
  struct Gathered {
    std::shared_ptr<comm::Work> work;
    std::vector<Padded> padded;
  };
  std::vector<Gathered> gathered;
  for (const auto& group : groups_) {
    std::vector<comm::Collective> collectives;
    std::vector<Padded> padded;
    for (const auto& parameter : group->parameters()) {
      const auto found = wanted.find(parameter->tensor().unsafeGetTensorImpl());
      if (found == wanted.end() || parameter->padded_elements() == 0) continue;
      const at::Tensor& whole = *found->second;
      at::Tensor flat = whole.view({-1});
      if (whole.numel() != parameter->padded_elements()) {
        flat = at::empty({parameter->padded_elements()}, whole.options());
        padded.push_back({whole, flat});
      }
      collectives.push_back(comm::Collective::all_gather(parameter->padded_shard().to(whole.device()), flat));
    }
    if (!collectives.empty()) gathered.push_back({ranks_.shard->start(collectives), std::move(padded)});
  }
  for (const Gathered& part : gathered) {
    part.work->wait();
    part.work->result();
    for (const Padded& padded : part.padded)
      padded.memory.view({-1}).copy_(padded.whole.narrow(0, 0, padded.memory.numel()));
  }
}

void FullyShardedDataParallel::gather_parameters(const std::vector<at::Tensor>& parameters) {
  finish_step();
  std::vector<ShardedParameter*> own;
  for (const at::Tensor& tensor : parameters)
    if (ShardedParameter* const parameter = find(tensor)) own.push_back(parameter);
  for (const ShardedParameter* const parameter : own)  // all, before one is changed
    require(!parameter->shown().defined(), Status::kInvalidState, "parameter '", parameter->name(),
            "' is gathered already; expected the end of that scope first");
  for (ShardedParameter* const parameter : own) {
    if (parameter->shown().defined()) continue;  // it is in the list twice
    parameter->show_whole(gather_rows(*parameter));
    num_gathered_++;
  }
}

void FullyShardedDataParallel::release_parameters(const std::vector<at::Tensor>& parameters,
                                                  std::optional<int> modifier) {
  for (const at::Tensor& tensor : parameters) {
    ShardedParameter* const parameter = find(tensor);
    if (parameter == nullptr || !parameter->shown().defined()) continue;
    if (modifier) ranks_.gradient->broadcast(parameter->shown(), *modifier);
    parameter->hide_whole(/*keep=*/modifier.has_value());
    num_gathered_--;
  }
  finish_step();
}

optim::StateMemory FullyShardedDataParallel::state_memory() const {
  if (!settings_.offload_optimizer || settings_.offload_folder.value.empty()) return {};
  return [folder = settings_.offload_folder.value](const at::Tensor& parameter, at::ScalarType dtype) {
    if (parameter.numel() * c10::elementSize(dtype) < tensor::kLeastFileBytes) return at::empty_like(parameter, dtype);
    return tensor::file_zeros(folder, parameter.sizes(), dtype);
  };
}

}  // namespace accel::parallel
