// State of a process in the job (PartialState of Accelerate): its rank, device, settings and communicator.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/mesh.hpp"
#include "config/process_place.hpp"
#include "config/state_settings.hpp"
#include "kernels/compute_policy.hpp"
#include "state/gradient_state.hpp"
#include "tensor/device/accelerator_library.hpp"

namespace accel::state {

// Pinned; the numbers of accel.h.
enum class DistributedType : int32_t {
  kNo = 0,
  kMultiCpu = 1,
  kMultiGpu = 2,  // also of accelerators for which the reference has no type
  kMultiNpu = 3,
  kMultiMlu = 4,
  kMultiSdaa = 5,
  kMultiMusa = 6,
  kMultiXpu = 7,
  kMultiHpu = 8,
  kMultiNeuron = 9,
  kXla = 12,
};

class State {
 public:
  explicit State(const StateSettings& given);
  // A state in a subgroup of the parent's job, with its settings and device.
  State(const State& parent, std::shared_ptr<comm::Communicator> group);
  // A second state in the same job. The job's settings stay; those of accumulation are replaced for both.
  State(const State& parent, const StateSettings& given);

  const StateSettings& settings() const { return settings_; }
  int process_index() const { return static_cast<int>(*settings_.process_index); }
  int num_processes() const { return static_cast<int>(*settings_.num_processes); }
  int local_process_index() const { return static_cast<int>(*settings_.local_process_index); }
  int local_num_processes() const { return static_cast<int>(*settings_.local_num_processes); }
  bool is_main_process() const { return process_index() == 0; }
  bool is_local_main_process() const { return local_process_index() == 0; }
  bool is_last_process() const { return process_index() == num_processes() - 1; }
  bool use_distributed() const { return num_processes() > 1; }
  DistributedType distributed_type() const;
  c10::Device device() const { return device_; }
  bool fork_launched() const { return launcher_.fork_launched; }
  Precision mixed_precision() const { return settings_.mixed_precision; }

  // The kernels and memory that calls of this state use on the CPU.
  kernels::ComputePolicy compute_policy() const { return compute_policy_; }

  const std::shared_ptr<comm::Communicator>& communicator() const { return communicator_; }
  // The device mesh: axes pipeline, replicate, shard, context, tensor. The last axes vary fastest, so that ranks that
  // communicate most are neighbours.
  const std::shared_ptr<comm::Mesh>& mesh() const { return mesh_; }
  // The ranks that share out the data.
  const std::shared_ptr<comm::Communicator>& data_parallel() const { return data_parallel_; }
  // The coordinate of each rank among those that share out the data.
  std::vector<int64_t> data_parallel_indices() const;
  // The ranks whose gradients of the same parameters are averaged.
  const std::shared_ptr<comm::Communicator>& gradient_group() const { return gradient_group_; }
  // The ranks that have different parts of this rank's model; null: it has the whole.
  // The random stream of this rank. Ranks that share the tensors of a layer have the same one, because their common
  // values must stay equal.
  int64_t random_stream() const;
  const std::shared_ptr<StepTimes>& step_times() const { return communicator_->step_times(); }
  const std::shared_ptr<GradientState>& gradient_state() const { return gradient_state_; }

  // A flag that any rank may set and all ranks check collectively; the check resets it.
  void set_trigger() { trigger_ = true; }
  bool check_trigger();

  std::string describe() const;

 private:
  void join_mesh();

  StateSettings settings_;
  LauncherEnvironment launcher_;
  c10::Device device_;
  std::shared_ptr<tensor::HostChoice> host_choice_;  // if the settings name the CPU
  std::shared_ptr<comm::Communicator> communicator_;
  std::shared_ptr<comm::Mesh> mesh_;
  std::shared_ptr<comm::Communicator> data_parallel_;
  std::shared_ptr<comm::Communicator> gradient_group_;
  std::shared_ptr<GradientState> gradient_state_;
  kernels::ComputePolicy compute_policy_;
  bool trigger_ = false;
};

}  // namespace accel::state
