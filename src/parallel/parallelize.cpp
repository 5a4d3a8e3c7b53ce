// SPDX-License-Identifier: Apache-2.0
// Chooses the kind of parallelism; the only source above the kinds that knows them.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "config/generated/choices/overlap.hpp"
#include "config/generated/choices/precision.hpp"
#include "config/generated/choices/sharding_strategy.hpp"
#include "config/generated/settings/prepare/estimate_memory.hpp"
#include "config/generated/settings/prepare/fsdp.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "machine/processors.hpp"
#include "nn/layers/mixture_of_experts.hpp"
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
#include "parallel/pipeline/step_outcome.hpp"
#include "parallel/same_plan.hpp"
#include "parallel/sequence_split.hpp"
#include "parallel/strategy.hpp"
#include "parallel/tensor/matched_plan.hpp"
#include "parallel/tensor/saved_activations.hpp"
#include "parallel/tensor/split_model.hpp"
#include "parallel/tensor/split_parameters.hpp"
#include "precision/fp8_recipe.hpp"

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

// Whether communication has processors beside those that compute, where it is not set. Ranks that did not agree would
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

// Keeps inputs of modules instead of activations.
ParallelModelPtr recompute(const StrategyInput& input) {
  const FsdpSettings& settings = input.settings.fsdp;
  if (settings.enabled.value_or(false) && settings.activation_checkpointing)
    checkpoint_wrapped_modules(input.module, settings);
  return nullptr;
}

ParallelModelPtr shard(const StrategyInput& input) {
  if (!is_sharded(input.ranks.gradient->size(), input.settings.fsdp)) return nullptr;
  return FullyShardedDataParallel::create(input.module, input.ranks, input.settings.fsdp, input.device, input.fp8);
}

ParallelModelPtr replicate(const StrategyInput& input) {
  const bool has_terms = input.ranks.summed != nullptr && !nn::summed_placements(*input.module).empty();
  const bool has_experts = input.ranks.experts != nullptr && nn::placements(*input.module).have_axis(kExpertAxes);
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

bool is_of_experts(const SplitRule& rule) { return rule.style->along == SplitAlong::kExperts; }

// The rules of a plan that is given, but not "none": those of experts, or the others.
std::vector<SplitRule> given_rules(const PrepareModelSettings& settings, bool of_experts) {
  const std::string& plan = settings.tensor_parallel.plan.value;
  if (plan == "auto" || plan == "none") return {};
  std::vector<SplitRule> rules = read_plan(plan);
  rules.erase(std::remove_if(rules.begin(), rules.end(),
                             [&](const SplitRule& rule) { return is_of_experts(rule) != of_experts; }),
              rules.end());
  return rules;
}

// Where sequences are split, each rank would compute a term of the gradients of whole experts.
void require_split_experts(const nn::Module& module, const PrepareModelSettings& settings) {
  const bool is_auto = settings.tensor_parallel.plan.value == "auto";
  if (!is_auto || !settings.tensor_parallel.sequence_parallel || settings.expert_parallel.tensor_parallel_experts)
    return;
  for (const auto& [path, part] : nn::named_modules(module))
    require(dynamic_cast<const nn::GroupedExperts*>(part) == nullptr, Status::kUnsupported,
            "sequence_parallel is 1 and '", path, "' is of experts that are whole; expected tensor_parallel_experts 1");
}

// The rules for layers that several ranks along the axis "tensor" have parts of. No kind of a stage may have a plan.
std::vector<SplitRule> rules_of_layers(const nn::Module& module, const PrepareModelSettings& settings,
                                       bool is_stage = false) {
  const bool sequence_parallel = settings.tensor_parallel.sequence_parallel;
  std::vector<SplitRule> rules = settings.tensor_parallel.plan.value != "auto"
                                     ? given_rules(settings, /*of_experts=*/false)
                                 : is_stage ? find_plan(module, sequence_parallel)
                                            : plan_of(module, sequence_parallel);
  require_split_experts(module, settings);
  if (settings.expert_parallel.tensor_parallel_experts)
    for (const auto& [path, part] : nn::named_modules(module)) {
      const auto names = [&path = path](const SplitRule& rule) { return rule.matches(path); };
      if (dynamic_cast<const nn::GroupedExperts*>(part) == nullptr || std::any_of(rules.begin(), rules.end(), names))
        continue;
      for (SplitRule& rule : read_plan(path + " moe_tp_experts")) rules.push_back(std::move(rule));
    }
  return is_stage ? rules_that_match(rules, module) : rules;
}

bool leaves_layers_whole(const PrepareModelSettings& settings) {
  const std::string& plan = settings.tensor_parallel.plan.value;
  return settings.split_by_program || (plan == "auto" && settings.evaluation_mode) ||
         (plan == "none" && !settings.expert_parallel.tensor_parallel_experts);
}

// A router of experts, and a layer that is whole, need no rank beside this one.
bool has_split_layers(const std::vector<SplitRule>& rules) {
  return std::any_of(rules.begin(), rules.end(), [](const SplitRule& rule) {
    return rule.style->along != SplitAlong::kNothing || rule.style->sums_gradients;
  });
}

constexpr const char* kOverlaps[] = {"auto", "no", "yes"};

// The lines of check_same_plan().
std::vector<std::string> lines_of(const std::vector<SplitRule>& rules, const TensorParallelSettings& settings) {
  std::vector<std::string> lines{"layers that are split",
                                 text("sequence_parallel ", static_cast<int>(settings.sequence_parallel)),
                                 text("regather_inputs ", static_cast<int>(settings.regather_inputs)),
                                 text("loss_parallel ", static_cast<int>(settings.loss_parallel)),
                                 text("overlap ", kOverlaps[static_cast<size_t>(settings.overlap.value)]),
                                 text("overlap_chunks ", settings.overlap_chunks.value)};
  for (const SplitRule& rule : rules) lines.push_back(text("the rule '", rule.text, "'"));
  return lines;
}

// Collective: a rank that finds no layer to split tells those that do, and so does one whose plan is wrong. Nothing:
// there is none.
std::optional<std::vector<SplitRule>> agree_on_rules(const nn::Module& module, comm::Communicator& ranks,
                                                     const PrepareModelSettings& settings, bool is_stage) {
  std::vector<SplitRule> rules;
  bool are_split = false;
  std::exception_ptr error;
  try {
    if (!leaves_layers_whole(settings) && !nn::placements(module).have_axis(kTensorAxis)) {
      rules = rules_of_layers(module, settings, is_stage);
      are_split = is_stage || !rules.empty();
    }
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  constexpr const char* kSharing = "of those that share layers";
  agree_on_step(ranks, 0, error, "finding the layers to split", kSharing);
  check_same_plan(
      are_split ? lines_of(rules, settings.tensor_parallel) : std::vector<std::string>{"layers that stay as they are"},
      ranks, kSharing);
  return are_split ? std::optional<std::vector<SplitRule>>(std::move(rules)) : std::nullopt;
}

}  // namespace

void split_layers(nn::Module& module, const CommunicatorPtr& tensor_ranks, const PrepareModelSettings& settings,
                  c10::Device device, bool is_stage) {
  if (tensor_ranks == nullptr || tensor_ranks->size() == 1) {
    if (!leaves_layers_whole(settings) && has_split_layers(given_rules(settings, /*of_experts=*/false)))
      log(LogLevel::kWarning,
          "there is a plan of tensor parallelism, and tensor_parallel_size is 1: no layer is split");
    return;
  }
  const auto rules = agree_on_rules(module, *tensor_ranks, settings, is_stage);
  if (!rules) return;
  SplitOptions options = split_options(settings.tensor_parallel, *tensor_ranks, device);
  options.is_stage = is_stage;
  split_model(module, *rules, tensor_ranks, options);
}

namespace {

// Checks the rules against a whole model.
void require_experts(const nn::Module& module, const std::vector<SplitRule>& rules, int64_t ranks) {
  for (const SplitRule& rule : rules)
    require(!rules_that_match({rule}, module).empty(), Status::kInvalidArgument, "rule '", rule.text,
            "' of the plan matches no module and no parameter with experts; expected the path of one");
  if (!rules.empty()) return;
  const auto modules = nn::named_modules(module);
  if (std::none_of(modules.begin(), modules.end(),
                   [](const auto& each) { return dynamic_cast<const nn::GroupedExperts*>(each.second) != nullptr; }))
    log(LogLevel::kWarning, "expert_parallel_size is ", ranks,
        ", and the model has no mixture of experts, and the plan no rule that names its experts: no layer is shared "
        "out");
}

}  // namespace

void require_plan(nn::Module& module, const ModelRanks& ranks, const PrepareModelSettings& settings) {
  const TensorParallelSettings& splitting = settings.tensor_parallel;
  const nn::Placements placements = nn::placements(module);
  if (ranks.expert != nullptr && !placements.have_axis(kExpertAxes))
    require_experts(module, given_rules(settings, /*of_experts=*/true), ranks.expert->size());
  if (ranks.tensor == nullptr || ranks.tensor->size() == 1 || leaves_layers_whole(settings) ||
      placements.have_axis(kTensorAxis))
    return;
  std::vector<SplitRule> rules = rules_of_layers(module, settings);
  if (rules.empty()) return;
  const MatchedPlan matched(module, std::move(rules), ranks.tensor->size(), splitting.sequence_parallel);
  if (splitting.loss_parallel) matched.require_head();
}

const char* expert_axis(const PrepareModelSettings& settings, bool has_tensor_ranks) {
  return settings.expert_parallel.tensor_parallel_experts && has_tensor_ranks ? kSplitExpertAxis : kExpertAxis;
}

void share_experts(nn::Module& module, const ModelRanks& ranks, const PrepareModelSettings& settings, bool is_stage) {
  set_capacity_factor(module, settings.expert_parallel.capacity_factor);
  if (settings.evaluation_mode) return;
  const std::vector<SplitRule> rules = given_rules(settings, /*of_experts=*/true);
  if (ranks.expert == nullptr) {
    if (!rules.empty())
      log(LogLevel::kWarning, "the plan has rules that share experts out, and expert_parallel_size is 1: none is");
    return;
  }
  if (nn::placements(module).have_axis(kExpertAxes)) return;  // they are shared out already
  if (!is_stage) require_experts(module, rules, ranks.expert->size());
  split_experts(module, ranks.expert, expert_axis(settings, ranks.tensor != nullptr), [&](const std::string& path) {
    return std::any_of(rules.begin(), rules.end(), [&](const SplitRule& rule) { return rule.matches(path); });
  });
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
                             c10::Device device, const StagePlanPtr& stages, const Fp8GatherPtr& fp8) {
  if (stages == nullptr) return apply_strategies({module, ranks, settings, device, fp8});
  place_stages(*module, *stages);
  // Gradients of several forwards come before an exchange, which no graph tells of.
  PrepareModelSettings of_stages = settings;
  const bool has_unused = settings.ddp.find_unused_parameters || settings.ddp.static_graph;
  of_stages.ddp.find_unused_parameters = of_stages.ddp.static_graph = false;
  const nn::ModulePtr own = std::make_shared<StageModule>(*module, stages->chain, stages->cut.begins);
  return std::make_shared<PipelinedModel>(module, apply_strategies({own, ranks, of_stages, device, fp8}), *stages,
                                          ranks.gradient, has_unused, device);
}

ParallelGradients parallelize_gradients(nn::ModulePtr module, const ModelRanks& ranks, const FsdpSettings& settings,
                                        double bucket_cap_mb, c10::Device device) {
  require(!nn::placements(*module).have_axis(kExpertAxes), Status::kUnsupported,
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

// Empty: the layers are not split, or on one rank of an unknown kind.
std::vector<SplitRule> rules_for(const nn::Module& module, const PrepareModelSettings& settings, int64_t ranks) {
  if (ranks > 1) return leaves_layers_whole(settings) ? std::vector<SplitRule>() : rules_of_layers(module, settings);
  const std::string& plan = settings.tensor_parallel.plan.value;
  const bool is_of_program = plan == "none" || settings.split_by_program;
  if (!is_of_program && plan != "auto") return given_rules(settings, /*of_experts=*/false);
  return find_plan(module, settings.tensor_parallel.sequence_parallel);
}

// Finds those of modules whose experts ranks share out.
std::unordered_set<const at::TensorImpl*> parameters_of_experts(const nn::Module& module,
                                                                const PrepareModelSettings& settings) {
  const std::vector<SplitRule> rules = given_rules(settings, /*of_experts=*/true);
  const auto is_named = [&](const std::string& path) {
    return std::any_of(rules.begin(), rules.end(), [&](const SplitRule& rule) { return rule.matches(path); });
  };
  std::unordered_set<const at::TensorImpl*> found;
  for (const auto& [path, part] : nn::named_modules(module)) {
    const bool has_experts = dynamic_cast<const nn::GroupedExperts*>(part) != nullptr || is_named(path);
    for (const auto& [name, parameter] : part->direct_parameters())
      if (has_experts || is_named(nn::join_path(path, name))) found.insert(parameter.unsafeGetTensorImpl());
  }
  return found;
}

// The shapes of the parameters that the first of the ranks stores which have parts of the same layers, or some experts.
nn::ModulePtr shapes_of_parts(nn::Module& module, const EstimateMemorySettings& estimate) {
  const PrepareModelSettings& settings = estimate.model_options;
  const int64_t ranks = estimate.tensor_parallel_size, sharing = estimate.expert_parallel_size;
  std::unordered_map<const at::TensorImpl*, std::vector<int64_t>> parts;
  std::vector<SplitRule> rules;
  if (ranks > 1) rules = rules_for(module, settings, ranks);
  if (!rules.empty()) {
    const MatchedPlan matched(module, std::move(rules), ranks, settings.tensor_parallel.sequence_parallel);
    for (const PlannedParameter& planned : matched.parameters())
      if (planned.cut)
        parts[planned.parameter.unsafeGetTensorImpl()] =
            split_placement(planned.shape, *planned.cut, /*rank=*/0, ranks, kTensorAxis).stored_sizes();
  }
  std::unordered_set<const at::TensorImpl*> of_experts;
  if (sharing > 1) of_experts = parameters_of_experts(module, settings);
  const nn::Placements placements = nn::placements(module);
  const nn::ModulePtr shapes = nn::shapes_of(module, [&](const at::Tensor& parameter) {
    const auto part = parts.find(parameter.unsafeGetTensorImpl());
    const tensor::PlacementPtr placement = placements.find(parameter);
    std::vector<int64_t> shape = part != parts.end()    ? part->second
                                 : placement == nullptr ? parameter.sizes().vec()
                                                        : placement->shape;
    if (of_experts.count(parameter.unsafeGetTensorImpl()) == 0) return shape;
    require(shape.front() % sharing == 0, Status::kInvalidArgument, "a parameter has ", shape.front(),
            " experts, and expert_parallel_size is ", sharing, "; expected a number of experts that it divides");
    shape.front() /= sharing;
    return shape;
  });
  nn::Placements shared;
  for (const auto& [name, parameter] : nn::named_parameters(module)) {
    if (of_experts.count(parameter.unsafeGetTensorImpl()) == 0) continue;
    const at::Tensor own = nn::find_tensor(*shapes, name);
    tensor::Placement placement = tensor::whole_placement(own.sizes().vec());
    placement.axes = kExpertAxis;
    shared.set(own, std::make_shared<const tensor::Placement>(std::move(placement)));
  }
  nn::set_placements(*shapes, shared);
  return shapes;
}

std::vector<std::string> recomputed_modules(const nn::ModulePtr& model, const FsdpSettings& settings) {
  std::vector<std::string> paths;
  if (!settings.enabled.value_or(false) || !settings.activation_checkpointing) return paths;
  const std::vector<WrappedModule> wrapped = wrap_modules(model, settings);
  for (const WrappedModule& inner : wrapped)
    if (wrapped.size() == 1 || inner.module != model) paths.push_back(inner.path);
  return paths;
}

// Bytes of a forward of so many rows; 0: nobody says how many.
int64_t activations_of(const nn::ModulePtr& model, const EstimateMemorySettings& settings) {
  if (settings.batch_size == 0) return 0;
  const PrepareModelSettings& prepared = settings.model_options;
  const TensorParallelSettings& splitting = prepared.tensor_parallel;
  std::vector<SplitRule> rules = rules_for(*model, prepared, settings.tensor_parallel_size);
  require(!rules.empty(), Status::kUnsupported, "batch_size is ", settings.batch_size.value,
          ", and nothing is known of the layers of a model of kind '", model->kind(),
          "'; expected rules in tensor_parallel.plan, or activation_bytes");
  const bool has_experts = !parameters_of_experts(*model, prepared).empty() ||
                           std::any_of(rules.begin(), rules.end(), [](const SplitRule& rule) {
                             return rule.style->along == SplitAlong::kExpertFeatures;
                           });
  require(!has_experts, Status::kUnsupported, "batch_size is ", settings.batch_size.value, ", and a model of kind '",
          model->kind(), "' has experts, whose activations depend on where tokens go; expected activation_bytes");
  ActivationSizes sizes;
  sizes.tokens = settings.batch_size * (settings.sequence_length / settings.context_parallel_size);
  const auto parameters = model->parameters();
  if (!parameters.empty())
    sizes.product_bytes = sizes.residual_bytes = static_cast<int64_t>(parameters.front().element_size());
  if (settings.mixed_precision != Precision::kNo) sizes.product_bytes = 2;
  sizes.function_bytes = sizes.input_bytes = sizes.product_bytes;
  if (const auto recipe = precision::fp8_recipe_without_call(settings.mixed_precision)) {
    sizes.input_bytes = 1;
    sizes.has_own_copies = true;
    if (recipe->compress_activations) sizes.function_bytes = sizes.residual_bytes = 1;
  }
  sizes.tensor_ranks = settings.tensor_parallel_size;
  sizes.splits_sequences = splitting.sequence_parallel;
  sizes.regathers_inputs = splitting.regather_inputs;
  sizes.splits_scores = splitting.loss_parallel;
  sizes.repeats_keys = settings.context_parallel_size == 1;
  const MatchedPlan plan(*model, std::move(rules), settings.tensor_parallel_size, splitting.sequence_parallel);
  return saved_activation_bytes(plan, sizes, recomputed_modules(model, prepared.fsdp));
}

}  // namespace

MemoryEstimate estimate_memory(const nn::ModulePtr& model, const EstimateMemorySettings& given,
                               const StateBytes& state_bytes) {
  EstimateMemorySettings settings = given;
  settings.activation_bytes = settings.activation_bytes + activations_of(model, settings);
  const nn::ModulePtr module = shapes_of_parts(*model, settings);
  if (is_sharded(settings.num_processes, settings.model_options.fsdp))
    return estimate_sharded_memory(module, settings, state_bytes);
  return estimate_replicated_memory(*module, settings, state_bytes);
}

}  // namespace accel::parallel
