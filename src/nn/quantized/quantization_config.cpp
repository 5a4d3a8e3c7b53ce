// SPDX-License-Identifier: Apache-2.0
#include "nn/quantized/quantization_config.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/projection.hpp"
#include "nn/module_walks.hpp"
#include "nn/quantized/packed_format.hpp"
#include "nn/quantized/quantized_matrix.hpp"
#include "tensor/dtype.hpp"

namespace accel::nn {
namespace {

constexpr const char* kMember = "quantization_config";
constexpr const char* kMethod = "quant_method";

// Fields that change nothing of what files have.
constexpr std::array kDescribing = {"_load_in_4bit", "_load_in_8bit", "llm_int8_enable_fp32_cpu_offload"};
constexpr std::array kRead = {"quant_method",
                              "load_in_4bit",
                              "load_in_8bit",
                              "llm_int8_threshold",
                              "llm_int8_skip_modules",
                              "llm_int8_has_fp16_weight",
                              "bnb_4bit_compute_dtype",
                              "bnb_4bit_quant_type",
                              "bnb_4bit_use_double_quant",
                              "bnb_4bit_quant_storage",
                              "kind",
                              "kinds",
                              "group",
                              "offsets",
                              "double_quantization",
                              "compute_dtype",
                              "skip_modules"};

template <typename Names>
bool is_among(const Names& names, const std::string& name) {
  return std::any_of(names.begin(), names.end(), [&](const char* each) { return name == each; });
}

std::optional<at::ScalarType> dtype_in(const Json& config, const char* key) {
  const std::string name = json_text(config, key, "");
  if (name.empty()) return std::nullopt;
  return tensor::dtype_from_name(name);
}

std::optional<std::vector<std::string>> names_at(const Json& config, const char* key) {
  const Json* const names = json_member(config, key);
  if (names == nullptr) return std::nullopt;
  std::vector<std::string> found;
  require(names->items() != nullptr, Status::kInvalidArgument, key, " is ", print_json(*names),
          "; expected a list of names");
  for (const Json& name : *names->items()) {
    require(name.text() != nullptr, Status::kInvalidArgument, key, " has ", print_json(name), "; expected names");
    found.push_back(*name.text());
  }
  return found;
}

QuantizationOptions read_bitsandbytes(const Json& config) {
  QuantizationOptions options;
  const bool is_4bit = json_flag(config, "load_in_4bit", false), is_8bit = json_flag(config, "load_in_8bit", false);
  require(is_4bit != is_8bit, Status::kInvalidArgument, "load_in_4bit is ", is_4bit ? "true" : "false",
          " and load_in_8bit too; expected one of them to be true");
  require(!json_flag(config, "llm_int8_has_fp16_weight", false), Status::kUnsupported,
          "llm_int8_has_fp16_weight is true; expected false: weights are stored as codes");
  const std::string storage = json_text(config, "bnb_4bit_quant_storage", "uint8");
  require(storage == "uint8", Status::kUnsupported, "bnb_4bit_quant_storage is '", storage, "'; expected 'uint8'");
  options.skip_modules = names_at(config, "llm_int8_skip_modules");
  if (is_8bit) {
    options.kind = "llm_int8";
    options.outlier_threshold = json_number(config, "llm_int8_threshold", 6);
    return options;
  }
  options.kind = json_text(config, "bnb_4bit_quant_type", "fp4");
  require(options.kind == "fp4" || options.kind == "nf4", Status::kInvalidArgument, "bnb_4bit_quant_type is '",
          options.kind, "'; expected fp4 or nf4");
  options.has_double_quantization = json_flag(config, "bnb_4bit_use_double_quant", false);
  options.compute_dtype = dtype_in(config, "bnb_4bit_compute_dtype");
  return options;
}

QuantizationOptions read_own(const Json& config) {
  QuantizationOptions options;
  const std::vector<std::string> kinds = names_at(config, "kinds").value_or(std::vector<std::string>());
  // The state of each weight says which of several kinds it has.
  options.kind = json_text(config, "kind", kinds.empty() ? "" : kinds.front());
  options.group = json_integer(config, "group", 0);
  options.has_offsets = json_flag(config, "offsets", false);
  options.has_double_quantization = json_flag(config, "double_quantization", false);
  options.compute_dtype = dtype_in(config, "compute_dtype");
  options.skip_modules = names_at(config, "skip_modules");
  return options;
}

bool is_same_kind(const QuantizedKind& first, const QuantizedKind& second) {
  return first.name == second.name && first.format.group == second.format.group &&
         first.format.has_offsets == second.format.has_offsets &&
         first.has_double_quantization == second.has_double_quantization &&
         first.outlier_threshold == second.outlier_threshold && first.compute_dtype == second.compute_dtype;
}

// Whether files say of each layer which of the kinds it has: not of int8 by rows.
bool may_be_together(const QuantizedKind& first, const QuantizedKind& second) {
  return first.storage != WeightStorage::kRows && second.storage != WeightStorage::kRows &&
         first.compute_dtype == second.compute_dtype;
}

Json names_of(const std::vector<std::string>& names) {
  Json::Items items;
  for (const std::string& name : names) items.emplace_back(name);
  return Json(std::move(items));
}

Json for_bitsandbytes(const QuantizedKind& kind, const std::vector<std::string>& skipped) {
  const bool is_4bit = kind.storage == WeightStorage::kBlocks;
  Json::Members members;
  members.emplace_back(kMethod, Json("bitsandbytes"));
  members.emplace_back("load_in_4bit", Json(is_4bit));
  members.emplace_back("load_in_8bit", Json(!is_4bit));
  members.emplace_back("llm_int8_threshold", Json::number(is_4bit ? 6.0 : kind.outlier_threshold));
  members.emplace_back("llm_int8_skip_modules", names_of(skipped));
  members.emplace_back("llm_int8_enable_fp32_cpu_offload", Json(false));
  members.emplace_back("llm_int8_has_fp16_weight", Json(false));
  members.emplace_back("bnb_4bit_compute_dtype", Json(tensor::dtype_name(kind.compute_dtype.value_or(at::kFloat))));
  members.emplace_back("bnb_4bit_quant_type", Json(is_4bit ? kind.name : std::string("fp4")));
  members.emplace_back("bnb_4bit_use_double_quant", Json(kind.has_double_quantization));
  members.emplace_back("bnb_4bit_quant_storage", Json("uint8"));
  return Json(std::move(members));
}

Json of_own(const std::vector<QuantizedKind>& kinds, const std::vector<std::string>& skipped) {
  const QuantizedKind& kind = kinds.front();
  Json::Members members;
  members.emplace_back(kMethod, Json("accel"));
  if (kinds.size() > 1) {
    std::vector<std::string> names;
    for (const QuantizedKind& each : kinds)
      if (std::count(names.begin(), names.end(), each.name) == 0) names.push_back(each.name);
    members.emplace_back("kinds", names_of(names));
  } else {
    members.emplace_back("kind", Json(kind.name));
    members.emplace_back("group", Json::number(kind.format.group));
    members.emplace_back("offsets", Json(kind.format.has_offsets));
  }
  if (kind.compute_dtype) members.emplace_back("compute_dtype", Json(tensor::dtype_name(*kind.compute_dtype)));
  members.emplace_back("skip_modules", names_of(skipped));
  return Json(std::move(members));
}

}  // namespace

std::optional<QuantizationOptions> read_quantization_config(const Json& config) {
  const Json* const quantization = json_member(config, kMember);
  if (quantization == nullptr || quantization->members() == nullptr || quantization->members()->empty())
    return std::nullopt;
  const std::string method = json_text(*quantization, kMethod, "bitsandbytes");
  if (read_packed_format(config)) return std::nullopt;
  require(method == "bitsandbytes" || method == "accel", Status::kUnsupported, "quantization_config has quant_method '",
          method, "'; expected bitsandbytes, gptq or awq");
  for (const auto& [name, value] : *quantization->members())
    require(is_among(kRead, name) || is_among(kDescribing, name) || value.is_null(), Status::kUnsupported,
            "quantization_config has ", name, ": ", print_json(value), "; expected the fields of BitsAndBytesConfig");
  return method == "accel" ? read_own(*quantization) : read_bitsandbytes(*quantization);
}

Json quantization_config(const Module& model) {
  std::vector<QuantizedKind> kinds;
  std::vector<std::string> skipped;
  for (const auto& [path, module] : named_modules(model)) {
    const QuantizedMatrix* const matrix = quantized_matrix(*module);
    if (matrix == nullptr) {
      const auto* const projection = dynamic_cast<const Projection*>(module);
      if (projection != nullptr && path.find(".lora_") == std::string::npos) skipped.push_back(path);
      continue;
    }
    const QuantizedKind& kind = matrix->state().kind;
    const bool is_known =
        std::any_of(kinds.begin(), kinds.end(), [&](const QuantizedKind& each) { return is_same_kind(each, kind); });
    if (is_known) continue;
    kinds.push_back(kind);
    require(kinds.size() == 1 || may_be_together(kinds.front(), kind), Status::kUnsupported, "'", path,
            "' is quantized to ", kind.name, " and other layers to ", kinds.front().name,
            " or with other options; expected one kind of int8 and one compute dtype in a model that is saved with its "
            "configuration");
  }
  if (kinds.empty()) return Json();
  // A threshold of 0 is bitsandbytes' plain int8, whose inputs are rounded.
  const QuantizedKind& first = kinds.front();
  const bool is_theirs = first.storage == WeightStorage::kBlocks || first.name == "llm_int8";
  return is_theirs && kinds.size() == 1 ? for_bitsandbytes(first, skipped) : of_own(kinds, skipped);
}

Json with_quantization_config(const Json& config, const Json& quantization) {
  Json::Members members;
  if (config.members() != nullptr)
    for (const auto& [name, value] : *config.members())
      if (name != kMember) members.emplace_back(name, value);
  if (!quantization.is_null()) members.emplace_back(kMember, quantization);
  return Json(std::move(members));
}

}  // namespace accel::nn
