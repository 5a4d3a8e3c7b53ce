// SPDX-License-Identifier: Apache-2.0
// Distributed data parallelism: each rank runs the whole model on its own batch, and the Reducer averages gradients
// while backward runs.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "config/generated/settings/prepare/ddp.hpp"
#include "nn/module.hpp"
#include "parallel/ddp/comm_hook.hpp"
#include "parallel/gradient_buffer.hpp"
#include "parallel/parallel_model.hpp"

namespace accel::parallel {

class Reducer;

// The ranks of gradients that are not simply averaged over all replicas.
struct ClassRanks {
  CommunicatorPtr terms =
      nullptr;                    // those with parts of the same layers, which compute terms of some gradients; or null
  CommunicatorPtr all = nullptr;  // the same of all replicas; null: ranks have whole layers
  std::shared_ptr<const ModelRanks> experts = nullptr;  // of the parameters of experts; null: each rank has all experts

  bool are_some() const { return terms != nullptr || experts != nullptr; }
};

class DistributedDataParallel final : public ParallelModel, public GradientExchange {
 public:
  // Collective: checks that all ranks have the same model, and broadcasts rank 0's parameters and buffers. Gradients of
  // summed placements are summed over the ranks with terms, too, and those of experts over the ranks that have them;
  // with one rank in `communicator`, these alone are exchanged.
  DistributedDataParallel(nn::ModulePtr module, std::shared_ptr<comm::Communicator> communicator,
                          const DdpSettings& options, ClassRanks class_ranks = {});

  GradientExchange* exchange() override { return this; }
  void expect_backward(bool is_expected) override;
  void exchange_accumulated() override;
  void record_exchange() override;
  CommunicatorPtr set_gradient_group(CommunicatorPtr group) override;
  void note_failed_backward(const std::string& error) override;
  bool begin_micro_batches(MicroBatches kind) override;
  void register_comm_hook(BucketCallback callback) override;
  // The state of the hook, with the buckets. Loading restores the buckets.
  c10::IValue reduction_state() const override;
  void load_reduction_state(const c10::IValue& saved) override;
  std::vector<UncoveredGradient> uncovered_gradients() override;
  bool covers(const at::Tensor& parameter) override;
  // A rank without inputs does not know which tokens the others send.
  bool can_shadow() const override { return class_ranks_.experts == nullptr; }
  void shadow(const ForwardNotice& others, int source) override;

  // Sets the hook for gradients among all ranks, from the next backward on. Returns the former one.
  CommHookPtr set_comm_hook(CommHookPtr hook);

 protected:
  c10::IValue forward(const nn::Inputs& inputs) override;

 private:
  void make_reducer(const BucketOrder& order = {});
  void synchronize_buffers(int from);
  bool exchanges() const { return gradient_sync() && (gradient_group_ != nullptr || class_ranks_.are_some()); }
  // For the current gradient group, of complete gradients, of those with terms and of those of experts.
  std::vector<CommHookPtr> current_hooks() const;

  CommunicatorPtr communicator_;
  CommunicatorPtr gradient_group_;  // ranks that exchange gradients now; null: none
  DdpSettings options_;
  ClassRanks class_ranks_;
  std::vector<at::Tensor> buffers_;
  nn::NamedTensors frozen_;           // what the reducer does not know
  CommHookPtr hook_;                  // among all ranks
  std::shared_ptr<Reducer> reducer_;  // null without trainable parameters
  struct {
    bool is_synced = true;     // its gradients were exchanged, so that the next one broadcasts buffers
    bool is_learned = false;   // the static graph is known by its backward
    bool is_captured = false;  // a device records it, and its backward shall exchange gradients
  } former_forward_;
};

}  // namespace accel::parallel
