// Data parallelism: each rank runs the whole model on its own batch, and gradients are averaged while backward still
// runs, by the Reducer; what stands here goes around it.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "nn/module.hpp"
#include "parallel/ddp/comm_hook.hpp"
#include "parallel/gradient_buffer.hpp"
#include "parallel/parallel_model.hpp"

namespace accel::parallel {

class Reducer;

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
  void note_failed_backward(const std::string& error) override;
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
  void make_reducer(const BucketOrder& order = {});
  void synchronize_buffers(int from);
  c10::IValue after_forward(c10::IValue output);
  bool exchanges() const { return sync_ && gradient_group_ != nullptr; }
  // For the gradient group of the moment.
  CommHookPtr current_hook() const;

  CommunicatorPtr communicator_;
  CommunicatorPtr gradient_group_;  // among which gradients are exchanged now; null: not at all
  DdpSettings options_;
  std::vector<at::Tensor> buffers_;
  CommHookPtr hook_;                  // among all ranks
  std::shared_ptr<Reducer> reducer_;  // null without trainable parameters
  bool sync_ = true;
  bool former_forward_synced_ = true;
  bool static_graph_recorded_ = false;
};

}  // namespace accel::parallel
