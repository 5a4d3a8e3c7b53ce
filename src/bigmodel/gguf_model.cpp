// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/gguf_model.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "bigmodel/load_and_dispatch.hpp"
#include "checkpoint/formats/gguf/gguf_blocks.hpp"
#include "checkpoint/formats/gguf/gguf_header.hpp"
#include "nn/architectures/architecture.hpp"
#include "nn/creation_device.hpp"
#include "nn/quantized/quantized_model.hpp"
#include "os/mapped_file.hpp"

namespace accel::bigmodel {
namespace {

using checkpoint::GgufTensorEntry;
using checkpoint::GgufType;

struct GgufFamily {
  const char* architecture;
  const char* model_type;
  const char* class_name;
  bool interleaves_heads;  // rows of queries and keys: the halves that rotate together are neighbours
};

constexpr GgufFamily kFamilies[] = {
    {"llama", "llama", "LlamaForCausalLM", true},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", false},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", false},
};

// The names of modules of a layer, and of those outside of layers.
constexpr std::pair<const char*, const char*> kLayerNames[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
constexpr std::pair<const char*, const char*> kModelNames[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};
constexpr const char* kTable = "token_embd.weight";
constexpr const char* kHead = "output.weight";
constexpr const char* kLayerPrefix = "blk.";

const GgufFamily& family_of(const Json& metadata, const std::string& source) {
  const std::string name = json_text(metadata, "general.architecture", "");
  const auto* found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                   [&](const GgufFamily& family) { return name == family.architecture; });
  require(found != std::end(kFamilies), Status::kUnsupported, "'", source, "' has the architecture '", name,
          "'; expected llama, qwen2 or qwen3");
  return *found;
}

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; nothing for a name that the families lack.
std::optional<std::string> hub_name(const std::string& name) {
  const size_t end = name.rfind('.');
  if (end == std::string::npos) return std::nullopt;
  const std::string member = name.substr(end);
  for (const auto& [from, to] : kModelNames)
    if (name.compare(0, end, from) == 0) return to + member;
  if (!starts_with(name, kLayerPrefix)) return std::nullopt;
  const size_t begin = std::string(kLayerPrefix).size(), dot = name.find('.', begin);
  if (dot == std::string::npos || dot >= end) return std::nullopt;
  const std::string module = name.substr(dot + 1, end - dot - 1);
  for (const auto& [from, to] : kLayerNames)
    if (module == from) return "model.layers." + name.substr(begin, dot - begin + 1) + to + member;
  return std::nullopt;
}

class GgufReader {
 public:
  explicit GgufReader(const std::string& path)
      : file_(path),
        header_(checkpoint::parse_gguf_header(file_.text(), path)),
        family_(family_of(header_.metadata, path)) {}

  nn::ModulePtr load() {
    const GgufTensorEntry* const table = find(kTable);
    require(table != nullptr && table->shape.size() == 2, Status::kNotFound, "'", file_.path(), "' lacks the tensor '",
            kTable, "'; expected the table of tokens");
    config_ = config_of_gguf(header_.metadata, find(kHead) != nullptr, table->shape[0], file_.path());
    nn::ModulePtr model;
    {
      const nn::CreationDevice meta(c10::Device(c10::kMeta), false);
      model = nn::module_from_config(print_json(config_));
    }
    model->train(false);
    nn::NamedTensors weights;
    std::vector<std::pair<std::string, nn::QuantizedTensors>> quantized;
    for (const GgufTensorEntry& entry : header_.tensors) {
      const std::optional<std::string> name = hub_name(entry.name);
      require(name.has_value(), Status::kUnsupported, "'", file_.path(), "' has a tensor '", entry.name, "', which no ",
              family_.class_name, " has here; expected the tensors of one without it");
      const bool is_tied_table = entry.name == kTable && find(kHead) == nullptr;
      if (!checkpoint::is_quantized(entry.type) || entry.shape.size() != 2 || is_tied_table)
        weights.emplace_back(*name, numbers(entry));
      else
        quantized.emplace_back(name->substr(0, name->rfind('.')), nn::grouped_tensors(codes(entry), at::kFloat));
    }
    nn::install_quantized(*model, quantized, weights);
    const nn::LoadReport report = load_checkpoint_in_model(*model, weights, nullptr, {});
    require(report.missing.empty(), Status::kNotFound, "'", file_.path(), "' has no weights for ",
            report.missing.empty() ? "" : report.missing.front(), "; expected those of all parameters");
    return model;
  }

 private:
  const GgufTensorEntry* find(const std::string& name) const {
    const auto found = std::find_if(header_.tensors.begin(), header_.tensors.end(),
                                    [&](const GgufTensorEntry& entry) { return entry.name == name; });
    return found == header_.tensors.end() ? nullptr : &*found;
  }

  // The row of the file for each row of the hub; undefined if they are the same.
  at::Tensor rows_of_hub(const GgufTensorEntry& entry) const {
    const bool is_query = entry.name.find(".attn_q.") != std::string::npos;
    const bool is_key = entry.name.find(".attn_k.") != std::string::npos;
    if (!family_.interleaves_heads || (!is_query && !is_key)) return {};
    const int64_t heads = json_integer(config_, is_query ? "num_attention_heads" : "num_key_value_heads", 1);
    require(entry.shape[0] % (2 * heads) == 0, Status::kShapeMismatch, "the tensor '", entry.name, "' of '",
            file_.path(), "' has ", entry.shape[0], " rows; expected a multiple of twice its ", heads, " heads");
    return at::arange(entry.shape[0], at::kLong).view({heads, -1, 2}).transpose(1, 2).reshape({-1});
  }

  at::Tensor in_order_of_hub(const at::Tensor& tensor, const GgufTensorEntry& entry) const {
    const at::Tensor rows = rows_of_hub(entry);
    return rows.defined() ? tensor.index_select(0, rows) : tensor;
  }

  nn::CodedMatrix codes(const GgufTensorEntry& entry) const {
    const int64_t rows = entry.shape[0], columns = entry.shape[1];
    const kernels::WeightFormat format = checkpoint::weight_format(entry.type);
    const int64_t groups = kernels::groups_of_row(format, columns);
    nn::CodedMatrix matrix{format, entry.shape, false, {}, {}, {}, {}};
    matrix.codes = at::empty({rows, kernels::row_bytes(format, columns)}, at::kByte);
    matrix.scales = at::empty({rows, groups}, at::kFloat);
    if (format.has_offsets) matrix.offsets = at::empty({rows, groups}, at::kFloat);
    checkpoint::split_blocks(entry.type, reinterpret_cast<const uint8_t*>(file_.data()) + entry.begin,
                             rows * columns / checkpoint::block_of(entry.type).numbers,
                             matrix.codes.mutable_data_ptr<uint8_t>(), matrix.scales.mutable_data_ptr<float>(),
                             format.has_offsets ? matrix.offsets.mutable_data_ptr<float>() : nullptr);
    for (at::Tensor* const tensor : {&matrix.codes, &matrix.scales, &matrix.offsets})
      if (tensor->defined()) *tensor = in_order_of_hub(*tensor, entry);
    return matrix;
  }

  // In float32.
  at::Tensor numbers(const GgufTensorEntry& entry) const {
    if (checkpoint::is_quantized(entry.type)) {
      GgufTensorEntry matrix = entry;
      if (entry.shape.size() != 2) matrix.shape = {1, c10::multiply_integers(entry.shape)};
      return codes(matrix).values(at::kFloat).view(entry.shape);
    }
    const at::ScalarType dtype = entry.type == GgufType::kFloat32   ? at::kFloat
                                 : entry.type == GgufType::kFloat16 ? at::kHalf
                                                                    : at::kBFloat16;
    at::Tensor tensor = at::empty(entry.shape, dtype);
    std::memcpy(tensor.mutable_data_ptr(), file_.data() + entry.begin, entry.end - entry.begin);
    return in_order_of_hub(tensor.to(at::kFloat), entry);
  }

  MappedFile file_;
  checkpoint::GgufHeader header_;
  const GgufFamily& family_;
  Json config_;
};

}  // namespace

Json config_of_gguf(const Json& metadata, bool has_head, int64_t vocabulary, const std::string& source) {
  const GgufFamily& family = family_of(metadata, source);
  const std::string prefix = std::string(family.architecture) + ".";
  const auto find = [&](const std::string& key) { return json_member(metadata, prefix + key); };
  const std::string scaling = json_text(metadata, (prefix + "rope.scaling.type").c_str(), "none");
  require(scaling == "none", Status::kUnsupported, "'", source, "' has ", prefix, "rope.scaling.type '", scaling,
          "'; expected 'none'");
  require(find("expert_count") == nullptr, Status::kUnsupported, "'", source, "' has experts, as ", prefix,
          "expert_count says; expected a model without them");
  Json::Members config = {{"model_type", Json(family.model_type)},
                          {"architectures", Json(Json::Items{Json(family.class_name)})},
                          {"vocab_size", Json::number(vocabulary)},
                          {"tie_word_embeddings", Json(!has_head)}};
  const auto add = [&](const char* name, const std::string& key, bool is_needed) {
    const Json* const value = find(key);
    require(value != nullptr || !is_needed, Status::kCorrupt, "'", source, "' lacks ", prefix, key,
            "; expected the sizes of the model in its metadata");
    if (value != nullptr) config.emplace_back(name, *value);
  };
  add("hidden_size", "embedding_length", true);
  add("num_hidden_layers", "block_count", true);
  add("intermediate_size", "feed_forward_length", true);
  add("num_attention_heads", "attention.head_count", true);
  add("num_key_value_heads",
      find("attention.head_count_kv") == nullptr ? "attention.head_count" : "attention.head_count_kv", true);
  add("head_dim", "attention.key_length", false);
  add("max_position_embeddings", "context_length", false);
  add("rms_norm_eps", "attention.layer_norm_rms_epsilon", true);
  add("rope_theta", "rope.freq_base", false);
  return Json(std::move(config));
}

nn::ModulePtr load_gguf_model(const std::string& path) { return GgufReader(path).load(); }

}  // namespace accel::bigmodel
