// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/bert.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "nn/architectures/encoder.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/initial.hpp"
#include "nn/layers/linear.hpp"
#include "nn/module_walks.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

struct Keys {
  const char *hidden, *inner, *layers, *heads, *activation, *dropout, *attention_dropout;
};
constexpr Keys kBertKeys = {"hidden_size", "intermediate_size",   "num_hidden_layers",           "num_attention_heads",
                            "hidden_act",  "hidden_dropout_prob", "attention_probs_dropout_prob"};
constexpr Keys kDistilKeys = {"dim", "hidden_dim", "n_layers", "n_heads", "activation", "dropout", "attention_dropout"};

constexpr EncoderNames kBertNames = {"encoder.layer",        "attention.self.query",   "attention.self.key",
                                     "attention.self.value", "attention.output.dense", "attention.output.LayerNorm",
                                     "intermediate.dense",   "output.dense",           "output.LayerNorm"};
constexpr EncoderNames kDistilNames = {"transformer.layer", "attention.q_lin",   "attention.k_lin",
                                       "attention.v_lin",   "attention.out_lin", "sa_layer_norm",
                                       "ffn.lin1",          "ffn.lin2",          "output_layer_norm"};

// The head of a masked language model: a transformation, and the product with the table of words.
struct VocabularyNames {
  const char *dense, *norm, *decoder, *bias;  // `bias`: the other name of the decoder's bias, or null
};

// The head of classes of a sequence: a transformation of its first token, and the classes.
struct SequenceNames {
  const char *dense, *activation, *classifier;
  bool drops_first;  // dropout is before the transformation, too
};

struct EncoderFamily {
  const char* class_prefix;  // "Bert" of "BertForMaskedLM"
  const char* base;          // the name of the encoder in models with a head
  const Keys& keys;
  const EncoderNames& names;
  int64_t vocab_size, num_layers, types, padding;
  bool counts_from_padding;
  const char* pooler;  // null: none
  VocabularyNames vocabulary;
  SequenceNames sequence;
};

constexpr EncoderFamily kBert = {"Bert",
                                 "bert",
                                 kBertKeys,
                                 kBertNames,
                                 30522,
                                 12,
                                 2,
                                 0,
                                 false,
                                 "pooler.dense",
                                 {"cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
                                  "cls.predictions.decoder", "cls.predictions.bias"},
                                 {"", "", "classifier", false}};
constexpr EncoderFamily kRoberta = {"Roberta",
                                    "roberta",
                                    kBertKeys,
                                    kBertNames,
                                    50265,
                                    12,
                                    2,
                                    1,
                                    true,
                                    "pooler.dense",
                                    {"lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"},
                                    {"classifier.dense", "tanh", "classifier.out_proj", true}};
constexpr EncoderFamily kDistil = {"DistilBert",
                                   "distilbert",
                                   kDistilKeys,
                                   kDistilNames,
                                   30522,
                                   6,
                                   0,
                                   0,
                                   false,
                                   nullptr,
                                   {"vocab_transform", "vocab_layer_norm", "vocab_projector", nullptr},
                                   {"pre_classifier", "relu", "classifier", false}};

double encoder_probability(const Json& json, const char* key, double otherwise) {
  const double value = json_number(json, key, otherwise);
  check_probability(value, key);
  return value;
}

EncoderConfig read_encoder_config(const Json& json, const EncoderFamily& family) {
  refuse_quantization(json);
  for (const char* key : {"is_decoder", "add_cross_attention", "sinusoidal_pos_embds"})
    require(!json_flag(json, key, false), Status::kUnsupported, key, " is true; only false is supported");
  const std::string kind = json_text(json, "position_embedding_type", "absolute");
  require(kind == "absolute", Status::kUnsupported, "position_embedding_type is '", kind, "'; expected 'absolute'");
  const Keys& keys = family.keys;
  EncoderConfig config{};
  config.vocab_size = size_member(json, "vocab_size", family.vocab_size);
  config.hidden_size = size_member(json, keys.hidden, 768);
  config.intermediate_size = size_member(json, keys.inner, 3072);
  config.num_layers = layers_member(json, keys.layers, family.num_layers);
  config.num_heads = size_member(json, keys.heads, 12);
  require(config.hidden_size % config.num_heads == 0, Status::kInvalidArgument, keys.hidden, " ", config.hidden_size,
          " is not divisible by ", keys.heads, " ", config.num_heads, "; every head needs the same size");
  config.max_positions = size_member(json, "max_position_embeddings", 512);
  config.type_vocab_size = family.types == 0 ? 0 : size_member(json, "type_vocab_size", family.types);
  config.pad_token_id = json_integer(json, "pad_token_id", family.padding);
  require(config.pad_token_id >= 0 && config.pad_token_id < config.vocab_size, Status::kInvalidArgument,
          "pad_token_id is ", config.pad_token_id, "; expected a token, from 0 to ", config.vocab_size - 1);
  config.counts_from_padding = family.counts_from_padding;
  require(!config.counts_from_padding || config.pad_token_id + 1 < config.max_positions, Status::kInvalidArgument,
          "max_position_embeddings is ", config.max_positions, "; expected more than pad_token_id + 1");
  config.activation = json_text(json, keys.activation, "gelu");
  require(Activation::knows(config.activation), Status::kUnsupported, keys.activation, " '", config.activation,
          "' is not known");
  config.hidden_dropout = encoder_probability(json, keys.dropout, 0.1);
  config.attention_dropout = encoder_probability(json, keys.attention_dropout, 0.1);
  config.layer_norm_eps = json_number(json, "layer_norm_eps", 1e-12);
  config.initializer_range = initializer_range(json);
  config.dtype = weight_dtype(json);
  return config;
}

// Gives the hidden states; with a pooler [hidden states, pooled], the latter a transformation of the first token.
class PooledEncoder final : public Encoder {
 public:
  PooledEncoder(const EncoderFamily& family, const EncoderConfig& config, bool pools)
      : Encoder(std::string(family.class_prefix) + "Model", config, family.names) {
    if (pools && family.pooler != nullptr)
      add_at(*this, family.pooler, pooler_ = encoder_linear(config.hidden_size, config.hidden_size, config));
  }

  ModuleChain chain() override {
    ModuleChain chain = Encoder::chain();
    if (pooler_ == nullptr) return chain;
    ModulePart& last = chain.back();
    last.modules.emplace_back("pooler");
    last.call = [this, call = std::move(last.call)](const c10::IValue& input) {
      return with_pooled(call(input).toTensor());
    };
    return chain;
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override { return with_pooled(encode(inputs)); }

 private:
  c10::IValue with_pooled(at::Tensor hidden) {
    if (pooler_ == nullptr) return hidden;
    at::Tensor pooled = pooler_->call(hidden.select(1, 0)).tanh();
    return tree::new_list({std::move(hidden), std::move(pooled)});
  }

  ModulePtr pooler_;
};

at::Tensor hidden_states_of(const c10::IValue& output) {
  return output.isTensor() ? output.toTensor() : tree::sequence_items(output)[0].toTensor();
}

class EncoderWithHead final : public Module {
 public:
  using Head = std::function<c10::IValue(const c10::IValue& output)>;

  EncoderWithHead(std::string kind, const EncoderFamily& family, const EncoderConfig& config, bool pools)
      : Module(std::move(kind)), family_(family), config_(config) {
    add_child(family.base, base_ = std::make_shared<PooledEncoder>(family, config, pools));
  }
  std::vector<std::string> input_names() const override { return base_->input_names(); }

  // Scores of the words, [batch, length, vocab_size].
  void add_vocabulary_head(const Json& json) {
    const VocabularyNames& names = family_.vocabulary;
    const ModulePtr dense = add(names.dense, encoder_linear(config_.hidden_size, config_.hidden_size, config_));
    const auto activation = std::make_shared<Activation>(config_.activation);
    const ModulePtr norm = add(names.norm, encoder_norm(config_.hidden_size, config_));
    const bool is_tied = json_flag(json, "tie_word_embeddings", true);
    at::Tensor weight =
        is_tied ? find_tensor(*base_, "embeddings.word_embeddings.weight")
                : normal_weight(config_.vocab_size, config_.hidden_size, config_.initializer_range, config_.dtype);
    at::Tensor bias = constant_parameter(0, {config_.vocab_size}, config_.dtype);
    const ModulePtr decoder = add(names.decoder, std::make_shared<Linear>(std::move(weight), bias));
    if (names.bias != nullptr) {
      const std::string path = names.bias;
      find(std::string_view(path).substr(0, path.rfind('.')))->add_parameter("bias", bias);
    }
    head_ = [dense, activation, norm, decoder](const c10::IValue& output) {
      return decoder->call(norm->call(activation->call(dense->call(hidden_states_of(output)))));
    };
  }

  // Scores of the classes of each sequence, [batch, classes].
  void add_sequence_head(int64_t classes, double dropout) {
    const SequenceNames& names = family_.sequence;
    const auto drop = std::make_shared<Dropout>(dropout);
    add_child("dropout", drop);
    ModulePtr dense, activation;
    if (*names.dense != '\0') {
      dense = add(names.dense, encoder_linear(config_.hidden_size, config_.hidden_size, config_));
      activation = std::make_shared<Activation>(names.activation);
    }
    const ModulePtr classifier = add(names.classifier, encoder_linear(config_.hidden_size, classes, config_));
    head_ = [=, drops_first = names.drops_first](const c10::IValue& output) {
      at::Tensor row = output.isTensor() ? output.toTensor().select(1, 0) : tree::sequence_items(output)[1].toTensor();
      if (drops_first) row = drop->call(row);
      if (dense != nullptr) row = activation->call(dense->call(row));
      return classifier->call(drop->call(row));
    };
  }

  // Scores of the classes of each token, [batch, length, classes].
  void add_token_head(int64_t classes, double dropout) {
    const auto drop = std::make_shared<Dropout>(dropout);
    add_child("dropout", drop);
    const ModulePtr classifier = add("classifier", encoder_linear(config_.hidden_size, classes, config_));
    head_ = [=](const c10::IValue& output) { return classifier->call(drop->call(hidden_states_of(output))); };
  }

  // [scores of the first token of an answer, scores of the last one], both [batch, length].
  void add_question_head(double dropout) {
    const auto drop = std::make_shared<Dropout>(dropout);
    add_child("dropout", drop);
    const ModulePtr outputs = add("qa_outputs", encoder_linear(config_.hidden_size, 2, config_));
    head_ = [=](const c10::IValue& output) {
      const at::Tensor scores = outputs->call(drop->call(hidden_states_of(output)));
      return tree::new_list({scores.select(-1, 0).contiguous(), scores.select(-1, 1).contiguous()});
    };
  }

  ModuleChain chain() override {
    ModuleChain chain = chain_with_head(base_->chain(), family_.base, head_modules_.front(), head_);
    for (size_t i = 1; i < head_modules_.size(); i++) chain.back().modules.push_back(head_modules_[i]);
    return chain;
  }

 protected:
  c10::IValue forward(const Inputs& inputs) override { return head_(base_->call(inputs)); }

 private:
  ModulePtr add(const std::string& path, ModulePtr child) {
    add_at(*this, path, child);
    std::string top = path.substr(0, path.find('.'));
    if (head_modules_.empty() || head_modules_.back() != top) head_modules_.push_back(std::move(top));
    return child;
  }

  const EncoderFamily& family_;
  EncoderConfig config_;
  ModulePtr base_;
  std::vector<std::string> head_modules_;
  Head head_;
};

// The part of a class behind the family, "ForMaskedLM"; "Model" without `architectures`.
std::string encoder_head(const Json& json, const EncoderFamily& family) {
  const std::string prefix = family.class_prefix;
  const Json* const given = json_member(json, "architectures");
  if (given == nullptr || is_empty(*given)) return "Model";
  const Json::Items* const items = given->items();
  const std::string* const name = items == nullptr ? nullptr : items->front().text();
  require(name != nullptr && name->compare(0, prefix.size(), prefix) == 0, Status::kUnsupported, "architectures is ",
          print_json(*given), "; expected a class of ", prefix);
  return name->substr(prefix.size());
}

ModulePtr build_encoder(const Json& json, const EncoderFamily& family) {
  const EncoderConfig config = read_encoder_config(json, family);
  const std::string head = encoder_head(json, family);
  if (head == "Model") return std::make_shared<PooledEncoder>(family, config, /*pools=*/true);
  const bool is_distil = family.types == 0;
  const auto dropout = [&](const char* distils, double otherwise) {
    return is_distil ? encoder_probability(json, distils, otherwise)
                     : encoder_probability(json, "classifier_dropout", config.hidden_dropout);
  };
  const bool pools = head == "ForSequenceClassification" && *family.sequence.dense == '\0';
  auto model = std::make_shared<EncoderWithHead>(family.class_prefix + head, family, config, pools);
  if (head == "ForMaskedLM")
    model->add_vocabulary_head(json);
  else if (head == "ForSequenceClassification")
    model->add_sequence_head(number_of_classes(json), dropout("seq_classif_dropout", 0.2));
  else if (head == "ForTokenClassification")
    model->add_token_head(number_of_classes(json), is_distil ? config.hidden_dropout : dropout("", 0));
  else if (head == "ForQuestionAnswering")
    model->add_question_head(is_distil ? dropout("qa_dropout", 0.1) : 0.0);
  else
    fail(Status::kUnsupported, "architectures is ", family.class_prefix, head, "; expected ", family.class_prefix,
         "Model or ", family.class_prefix,
         "ForMaskedLM, ...ForSequenceClassification, ...ForTokenClassification or ...ForQuestionAnswering");
  return model;
}

}  // namespace

ModulePtr build_bert(const Json& config) { return build_encoder(config, kBert); }
ModulePtr build_roberta(const Json& config) { return build_encoder(config, kRoberta); }
ModulePtr build_distilbert(const Json& config) { return build_encoder(config, kDistil); }

}  // namespace accel::nn
