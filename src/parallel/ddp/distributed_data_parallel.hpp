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
#include "parallel/bucket_size.hpp"
#include "parallel/ddp/comm_hook.hpp"
#include "parallel/ddp/uneven_inputs.hpp"

namespace c10d {
class Logger;
class Reducer;
}  // namespace c10d

namespace accel::parallel {

class DistributedDataParallel final : public nn::Module {
 public:
  // Collective: checks that all ranks have the same model, and gives them rank 0's parameters and buffers.
  DistributedDataParallel(nn::ModulePtr module, std::shared_ptr<comm::Communicator> communicator,
                          const DdpSettings& options);
  ~DistributedDataParallel() override;

  const nn::ModulePtr& module() const { return module_; }

  // Whether backward exchanges gradients; decided at the forward. Returns the former setting.
  bool set_gradient_sync(bool sync);
  // The next backward exchanges gradients although the forward was made where it does not.
  void expect_backward();

  // While some ranks may have run out of inputs: whom the forward tells that this one has not; null otherwise.
  void set_uneven_inputs(UnevenInputs* inputs) { uneven_inputs_ = inputs; }
  bool has_uneven_inputs() const { return uneven_inputs_ != nullptr; }
  // A rank without inputs takes part in what the others exchange for one forward and its backward.
  void shadow(const ForwardNotice& others, int source);
  // While it is set no backward exchanges gradients, whatever scopes begin and end.
  void set_local(bool local) { local_ = local; }
  // What exchanges them, from the next backward on. Returns the former one.
  CommHookPtr set_comm_hook(CommHookPtr hook);
  // What the hook remembers on this rank, and of which buckets; none for a hook that remembers nothing. Loading makes
  // those buckets again.
  c10::IValue hook_state() const;
  void load_hook_state(const c10::IValue& saved);

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

  nn::ModulePtr module_;
  std::shared_ptr<comm::Communicator> communicator_;
  DdpSettings options_;
  std::vector<at::Tensor> buffers_;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;  // which the Reducer tells when the unused parameters change
  struct HookPlace;
  std::shared_ptr<HookPlace> hook_;
  bool exchanges() const { return sync_ && !local_; }

  bool sync_ = true;
  bool local_ = false;
  bool former_forward_synced_ = true;
  bool static_graph_recorded_ = false;
  UnevenInputs* uneven_inputs_ = nullptr;
};

}  // namespace accel::parallel
