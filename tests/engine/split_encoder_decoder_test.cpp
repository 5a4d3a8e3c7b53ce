// SPDX-License-Identifier: Apache-2.0
// Encoder-decoders whose layers are split by their plans train as in one process.
#include <gtest/gtest.h>

#include <string>

#include "nn/callback_module.hpp"
#include "split_model_fixture.hpp"

namespace accel::parallel {
namespace split_encoder_decoder_test {

using namespace split_model_tests;

// Reads tokens and adds the same ones.
nn::ModulePtr with_tokens(const std::string& config) {
  const auto model = std::make_shared<nn::CallbackModule>("Translation");
  model->add_child("model", from_config(config));
  model->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    return self.children()[0].second->call(nn::Inputs{inputs[0], {}, inputs[0]});
  });
  return model;
}

// Hears the same features for all tokens.
nn::ModulePtr with_features(const std::string& config) {
  const auto model = std::make_shared<nn::CallbackModule>("Transcription");
  model->add_child("model", from_config(config));
  model->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    const at::Tensor tokens = inputs[0].toTensor();
    const at::Tensor features =
        at::linspace(-1, 1, 5 * 8, at::TensorOptions().dtype(at::kDouble).device(tokens.device()))
            .view({1, 5, 8})
            .expand({tokens.size(0), 5, 8});
    return self.children()[0].second->call(nn::Inputs{features, {}, tokens});
  });
  return model;
}

std::string t5_config(const std::string& more) {
  return R"({"model_type": "t5", "vocab_size": 13, "d_model": 24, "d_kv": 5, "d_ff": 31, "num_layers": 2, "num_heads": 6,
      "relative_attention_num_buckets": 8, "relative_attention_max_distance": 6, "dropout_rate": 0)" +
         more + "}";
}

std::string bart_config(const std::string& type) {
  return R"({"model_type": ")" + type + R"(", "vocab_size": 13, "d_model": 24, "encoder_layers": 2, "decoder_layers": 2,
      "encoder_attention_heads": 6, "decoder_attention_heads": 6, "encoder_ffn_dim": 31, "decoder_ffn_dim": 31,
      "max_position_embeddings": 8, "dropout": 0})";
}

const std::vector<Case> kCases = {
    {"T5", [] { return with_tokens(t5_config("")); }, "auto", kFloatTolerance},
    {"T5 1.1",
     [] { return with_tokens(t5_config(R"(, "tie_word_embeddings": false, "feed_forward_proj": "gated-gelu")")); },
     "auto", kFloatTolerance},
    {"T5, encoder", [] { return from_config(t5_config(R"(, "architectures": ["T5EncoderModel"])")); }, "auto",
     kFloatTolerance},
    {"BART", [] { return with_tokens(bart_config("bart")); }, "auto", kFloatTolerance},
    {"mBART", [] { return with_tokens(bart_config("mbart")); }, "auto", kFloatTolerance},
    {"Whisper",
     [] {
       return with_features(
           R"({"model_type": "whisper", "vocab_size": 13, "d_model": 24, "num_mel_bins": 5, "encoder_layers": 2,
               "decoder_layers": 2, "encoder_attention_heads": 6, "decoder_attention_heads": 6, "encoder_ffn_dim": 31,
               "decoder_ffn_dim": 31, "max_source_positions": 4, "max_target_positions": 8, "pad_token_id": 1})");
     },
     "auto", kFloatTolerance},
};

TEST(SplitEncoderDecoders, TrainAsOneProcess) {
  constexpr int kSteps = 5;
  for (const Case& test : kCases) {
    const Trained expected = train_alone(test, kSteps);
    for (const MeshSizes& sizes : {MeshSizes{1, 1, 2}, MeshSizes{1, 1, 3}, MeshSizes{1, 2, 2}})
      expect_trains_as(expected, test, sizes);
  }
}

}  // namespace split_encoder_decoder_test
}  // namespace accel::parallel
