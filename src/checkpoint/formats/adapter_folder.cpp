// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/adapter_folder.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "checkpoint/files/make_folders.hpp"
#include "checkpoint/formats/safetensors.hpp"
#include "nn/architectures/hub_names.hpp"
#include "nn/module_walks.hpp"
#include "os/regular_file.hpp"
#include "os/replaced_file.hpp"

namespace accel::checkpoint {
namespace {

constexpr const char* kTensorPrefix = "base_model.model.";
constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kTensorFile = "adapter_model.safetensors";

constexpr std::array kRead = {"r",
                              "lora_alpha",
                              "lora_dropout",
                              "target_modules",
                              "exclude_modules",
                              "bias",
                              "use_rslora",
                              "use_dora",
                              "init_lora_weights",
                              "rank_pattern",
                              "alpha_pattern",
                              "layers_to_transform",
                              "layers_pattern",
                              "modules_to_save",
                              "peft_type"};
// These say where an adapter was made, or how its first values were, or what its layers say themselves.
constexpr std::array kDescribing = {
    "task_type",    "base_model_name_or_path", "revision",          "peft_version",   "inference_mode",
    "auto_mapping", "megatron_core",           "qalora_group_size", "runtime_config", "fan_in_fan_out",
    "loftq_config", "ephemeral_gpu_offload"};

template <typename Names>
bool has_name(const Names& names, const std::string& name) {
  return std::any_of(names.begin(), names.end(), [&](const char* each) { return name == each; });
}

// null, false, and what is empty.
bool says_nothing(const Json& value) {
  return value.is_null() || (value.flag() != nullptr && !*value.flag()) ||
         (value.text() != nullptr && value.text()->empty()) || (value.items() != nullptr && value.items()->empty()) ||
         (value.members() != nullptr && value.members()->empty());
}

class ConfigReader {
 public:
  ConfigReader(const Json& config, const std::string& source) : config_(config), source_(source) {
    require(config.members() != nullptr, Status::kInvalidArgument, source, ": expected an object");
    for (const auto& [name, value] : *config.members())
      require(has_name(kRead, name) || has_name(kDescribing, name) || says_nothing(value), Status::kUnsupported, source,
              ": ", name, " is ", print_json(value), "; expected an adapter without it");
    const std::string type = json_text(config, "peft_type", "LORA");
    require(type == "LORA", Status::kUnsupported, source, ": peft_type is '", type, "'; expected LORA");
  }

  std::vector<std::string> texts(const char* name) const {
    std::vector<std::string> texts;
    const Json* const value = json_member(config_, name);
    if (value == nullptr) return texts;
    if (value->text() != nullptr) return {*value->text()};
    require(value->items() != nullptr, Status::kInvalidArgument, source_, ": ", name, " is ", print_json(*value),
            "; expected a list of names");
    for (const Json& item : *value->items()) {
      require(item.text() != nullptr, Status::kInvalidArgument, source_, ": ", name, " has ", print_json(item),
              "; expected names");
      texts.push_back(*item.text());
    }
    return texts;
  }

  // A text is a regular expression.
  nn::NamePattern pattern(const char* name) const {
    const Json* const value = json_member(config_, name);
    if (value != nullptr && value->text() != nullptr && *value->text() != "all-linear") return {{}, *value->text()};
    return {texts(name), ""};
  }

  std::vector<int64_t> integers(const char* name) const {
    const Json* const value = json_member(config_, name);
    if (value == nullptr) return {};
    std::vector<int64_t> integers;
    const Json::Items one = {*value};
    for (const Json& item : value->items() == nullptr ? one : *value->items()) {
      require(item.integer().has_value() && *item.integer() >= 0, Status::kInvalidArgument, source_, ": ", name,
              " has ", print_json(item), "; expected numbers of layers, from 0 on");
      integers.push_back(*item.integer());
    }
    return integers;
  }

  std::vector<std::pair<std::string, double>> numbers(const char* name) const {
    std::vector<std::pair<std::string, double>> numbers;
    const Json* const value = json_member(config_, name);
    if (value == nullptr) return numbers;
    require(value->members() != nullptr, Status::kInvalidArgument, source_, ": ", name, " is ", print_json(*value),
            "; expected an object of names and numbers");
    for (const auto& [pattern, number] : *value->members()) {
      require(number.number().has_value(), Status::kInvalidArgument, source_, ": ", name, " has ", print_json(number),
              " for '", pattern, "'; expected a number");
      numbers.emplace_back(pattern, *number.number());
    }
    return numbers;
  }

  nn::LoraStart start() const {
    const Json* const value = json_member(config_, "init_lora_weights");
    if (value == nullptr || (value->flag() != nullptr && *value->flag())) return nn::LoraStart::kZero;
    if (value->flag() != nullptr) return nn::LoraStart::kRandom;
    require(value->text() != nullptr && *value->text() == "gaussian", Status::kUnsupported, source_,
            ": init_lora_weights is ", print_json(*value), "; expected true, false or \"gaussian\"");
    return nn::LoraStart::kGaussian;
  }

 private:
  const Json& config_;
  const std::string& source_;
};

template <typename Texts>
Json json_list(const Texts& texts) {
  Json::Items items;
  for (const auto& text : texts) items.emplace_back(text);
  return Json(std::move(items));
}

Json json_integers(const std::vector<int64_t>& numbers) {
  Json::Items items;
  for (const int64_t number : numbers) items.push_back(Json::number(number));
  return Json(std::move(items));
}

template <typename Number>
Json json_numbers(const std::vector<std::pair<std::string, Number>>& numbers) {
  Json::Members members;
  for (const auto& [name, number] : numbers) members.emplace_back(name, Json::number(number));
  return Json(std::move(members));
}

Json json_pattern(const nn::NamePattern& pattern) {
  if (!pattern.expression.empty()) return Json(pattern.expression);
  return pattern.endings.empty() ? Json() : json_list(pattern.endings);
}

Json json_start(nn::LoraStart start) {
  return start == nn::LoraStart::kGaussian ? Json("gaussian") : Json(start == nn::LoraStart::kZero);
}

// Files have the names of the hub, also those of modules that have other names here.
std::string name_in_files(const nn::HubNames& names, const std::string& path, const at::Tensor& tensor) {
  const std::vector<nn::HubPart> parts = names.parts_of(path, tensor.sizes());
  return kTensorPrefix + (parts.size() == 1 && parts.front().expert < 0 ? parts.front().name : path);
}

NamedTensors with_own_names(const nn::Module& model, const std::string& adapter, const NamedTensors& tensors) {
  const nn::HubNames names(model);
  std::unordered_map<std::string, std::string> own;
  for (const auto& [path, tensor] : nn::adapter_tensors(model, adapter))
    own.emplace(name_in_files(names, path, tensor), path);
  NamedTensors renamed;
  for (const auto& [name, tensor] : tensors) {
    const auto found = own.find(name);
    renamed.emplace_back(found == own.end() ? name.substr(std::string_view(kTensorPrefix).size()) : found->second,
                         tensor);
  }
  return renamed;
}

bool is_conv1d(const nn::Module& model, const std::string& layer) {
  return dynamic_cast<const nn::Projection&>(nn::module_at(model, layer)).output_dim() == 1;
}

}  // namespace

nn::LoraConfig read_adapter_config(const Json& config, const std::string& source) {
  const ConfigReader reader(config, source);
  nn::LoraConfig read;
  read.shape.rank = json_integer(config, "r", read.shape.rank);
  read.shape.dropout = json_number(config, "lora_dropout", 0);
  read.shape.is_dora = json_flag(config, "use_dora", false);
  read.shape.start = reader.start();
  read.alpha = json_number(config, "lora_alpha", read.alpha);
  read.divides_by_root = json_flag(config, "use_rslora", false);
  read.targets = reader.pattern("target_modules");
  read.excluded = reader.pattern("exclude_modules");
  read.layers = reader.integers("layers_to_transform");
  read.layers_patterns = reader.texts("layers_pattern");
  for (const auto& [pattern, rank] : reader.numbers("rank_pattern")) {
    require(rank >= 1 && rank <= 1 << 20 && rank == static_cast<double>(static_cast<int64_t>(rank)),
            Status::kInvalidArgument, source, ": rank_pattern has ", rank, " for '", pattern,
            "'; expected an integer from 1");
    read.ranks.emplace_back(pattern, static_cast<int64_t>(rank));
  }
  read.alphas = reader.numbers("alpha_pattern");
  read.bias = json_text(config, "bias", "none");
  read.modules_to_save = reader.texts("modules_to_save");
  return read;
}

Json adapter_config(const nn::Module& model, const std::string& name, const std::vector<std::string>& layers) {
  const nn::AddedAdapter added = nn::find_adapter(model, name);
  const nn::LoraConfig& config = *added.config;
  const bool names_all = config.targets.endings == std::vector<std::string>{"all-linear"};
  Json::Members members;
  const auto add = [&members](const char* key, Json value) { members.emplace_back(key, std::move(value)); };
  add("peft_type", Json("LORA"));
  add("task_type", Json());
  add("base_model_name_or_path", Json());
  add("inference_mode", Json(true));
  add("r", Json::number(config.shape.rank));
  add("lora_alpha", Json::number(config.alpha));
  add("lora_dropout", Json::number(config.shape.dropout));
  add("target_modules", names_all ? json_list(layers) : json_pattern(config.targets));
  add("exclude_modules", json_pattern(config.excluded));
  add("fan_in_fan_out", Json(is_conv1d(model, added.layers.front())));
  add("bias", Json(config.bias));
  add("use_rslora", Json(config.divides_by_root));
  add("use_dora", Json(config.shape.is_dora));
  add("init_lora_weights", json_start(config.shape.start));
  add("modules_to_save", config.modules_to_save.empty() ? Json() : json_list(config.modules_to_save));
  add("layers_to_transform", config.layers.empty() ? Json() : json_integers(config.layers));
  add("layers_pattern", config.layers_patterns.empty() ? Json() : json_list(config.layers_patterns));
  add("rank_pattern", json_numbers(config.ranks));
  add("alpha_pattern", json_numbers(config.alphas));
  return Json(std::move(members));
}

void save_adapter(const nn::Module& model, const std::string& name, const std::string& folder) {
  save_adapter(model, name, folder, nn::named_parameters(model));
}

void save_adapter(const nn::Module& model, const std::string& name, const std::string& folder,
                  const nn::NamedTensors& state) {
  NamedTensors tensors;
  const nn::HubNames names(model);
  for (const auto& [path, tensor] : nn::adapter_tensors(model, name, state))
    tensors.emplace_back(name_in_files(names, path, tensor), tensor);
  const std::string config = print_json(adapter_config(model, name, nn::adapter_layers(name, state))) + "\n";
  make_folders(folder);
  save_safetensors(folder + "/" + kTensorFile, tensors, {{"format", "pt"}});
  replace_file(folder + "/" + kConfigFile, config);
}

std::vector<std::string> load_adapter(nn::Module& model, const std::string& name, const std::string& folder) {
  const std::string path = folder + "/" + kConfigFile;
  nn::LoraConfig config = read_adapter_config(parse_json(RegularFile(path).read(), path), path);
  // PEFT lists the heads of all classes of models there.
  const std::vector<std::string> saved = nn::names_of_modules(model, config.modules_to_save);
  if (!saved.empty()) config.modules_to_save = saved;
  const NamedTensors tensors = load_safetensors(folder + "/" + kTensorFile).tensors;
  for (const auto& [tensor_name, tensor] : tensors)
    require(starts_with(tensor_name, kTensorPrefix), Status::kCorrupt, folder, "/", kTensorFile, ": a tensor is '",
            tensor_name, "'; expected names that begin with ", kTensorPrefix);
  const nn::AdapterNames former = nn::active_adapters(model);
  std::vector<std::string> layers = nn::add_lora(model, name, config);
  try {
    nn::load_adapter_tensors(model, name, with_own_names(model, name, tensors));
  } catch (...) {
    nn::remove_adapter(model, name);
    nn::set_active_adapters(model, former);
    throw;
  }
  return layers;
}

}  // namespace accel::checkpoint
