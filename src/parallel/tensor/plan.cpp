// SPDX-License-Identifier: Apache-2.0
#include "parallel/tensor/plan.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/error.hpp"
#include "base/split_text.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"

namespace accel::parallel {
namespace {

constexpr SplitStyle kStyles[] = {
    {"colwise", SplitAlong::kOutputs, false, false, false, false},
    {"colwise_gather_output", SplitAlong::kOutputs, false, true, false, false},
    {"colwise_rep", SplitAlong::kOutputs, false, true, false, false},
    {"packed_colwise", SplitAlong::kOutputs, false, false, true, false},
    {"rowwise", SplitAlong::kInputs, false, false, false, false},
    {"rowwise_split_input", SplitAlong::kInputs, true, false, false, false},
    {"rowwise_rep", SplitAlong::kInputs, true, false, false, false},
    {"packed_rowwise", SplitAlong::kInputs, false, false, true, false},
    {"embedding_rowwise", SplitAlong::kRows, false, true, false, false},
    {"embedding_colwise", SplitAlong::kColumns, false, true, false, false},
    {"replicate", SplitAlong::kNothing, false, false, false, false},
    {"split_output", SplitAlong::kNothing, false, false, false, false},
    {"sequence_parallel", SplitAlong::kNothing, false, false, false, true},
    {"replicated_with_grad_allreduce", SplitAlong::kNothing, false, false, false, true},
    {"moe_tp_experts", SplitAlong::kExpertFeatures, false, false, false, false},
    {"grouped_gemm", SplitAlong::kExperts, false, false, false, false},
    {"ep_dispatch_experts", SplitAlong::kExperts, false, false, false, false},
    {"ep_router", SplitAlong::kNothing, false, false, false, false},
};

std::string known_styles() {
  std::string names;
  for (const SplitStyle& style : kStyles) names += (names.empty() ? "" : ", ") + std::string(style.name);
  return names;
}

const SplitStyle& find_style(std::string_view name, const std::string& rule) {
  const auto* const found =
      std::find_if(std::begin(kStyles), std::end(kStyles), [&](const SplitStyle& style) { return name == style.name; });
  require(found != std::end(kStyles), Status::kInvalidArgument, "rule '", rule, "' of the plan has the style '", name,
          "'; expected one of ", known_styles());
  return *found;
}

int64_t read_size(const std::string& text, const std::string& rule, const char* expected) {
  int64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  require(error == std::errc() && end == text.data() + text.size() && size > 0, Status::kInvalidArgument, "rule '",
          rule, "' of the plan has '", text, "' in its brackets; expected ", expected);
  return size;
}

// The text in brackets at the end of a style, which is taken off; nothing: there are none.
std::optional<std::string> take_brackets(std::string& style, char opening, char closing, const std::string& rule) {
  const size_t begin = style.find(opening);
  if (begin == std::string::npos) return std::nullopt;
  require(style.back() == closing, Status::kInvalidArgument, "rule '", rule, "' of the plan has no closing bracket");
  std::string inside = style.substr(begin + 1, style.size() - begin - 2);
  style.resize(begin);
  return inside;
}

SplitRule read_rule(const std::string& text) {
  constexpr const char* kBlanks = " \t\r";
  const size_t blank = text.find_first_of(kBlanks), style_begin = text.find_first_not_of(kBlanks, blank);
  require(blank != std::string::npos && style_begin != std::string::npos, Status::kInvalidArgument, "rule '", text,
          "' of the plan has one part; expected a path and a style, such as 'layers.*.mlp.up_proj colwise'");
  SplitRule rule{text.substr(0, blank), nullptr, {}, 0, text};
  std::string style = text.substr(style_begin);
  if (const auto head_size = take_brackets(style, '[', ']', text))
    rule.head_size = read_size(*head_size, text, "the features of a head, such as colwise[64]");
  if (const auto sizes = take_brackets(style, '(', ')', text))
    for (const std::string& size : split_text(*sizes))
      rule.packed.push_back(
          read_size(size, text, "the number of packed tensors, or their sizes, such as packed_colwise(3)"));
  rule.style = &find_style(style, text);
  require(rule.head_size == 0 || rule.style->along == SplitAlong::kOutputs || rule.style->along == SplitAlong::kInputs,
          Status::kInvalidArgument, "rule '", text, "' of the plan has the features of a head; expected them with ",
          "colwise and rowwise alone");
  require(rule.style->is_packed != rule.packed.empty(), Status::kInvalidArgument, "rule '", text, "' of the plan has ",
          rule.packed.empty() ? "no" : "a", " number of packed tensors, which the packed styles and no others take; ",
          "expected packed_colwise(3), for example");
  return rule;
}

// Plans by the kind of a module, with paths from that module.
struct KindPlan {
  const char* kinds;  // with commas between them
  const char* rules;
  const char* between;  // rules of what is between split layers, where sequences are split; null: they cannot be
};
constexpr const char* kDecoderRules =
    "layers.*.self_attn.q_proj colwise; layers.*.self_attn.k_proj colwise; layers.*.self_attn.v_proj colwise; "
    "layers.*.self_attn.o_proj rowwise; layers.*.mlp.gate_proj colwise; layers.*.mlp.up_proj colwise; "
    "layers.*.mlp.down_proj rowwise; embed_tokens embedding_rowwise; "
    // Norms of the heads of a rank, and networks beside experts.
    "layers.*.self_attn.q_norm replicated_with_grad_allreduce; "
    "layers.*.self_attn.k_norm replicated_with_grad_allreduce; layers.*.mlp.shared_expert.gate_proj colwise; "
    "layers.*.mlp.shared_expert.up_proj colwise; layers.*.mlp.shared_expert.down_proj rowwise";
constexpr const char* kDecoderBetween =
    "layers.*.input_layernorm sequence_parallel; layers.*.post_attention_layernorm sequence_parallel; "
    "norm sequence_parallel; layers.*.mlp.gate sequence_parallel; layers.*.mlp.shared_expert_gate sequence_parallel";
constexpr KindPlan kKindPlans[] = {
    {"SelfAttention", "in_proj packed_colwise(3); out_proj rowwise", ""},
    {"GPT2Model",
     "h.*.attn.c_attn packed_colwise(3); h.*.attn.c_proj rowwise; h.*.mlp.c_fc colwise; h.*.mlp.c_proj rowwise; "
     "wte embedding_rowwise",
     "h.*.ln_1 sequence_parallel; h.*.ln_2 sequence_parallel; ln_f sequence_parallel; wpe split_output"},
    {"GPT2LMHeadModel", "lm_head colwise_gather_output", ""},
    {"LlamaModel,MistralModel,MixtralModel,Qwen2Model,Qwen2MoeModel,Qwen3Model,Qwen3MoeModel,StableLmModel",
     kDecoderRules, kDecoderBetween},
    {"Gemma2Model,Gemma3Model", kDecoderRules, nullptr},
    // The three packed tensors of an attention are its queries, keys and values.
    {"Phi3Model",
     "layers.*.self_attn.qkv_proj packed_colwise(3); layers.*.self_attn.o_proj rowwise; "
     "layers.*.mlp.gate_up_proj packed_colwise(2); layers.*.mlp.down_proj rowwise; embed_tokens embedding_rowwise",
     kDecoderBetween},
    // Its norms of queries and keys need all heads, which each rank computes.
    {"Olmo2Model",
     "layers.*.self_attn.q_proj colwise_gather_output; layers.*.self_attn.k_proj colwise_gather_output; "
     "layers.*.self_attn.v_proj colwise_gather_output; layers.*.self_attn.o_proj rowwise_split_input; "
     "layers.*.mlp.gate_proj colwise; layers.*.mlp.up_proj colwise; layers.*.mlp.down_proj rowwise; "
     "embed_tokens embedding_rowwise",
     "layers.*.post_attention_layernorm sequence_parallel; layers.*.post_feedforward_layernorm sequence_parallel; "
     "norm sequence_parallel"},
    {"GPTNeoXModel",
     "layers.*.attention.query_key_value colwise; layers.*.attention.dense rowwise; "
     "layers.*.mlp.dense_h_to_4h colwise; layers.*.mlp.dense_4h_to_h rowwise; embed_in embedding_rowwise",
     "layers.*.input_layernorm sequence_parallel; layers.*.post_attention_layernorm sequence_parallel; "
     "final_layer_norm sequence_parallel"},
    {"PhiModel",
     "layers.*.self_attn.q_proj colwise; layers.*.self_attn.k_proj colwise; layers.*.self_attn.v_proj colwise; "
     "layers.*.self_attn.dense rowwise; layers.*.self_attn.q_layernorm replicated_with_grad_allreduce; "
     "layers.*.self_attn.k_layernorm replicated_with_grad_allreduce; layers.*.mlp.fc1 colwise; "
     "layers.*.mlp.fc2 rowwise; embed_tokens embedding_rowwise",
     "layers.*.input_layernorm sequence_parallel; final_layernorm sequence_parallel"},
    {"LlamaForCausalLM,MistralForCausalLM,MixtralForCausalLM,Qwen2ForCausalLM,Qwen2MoeForCausalLM,Qwen3ForCausalLM,"
     "Qwen3MoeForCausalLM,Gemma2ForCausalLM,Gemma3ForCausalLM,Phi3ForCausalLM,Olmo2ForCausalLM,GPTNeoXForCausalLM,"
     "PhiForCausalLM,StableLmForCausalLM",
     "lm_head colwise_gather_output", ""},
    {"BertModel,RobertaModel",
     "encoder.layer.*.attention.self.query colwise; encoder.layer.*.attention.self.key colwise; "
     "encoder.layer.*.attention.self.value colwise; encoder.layer.*.attention.output.dense rowwise; "
     "encoder.layer.*.intermediate.dense colwise; encoder.layer.*.output.dense rowwise",
     nullptr},
    {"DistilBertModel",
     "transformer.layer.*.attention.q_lin colwise; transformer.layer.*.attention.k_lin colwise; "
     "transformer.layer.*.attention.v_lin colwise; transformer.layer.*.attention.out_lin rowwise; "
     "transformer.layer.*.ffn.lin1 colwise; transformer.layer.*.ffn.lin2 rowwise",
     nullptr},
    {"T5Attention", "q colwise; k colwise; v colwise; o rowwise", nullptr},
    {"T5DenseActDense", "wi colwise; wo rowwise", nullptr},
    {"T5DenseGatedActDense", "wi_0 colwise; wi_1 colwise; wo rowwise", nullptr},
    {"T5Stack", "block.0.layer.0.SelfAttention.relative_attention_bias replicated_with_grad_allreduce", nullptr},
    {"WhisperAttention,CLIPAttention,BartAttention,MBartAttention",
     "q_proj colwise; k_proj colwise; v_proj colwise; out_proj rowwise", nullptr},
    {"WhisperEncoderLayer,WhisperDecoderLayer,CLIPMLP,BartEncoderLayer,BartDecoderLayer,MBartEncoderLayer,"
     "MBartDecoderLayer",
     "fc1 colwise; fc2 rowwise", nullptr},
    {"ViTAttention", "attention.query colwise; attention.key colwise; attention.value colwise; output.dense rowwise",
     nullptr},
    {"ViTLayer", "intermediate.dense colwise; output.dense rowwise", nullptr},
};

}  // namespace

bool SplitRule::matches(std::string_view path) const {
  std::string_view rest = pattern;
  while (true) {
    const size_t rule_end = rest.find('.'), path_end = path.find('.');
    const std::string_view part = rest.substr(0, rule_end);
    if (part != "*" && part != path.substr(0, path_end)) return false;
    if (rule_end == std::string_view::npos || path_end == std::string_view::npos) return rule_end == path_end;
    rest.remove_prefix(rule_end + 1);
    path.remove_prefix(path_end + 1);
  }
}

std::vector<SplitRule> read_plan(std::string_view text) {
  std::vector<SplitRule> rules;
  while (!text.empty()) {
    const size_t end = text.find_first_of(";\n");
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const size_t first = part.find_first_not_of(" \t\r"), last = part.find_last_not_of(" \t\r");
    if (first != std::string_view::npos) rules.push_back(read_rule(std::string(part.substr(first, last - first + 1))));
  }
  require(!rules.empty(), Status::kInvalidArgument,
          "the plan has no rule; expected 'auto', or rules such as 'layers.*.mlp.up_proj colwise'");
  return rules;
}

std::vector<SplitRule> rules_that_match(const std::vector<SplitRule>& rules, const nn::Module& module) {
  std::vector<std::string> paths;
  for (const auto& [path, part] : nn::named_modules(module)) paths.push_back(path);
  const std::string_view packed = "_weight";  // a projection that is no module: in_proj_weight is that of in_proj
  for (const auto& [path, member] : nn::named_members(module)) {
    paths.push_back(path);
    if (path.size() > packed.size() && path.compare(path.size() - packed.size(), packed.size(), packed) == 0)
      paths.push_back(path.substr(0, path.size() - packed.size()));
  }
  std::vector<SplitRule> own;
  for (const SplitRule& rule : rules)
    if (std::any_of(paths.begin(), paths.end(), [&](const std::string& path) { return rule.matches(path); }))
      own.push_back(rule);
  return own;
}

// Rules may be for layers that a configuration leaves out.
std::vector<SplitRule> find_plan(const nn::Module& model, bool sequence_parallel) {
  std::vector<SplitRule> plan;
  for (const auto& [path, module] : nn::named_modules(model)) {
    if (dynamic_cast<const nn::CallbackModule*>(module) != nullptr) continue;  // a program's class may have such a name
    for (const KindPlan& known : kKindPlans) {
      const auto kinds = split_text(known.kinds);
      if (std::find(kinds.begin(), kinds.end(), module->kind()) == kinds.end()) continue;
      require(!sequence_parallel || known.between != nullptr, Status::kUnsupported,
              "sequence_parallel is 1 and a module of kind '", module->kind(),
              "' is split by its own plan, which splits no sequences; expected 0, or rules of the program");
      const std::string rules = sequence_parallel ? text(known.rules, ";", known.between) : known.rules;
      for (SplitRule& rule : read_plan(rules)) {
        if (!path.empty()) rule.pattern = path + "." + rule.pattern;
        plan.push_back(std::move(rule));
      }
    }
  }
  return rules_that_match(plan, model);
}

std::vector<SplitRule> plan_of(const nn::Module& model, bool sequence_parallel) {
  std::vector<SplitRule> plan = find_plan(model, sequence_parallel);
  require(!plan.empty(), Status::kUnsupported, "there is no plan that splits a model of kind '", model.kind(),
          "' over the axis tensor of the mesh; expected rules in tensor_parallel.plan, or 'none' for a program that "
          "splits its model itself");
  return plan;
}

}  // namespace accel::parallel
