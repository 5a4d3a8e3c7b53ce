// SPDX-License-Identifier: Apache-2.0
// Plans the stages of a model: its chain is cut, and this rank keeps its parts.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "comm/group.hpp"
#include "config/generated/settings/parallelism/tensor_parallel.hpp"
#include "config/generated/settings/pipeline/pipeline.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "nn/module_walks.hpp"
#include "parallel/pipeline/cut/cut_agreement.hpp"
#include "parallel/pipeline/cut/kept_parts.hpp"
#include "parallel/pipeline/cut/stage_ties.hpp"
#include "parallel/pipeline/pipelined_model.hpp"
#include "parallel/pipeline/schedule_choice.hpp"

namespace accel::parallel {
namespace {

// The copies that this rank has of parameters of several ranks. Collective among those of each.
std::vector<TiedCopy> find_ties(nn::Module& model, const StagePlan& plan) {
  std::vector<TiedCopy> ties;
  for (const StageTie& tie : ties_between_stages(model, plan.chain, plan.cut.begins)) {
    std::vector<int64_t> ranks;  // in the order of their first stages
    for (const auto& [stage, name] : tie.stages) {
      const int64_t rank = plan.schedule.shape.rank_of(stage);
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
    }
    if (ranks.size() < 2 || std::find(ranks.begin(), ranks.end(), plan.ranks->rank()) == ranks.end()) continue;
    ties.push_back({tie.name, tie.parameter, comm::create_group(*plan.ranks, ranks)});
  }
  return ties;
}

// The stages compute with their own copies of these; one that does not would leave others without a gradient.
void require_frozen_beside_parts(const nn::Module& model, const nn::ModuleChain& chain) {
  for (const auto& [path, module] : modules_of_all_stages(model, chain))
    for (const auto& [name, parameter] : module->direct_parameters())
      require(!parameter.requires_grad(), Status::kUnsupported, "the parameter '", nn::join_path(path, name),
              "' is trained, and in a module that is no part of the chain: every stage has it; expected one in the "
              "modules of the parts that use it, which may share it, or one that requires no gradient");
}

std::vector<WholeTensor> state_of(const nn::Module& model) {
  std::vector<WholeTensor> state;
  std::unordered_map<const at::TensorImpl*, std::string> first_names;
  for (const auto& [name, values] : model.state_dict()) {
    const at::Tensor tensor = nn::find_tensor(model, name);
    const auto first = first_names.try_emplace(tensor.unsafeGetTensorImpl(), name).first;
    state.push_back({name, first->second, tensor.sizes().vec(), tensor.scalar_type()});
  }
  return state;
}

// Where the halves of a backward are apart, what they share has left the caches meanwhile, and several stages of a rank
// compute a little slower than one. Measured with GPT-2: bench/results/earlier/pipelines.json.
constexpr double kHalvesApart = 0.02, kMoreStages = 0.01;
constexpr double kMessageSeconds = 50e-6;

// The costs for the simulator, in seconds where they are measured.
class ScheduleCosts {
 public:
  ScheduleCosts(nn::Module& model, const nn::ModuleChain& chain, const std::string& split,
                std::optional<c10::IValue> sample, const StageRanks& ranks, bool defers_products)
      : model_(model),
        chain_(chain),
        kind_(is_cost_kind(split) ? split : "parameters"),
        sample_(std::move(sample)),
        ranks_(ranks),
        defers_products_(defers_products) {}

  PipelineCosts of(int stages) {
    PipelineCosts costs;
    if (static_cast<size_t>(stages) > chain_.size()) return costs;
    const ChainCut cut = cut_chain(model_, chain_, {kind_, stages, sample_}, *ranks_.all);
    if (!seconds_) seconds_ = measure_parts(model_, chain_, sample_, *ranks_.all);
    costs.sends_early = defers_products_;
    costs.message = seconds_->empty() ? 0 : kMessageSeconds;
    const int more = stages / ranks_.pipeline->size() - 1;  // on each rank
    const double scale = 1 + kMoreStages * more;
    for (size_t stage = 0; stage < cut.begins.size(); stage++) {
      const PartSeconds of_stage = seconds_of(cut, stage);
      StageCost& cost = costs.stages.emplace_back();
      cost.forward = scale * of_stage.forward;
      cost.input_backward = scale * of_stage.input_backward;
      cost.weight_backward = scale * of_stage.weight_backward;
      if (!defers_products_) cost.input_backward += std::exchange(cost.weight_backward, 0);
      cost.apart = kHalvesApart * (cost.input_backward + cost.weight_backward);
    }
    return costs;
  }

 private:
  PartSeconds seconds_of(const ChainCut& cut, size_t stage) const {
    PartSeconds sum;
    for (size_t part = cut.begins[stage]; part < cut.end_of(stage); part++) {
      const double cost = cut.parts[part].cost;
      const PartSeconds one = seconds_->empty() ? PartSeconds{cost, cost, cost} : (*seconds_)[part];
      sum.forward += one.forward;
      sum.input_backward += one.input_backward;
      sum.weight_backward += one.weight_backward;
    }
    return sum;
  }

  nn::Module& model_;
  const nn::ModuleChain& chain_;
  const std::string kind_;
  const std::optional<c10::IValue> sample_;
  const StageRanks& ranks_;
  const bool defers_products_;
  std::optional<std::vector<PartSeconds>> seconds_;
};

PipelineSchedule choose(nn::Module& model, const nn::ModuleChain& chain, const PipelineSettings& settings,
                        const std::optional<c10::IValue>& sample, const StageRanks& stage_ranks, bool defers_products) {
  const int ranks = stage_ranks.pipeline->size();
  ScheduleRequest request;
  request.name = settings.schedule.value;
  request.ranks = ranks;
  request.micro_batches = static_cast<int>(settings.micro_batches == 0 ? ranks : settings.micro_batches.value);
  request.stages_per_rank = static_cast<int>(settings.stages_per_rank);
  request.max_in_flight = static_cast<int>(settings.max_in_flight);
  ScheduleCosts costs(model, chain, settings.split.value, sample, stage_ranks, defers_products);
  return choose_schedule(request, [&costs](int stages) { return costs.of(stages); });
}

// A plan of the family leaves values whole between the parts of a chain; rules may leave them split. Collective among
// the ranks along pipeline and tensor.
SplitBoundary split_boundary_of(const nn::Module& module, const StageRanks& stage_ranks, const CommunicatorPtr& tensor,
                                const PrepareModelSettings& preparation) {
  const TensorParallelSettings& layers = preparation.tensor_parallel;
  if (stage_ranks.of_all_stages == nullptr || layers.plan.value != "auto" || layers.sequence_parallel ||
      nn::placements(module).have_axis("tensor"))
    return {};
  comm::Communicator& ranks = *stage_ranks.of_all_stages;
  const auto integers = at::TensorOptions().dtype(at::kLong).device(ranks.device());
  at::Tensor hosts = at::empty({ranks.size()}, integers);
  ranks.all_gather(at::full({1}, stage_ranks.host, integers), hosts);
  hosts = hosts.cpu();
  return {tensor, {hosts.const_data_ptr<int64_t>(), static_cast<size_t>(hosts.numel())}};
}

}  // namespace

// All pipelines are cut by the costs of the first one.
StagePlanPtr cut_into_stages(nn::Module& module, const StageRanks& stage_ranks, const ModelRanks& ranks,
                             const PrepareModelSettings& preparation, const c10::IValue& sample_inputs,
                             bool defers_products) {
  const PipelineSettings& settings = preparation.pipeline;
  const std::optional<c10::IValue> sample =
      sample_inputs.isNone() ? std::nullopt : std::optional<c10::IValue>(sample_inputs);
  const auto plan = std::make_shared<StagePlan>();
  plan->ranks = stage_ranks.pipeline;
  plan->gathers_output = settings.gather_output;
  plan->broadcasts_loss = settings.broadcast_loss;
  std::exception_ptr refusal;
  try {
    require_plan(module, ranks, preparation);
    plan->chain = require_chain(module);
    require_frozen_beside_parts(module, plan->chain);
    plan->boundary_form.dtype = read_boundary_dtype(settings.boundary_dtype);
  } catch (const std::exception&) {
    refusal = std::current_exception();
  }
  agree_on_cut(module, plan->chain, preparation, refusal, *stage_ranks.all);
  plan->boundary_form.split = split_boundary_of(module, stage_ranks, ranks.tensor, preparation);
  plan->schedule = choose(module, plan->chain, settings, sample, stage_ranks, defers_products);
  const PipelineShape& shape = plan->schedule.shape;
  plan->cut =
      cut_chain(module, plan->chain,
                {settings.split.value, shape.stages(), sample, read_stage_limits(settings.max_memory, shape.stages())},
                *stage_ranks.all);
  if (settings.check_balance && stage_ranks.all->rank() == 0) warn_of_imbalance(plan->cut);
  plan->ties = find_ties(module, *plan);
  plan->state = state_of(module);
  keep_parts(module, plan->chain, parts_of_rank(plan->cut, shape, plan->ranks->rank()));
  return plan;
}

void place_stages(nn::Module& module, const StagePlan& plan) {
  nn::Placements former = nn::placements(module);
  former.add(nn::summed_placements(module));
  nn::Placements placements;
  for (const at::Tensor& parameter : module.parameters()) {
    const tensor::PlacementPtr placed = former.find(parameter);
    tensor::Placement placement =
        placed == nullptr ? tensor::whole_placement(parameter.sizes().vec()) : tensor::Placement(*placed);
    placement.axes = tensor::join_axes(kPipelineAxis, placement.axes);
    const auto tie = std::find_if(plan.ties.begin(), plan.ties.end(),
                                  [&](const TiedCopy& each) { return each.parameter.is_same(parameter); });
    if (tie != plan.ties.end() && tie->ranks->rank() > 0)
      for (tensor::PlacedBox& box : placement.boxes) box.counts = false;
    placements.set(parameter, std::make_shared<const tensor::Placement>(std::move(placement)));
  }
  nn::set_placements(module, placements);
}

StagePipelinePtr single_stage(ParallelModel& model, const PrepareModelSettings& settings, const CommunicatorPtr& alone,
                              const CommunicatorPtr& gradient, c10::Device device) {
  ScheduleRequest request;
  request.micro_batches = static_cast<int>(std::max<int64_t>(settings.pipeline.micro_batches, 1));
  PipelineStages stages{[&model](int, const c10::IValue& value) {
                          const auto inputs = value.toTupleRef().elements();
                          return model.call(nn::Inputs(inputs.begin(), inputs.end()));
                        },
                        {},
                        {},
                        "one stage: the model is not cut, because pipeline_parallel_size is 1\n",
                        // The graph of the last micro-batch tells nothing of the others.
                        settings.ddp.find_unused_parameters || settings.ddp.static_graph || model.parts() != nullptr,
                        /*boundary_form=*/{},
                        gradient->size() > 1 ? gradient : nullptr};
  return std::make_shared<Pipeline>(model, model, choose_schedule(request, nullptr), alone, device, std::move(stages));
}

}  // namespace accel::parallel
