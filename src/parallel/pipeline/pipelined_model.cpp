// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/pipelined_model.hpp"

#include <map>
#include <utility>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "nn/cache/layer_cache.hpp"
#include "nn/module_walks.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

bool has_halves(const PipelineSchedule& schedule) {
  for (const PipelineActions& actions : schedule.ranks)
    for (const PipelineAction& action : actions)
      if (action.kind == PipelineAction::Kind::kInputBackward) return true;
  return false;
}

// The placement of each tensor that this rank has, by name. Buffers have none elsewhere.
std::map<std::string, tensor::PlacementPtr> own_placements(const nn::Module& module) {
  const nn::Placements placements = nn::placements(module);
  std::map<std::string, tensor::PlacementPtr> own;
  for (const auto& [name, values] : module.state_dict()) {
    const tensor::PlacementPtr placed = placements.find(nn::find_tensor(module, name));
    tensor::Placement whole = tensor::whole_placement(values.sizes().vec());
    whole.axes = kPipelineAxis;
    own[name] = placed != nullptr ? placed : std::make_shared<const tensor::Placement>(whole);
  }
  return own;
}

// Collective: ranks learn along which axes tensors of other stages are cut.
std::vector<StageTensor> state_of(const nn::Module& module, const StagePlan& plan) {
  const std::map<std::string, tensor::PlacementPtr> own = own_placements(module);
  auto axes_of_own = tree::new_map();
  for (const auto& [name, placement] : own) axes_of_own.insert(name, placement->axes);
  const c10::IValue all = comm::gather_object(*plan.ranks, tree::new_list({axes_of_own}));
  std::map<std::string, std::string> axes;
  for (const c10::IValue& of_rank : tree::sequence_items(all))
    for (const auto& entry : of_rank.toGenericDict())
      axes.try_emplace(entry.key().toStringRef(), entry.value().toStringRef());
  std::vector<StageTensor> state;
  for (const WholeTensor& each : plan.state) {
    const auto found = own.find(each.name);
    state.push_back({each.name, each.first_name, each.dtype,
                     found != own.end() ? found->second
                                        : std::make_shared<const tensor::Placement>(
                                              tensor::Placement{each.shape, {}, axes[each.name]})});
  }
  return state;
}

PipelineStages stages_of(const nn::Module& module, const ParallelModelPtr& inner, const StagePlan& plan,
                         const CommunicatorPtr& gradient, bool exchanges_at_end) {
  const PipelineShape& shape = plan.schedule.shape;
  // Replicas exchange in one run of autograd's engine, and shards when no rank can fail any more.
  const bool has_several_runs = shape.stages_per_rank > 1 || has_halves(plan.schedule);
  const bool is_at_end = exchanges_at_end || has_several_runs || inner->parts() != nullptr;
  return {[inner](int stage, const c10::IValue& value) {
            return inner->call({c10::IValue(static_cast<int64_t>(stage)), value});
          },
          plan.ties,
          state_of(module, plan),
          describe_stages(plan.cut, shape),
          is_at_end,
          plan.boundary_form,
          gradient->size() > 1 ? gradient : nullptr,
          plan.broadcasts_loss};
}

}  // namespace

PipelinedModel::PipelinedModel(nn::ModulePtr module, ParallelModelPtr inner, const StagePlan& plan,
                               const CommunicatorPtr& gradient, bool exchanges_at_end, c10::Device device)
    : ParallelModel("PipelinedModel", std::move(module)),
      inner_(std::move(inner)),
      pipeline_(*this, *inner_, plan.schedule, plan.ranks, device,
                stages_of(*this->module(), inner_, plan, gradient, exchanges_at_end)),
      gathers_output_(plan.gathers_output) {}

c10::IValue PipelinedModel::forward(const nn::Inputs& inputs) {
  require(!module()->is_training(), Status::kInvalidState,
          "the model is in stages on several ranks, and in training; expected accel_pipeline_step(), which computes "
          "forwards and backwards of all stages, or accel_module_train(model, 0) ahead of a forward alone");
  for (const c10::IValue& input : inputs)
    require(!tree::is_sequence(input) || nn::LayerCache::first_of(input) == nullptr, Status::kUnsupported,
            "the model is in stages on several ranks, which cannot generate with a common cache; expected a model that "
            "is sharded, split, dispatched or whole");
  return pipeline_.evaluate(inputs.empty() ? c10::IValue() : tree::new_tuple(inputs), gathers_output_);
}

}  // namespace accel::parallel
