// SPDX-License-Identifier: Apache-2.0
#include "nn/adapters/adapters.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/name_list.hpp"
#include "base/text_ends.hpp"
#include "nn/module_walks.hpp"

namespace accel::nn {
namespace {

constexpr const char* kSavedMagnitudes = ".lora_magnitude_vector";
constexpr const char* kFirstFactors = ".lora_A";

// Calls visit(name, projection, lora) for each adapter of each layer.
template <typename Visit>
void for_each_lora(const Module& model, const Visit& visit) {
  std::vector<std::pair<std::string, Projection*>> adapted;  // visit() may remove other modules
  for (const auto& [name, module] : named_modules(model)) {
    const auto* const found = dynamic_cast<const Projection*>(module);
    if (found != nullptr && !found->updates().empty()) adapted.emplace_back(name, const_cast<Projection*>(found));
  }
  for (const auto& [name, projection] : adapted) {
    const std::vector<std::shared_ptr<ProductUpdate>> updates = projection->updates();
    for (const auto& update : updates)
      if (const auto lora = std::dynamic_pointer_cast<Lora>(update)) visit(name, *projection, *lora);
  }
}

AdapterNames names_where(const Module& model, const std::function<bool(const Lora&)>& chosen) {
  AdapterNames names;
  for_each_lora(model, [&](const std::string&, Projection&, Lora& lora) {
    if (chosen(lora) && std::find(names.begin(), names.end(), lora.name()) == names.end()) names.push_back(lora.name());
  });
  return names;
}

void require_adapter(const Module& model, const std::string& name) {
  const AdapterNames names = adapter_names(model);
  require(std::find(names.begin(), names.end(), name) != names.end(), Status::kNotFound, "the model has no adapter '",
          name, "'; expected ", names.empty() ? "one that was added, and it has none" : "one of " + list_names(names));
}

// The end of the paths of an adapter's parameters.
std::string kept_end(const std::string& name) { return "." + name + ".weight"; }

std::string module_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

// Parameters outside of adapters that are trained and saved with one.
bool is_trained_beside(const std::string& path, const LoraConfig& config, const std::vector<std::string>& layers) {
  const std::string module = module_of(path);
  for (std::string owner = module; !owner.empty(); owner = module_of(owner))
    if (ends_with_any(owner, config.modules_to_save)) return true;
  if (path.substr(module.empty() ? 0 : module.size() + 1) != "bias" || config.bias == "none") return false;
  return config.bias == "all" || std::find(layers.begin(), layers.end(), module) != layers.end();
}

// PEFT puts the layers that have an adapter into others, as their base layers.
std::string in_files(const std::string& path, const std::vector<std::string>& layers) {
  const std::string module = module_of(path);
  if (std::find(layers.begin(), layers.end(), module) == layers.end()) return path;
  return module + ".base_layer" + path.substr(module.size());
}

void require_whole(const std::string& layer, const Projection& projection, const Lora& lora) {
  const at::Tensor& weight = projection.parameter(Projection::kWeight);
  const bool is_here = !weight.is_meta() && projection.placement(Projection::kWeight) == nullptr;
  require(is_here && weight.dim() == 2, Status::kInvalidState, "the weight of '", layer,
          "' is offloaded or a shard, and the adapter '", lora.name(),
          "' cannot be merged; expected a model that is whole and in memory");
}

}  // namespace

std::vector<std::string> add_lora(Module& model, const std::string& name, const LoraConfig& config) {
  require(!name.empty() && name.find('.') == std::string::npos, Status::kInvalidArgument, "the adapter's name is '",
          name, "'; expected one without a dot");
  require(config.bias == "none" || config.bias == "all" || config.bias == "lora_only", Status::kInvalidArgument,
          "bias is '", config.bias, "'; expected none, all or lora_only");
  const AdapterNames present = adapter_names(model);
  require(std::find(present.begin(), present.end(), name) == present.end(), Status::kAlreadyExists,
          "the model has an adapter '", name, "'; expected another name, or accel_module_remove_adapter() before");
  const std::vector<std::string> found = names_of_modules(model, config.modules_to_save);
  for (const std::string& module : config.modules_to_save)
    require(std::find(found.begin(), found.end(), module) != found.end(), Status::kNotFound, "modules_to_save has '",
            module, "', which fits no module of the model; expected the end of a name, such as 'lm_head'");
  const std::vector<LoraTarget> targets = lora_targets(model, config);
  std::vector<std::string> layers;
  for (const LoraTarget& target : targets) layers.push_back(target.name);
  for (const auto& [path, parameter] : named_parameters(model))
    if (!is_of_adapter(path)) parameter.set_requires_grad(is_trained_beside(path, config, layers));
  const auto kept = std::make_shared<const LoraConfig>(config);
  for (const LoraTarget& target : targets) Lora::attach(*target.projection, name, target.shape, kept);
  set_active_adapters(model, {name});
  return layers;
}

AdapterNames adapter_names(const Module& model) {
  return names_where(model, [](const Lora&) { return true; });
}

AdapterNames active_adapters(const Module& model) {
  return names_where(model, [](const Lora& lora) { return lora.is_active(); });
}

void set_active_adapters(Module& model, const AdapterNames& names) {
  for (const std::string& name : names) require_adapter(model, name);
  for_each_lora(model, [&](const std::string&, Projection&, Lora& lora) {
    lora.set_active(std::find(names.begin(), names.end(), lora.name()) != names.end());
  });
}

void merge_adapters(Module& model) {
  for_each_lora(model, [](const std::string& layer, Projection& projection, Lora& lora) {
    if (lora.is_active()) require_whole(layer, projection, lora);
  });
  for_each_lora(model, [](const std::string& layer, Projection& projection, Lora& lora) {
    if (lora.is_active()) lora.merge(projection, layer);
  });
}

void unmerge_adapters(Module& model) {
  struct Merged {
    std::string layer;
    Projection* projection;
    Lora* lora;
  };
  std::vector<Merged> merged;
  for_each_lora(model, [&](const std::string& layer, Projection& projection, Lora& lora) {
    if (!lora.is_merged()) return;
    require_whole(layer, projection, lora);
    merged.push_back({layer, &projection, &lora});
  });
  // The last one that was merged goes first.
  for (auto entry = merged.rbegin(); entry != merged.rend(); ++entry)
    entry->lora->unmerge(*entry->projection, entry->layer);
}

NamedTensors without_merged_adapters(const Module& model, const NamedTensors& state) {
  const AdapterNames merged = names_where(model, [](const Lora& lora) { return lora.is_merged(); });
  const auto is_merged = [&merged](const std::string& path) {
    return is_of_adapter(path) && std::any_of(merged.begin(), merged.end(), [&path](const std::string& name) {
             return ends_with(path, kept_end(name));
           });
  };
  NamedTensors kept;
  std::copy_if(state.begin(), state.end(), std::back_inserter(kept),
               [&is_merged](const auto& entry) { return !is_merged(entry.first); });
  return kept;
}

void remove_adapter(Module& model, const std::string& name) {
  require_adapter(model, name);
  for_each_lora(model, [&](const std::string& layer, Projection&, Lora& lora) {
    require(lora.name() != name || !lora.is_merged(), Status::kInvalidState, "the adapter '", name,
            "' is merged into '", layer, "'; expected accel_module_unmerge_adapters() before it is removed");
  });
  for_each_lora(model, [&](const std::string&, Projection& projection, Lora& lora) {
    if (lora.name() == name) Lora::detach(projection, name);
  });
}

AddedAdapter find_adapter(const Module& model, const std::string& name) {
  require_adapter(model, name);
  AddedAdapter added;
  for_each_lora(model, [&](const std::string& layer, Projection&, Lora& lora) {
    if (lora.name() != name) return;
    added.config = lora.config();
    added.layers.push_back(layer);
    added.is_active = lora.is_active();
    added.is_merged = lora.is_merged();
  });
  return added;
}

std::vector<std::string> adapter_layers(const std::string& name, const NamedTensors& state) {
  std::vector<std::string> layers;
  const std::string end = kFirstFactors + kept_end(name);
  for (const auto& [path, tensor] : state)
    if (ends_with(path, end)) layers.push_back(path.substr(0, path.size() - end.size()));
  return layers;
}

std::vector<std::string> names_of_modules(const Module& model, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  const NamedModules modules = named_modules(model);
  std::copy_if(names.begin(), names.end(), std::back_inserter(found), [&](const std::string& name) {
    return std::any_of(modules.begin(), modules.end(), [&](const auto& entry) {
      return !is_of_adapter(entry.first) && ends_with_any(entry.first, {name});
    });
  });
  return found;
}

bool is_saved_with_adapter(const AddedAdapter& added, const std::string& name, const std::string& path) {
  if (is_of_adapter(path)) return ends_with(path, kept_end(name));
  return is_trained_beside(path, *added.config, added.layers);
}

NamedTensors adapter_tensors(const Module& model, const std::string& name, const NamedTensors& state) {
  AddedAdapter added = find_adapter(model, name);
  added.layers = adapter_layers(name, state);
  NamedTensors tensors;
  for (const auto& [path, tensor] : state) {
    if (!is_saved_with_adapter(added, name, path)) continue;
    if (!is_of_adapter(path)) {
      tensors.emplace_back(in_files(path, added.layers), tensor);
      continue;
    }
    const std::string kept = path.substr(0, path.size() - kept_end(name).size());
    tensors.emplace_back(ends_with(kept, kSavedMagnitudes) ? kept : kept + ".weight", tensor);
  }
  return tensors;
}

NamedTensors adapter_tensors(const Module& model, const std::string& name) {
  return adapter_tensors(model, name, named_parameters(model));
}

void load_adapter_tensors(Module& model, const std::string& name, const NamedTensors& tensors) {
  std::unordered_map<std::string, at::Tensor> given(tensors.begin(), tensors.end());
  const NamedTensors places = adapter_tensors(model, name);
  for (const auto& [path, parameter] : places) {
    const auto found = given.find(path);
    require(found != given.end(), Status::kNotFound, "the adapter '", name, "' lacks the tensor '", path,
            "'; expected one of each layer that its configuration names");
    require(found->second.sizes() == parameter.sizes(), Status::kShapeMismatch, "the tensor '", path,
            "' of the adapter '", name, "' is ", found->second.sizes(), "; expected ", parameter.sizes());
  }
  for (const auto& one : tensors)
    require(std::any_of(places.begin(), places.end(), [&](const auto& place) { return place.first == one.first; }),
            Status::kNotFound, "the adapter '", name, "' has a tensor '", one.first,
            "', for which the model has no place; expected an adapter that was made for this model");
  const at::NoGradGuard no_grad;
  for (const auto& [path, parameter] : places) at::Tensor(parameter).copy_(given.at(path));
}

}  // namespace accel::nn
