// A model under some kind of parallelism, as everything above parallel/ sees it: prepared models, accumulation,
// clipping, checkpoints, local SGD and uneven inputs ask these questions, and know none of the kinds.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "config/generated/settings.hpp"
#include "nn/module.hpp"

namespace accel::parallel {

class UnevenInputs;

// What a rank says before the forward of a model.
struct ForwardNotice {
  bool records;    // the forward is recorded for a backward
  bool exchanges;  // and the backward exchanges gradients
};

// The program's own exchange: makes of a bucket's gradients, in place, what the optimizer shall see.
using BucketCallback = std::function<void(const at::Tensor& buffer, int64_t bucket, bool is_last)>;

using CommunicatorPtr = std::shared_ptr<comm::Communicator>;

class ParallelModel : public nn::Module {
 public:
  ParallelModel(std::string kind, nn::ModulePtr module) : Module(std::move(kind)), module_(std::move(module)) {}

  // The model inside.
  const nn::ModulePtr& module() const { return module_; }
  std::vector<std::string> input_names() const override { return module_->input_names(); }

  // Gradients.

  // Whether a backward may involve other ranks.
  virtual bool exchanges_gradients() const = 0;
  // Whether it does; decided at the forward. Returns the former setting.
  virtual bool set_gradient_sync(bool sync) = 0;
  // The next backward exchanges gradients although the forward was made where it does not.
  virtual void expect_backward() = 0;
  // The ranks among which gradients are exchanged, instead of all those of the model; null: each rank keeps its own,
  // also in the backward of a forward that was made before. Returns the former group.
  virtual CommunicatorPtr set_gradient_group(CommunicatorPtr group) = 0;
  // A backward ended with this error: what refuses the next forward for that names it.
  virtual void note_failed_backward(const std::string& /*error*/) {}
  // The program exchanges them from the next backward on.
  virtual void register_comm_hook(BucketCallback callback) = 0;
  // Those that this rank has.
  virtual std::vector<at::Tensor> gradients() const;
  // As optim/clip.hpp, by the norm of the whole model's gradients.
  virtual at::Tensor clip_gradients_by_norm(double max_norm, double norm_type);
  virtual void clip_gradients_by_value(double clip_value);

  // What the exchange of gradients remembers on this rank from step to step; none when that is nothing.
  virtual c10::IValue reduction_state() const = 0;
  virtual void load_reduction_state(const c10::IValue& saved) = 0;

  // While some ranks may have run out of inputs: whom the forward tells that this one has not; null otherwise.
  void set_uneven_inputs(UnevenInputs* inputs) { uneven_inputs_ = inputs; }
  bool has_uneven_inputs() const { return uneven_inputs_ != nullptr; }
  // A rank without inputs takes part in what the others exchange for one forward and its backward, whose buffers are
  // those of rank `source`.
  virtual void shadow(const ForwardNotice& others, int source) = 0;

 protected:
  UnevenInputs* uneven_inputs() const { return uneven_inputs_; }

 private:
  nn::ModulePtr module_;
  UnevenInputs* uneven_inputs_ = nullptr;
};

using ParallelModelPtr = std::shared_ptr<ParallelModel>;

// The model as it is, for one process or one that shares nothing.
ParallelModelPtr single_process_model(nn::ModulePtr module);

// The kind that the settings ask for among these ranks; collective when that is one of several ranks.
ParallelModelPtr parallelize(nn::ModulePtr module, const CommunicatorPtr& communicator,
                             const PrepareModelSettings& settings);

}  // namespace accel::parallel
