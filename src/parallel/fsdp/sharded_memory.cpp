// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/sharded_memory.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "config/generated/settings/prepare/estimate_memory.hpp"
#include "nn/module_walks.hpp"
#include "parallel/fp8_estimate.hpp"
#include "parallel/fsdp/auto_wrap.hpp"
#include "parallel/fsdp/fully_sharded_data_parallel.hpp"
#include "parallel/fsdp/group_memory.hpp"
#include "parallel/fsdp/mixed_precision_policy.hpp"
#include "parallel/fsdp/parameter_group.hpp"
#include "parallel/fsdp/sharded_parameter.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/schedule/sharding_schedule.hpp"

namespace accel::parallel {
namespace {

int64_t bytes_of(int64_t elements, at::ScalarType dtype) {
  return elements * static_cast<int64_t>(c10::elementSize(dtype));
}

// Where a forward uses a tensor; tied ones several times. A backward goes the other way.
struct Uses {
  size_t first, last;
};

struct Member {
  std::unique_ptr<ShardedParameter> parameter;
  Uses uses;
  int64_t gradient;  // bytes of the whole one, as autograd makes it
};

// Counts the ranks of one copy of the model that have rows of the same experts.
int expert_shard_ranks(const EstimateMemorySettings& settings) {
  const bool are_split = settings.model_options.expert_parallel.tensor_parallel_experts;
  const int64_t shards = *settings.data_parallel_shard_size, experts = settings.expert_parallel_size;
  const int64_t ranks = are_split ? shards : shards * settings.tensor_parallel_size;
  require(ranks % experts == 0, Status::kInvalidArgument, "expert_parallel_size is ", experts, " and one copy of the ",
          "model has ", ranks, " ranks that may share experts out; expected a divisor");
  return static_cast<int>(ranks / experts);
}

struct Group {
  std::string path;
  std::vector<Member> members;
  size_t trained = 0;
  Uses uses;             // of its parameters and those of the groups inside
  int64_t gathered = 0;  // from when the gathering starts
  int64_t unpacked = 0;  // from when the parameters are whole: numbers of weights that are gathered in 8 bits
  bool is_gathered = false, is_whole = false;

  bool contains(const Group& other) const {
    return path.empty() || other.path == path || other.path.compare(0, path.size() + 1, path + ".") == 0;
  }
};

// One step of a training: the events of a forward in the order of registration, and of its backward in the reverse
// order, and what the actions of the schedule take.
class ShardedStep {
 public:
  ShardedStep(const nn::ModulePtr& module, const EstimateMemorySettings& settings, const StateBytes& state_bytes)
      : settings_(settings),
        fsdp_(settings.model_options.fsdp),
        state_bytes_(state_bytes),
        shard_ranks_(static_cast<int>(*settings.data_parallel_shard_size)),
        expert_shard_ranks_(expert_shard_ranks(settings)),
        policy_(mixed_precision_policy(fsdp_)),
        fp8_(*module, settings.mixed_precision),
        placements_(nn::placements(*module)) {
    number_uses(*module);
    const std::vector<WrappedModule> modules = wrap_modules(module, fsdp_, kExpertAxes);
    for (const WrappedModule& wrapped : modules) add_group(wrapped);
    add_whole_tensors(*module);
    widen_uses();
    order_ = registration_order(*module, modules);
    schedule_.emplace(order_, fsdp_);
    kept_.assign(groups_.size(), 0);
  }

  MemoryEstimate run() {
    estimate_.is_sharded = true;
    forward();
    backward();
    observe(TrainingPhase::kStep);
    return estimate_;
  }

 private:
  void number_uses(const nn::Module& module) {
    for (const auto& [name, values] : module.state_dict()) {
      const at::TensorImpl* const tensor = nn::find_tensor(module, name).unsafeGetTensorImpl();
      uses_.try_emplace(tensor, Uses{num_uses_, num_uses_}).first->second.last = num_uses_;
      num_uses_ += 1;
    }
  }

  void add_group(const WrappedModule& wrapped) {
    Group group{wrapped.path, {}, 0, {num_uses_, 0}};
    for (const auto& [name, tensor] : wrapped.parameters) {
      Member& member = group.members.emplace_back();
      const int ranks = placements_.find(tensor) == nullptr ? shard_ranks_ : expert_shard_ranks_;
      member.parameter = std::make_unique<ShardedParameter>(name, tensor, policy_.param_dtype, 0, ranks);
      member.uses = uses_.at(tensor.unsafeGetTensorImpl());
      const ShardedParameter& parameter = *member.parameter;
      const int64_t elements = parameter.layout().elements_per_rank();
      use_.parameters += aligned_shard_bytes(elements, parameter.layout().dtype());
      add_gathered(group, parameter, ranks);
      if (parameter.is_trained()) {
        group.trained += 1;
        member.gradient = bytes_of(tensor.numel(), parameter.layout().compute_dtype());
        const std::vector<int64_t> shape = parameter.layout().shard_shape();
        use_.optimizer_states += state_bytes_(at::empty(shape, tensor.options().device(at::kMeta)));
      }
      group.uses = {std::min(group.uses.first, member.uses.first), std::max(group.uses.last, member.uses.last)};
      sharded_.insert(tensor.unsafeGetTensorImpl());
    }
    groups_.push_back(std::move(group));
  }

  // Adds what ranks send of a parameter, of which they keep a copy unless it is the shard itself, and what it becomes.
  void add_gathered(Group& group, const ShardedParameter& parameter, int ranks) {
    const ShardLayout& layout = parameter.layout();
    const int64_t elements = layout.elements_per_rank();
    const int64_t whole = aligned_shard_bytes(layout.padded_elements(), layout.compute_dtype());
    if (fp8_.is_gathered(parameter.tensor())) {
      const int64_t columns = layout.shape()[1], rows = columns == 0 ? 0 : elements / columns;
      use_.parameter_copies += aligned_shard_bytes(elements + fp8_.scale_bytes(rows, columns), at::kByte);
      group.gathered += aligned_shard_bytes(ranks * (elements + fp8_.scale_bytes(rows, columns)), at::kByte);
      group.unpacked += whole;
      return;
    }
    if (layout.dtype() != layout.compute_dtype())
      use_.parameter_copies += aligned_shard_bytes(elements, layout.compute_dtype());
    group.gathered += whole;
    if (fp8_.covers(parameter.tensor())) group.unpacked += fp8_.copy_bytes(layout.padded_elements());
  }

  // Buffers, and the parameters of ignored modules.
  void add_whole_tensors(const nn::Module& module) {
    for (const auto& [name, buffer] : nn::named_buffers(module)) use_.buffers += static_cast<int64_t>(buffer.nbytes());
    for (const at::Tensor& parameter : module.parameters()) {
      if (sharded_.count(parameter.unsafeGetTensorImpl()) != 0) continue;
      use_.parameters += static_cast<int64_t>(parameter.nbytes());
      if (!parameter.requires_grad()) continue;
      use_.optimizer_states += state_bytes_(parameter);
      ignored_gradients_ += static_cast<int64_t>(parameter.nbytes());
    }
  }

  // A module uses what modules inside it use.
  void widen_uses() {
    for (Group& outer : groups_)
      for (const Group& inner : groups_)
        if (outer.contains(inner))
          outer.uses = {std::min(outer.uses.first, inner.uses.first), std::max(outer.uses.last, inner.uses.last)};
  }

  void observe(TrainingPhase phase) { estimate_.observe(phase, use_); }

  void start_gathering(size_t group) {
    if (!std::exchange(groups_[group].is_gathered, true)) use_.gathered_parameters += groups_[group].gathered;
  }

  void unshard(size_t group) {
    start_gathering(group);
    if (!std::exchange(groups_[group].is_whole, true)) use_.gathered_parameters += groups_[group].unpacked;
  }

  void reshard(size_t group) {
    use_.gathered_parameters -= std::exchange(kept_[group], 0);
    if (std::exchange(groups_[group].is_gathered, false)) use_.gathered_parameters -= groups_[group].gathered;
    if (std::exchange(groups_[group].is_whole, false)) use_.gathered_parameters -= groups_[group].unpacked;
  }

  // After its forward a group of reshard_group_size ranks keeps the parameters among them.
  void reshard_for_backward(size_t group) {
    if (!groups_[group].is_gathered) return;
    reshard(group);
    const int64_t ranks = fsdp_.reshard_group_size;
    if (ranks > 1 && ranks < shard_ranks_) kept_[group] = groups_[group].gathered / ranks;
    use_.gathered_parameters += kept_[group];
  }

  void execute(const ShardingActions& actions) {
    using Kind = ShardingAction::Kind;
    for (const auto& [kind, group] : actions) {
      if (kind == Kind::kStartUnshard) start_gathering(group);
      if (kind == Kind::kUnshard) unshard(group);
      if (kind == Kind::kReshard) reshard(group);
      if (kind == Kind::kReshardForBackward) reshard_for_backward(group);
      if (kind == Kind::kStartReduce) start_reduce(groups_[group]);
      if (kind == Kind::kFinishReduce) finish_reduce(groups_[group]);
    }
  }

  void forward() {
    use_.activations = settings_.activation_bytes;
    for (const Group& group : groups_)
      for (const Member& member : group.members) {
        if (member.gradient == 0) continue;
        if (accumulates_whole_) use_.gradients += member.gradient;
        if (accumulates_shards_)
          use_.gradients +=
              bytes_of(member.parameter->layout().elements_per_rank(), member.parameter->layout().dtype());
      }
    execute(schedule_->begin_forward(/*records=*/true));
    std::vector<size_t> open;  // modules whose forward has begun
    const auto end_last = [&] {
      execute(schedule_->end_module(open.back(), {/*is_recorded=*/true, /*has_parameters=*/false}));
      open.pop_back();
    };
    for (const size_t group : order_) {
      while (!open.empty() && !groups_[open.back()].contains(groups_[group])) end_last();
      open.push_back(group);
      execute(schedule_->begin_module(group));
      observe(TrainingPhase::kForward);
    }
    while (!open.empty()) end_last();
  }

  void backward() {
    std::vector<size_t> missing;  // gradients of each group
    for (const Group& group : groups_) missing.push_back(group.trained);
    for (size_t use = num_uses_; use-- > 0;) {
      for (const size_t group : order_)
        if (groups_[group].uses.last == use) {
          execute(schedule_->begin_module_backward(group));
          observe(TrainingPhase::kBackward);
        }
      for (const size_t group : order_)
        for (const Member& member : groups_[group].members) {
          if (member.gradient == 0) continue;
          if (member.uses.last == use) add_gradients(member.gradient);
          if (member.uses.first != use) continue;
          if (accumulates_whole_) use_.gradients -= member.gradient;  // it was added
          if (--missing[group] > 0) continue;
          execute(schedule_->complete_gradients(group, /*exchange=*/true, has_frozen(groups_[group])));
          observe(TrainingPhase::kBackward);
        }
      for (const size_t group : order_)
        if (groups_[group].uses.first == use && has_frozen(groups_[group]))
          execute(schedule_->complete_inputs(group, missing[group] == 0));
    }
    execute(schedule_->end_backward(/*exchange=*/true));
    add_gradients(ignored_gradients_);
    use_.activations = 0;
  }

  static bool has_frozen(const Group& group) { return group.trained < group.members.size(); }

  void add_gradients(int64_t bytes) {
    use_.gradients += bytes;
    observe(TrainingPhase::kBackward);
  }

  // Gradients are sent as they are, unless they have another dtype then or rows are missing: one copy at a time.
  void start_reduce(const Group& group) {
    for (const Member& member : group.members) {
      if (member.gradient == 0) continue;
      const ShardedParameter& parameter = *member.parameter;
      const at::ScalarType dtype = policy_.reduce_dtype.value_or(parameter.layout().compute_dtype());
      use_.exchanged_gradients += bytes_of(parameter.layout().padded_elements(), dtype);
      if (bytes_of(parameter.layout().padded_elements(), dtype) != member.gradient ||
          dtype != parameter.layout().compute_dtype())
        observe(TrainingPhase::kBackward);
      use_.gradients -= member.gradient;
      use_.exchanged_gradients += bytes_of(parameter.layout().elements_per_rank(), dtype);
    }
    observe(TrainingPhase::kBackward);
  }

  void finish_reduce(const Group& group) {
    int64_t moved = 0;  // what was reduced is the gradient of the shard
    for (const Member& member : group.members) {
      if (member.gradient == 0 || accumulates_shards_) continue;
      const ShardedParameter& parameter = *member.parameter;
      const int64_t shard = bytes_of(parameter.layout().elements_per_rank(), parameter.layout().dtype());
      if (policy_.reduce_dtype.value_or(parameter.layout().compute_dtype()) == parameter.layout().dtype())
        moved += shard;
      use_.gradients += shard;
    }
    use_.exchanged_gradients -= moved;
    observe(TrainingPhase::kBackward);
    use_.exchanged_gradients = 0;
  }

  const EstimateMemorySettings& settings_;
  const FsdpSettings& fsdp_;
  const StateBytes& state_bytes_;
  const int shard_ranks_, expert_shard_ranks_;
  const MixedPrecisionPolicy policy_;
  const Fp8Estimate fp8_;
  const nn::Placements placements_;  // of experts that ranks share out
  // Gradients of the micro-batches before the last one stay whole, or exchanged.
  const bool accumulates_ = settings_.gradient_accumulation_steps > 1;
  const bool accumulates_whole_ = accumulates_ && !settings_.sync_each_batch;
  const bool accumulates_shards_ = accumulates_ && settings_.sync_each_batch;
  std::unordered_map<const at::TensorImpl*, Uses> uses_;
  size_t num_uses_ = 0;
  std::unordered_set<const at::TensorImpl*> sharded_;
  std::vector<Group> groups_;
  int64_t ignored_gradients_ = 0;

  MemoryUse use_;  // at the moment
  MemoryEstimate estimate_;
  std::vector<int64_t> kept_;  // bytes of each group, between its forward and its backward
  std::vector<size_t> order_;  // of the groups' forwards
  std::optional<ShardingSchedule> schedule_;
};

}  // namespace

MemoryEstimate estimate_sharded_memory(const nn::ModulePtr& module, const EstimateMemorySettings& settings,
                                       const StateBytes& state_bytes) {
  return ShardedStep(module, settings, state_bytes).run();
}

}  // namespace accel::parallel
