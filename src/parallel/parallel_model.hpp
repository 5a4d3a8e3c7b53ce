// SPDX-License-Identifier: Apache-2.0
// Parallel model: the interface of all kinds of model parallelism. Prepared models, accumulation, clipping,
// checkpoints, local SGD and uneven inputs use it, and know none of the kinds.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "nn/module.hpp"
#include "parallel/fp8_gather.hpp"
#include "parallel/gradient_exchange.hpp"
#include "parallel/parameter_parts.hpp"
#include "parallel/stage_pipeline.hpp"

namespace accel {
struct PrepareModelSettings;
}  // namespace accel

namespace accel::parallel {

class UnevenInputs;

// Announced by a rank before the forward of a model.
struct ForwardNotice {
  bool records;    // the forward is recorded for a backward
  bool exchanges;  // the backward exchanges gradients
};

// The axis of the mesh along which ranks have different experts of a layer. It and "expert_shard" are axes of a second
// grid over the ranks of shard, context and tensor; those for experts whose layers are split along "tensor", of a third
// one over the ranks of shard and context.
constexpr const char* kExpertAxis = "expert";
constexpr const char* kSplitExpertAxis = "split_expert";
constexpr const char* kExpertAxes = "expert,split_expert";
// Returns that of a model, some of whose layers ranks along "tensor" may have parts of.
const char* expert_axis(const PrepareModelSettings& settings, bool has_tensor_ranks);

// Ranks of a model, by what they do with it.
struct ModelRanks {
  CommunicatorPtr gradient;           // all that average gradients
  CommunicatorPtr shard;              // of these, those that share one copy of the parameters
  CommunicatorPtr replicate;          // those that have the same shard in other copies
  std::string shard_axes;             // of the mesh, along which ranks are in `shard`
  CommunicatorPtr tensor = nullptr;   // those that have parts of the same layers; null: this rank has whole layers
  CommunicatorPtr summed = nullptr;   // those of `gradient` and `tensor` together; null as `tensor`
  CommunicatorPtr reshard = nullptr;  // of `shard`, those that keep parameters between forward and backward; null: all
  double gradient_scale = 1;          // of the mean over `gradient`, which need not be all ranks with terms of the sum
  CommunicatorPtr expert = nullptr;   // those that have different experts of a layer; null: this rank has all
  std::shared_ptr<const ModelRanks> experts = nullptr;  // of parameters that are cut along this axis; null as `expert`
};

class ParallelModel : public nn::Module {
 public:
  ParallelModel(std::string kind, nn::ModulePtr module) : Module(std::move(kind)), module_(std::move(module)) {}

  // The wrapped model.
  const nn::ModulePtr& module() const { return module_; }
  std::vector<std::string> input_names() const override { return module_->input_names(); }

  // Turns the exchange of gradients on or off, for later forwards. Returns the former setting.
  bool set_gradient_sync(bool sync) { return std::exchange(sync_, sync); }
  bool gradient_sync() const { return sync_; }
  // The exchange of gradients with other ranks; null: they stay on this rank.
  virtual GradientExchange* exchange() { return nullptr; }
  // The parts of parameters that this rank stores outside of forwards and backwards; null: parameters keep their memory
  // and values from one update to the next.
  virtual ParameterParts* parts() { return nullptr; }
  // Trains a model of which this rank has some stages; null: this rank has all of it.
  virtual StagePipeline* pipeline() { return nullptr; }
  // The gradients of this rank.
  virtual std::vector<at::Tensor> gradients() const;
  // Before an optimizer, or a checkpoint, uses parameters and gradients: completes what is under way.
  virtual void finish_step() {}
  // A backward ended with this error: the error of the next forward names it.
  virtual void note_failed_backward(const std::string& /*error*/) {}

  // For uneven inputs: whom the forward tells that this rank still has inputs; null otherwise.
  void set_uneven_inputs(UnevenInputs* inputs) { uneven_inputs_ = inputs; }
  bool has_uneven_inputs() const { return uneven_inputs_ != nullptr; }
  UnevenInputs* uneven_inputs() const { return uneven_inputs_; }
  // Whether this rank knows what a forward and a backward exchange.
  virtual bool can_shadow() const { return true; }
  // On a rank without inputs: takes part in the exchange of one forward and backward of the others. Buffers are taken
  // from rank `source`.
  virtual void shadow(const ForwardNotice& /*others*/, int /*source*/) {}

 private:
  nn::ModulePtr module_;
  UnevenInputs* uneven_inputs_ = nullptr;
  bool sync_ = true;
};

using ParallelModelPtr = std::shared_ptr<ParallelModel>;

// The model without parallelism.
ParallelModelPtr single_process_model(nn::ModulePtr module);

// Splits the layers of a model over the ranks along the axis "tensor", in place, unless they are split already or the
// settings leave them whole; null: there are no others. Collective among these. Ahead of the move to a device, so that
// only parts are moved. A plan may be for other layers, too, if the module `is_stage`.
void split_layers(nn::Module& module, const CommunicatorPtr& tensor_ranks, const PrepareModelSettings& settings,
                  c10::Device device, bool is_stage = false);

// Throws if split_layers() or share_experts() would refuse a model, and warns as these, which of a stage alone they
// cannot tell.
void require_plan(nn::Module& module, const ModelRanks& ranks, const PrepareModelSettings& settings);

// Says how cut_into_stages() has cut a model.
struct StagePlan;
using StagePlanPtr = std::shared_ptr<const StagePlan>;

// Ranks of a model in stages.
struct StageRanks {
  CommunicatorPtr pipeline;  // those along the axis "pipeline"
  CommunicatorPtr all;       // of the job, which cut the model alike
  // These are the ranks along "pipeline" and "tensor", those of a stage next to each other; null: no layers are split.
  CommunicatorPtr of_all_stages = nullptr;
  int64_t host = 0;  // that of this rank has another number than other hosts
};

// Cuts a model into stages, and releases, in place, what is not in those of this rank. Collective among all ranks;
// throws on all of them what a rank refuses, and COLLECTIVE_MISMATCH for other models or settings on one. Ahead of
// split_layers(). `defers_products` says whether backwards will have two halves where a schedule has them.
// `sample_inputs` are a tuple or list of the model's, of which costs are counted or measured, or nothing.
StagePlanPtr cut_into_stages(nn::Module& module, const StageRanks& stage_ranks, const ModelRanks& ranks,
                             const PrepareModelSettings& settings, const c10::IValue& sample_inputs,
                             bool defers_products);

// Shares the experts of a model out over the ranks along the axis "expert", in place, unless they are shared out
// already; with one rank it only sets how the layers work. Those are mixtures of experts, and what a plan names.
// Collective among these. Ahead of the move to a device, too. A plan may be for other layers, too, if the module
// `is_stage`.
void share_experts(nn::Module& module, const ModelRanks& ranks, const PrepareModelSettings& settings,
                   bool is_stage = false);

// Applies the kind of parallelism of the settings; collective if there are several ranks. Parameters without memory,
// which only sharding takes, get theirs on `device`. `stages` is null for a model that is not cut, and `fp8` where
// nothing is gathered in 8 bits.
ParallelModelPtr parallelize(const nn::ModulePtr& module, const ModelRanks& ranks, const PrepareModelSettings& settings,
                             c10::Device device, const StagePlanPtr& stages = nullptr,
                             const Fp8GatherPtr& fp8 = nullptr);

// The steps of a model that this rank has all of, as one stage; `alone` is a group of this rank, and `gradient` those
// that average gradients. It must not outlive the model.
StagePipelinePtr single_stage(ParallelModel& model, const PrepareModelSettings& settings, const CommunicatorPtr& alone,
                              const CommunicatorPtr& gradient, c10::Device device);

}  // namespace accel::parallel
