// Fully sharded data parallelism: each rank stores a part of each parameter, gradient and optimizer state; whole
// parameters exist group by group, while a forward or backward uses them (Rajbhandari et al., "ZeRO: Memory
// Optimizations Toward Training Trillion Parameter Models", 2020; Zhao et al., "PyTorch FSDP", VLDB 2023).
//
// Note: a rank without inputs repeats the events of its latest step, with gradients of 0, and so executes the actions
// of the others (schedule/sharding_schedule.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "config/generated/settings/prepare.hpp"
#include "parallel/fsdp/auto_wrap.hpp"
#include "parallel/fsdp/parameter_group.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/schedule/sharding_schedule.hpp"

namespace accel::parallel {

ShardOptions shard_options(const FsdpSettings& settings);

class FullyShardedDataParallel final : public ParallelModel, public GradientExchange, public ParameterParts {
 public:
  // Collective: checks that all ranks have the same model, and shards rank 0's parameters.
  static std::shared_ptr<FullyShardedDataParallel> create(nn::ModulePtr module, const ModelRanks& ranks,
                                                          const FsdpSettings& settings, c10::Device device);
  ~FullyShardedDataParallel() override;

  GradientExchange* exchange() override { return this; }
  ParameterParts* parts() override { return this; }
  CommunicatorPtr set_gradient_group(CommunicatorPtr group) override;
  void note_failed_backward(const std::string& error) override;
  void register_comm_hook(BucketCallback callback) override;
  std::vector<at::Tensor> gradients() const override;
  bool can_shadow() const override { return !former_events_.empty(); }
  void shadow(const ForwardNotice& others, int source) override;
  std::vector<ShardedModule> sharded_modules() const override;
  void finish_step() override;
  void gather_into(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& memory) override;
  void gather_parameters(const std::vector<at::Tensor>& parameters) override;
  void release_parameters(const std::vector<at::Tensor>& parameters, std::optional<int> modifier) override;
  optim::StateMemory state_memory() const override;
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
  void require_unsharded() const;
  void place_parameters();
  at::Tensor gather_rows(const ShardedParameter& parameter) const;
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
  struct Event {
    enum class Kind : uint8_t { kForward, kForwardEnd, kBackward, kGradient, kInputs, kBackwardEnd };
    Kind kind;
    size_t group;
    size_t parameter;     // of kGradient
    ModuleOutput output;  // of kForwardEnd
  };

  // Under the mutex.
  void begin_forward(bool records);
  void note(const Event& event);
  void repeat(const Event& event, bool records);
  void begin_backward(size_t group);
  void end_backward();
  void keep_events();
  void execute(const ShardingActions& actions);
  void reduce_kept_gradients(ParameterGroup& group);
  bool returns_parameters(size_t group, const std::vector<at::Tensor>& outputs) const;

  ModelRanks ranks_;
  FsdpSettings settings_;
  std::optional<at::ScalarType> param_dtype_, output_dtype_;
  std::vector<std::unique_ptr<ParameterGroup>> groups_;  // the root's last
  std::vector<HookedModule> hooked_;
  nn::NamedTensors prepared_parameters_;  // all of the model

  std::recursive_mutex mutex_;
  std::optional<ShardingSchedule> schedule_;  // from shard_model() on
  std::optional<std::string> failed_backward_;
  size_t num_gathered_ = 0;           // parameters, by gather_parameters()
  bool repeats_ = false;              // in shadow()
  std::vector<Event> events_;         // since the latest forward that was recorded began
  std::vector<Event> former_events_;  // of a forward and its backwards, complete
};

}  // namespace accel::parallel
