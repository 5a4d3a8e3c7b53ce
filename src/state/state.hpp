// SPDX-License-Identifier: Apache-2.0
// State of a process in the job (PartialState of Accelerate): its rank, device, settings and communicator.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "comm/communicator.hpp"
#include "config/rank_info.hpp"
#include "kernels/compute_policy.hpp"
#include "state/gradient_state.hpp"
#include "state/parallel_groups.hpp"
#include "state/trigger.hpp"
#include "tensor/device/accelerator_library.hpp"

namespace accel {
struct StateSettings;
}

namespace accel::state {

// Pinned; the numbers of accel.h.
enum class DistributedType : int32_t {
  kNo = 0,
  kMultiCpu = 1,
  kMultiGpu = 2,  // also of accelerators for which Accelerate has no type
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

  const StateSettings& settings() const { return *settings_; }
  int process_index() const;
  int num_processes() const;
  int local_process_index() const;
  int local_num_processes() const;
  bool is_main_process() const { return process_index() == 0; }
  bool is_local_main_process() const { return local_process_index() == 0; }
  bool is_last_process() const { return process_index() == num_processes() - 1; }
  bool use_distributed() const { return num_processes() > 1; }
  DistributedType distributed_type() const;
  c10::Device device() const { return device_; }
  bool fork_launched() const { return launcher_.fork_launched; }

  // The kernels and memory that calls of this state use on the CPU.
  kernels::ComputePolicy compute_policy() const { return compute_policy_; }

  const std::shared_ptr<comm::Communicator>& communicator() const { return communicator_; }
  const ParallelGroups& groups() const { return *groups_; }
  const std::shared_ptr<GradientState>& gradient_state() const { return gradient_state_; }

  Trigger& trigger() { return trigger_; }

  std::string describe() const;

 private:
  std::shared_ptr<StateSettings> settings_;  // of this state alone
  LauncherEnvironment launcher_;
  c10::Device device_;
  std::shared_ptr<tensor::HostChoice> host_choice_;  // if the settings name the CPU
  std::shared_ptr<comm::Communicator> communicator_;
  std::shared_ptr<const ParallelGroups> groups_;
  std::shared_ptr<GradientState> gradient_state_;
  kernels::ComputePolicy compute_policy_;
  Trigger trigger_;
};

}  // namespace accel::state
