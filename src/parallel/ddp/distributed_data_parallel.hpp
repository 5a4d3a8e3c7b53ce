// Data parallelism: each rank runs the whole model on its own batch, and gradients are averaged while backward still
// runs. The buckets and their overlap are c10d::Reducer's (Li et al., "PyTorch Distributed", VLDB 2020); what stands
// here is what goes around it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "nn/module.hpp"
#include "parallel/ddp/comm_hook.hpp"
#include "parallel/parallel_model.hpp"

namespace c10d {
class Logger;
class Reducer;
}  // namespace c10d

namespace accel::parallel {

class DistributedDataParallel final : public ParallelModel {
 public:
  // Collective: checks that all ranks have the same model, and gives them rank 0's parameters and buffers.
  DistributedDataParallel(nn::ModulePtr module, std::shared_ptr<comm::Communicator> communicator,
                          const DdpSettings& options);
  ~DistributedDataParallel() override;

  bool exchanges_gradients() const override { return true; }
  bool set_gradient_sync(bool sync) override;
  void expect_backward() override;
  CommunicatorPtr set_gradient_group(CommunicatorPtr group) override;
  void register_comm_hook(BucketCallback callback) override;
  // What the hook remembers, and of which buckets. Loading makes those buckets again.
  c10::IValue reduction_state() const override;
  void load_reduction_state(const c10::IValue& saved) override;
  void shadow(const ForwardNotice& others, int source) override;

  // What exchanges gradients among all ranks, from the next backward on. Returns the former one.
  CommHookPtr set_comm_hook(CommHookPtr hook);

 protected:
  c10::IValue forward(const nn::Inputs& inputs) override;

 private:
  // The trainable ones, with their names.
  std::vector<std::pair<std::string, at::Tensor>> trainable_parameters() const;
  // `buckets`: places of the parameters in each; none: by size, the last parameters first.
  void make_reducer(std::vector<std::vector<size_t>> buckets = {});
  void rebuild_buckets();
  void synchronize_buffers(int from);
  c10::IValue forward_and_prepare(const nn::Inputs& inputs);
  c10::IValue after_forward(c10::IValue output);
  // Throws an error with the names of the parameters when that is what an error of the Reducer is about.
  void explain_missing_gradients(const std::string& message) const;

  bool exchanges() const { return sync_ && gradient_group_ != nullptr; }
  // For the gradient group of the moment.
  CommHookPtr current_hook() const;

  CommunicatorPtr communicator_;
  CommunicatorPtr gradient_group_;  // among which gradients are exchanged now; null: not at all
  DdpSettings options_;
  std::vector<at::Tensor> buffers_;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;  // which the Reducer tells when the unused parameters change
  CommHookPtr hook_;                      // among all ranks
  struct HookSlot;
  std::shared_ptr<HookSlot> hook_slot_;

  bool sync_ = true;
  bool former_forward_synced_ = true;
  bool static_graph_recorded_ = false;
};

}  // namespace accel::parallel
