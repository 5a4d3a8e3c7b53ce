// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/device_map/infer_device_map.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/log.hpp"
#include "bigmodel/device_map/chain_packing.hpp"
#include "bigmodel/device_map/device_map_value.hpp"
#include "bigmodel/device_map/explanation.hpp"
#include "bigmodel/device_map/sequential_placement.hpp"
#include "nn/module_walks.hpp"
#include "tensor/tree.hpp"

namespace accel::bigmodel {
namespace {

Placement place_in_order(const ModuleTree& tree, const std::vector<Tier>& tiers, bool fallback_allocation) {
  const Ties ties(tree);
  auto placement = SequentialPlacement(tree, ties, tiers, TieRule::kAsReference, fallback_allocation).run();
  if (placement && (tree.ties().empty() || is_valid(tree, *placement))) return *std::move(placement);
  return SequentialPlacement(tree, ties, tiers, TieRule::kConnected, fallback_allocation).run().value();
}

// Buffers of offloaded modules stay on an accelerator unless they are offloaded too. Special dtypes count here, as in
// Accelerate, by the names inside of a module, and modules that were placed with another one do not count.
void check_buffers(const ModuleTree& tree, const nn::SizeRules& rules, const Placement& placement,
                   InferredDeviceMap& inferred) {
  for (const Step& step : placement.steps) {
    const bool is_placed = step.kind == StepKind::kPlaced || step.kind == StepKind::kFallback;
    const nn::Module* const module = tree[step.node].module;
    if (!is_placed || module == nullptr || is_accelerator(placement.tiers[static_cast<size_t>(step.tier)].place))
      continue;
    for (const auto& [name, buffer] : nn::named_buffers(*module))
      inferred.offloaded_buffers += rules.bytes_of(name, buffer);
  }
  const auto has_room = [&](const Tier& tier) {
    return is_accelerator(tier.place) && tier.limit >= inferred.offloaded_buffers + tier.used;
  };
  const auto& tiers = placement.tiers;
  inferred.buffers_may_not_fit = inferred.offloaded_buffers > 0 && is_accelerator(tiers.front().place) &&
                                 std::none_of(tiers.begin(), tiers.end(), has_room);
  if (inferred.buffers_may_not_fit)
    log(LogLevel::kWarning, "the buffers of offloaded layers need ", text_of_bytes(inferred.offloaded_buffers),
        " bytes, and no accelerator has as much left; offload them with offload_buffers");
}

void report_empty_tiers(const std::vector<Tier>& tiers, InferredDeviceMap& inferred) {
  std::string needs;
  for (const Tier& tier : tiers) {
    if (!tier.minimum) continue;
    inferred.minimum_memory.emplace_back(tier.place, *tier.minimum);
    needs += text(needs.empty() ? "" : ", ", tier.place, " needs ", text_of_bytes(*tier.minimum), " bytes");
  }
  if (!needs.empty()) log(LogLevel::kInfo, "devices that have no room for any module: ", needs);
}

// The margin that accelerators get beside equal parts, because modules cannot be divided at will: 1.25 times the
// largest of the classes that stay together, by their first module, or the mean of the modules without children.
double balance_margin(const ModuleTree& tree, const std::vector<std::string>& classes) {
  double largest = 0, sum = 0;
  int64_t final_modules = 0;
  for (const std::string& name : classes) {
    const Node* first = nullptr;
    for (int32_t number = 1; number < tree.size(); number++) {
      const Node& node = tree[number];
      // Sizes are listed by parameters, then buffers.
      if (node.module == nullptr || node.module->kind() != name || node.parameters + node.buffers == 0) continue;
      if (first == nullptr || (first->parameters == 0 && node.parameters > 0)) first = &node;
      if (first->parameters > 0) break;
    }
    if (first != nullptr) largest = std::max(largest, first->size);
  }
  for (int32_t number = 1; number < tree.size(); number++) {
    if (tree[number].kind != NodeKind::kModule || tree[number].parameters + tree[number].buffers == 0) continue;
    bool is_final = true;
    tree.for_each_member(number, [&](int32_t member) {
      is_final =
          is_final && (tree[member].kind != NodeKind::kModule || tree[member].parameters + tree[member].buffers == 0);
    });
    if (!is_final) continue;
    sum += tree[number].size;
    final_modules++;
  }
  const double mean = std::floor(sum / static_cast<double>(std::max<int64_t>(final_modules, 1)));
  return std::floor(1.25 * std::max(largest, mean));
}

}  // namespace

InferredDeviceMap infer_device_map(const nn::Module& model, const std::optional<MaxMemory>& max_memory,
                                   const DeviceMapOptions& options, bool explain_too) {
  const MaxMemory memory = max_memory ? ordered_memory(*max_memory) : available_memory();
  const nn::SizeRules rules = options.size_rules();
  const ModuleTree tree(model, rules, options.classes());
  const std::vector<Tier> tiers = tiers_of(memory, !options.allow_disk);
  require(!tiers.empty(), Status::kInvalidArgument, "max_memory has no device and the disk is not allowed; add one");
  const Placement placement =
      options.optimal_packing ? pack_chain(tree, tiers) : place_in_order(tree, tiers, options.fallback_allocation);
  InferredDeviceMap inferred;
  inferred.map.reserve(placement.placed.size());
  for (const auto& [node, tier] : placement.placed)
    inferred.map.emplace_back(tree.path(node), placement.tiers[static_cast<size_t>(tier)].place);
  if (options.clean_result) inferred.map = clean_device_map(inferred.map);
  if (!options.offload_buffers) check_buffers(tree, rules, placement, inferred);
  report_empty_tiers(placement.tiers, inferred);
  if (options.verbose)
    for (const Step& step : placement.steps) log(LogLevel::kInfo, line_of(tree, placement, step));
  if (explain_too) inferred.explanation = explain(tree, placement);
  return inferred;
}

MaxMemory balanced_memory(const nn::Module& model, const std::optional<MaxMemory>& max_memory,
                          const DeviceMapOptions& options) {
  MaxMemory memory = max_memory ? ordered_memory(*max_memory) : available_memory();
  std::vector<size_t> accelerators;
  for (size_t i = 0; i < memory.size(); i++)
    if (is_accelerator(memory[i].first) && memory[i].second > 0) accelerators.push_back(i);
  if (accelerators.empty()) return memory;
  const size_t count = accelerators.size();
  const bool low_zero = options.low_zero && count > 1;
  if (count == 1 && !max_memory) {
    double& bytes = memory[accelerators.front()].second;
    bytes = std::floor(bytes * 0.9);
    log(LogLevel::kInfo, "a tenth of the memory of accelerator ", memory[accelerators.front()].first,
        " is left free; give max_memory to use more");
  }
  const ModuleTree tree(model, options.size_rules(), options.classes());
  const double total = tree[0].size;
  const double part =
      std::floor(total / static_cast<double>(low_zero ? count - 1 : count)) + balance_margin(tree, options.classes());
  // With low_zero the first accelerator, which may have nothing at all, gets what the others have no room for.
  double others = 0;
  for (size_t i = 0; i < count; i++) {
    double& bytes = memory[accelerators[i]].second;
    if (low_zero && accelerators[i] == 0) continue;
    if (i + 1 < count) bytes = std::min(bytes, part);
    others += bytes;
  }
  double& first = memory.front().second;
  if (low_zero) first = std::min(first, std::max(0.0, total - others));
  return memory;
}

DeviceMap resolve_device_map(const c10::IValue& device_map, const nn::Module& model,
                             const std::optional<MaxMemory>& max_memory, const DeviceMapOptions& options) {
  if (device_map.isGenericDict()) {
    DeviceMap map = read_device_map(device_map, "device_map");
    require_paths(model, map);
    check_device_map(model, map);
    return map;
  }
  require(device_map.isString(), Status::kTypeMismatch, "device_map is a ", tree::kind_name(device_map),
          "; expected a map, or a text such as \"auto\"");
  const std::string& strategy = device_map.toStringRef();
  if (strategy == "sequential") return infer_device_map(model, max_memory, options).map;
  DeviceMapOptions balanced = options;
  balanced.low_zero = strategy == "balanced_low_0";
  require(balanced.low_zero || strategy == "auto" || strategy == "balanced", Status::kInvalidArgument,
          "device_map is '", strategy,
          "'; expected \"auto\", \"balanced\", \"balanced_low_0\", \"sequential\", or a map");
  return infer_device_map(model, balanced_memory(model, max_memory, balanced), balanced).map;
}

}  // namespace accel::bigmodel
