// Chooses the kind of parallelism; the only source above the kinds that knows them.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "config/generated/choices/overlap.hpp"
#include "config/generated/choices/sharding_strategy.hpp"
#include "config/generated/settings/prepare/estimate_memory.hpp"
#include "config/generated/settings/prepare/fsdp.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "machine/processors.hpp"
#include "nn/module_shapes.hpp"
#include "nn/module_walks.hpp"
#include "parallel/context/context_split.hpp"
#include "parallel/ddp/distributed_data_parallel.hpp"
#include "parallel/ddp/replicated_memory.hpp"
#include "parallel/expert/split_experts.hpp"
#include "parallel/fsdp/auto_wrap.hpp"
#include "parallel/fsdp/fully_sharded_data_parallel.hpp"
#include "parallel/fsdp/sharded_gradients.hpp"
#include "parallel/fsdp/sharded_memory.hpp"
#include "parallel/memory_estimate.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/parameters/gradient_buckets.hpp"
#include "parallel/pipeline/pipelined_model.hpp"
#include "parallel/pipeline/stage_module.hpp"
#include "parallel/sequence_split.hpp"
#include "parallel/strategy.hpp"
#include "parallel/tensor/matched_plan.hpp"
#include "parallel/tensor/split_model.hpp"
#include "parallel/tensor/split_parameters.hpp"

namespace accel::parallel {
namespace {

bool has_trainable_parameter(const nn::Module& module) {
  const auto parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const at::Tensor& tensor) { return tensor.requires_grad(); });
}

bool is_sharded(int64_t ranks, const FsdpSettings& settings) {
  return ranks > 1 && settings.enabled.value_or(false) && settings.sharding_strategy != ShardingStrategy::kNoShard;
}

// Whether communication has processors beside those that compute, where it is not told. Ranks that did not agree would
// cut products into other chunks.
bool overlaps(const TensorParallelSettings& settings, comm::Communicator& ranks, c10::Device device) {
  if (settings.overlap != Overlap::kAuto) return settings.overlap == Overlap::kYes;
  if (!device.is_cpu()) return true;
  const bool has_room = usable_processors() > ranks.size() * at::get_num_threads();
  return !ranks.any_rank(!has_room);
}

SplitOptions split_options(const TensorParallelSettings& settings, comm::Communicator& ranks, c10::Device device) {
  return {{settings.sequence_parallel, settings.regather_inputs, overlaps(settings, ranks, device),
           settings.overlap_chunks},
          settings.loss_parallel};
}

// Without the rules for layers that other ranks have.
std::vector<SplitRule> rules_of_stage(const std::vector<SplitRule>& rules, const nn::Module& module) {
  std::vector<std::string> paths;
  for (const auto& [path, part] : nn::named_modules(module)) paths.push_back(path);
  for (const auto& [path, member] : nn::named_members(module)) paths.push_back(path);
  std::vector<SplitRule> own;
  for (const SplitRule& rule : rules)
    if (std::any_of(paths.begin(), paths.end(), [&](const std::string& path) { return rule.matches(path); }))
      own.push_back(rule);
  return own;
}

// Keeps inputs of modules instead of activations.
ParallelModelPtr recompute(const StrategyInput& input) {
  const FsdpSettings& settings = input.settings.fsdp;
  if (settings.enabled.value_or(false) && settings.activation_checkpointing)
    checkpoint_wrapped_modules(input.module, settings);
  return nullptr;
}

ParallelModelPtr shard(const StrategyInput& input) {
  if (!is_sharded(input.ranks.gradient->size(), input.settings.fsdp)) return nullptr;
  return FullyShardedDataParallel::create(input.module, input.ranks, input.settings.fsdp, input.device);
}

ParallelModelPtr replicate(const StrategyInput& input) {
  const bool has_terms = input.ranks.summed != nullptr && !nn::summed_placements(*input.module).empty();
  const bool has_experts = input.ranks.experts != nullptr && nn::placements(*input.module).have_axis(kExpertAxis);
  if (input.ranks.gradient->size() == 1 && !has_terms && !has_experts) return nullptr;
  if (!has_trainable_parameter(*input.module)) return nullptr;
  ClassRanks classes;
  if (has_terms || has_experts) classes.all = input.ranks.summed;
  if (has_terms) classes.terms = input.ranks.tensor;
  if (has_experts) classes.experts = input.ranks.experts;
  return std::make_shared<DistributedDataParallel>(input.module, input.ranks.gradient, input.settings.ddp,
                                                   std::move(classes));
}

// The order in which strategies are applied: each sees what those before it have made of the module.
constexpr Strategy kStrategies[] = {recompute, shard, replicate};

}  // namespace

void split_layers(nn::Module& module, const CommunicatorPtr& tensor_ranks, const PrepareModelSettings& settings,
                  c10::Device device, bool is_stage) {
  const std::string& plan = settings.tensor_parallel.plan.value;
  const bool sequence_parallel = settings.tensor_parallel.sequence_parallel;
  if (settings.split_by_program || plan == "none" || (plan == "auto" && settings.evaluation_mode)) return;
  const bool has_axis = tensor_ranks != nullptr && tensor_ranks->size() > 1;
  if (has_axis && nn::placements(module).have_axis(kTensorAxis)) return;  // it is split already
  std::vector<SplitRule> rules;
  if (plan != "auto") rules = read_plan(plan);
  if (!has_axis) {
    if (plan != "auto")
      log(LogLevel::kWarning,
          "there is a plan of tensor parallelism, and tensor_parallel_size is 1: no layer is split");
    return;
  }
  if (plan == "auto") rules = plan_of(module, sequence_parallel);
  if (is_stage) rules = rules_of_stage(rules, module);
  SplitOptions options = split_options(settings.tensor_parallel, *tensor_ranks, device);
  options.is_stage = is_stage;
  split_model(module, rules, tensor_ranks, options);
}

void share_experts(nn::Module& module, const ModelRanks& ranks, const PrepareModelSettings& settings) {
  const ExpertParallelSettings& experts = settings.expert_parallel;
  require(!experts.tensor_parallel_experts || ranks.tensor == nullptr, Status::kUnsupported,
          "tensor_parallel_experts is 1 and tensor_parallel_size is above 1: the layers of an expert are not split; "
          "expected 0, and an expert_parallel_size that may have tensor_parallel_size as a factor");
  set_capacity_factor(module, experts.capacity_factor);
  if (ranks.expert != nullptr && !settings.evaluation_mode) split_experts(module, ranks.expert);
}

namespace {

ParallelModelPtr apply_strategies(const StrategyInput& input) {
  if (!input.settings.evaluation_mode)
    for (const Strategy apply : kStrategies)
      if (auto model = apply(input)) return model;
  return single_process_model(input.module);
}

}  // namespace

ParallelModelPtr parallelize(const nn::ModulePtr& module, const ModelRanks& ranks, const PrepareModelSettings& settings,
                             c10::Device device, const StagePlanPtr& stages) {
  if (stages == nullptr) return apply_strategies({module, ranks, settings, device});
  place_stages(*module, *stages);
  // Gradients of several forwards come before an exchange, which no graph tells of.
  PrepareModelSettings of_stages = settings;
  const bool has_unused = settings.ddp.find_unused_parameters || settings.ddp.static_graph;
  of_stages.ddp.find_unused_parameters = of_stages.ddp.static_graph = false;
  const nn::ModulePtr own = std::make_shared<StageModule>(*module, stages->chain, stages->cut.begins);
  return std::make_shared<PipelinedModel>(module, apply_strategies({own, ranks, of_stages, device}), *stages,
                                          ranks.gradient, has_unused, device);
}

ParallelGradients parallelize_gradients(nn::ModulePtr module, const ModelRanks& ranks, const FsdpSettings& settings,
                                        double bucket_cap_mb, c10::Device device) {
  require(!nn::placements(*module).have_axis(kExpertAxis), Status::kUnsupported,
          "the ranks have different experts of the model, and the program exchanges gradients; expected "
          "accel_prepare_model()");
  if (is_sharded(ranks.gradient->size(), settings)) {
    const auto model = FullyShardedDataParallel::create(std::move(module), ranks, settings, device);
    return {model, std::make_shared<ShardedGradients>(model)};
  }
  require(
      ranks.summed == nullptr || nn::summed_placements(*module).empty(), Status::kUnsupported,
      "the model has parameters of whose gradients each rank along the axis tensor computes a term, and the program "
      "exchanges gradients; expected accel_prepare_model(), or a sharded model");
  auto gradients = std::make_shared<GradientBuckets>(*module, ranks.gradient, bucket_cap_mb);
  return {single_process_model(std::move(module)), std::move(gradients)};
}

SequenceSplitPtr split_sequences(const ContextParallelSettings& settings,
                                 const std::shared_ptr<comm::Communicator>& group) {
  return make_context_split(settings, group);
}

namespace {

// The shapes of the parameters that the first of the ranks stores which have parts of the same layers.
nn::ModulePtr shapes_of_parts(nn::Module& module, const PrepareModelSettings& settings, int64_t ranks) {
  std::unordered_map<const at::TensorImpl*, std::vector<int64_t>> parts;
  const std::string& plan = settings.tensor_parallel.plan.value;
  const bool sequence_parallel = settings.tensor_parallel.sequence_parallel;
  if (ranks > 1 && plan != "none" && !settings.split_by_program) {
    const MatchedPlan matched(module, plan == "auto" ? plan_of(module, sequence_parallel) : read_plan(plan), ranks,
                              sequence_parallel);
    for (const PlannedParameter& planned : matched.parameters())
      if (planned.cut)
        parts[planned.parameter.unsafeGetTensorImpl()] =
            split_placement(planned.shape, *planned.cut, /*rank=*/0, ranks, kTensorAxis).stored_sizes();
  }
  const nn::Placements placements = nn::placements(module);
  return nn::shapes_of(module, [&](const at::Tensor& parameter) {
    const auto part = parts.find(parameter.unsafeGetTensorImpl());
    if (part != parts.end()) return part->second;
    const tensor::PlacementPtr placement = placements.find(parameter);
    return placement == nullptr ? parameter.sizes().vec() : placement->shape;
  });
}

}  // namespace

MemoryEstimate estimate_memory(const nn::ModulePtr& model, const EstimateMemorySettings& settings,
                               const StateBytes& state_bytes) {
  const nn::ModulePtr module = shapes_of_parts(*model, settings.model_options, settings.tensor_parallel_size);
  if (is_sharded(settings.num_processes, settings.model_options.fsdp))
    return estimate_sharded_memory(module, settings, state_bytes);
  return estimate_replicated_memory(*module, settings, state_bytes);
}

}  // namespace accel::parallel
