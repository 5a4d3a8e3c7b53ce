// Parallel model: the interface of all kinds of model parallelism. Prepared models, accumulation, clipping,
// checkpoints, local SGD and uneven inputs use it, and know none of the kinds.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "config/generated/settings.hpp"
#include "nn/module.hpp"
#include "optim/optimizer.hpp"

namespace accel::parallel {

class UnevenInputs;

// Announced by a rank before the forward of a model.
struct ForwardNotice {
  bool records;    // the forward is recorded for a backward
  bool exchanges;  // the backward exchanges gradients
};

// The application's own communication hook: replaces a bucket's gradients, in place, by those for the optimizer.
using BucketCallback = std::function<void(const at::Tensor& buffer, int64_t bucket, bool is_last)>;

using CommunicatorPtr = std::shared_ptr<comm::Communicator>;

// Ranks of a model, by what they do with it.
struct ModelRanks {
  CommunicatorPtr gradient;           // all that average gradients
  CommunicatorPtr shard;              // of these, those that share one copy of the parameters
  CommunicatorPtr replicate;          // those that have the same shard in other copies
  CommunicatorPtr reshard = nullptr;  // of `shard`, those that keep parameters between forward and backward; null: all
};

// The part of a sharded parameter that this rank stores.
struct ParameterShard {
  std::vector<int64_t> shape;   // of the whole parameter
  std::vector<int64_t> offset;  // of the first element here
};

// A module whose parameters are gathered together.
struct ShardedModule {
  std::string path;
  std::vector<at::Tensor> parameters;  // their shards
  int64_t elements = 0;                // of the whole parameters
  int64_t shard_elements = 0;          // of these, those of this rank
};

class ParallelModel : public nn::Module {
 public:
  ParallelModel(std::string kind, nn::ModulePtr module) : Module(std::move(kind)), module_(std::move(module)) {}

  // The wrapped model.
  const nn::ModulePtr& module() const { return module_; }
  std::vector<std::string> input_names() const override { return module_->input_names(); }

  // Gradients.

  // Whether a backward may involve other ranks.
  virtual bool exchanges_gradients() const = 0;
  // Turns the exchange on or off, for later forwards. Returns the former setting.
  virtual bool set_gradient_sync(bool sync) = 0;
  // Makes the next backward exchange gradients although its forward ran with the exchange off.
  virtual void expect_backward() = 0;
  // Sets the ranks that exchange gradients, instead of all of the model; null: none, also in the backward of an earlier
  // forward. Returns the former group.
  virtual CommunicatorPtr set_gradient_group(CommunicatorPtr group) = 0;
  // A backward ended with this error: the error of the next forward names it.
  virtual void note_failed_backward(const std::string& /*error*/) {}
  // The application exchanges gradients from the next backward on.
  virtual void register_comm_hook(BucketCallback callback) = 0;
  // The gradients of this rank.
  virtual std::vector<at::Tensor> gradients() const;
  // Clips as optim/clip.hpp does, for parameters of the model and others, with the norm of whole gradients.
  virtual at::Tensor clip_gradients_by_norm(const std::vector<at::Tensor>& parameters, double max_norm,
                                            double norm_type);
  void clip_gradients_by_value(const std::vector<at::Tensor>& parameters, double clip_value);

  // Sharding: parameters and their gradients are shards outside of forwards and backwards.

  virtual bool is_sharded() const { return false; }
  // Inner modules first.
  virtual std::vector<ShardedModule> sharded_modules() const { return {}; }
  // Before an optimizer, or a checkpoint, uses parameters and gradients: completes what is under way.
  virtual void finish_step() {}
  // Collective where ranks have different gradients: whether the flag is set on any of them.
  virtual bool any_rank(bool flag) { return flag; }
  // Allocates the states of an optimizer for a parameter, like it; nothing: ordinary memory.
  virtual optim::StateMemory state_memory() const { return {}; }
  // Null for a parameter that is whole on each rank.
  virtual const ParameterShard* shard_of(const at::Tensor& /*parameter*/) const { return nullptr; }
  // Collective: the whole of a tensor that is sharded as parameters are, which has this number of rows.
  virtual at::Tensor gather_rows(const at::Tensor& shard, int64_t /*rows*/) const { return shard; }
  // Collective, outside of forwards and backwards: the whole values of sharded parameters, each into contiguous memory
  // of its shape and dtype.
  virtual void gather_into(const std::vector<at::Tensor>& /*parameters*/, const std::vector<at::Tensor>& /*memory*/) {}
  // Collective, outside of forwards and backwards: sharded parameters show their whole values until they are released,
  // each in one call or another.
  virtual void gather_parameters(const std::vector<at::Tensor>& /*parameters*/) {}
  // Takes the values of rank `modifier` of the model's ranks, or drops changes; if that is collective or not.
  virtual void release_parameters(const std::vector<at::Tensor>& /*parameters*/, std::optional<int> /*modifier*/) {}
  // If several ranks have the same shards, one of them saves them.
  virtual bool saves_shards() const { return true; }
  virtual StateDictType state_dict_type() const { return StateDictType::kFullStateDict; }

  // This rank's state of the gradient exchange across steps; nothing if there is none.
  virtual c10::IValue reduction_state() const = 0;
  virtual void load_reduction_state(const c10::IValue& saved) = 0;

  // For uneven inputs: whom the forward tells that this rank still has inputs; null otherwise.
  void set_uneven_inputs(UnevenInputs* inputs) { uneven_inputs_ = inputs; }
  bool has_uneven_inputs() const { return uneven_inputs_ != nullptr; }
  UnevenInputs* uneven_inputs() const { return uneven_inputs_; }
  // Whether this rank knows what a forward and a backward exchange.
  virtual bool can_shadow() const { return true; }
  // On a rank without inputs: takes part in the exchange of one forward and backward of the others. Buffers are taken
  // from rank `source`.
  virtual void shadow(const ForwardNotice& others, int source) = 0;

 private:
  nn::ModulePtr module_;
  UnevenInputs* uneven_inputs_ = nullptr;
};

using ParallelModelPtr = std::shared_ptr<ParallelModel>;

// The model without parallelism.
ParallelModelPtr single_process_model(nn::ModulePtr module);

// Applies the kind of parallelism of the settings; collective if there are several ranks. Parameters without memory,
// which only sharding takes, get theirs on `device`.
ParallelModelPtr parallelize(nn::ModulePtr module, const ModelRanks& ranks, const PrepareModelSettings& settings,
                             c10::Device device);

}  // namespace accel::parallel
