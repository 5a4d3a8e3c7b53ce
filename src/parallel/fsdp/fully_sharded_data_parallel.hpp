// Fully sharded data parallelism: each rank stores a part of each parameter, gradient and optimizer state; whole
// parameters exist group by group, while a forward or backward uses them (Rajbhandari et al., "ZeRO: Memory
// Optimizations Toward Training Trillion Parameter Models", 2020; Zhao et al., "PyTorch FSDP", VLDB 2023).
//
// Note: who gathers when. A group is gathered before the forward of its module and again before its backward; while one
// is used, the next is on its way: in a forward by the order of the former one, in a backward by the reverse order of
// the forward. The order of collectives depends on the calls of modules alone, so it is the same on all ranks. A
// group's gradients are reduced when the last of them has arrived, while backward goes on below it. A rank without
// inputs repeats the events of its latest step, with gradients of 0, and so makes the calls of the others.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "config/generated/settings.hpp"
#include "parallel/fsdp/auto_wrap.hpp"
#include "parallel/fsdp/parameter_group.hpp"
#include "parallel/parallel_model.hpp"

namespace accel::parallel {

// Whether a group's parameters are released between its forward and its backward.
bool reshards_after_forward(const FsdpSettings& settings);
ShardOptions shard_options(const FsdpSettings& settings);

class FullyShardedDataParallel final : public ParallelModel {
 public:
  // Collective: checks that all ranks have the same model, and shards rank 0's parameters.
  static std::shared_ptr<FullyShardedDataParallel> create(nn::ModulePtr module, const ModelRanks& ranks,
                                                          const FsdpSettings& settings, c10::Device device);
  ~FullyShardedDataParallel() override;

  bool exchanges_gradients() const override { return true; }
  bool set_gradient_sync(bool sync) override;
  void expect_backward() override {}
  CommunicatorPtr set_gradient_group(CommunicatorPtr group) override;
  void note_failed_backward(const std::string& error) override;
  void register_comm_hook(BucketCallback callback) override;
  std::vector<at::Tensor> gradients() const override;
  at::Tensor clip_gradients_by_norm(const std::vector<at::Tensor>& parameters, double max_norm,
                                    double norm_type) override;
  c10::IValue reduction_state() const override { return {}; }
  void load_reduction_state(const c10::IValue& /*saved*/) override {}
  bool can_shadow() const override { return !former_events_.empty(); }
  void shadow(const ForwardNotice& others, int source) override;
  bool is_sharded() const override { return true; }
  std::vector<ShardedModule> sharded_modules() const override;
  void finish_step() override;
  bool any_rank(bool flag) override;
  const ParameterShard* shard_of(const at::Tensor& parameter) const override;
  at::Tensor gather_rows(const at::Tensor& shard, int64_t rows) const override;
  void gather_into(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& memory) override;
  void gather_parameters(const std::vector<at::Tensor>& parameters) override;
  void release_parameters(const std::vector<at::Tensor>& parameters, std::optional<int> modifier) override;
  optim::StateMemory state_memory() const override;
  bool saves_shards() const override { return ranks_.replicate == nullptr || ranks_.replicate->rank() == 0; }
  StateDictType state_dict_type() const override { return settings_.state_dict_type; }

  const std::vector<std::unique_ptr<ParameterGroup>>& groups() const { return groups_; }
  const ModelRanks& ranks() const { return ranks_; }

 protected:
  c10::IValue forward(const nn::Inputs& inputs) override;

 private:
  struct HookedModule {
    nn::ModulePtr module;
    std::vector<int64_t> hooks;
  };

  FullyShardedDataParallel(nn::ModulePtr module, const ModelRanks& ranks, const FsdpSettings& settings);
  void shard_model(c10::Device device);
  ShardedParameter* find(const at::Tensor& parameter) const;
  at::Tensor with_memory(const at::Tensor& tensor, const std::string& name, c10::Device device) const;
  void add_hooks(const std::vector<WrappedModule>& modules);
  void watch_calls_outside(const std::vector<WrappedModule>& modules);
  void check_parameters() const;

  std::optional<nn::Inputs> before_forward(size_t group, const nn::Inputs& inputs);
  std::optional<c10::IValue> after_forward(size_t group, const c10::IValue& output);
  void before_backward(size_t group);
  void gradient_arrived(size_t group, size_t parameter);
  void inputs_arrived(size_t group);

  // A rank without inputs repeats these: the calls of modules and the gradients that arrived, in their order.
  struct Output {
    bool is_recorded = false;
    bool has_parameters = false;
  };
  struct Event {
    enum class Kind : uint8_t { kForward, kForwardEnd, kBackward, kGradient, kInputs, kBackwardEnd };
    Kind kind;
    size_t group;
    size_t parameter;  // of kGradient
    Output output;     // of kForwardEnd
  };

  // A call of a group's module.
  struct Use {
    size_t group;
    size_t end;      // of the calls within it, in order_
    bool has_begun;  // its backward
  };

  // Under the mutex.
  void begin_forward(bool records);
  void end_forward(size_t group, const Output& output);
  void note(const Event& event);
  void repeat(const Event& event, bool records);
  void begin_backward();
  void end_backward();
  void keep_former_order();
  void keep_events();
  void prefetch_in_forward();
  void prefetch_in_backward();
  void end_group(size_t group);
  void reshard_if_done(size_t group);
  void reshard_all();
  void reduce_kept_gradients();
  bool is_root(size_t group) const { return group + 1 == groups_.size(); }
  bool returns_parameters(size_t group, const std::vector<at::Tensor>& outputs) const;

  ModelRanks ranks_;
  FsdpSettings settings_;
  std::optional<at::ScalarType> param_dtype_, output_dtype_;
  bool reshard_after_forward_;
  std::vector<std::unique_ptr<ParameterGroup>> groups_;  // the root's last
  std::vector<HookedModule> hooked_;
  std::unordered_map<const at::TensorImpl*, ParameterShard> shards_;
  nn::NamedTensors prepared_parameters_;  // all of the model

  std::recursive_mutex mutex_;
  bool sync_ = true;
  std::vector<size_t> former_order_;  // of the groups in the forward before
  std::vector<Use> order_;            // in the forwards since the latest backward
  size_t forward_begin_ = 0;          // of the current forward, in order_
  bool in_backward_ = false;
  size_t backward_position_ = 0;    // in order_: what comes before it, and has not begun, is still to be used
  std::optional<size_t> reducing_;  // the group whose gradients are on their way
  std::vector<bool> inputs_done_;   // of groups with frozen parameters: those of the latest call in this backward
  std::optional<std::string> failed_backward_;
  size_t num_gathered_ = 0;           // parameters, by gather_parameters()
  bool repeats_ = false;              // in shadow()
  std::vector<Event> events_;         // since the latest forward that was recorded began
  std::vector<Event> former_events_;  // of a forward and its backwards, complete
};

}  // namespace accel::parallel
