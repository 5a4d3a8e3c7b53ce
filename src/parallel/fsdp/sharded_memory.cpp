#include "parallel/fsdp/sharded_memory.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "parallel/fsdp/auto_wrap.hpp"
#include "parallel/fsdp/fully_sharded_data_parallel.hpp"
#include "parallel/fsdp/parameter_group.hpp"
#include "parallel/fsdp/sharded_parameter.hpp"

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

struct Group {
  std::string path;
  std::vector<Member> members;
  size_t trained = 0;
  Uses uses;  // of its parameters and those of the groups inside
  int64_t gathered = 0;

  bool contains(const Group& other) const {
    return path.empty() || other.path == path || other.path.compare(0, path.size() + 1, path + ".") == 0;
  }
};

// One step of a training, in the order of fully_sharded_data_parallel.cpp.
class ShardedStep {
 public:
  ShardedStep(const nn::ModulePtr& module, const FsdpSettings& settings, const MemoryRequest& request)
      : settings_(settings), request_(request), options_(shard_options(settings)) {
    number_uses(*module);
    for (const WrappedModule& wrapped : wrap_modules(module, settings)) add_group(wrapped);
    add_whole_tensors(*module);
    sort_groups();
    is_gathered_.assign(groups_.size(), false);
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
      const at::TensorImpl* const tensor = module.find_tensor(name).unsafeGetTensorImpl();
      uses_.try_emplace(tensor, Uses{num_uses_, num_uses_}).first->second.last = num_uses_;
      num_uses_ += 1;
    }
  }

  void add_group(const WrappedModule& wrapped) {
    Group group{wrapped.path, {}, 0, {num_uses_, 0}};
    for (const auto& [name, tensor] : wrapped.parameters) {
      Member& member = group.members.emplace_back();
      member.parameter =
          std::make_unique<ShardedParameter>(name, tensor, options_.param_dtype, 0, request_.shard_ranks);
      member.uses = uses_.at(tensor.unsafeGetTensorImpl());
      const ShardedParameter& parameter = *member.parameter;
      const int64_t elements = parameter.elements_per_rank();
      use_.parameters += aligned_shard_bytes(elements, parameter.dtype());
      if (parameter.dtype() != parameter.compute_dtype())
        use_.parameter_copies += aligned_shard_bytes(elements, parameter.compute_dtype());
      group.gathered += aligned_shard_bytes(parameter.padded_elements(), parameter.compute_dtype());
      if (parameter.is_trained()) {
        group.trained += 1;
        member.gradient = bytes_of(tensor.numel(), parameter.compute_dtype());
        std::vector<int64_t> shape = parameter.shape();
        shape[0] = parameter.rows().size();
        use_.optimizer_states += request_.state_bytes(at::empty(shape, tensor.options().device(at::kMeta)));
      }
      group.uses = {std::min(group.uses.first, member.uses.first), std::max(group.uses.last, member.uses.last)};
      sharded_.insert(tensor.unsafeGetTensorImpl());
    }
    groups_.push_back(std::move(group));
  }

  // Buffers, and the parameters of ignored modules.
  void add_whole_tensors(const nn::Module& module) {
    for (const auto& [name, buffer] : module.named_buffers()) use_.buffers += static_cast<int64_t>(buffer.nbytes());
    for (const at::Tensor& parameter : module.parameters()) {
      if (sharded_.count(parameter.unsafeGetTensorImpl()) != 0) continue;
      use_.parameters += static_cast<int64_t>(parameter.nbytes());
      if (!parameter.requires_grad()) continue;
      use_.optimizer_states += request_.state_bytes(parameter);
      ignored_gradients_ += static_cast<int64_t>(parameter.nbytes());
    }
  }

  // In the order of forwards: outer groups before inner ones.
  void sort_groups() {
    for (Group& outer : groups_)
      for (const Group& inner : groups_)
        if (outer.contains(inner))
          outer.uses = {std::min(outer.uses.first, inner.uses.first), std::max(outer.uses.last, inner.uses.last)};
    const auto is_empty = [this](const Group& group) { return group.uses.first == num_uses_; };
    groups_.erase(std::remove_if(groups_.begin(), groups_.end(), is_empty), groups_.end());
    std::stable_sort(groups_.begin(), groups_.end(), [](const Group& a, const Group& b) {
      if (a.uses.first != b.uses.first) return a.uses.first < b.uses.first;
      return a.path.size() < b.path.size();
    });
  }

  void observe(TrainingPhase phase) { estimate_.observe(phase, use_); }

  void set_gathered(size_t group, bool gathered) {
    if (!gathered) use_.gathered_parameters -= std::exchange(kept_[group], 0);
    if (is_gathered_[group] == gathered) return;
    is_gathered_[group] = gathered;
    use_.gathered_parameters += gathered ? groups_[group].gathered : -groups_[group].gathered;
  }

  // After its forward a group of reshard_group_size ranks keeps the parameters among them.
  void reshard_for_backward(size_t group) {
    if (!is_gathered_[group]) return;
    set_gathered(group, false);
    const int64_t ranks = settings_.reshard_group_size;
    if (ranks > 1 && ranks < request_.shard_ranks) kept_[group] = groups_[group].gathered / ranks;
    use_.gathered_parameters += kept_[group];
  }

  size_t prefetch_depth() const { return settings_.limit_all_gathers ? 1 : 2; }

  void forward() {
    use_.activations = request_.activation_bytes;
    for (const Group& group : groups_)
      for (const Member& member : group.members) {
        if (member.gradient == 0) continue;
        if (request_.accumulation == Accumulation::kLocal) use_.gradients += member.gradient;
        if (request_.accumulation == Accumulation::kExchanged)
          use_.gradients += bytes_of(member.parameter->elements_per_rank(), member.parameter->dtype());
      }
    const bool reshards = reshards_after_forward(settings_);
    for (size_t current = 0; current < groups_.size(); current++) {
      for (size_t other = 0; reshards && other < current; other++)
        if (!groups_[other].contains(groups_[current])) reshard_for_backward(other);
      set_gathered(current, true);
      if (settings_.forward_prefetch)
        for (size_t i = current + 1; i < std::min(current + 1 + prefetch_depth(), groups_.size()); i++)
          set_gathered(i, true);
      observe(TrainingPhase::kForward);
    }
    for (size_t group = 1; reshards && group < groups_.size(); group++) reshard_for_backward(group);
  }

  void prefetch_before(size_t group) {
    for (size_t i = group, left = prefetch_depth(); i-- > 0 && left > 0; left--) set_gathered(i, true);
  }

  void backward() {
    std::vector<size_t> missing;  // gradients of each group
    for (const Group& group : groups_) missing.push_back(group.trained);
    for (size_t use = num_uses_; use-- > 0;) {
      for (size_t group = 0; group < groups_.size(); group++)
        if (groups_[group].uses.last == use) begin_group(group);
      for (size_t group = 0; group < groups_.size(); group++)
        for (const Member& member : groups_[group].members) {
          if (member.gradient == 0) continue;
          if (member.uses.last == use) add_gradients(member.gradient);
          if (member.uses.first != use) continue;
          if (request_.accumulation == Accumulation::kLocal) use_.gradients -= member.gradient;  // it was added
          if (--missing[group] == 0) end_group(group);
        }
      for (size_t group = 0; group < groups_.size(); group++)
        if (groups_[group].uses.first == use) set_gathered(group, false);
    }
    finish_reduce();
    for (size_t group = 0; group < groups_.size(); group++) set_gathered(group, false);
    add_gradients(ignored_gradients_);
    use_.activations = 0;
  }

  void begin_group(size_t group) {
    set_gathered(group, true);
    const bool is_root = groups_[group].path.empty();
    if (settings_.backward_prefetch == BackwardPrefetch::kBackwardPre)
      prefetch_before(is_root ? groups_.size() : group);
    observe(TrainingPhase::kBackward);
  }

  void add_gradients(int64_t bytes) {
    use_.gradients += bytes;
    observe(TrainingPhase::kBackward);
  }

  void end_group(size_t group) {
    finish_reduce();
    start_reduce(groups_[group]);
    const bool has_frozen = groups_[group].trained < groups_[group].members.size();
    if (!has_frozen) set_gathered(group, false);
    if (settings_.backward_prefetch == BackwardPrefetch::kBackwardPost) prefetch_before(group);
    observe(TrainingPhase::kBackward);
  }

  // Gradients are sent as they are, unless they have another dtype then or rows are missing: one copy at a time.
  void start_reduce(const Group& group) {
    for (const Member& member : group.members) {
      if (member.gradient == 0) continue;
      const ShardedParameter& parameter = *member.parameter;
      const at::ScalarType dtype = options_.reduce_dtype.value_or(parameter.compute_dtype());
      use_.exchanged_gradients += bytes_of(parameter.padded_elements(), dtype);
      if (bytes_of(parameter.padded_elements(), dtype) != member.gradient || dtype != parameter.compute_dtype())
        observe(TrainingPhase::kBackward);
      use_.gradients -= member.gradient;
      use_.exchanged_gradients += bytes_of(parameter.elements_per_rank(), dtype);
    }
    observe(TrainingPhase::kBackward);
    reducing_ = &group;
  }

  void finish_reduce() {
    const Group* const group = std::exchange(reducing_, nullptr);
    if (group == nullptr) return;
    int64_t moved = 0;  // what was reduced is the gradient of the shard
    for (const Member& member : group->members) {
      if (member.gradient == 0 || request_.accumulation == Accumulation::kExchanged) continue;
      const ShardedParameter& parameter = *member.parameter;
      const int64_t shard = bytes_of(parameter.elements_per_rank(), parameter.dtype());
      if (options_.reduce_dtype.value_or(parameter.compute_dtype()) == parameter.dtype()) moved += shard;
      use_.gradients += shard;
    }
    use_.exchanged_gradients -= moved;
    observe(TrainingPhase::kBackward);
    use_.exchanged_gradients = 0;
  }

  const FsdpSettings& settings_;
  const MemoryRequest& request_;
  ShardOptions options_;
  std::unordered_map<const at::TensorImpl*, Uses> uses_;
  size_t num_uses_ = 0;
  std::unordered_set<const at::TensorImpl*> sharded_;
  std::vector<Group> groups_;
  int64_t ignored_gradients_ = 0;

  MemoryUse use_;  // at the moment
  MemoryEstimate estimate_;
  std::vector<bool> is_gathered_;
  std::vector<int64_t> kept_;  // bytes of each group, between its forward and its backward
  const Group* reducing_ = nullptr;
};

}  // namespace

MemoryEstimate estimate_sharded_memory(const nn::ModulePtr& module, const FsdpSettings& settings,
                                       const MemoryRequest& request) {
  return ShardedStep(module, settings, request).run();
}

}  // namespace accel::parallel
