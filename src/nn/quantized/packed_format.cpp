// SPDX-License-Identifier: Apache-2.0
#include "nn/quantized/packed_format.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "base/error.hpp"
#include "base/text_ends.hpp"

namespace accel::nn {
namespace {

constexpr std::array kFieldsOfLayouts = {"quant_method", "bits",       "group_size", "checkpoint_format", "format",
                                         "version",      "pack_dtype", "dynamic",    "is_marlin_format",  "zero_point"};
// Fields about how codes were found, how other programs compute, and what the tensors say themselves: act-order is in
// g_idx, and zeros are there with sym, too.
constexpr std::array kFieldsOfTools = {"act_group_aware",
                                       "backend",
                                       "batch_size",
                                       "block_name_to_quantize",
                                       "cache_block_outputs",
                                       "damp_auto_increment",
                                       "damp_percent",
                                       "dataset",
                                       "desc_act",
                                       "disable_exllama",
                                       "do_fuse",
                                       "exllama_config",
                                       "fuse_max_seq_len",
                                       "hyb_act",
                                       "lm_head",
                                       "max_input_length",
                                       "meta",
                                       "model_file_base_name",
                                       "model_name_or_path",
                                       "model_seqlen",
                                       "module_name_preceding_first_block",
                                       "modules_in_block_to_quantize",
                                       "modules_to_fuse",
                                       "modules_to_not_convert",
                                       "mse",
                                       "pad_token_id",
                                       "quantizer",
                                       "static_groups",
                                       "sym",
                                       "tokenizer",
                                       "true_sequential"};

bool is_known_field(const std::string& name) {
  const auto is_name = [&](const char* each) { return name == each; };
  return std::any_of(kFieldsOfLayouts.begin(), kFieldsOfLayouts.end(), is_name) ||
         std::any_of(kFieldsOfTools.begin(), kFieldsOfTools.end(), is_name) ||
         starts_with(name, "use_");  // which kernels other programs use
}

// The layout that the fields say, in lower case; each of them that is there says it.
std::string layout_in(const Json& quantization, std::initializer_list<const char*> fields,
                      std::initializer_list<const char*> known) {
  std::string layout;
  for (const char* const field : fields) {
    std::string said = json_text(quantization, field, "");
    if (said.empty()) continue;
    std::transform(said.begin(), said.end(), said.begin(), [](unsigned char c) { return std::tolower(c); });
    require(std::find(known.begin(), known.end(), said) != known.end(), Status::kUnsupported,
            "quantization_config has ", field, " '", said, "'; expected ", *known.begin(),
            known.size() > 1 ? text(" or ", *(known.end() - 1)) : "");
    if (layout.empty()) layout = said;
  }
  return layout.empty() ? *known.begin() : layout;
}

// Rules for layers by their names may leave layers out, which have ordinary weights then.
void check_rules(const Json& quantization) {
  const Json* const rules = json_member(quantization, "dynamic");
  if (rules == nullptr || rules->members() == nullptr) return;
  for (const auto& [pattern, rule] : *rules->members())
    require(starts_with(pattern, "-:"), Status::kUnsupported, "quantization_config has a rule for '", pattern,
            "' in dynamic; expected one format for all layers, and rules that begin with '-:'");
}

PackedFormat gptq_format(const Json& quantization) {
  PackedFormat format;
  const std::string layout = layout_in(quantization, {"checkpoint_format", "format", "version"}, {"gptq", "gptq_v2"});
  require(!json_flag(quantization, "is_marlin_format", false), Status::kUnsupported,
          "quantization_config has is_marlin_format: true; expected the layout of gptq");
  check_rules(quantization);
  format.zero_offset = layout == "gptq" ? 1 : 0;
  return format;
}

PackedFormat awq_format(const Json& quantization) {
  PackedFormat format;
  layout_in(quantization, {"version", "checkpoint_format", "format"}, {"gemm"});
  require(json_flag(quantization, "zero_point", true), Status::kUnsupported,
          "quantization_config has zero_point: false; expected files with zeros");
  format.axis = WordAxis::kOutputs;
  return format;
}

}  // namespace

std::optional<PackedFormat> read_packed_format(const Json& config) {
  const Json* const quantization = json_member(config, "quantization_config");
  if (quantization == nullptr || quantization->members() == nullptr) return std::nullopt;
  const std::string method = json_text(*quantization, "quant_method", "");
  if (method != "gptq" && method != "awq") return std::nullopt;
  for (const auto& [name, value] : *quantization->members())
    require(is_known_field(name) || value.is_null(), Status::kUnsupported, "quantization_config has ", name, ": ",
            print_json(value), "; expected the fields of ", method == "gptq" ? "GPTQConfig" : "AwqConfig");
  PackedFormat format = method == "gptq" ? gptq_format(*quantization) : awq_format(*quantization);
  const std::string words = json_text(*quantization, "pack_dtype", "int32");
  require(words == "int32", Status::kUnsupported, "quantization_config has pack_dtype '", words, "'; expected int32");
  format.bits = json_integer(*quantization, "bits", 4);
  require(format.bits == 4 || (format.bits == 8 && method == "gptq"), Status::kUnsupported,
          "quantization_config has bits: ", format.bits, "; expected 4", method == "gptq" ? " or 8" : "");
  const int64_t group = json_integer(*quantization, "group_size", 128);
  require(group == -1 || group > 0, Status::kInvalidArgument, "quantization_config has group_size: ", group,
          "; expected a positive number, or -1 for all inputs");
  format.group = group == -1 ? 0 : group;
  return format;
}

}  // namespace accel::nn
