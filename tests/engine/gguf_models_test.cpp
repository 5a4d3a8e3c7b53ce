// SPDX-License-Identifier: Apache-2.0
// Models of GGUF files: logits beside what transformers computes from the same files (make_gguf_model_fixtures.py).
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sub.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "architecture_fixture.hpp"
#include "bigmodel/gguf_model.hpp"
#include "bigmodel/model_folder.hpp"
#include "checkpoint/formats/gguf/gguf_header.hpp"
#include "checkpoint/formats/safetensors.hpp"
#include "expect_error.hpp"
#include "nn/architectures/hub_names.hpp"
#include "nn/module_walks.hpp"
#include "nn/quantized/quantized_model.hpp"
#include "os/replaced_file.hpp"
#include "report/temporary_folder.hpp"
#include "tensor/tree.hpp"

namespace accel::bigmodel {
namespace {

using tests::bytes_of;
using tests::expect_error;

class GgufModels : public testing::Test {
 protected:
  std::string write(const std::string& bytes) {
    const std::string path = folder_.path() + "/model.gguf";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static Json recorded(size_t place) { return tests::read_fixture("gguf_models.json").items()->at(place); }

  tests::TemporaryFolder folder_;
};

at::Tensor logits_of(nn::Module& model, const Json& recorded) {
  const at::NoGradGuard no_grad;
  const c10::IValue output = model.call({tests::tokens_of(*json_member(recorded, "ids"))});
  return output.isTensor() ? output.toTensor() : tree::sequence_items(output).front().toTensor();
}

TEST_F(GgufModels, HaveTheLogitsOfTheReference) {
  for (size_t place = 0; place < 2; place++) {
    const Json fixture = recorded(place);
    SCOPED_TRACE(json_text(fixture, "name", ""));
    // A file is opened as a folder is.
    const nn::ModulePtr model = load_model_folder(write(bytes_of(*json_member(fixture, "file"))));
    EXPECT_FALSE(nn::quantized_layers(*model).empty());
    const at::Tensor expected = tests::tensor_of(*json_member(fixture, "logits"))
                                    .view(tests::integers(*json_member(fixture, "shape")))
                                    .to(at::kFloat);
    const at::Tensor logits = logits_of(*model, fixture);
    EXPECT_LT((logits - expected).norm().item<double>(), 2e-3 * expected.norm().item<double>());
  }
}

TEST_F(GgufModels, HoldTheCodesOfTheFile) {
  const nn::ModulePtr model = load_gguf_model(write(bytes_of(*json_member(recorded(0), "file"))));
  EXPECT_EQ(nn::quantized_layers(*model).size(), 2U * 7 + 2);
  // A table that is the head, too, is decoded.
  const nn::ModulePtr tied = load_gguf_model(write(bytes_of(*json_member(recorded(1), "file"))));
  EXPECT_EQ(nn::quantized_layers(*tied).size(), 2U * 7);
}

// Their layers have several kinds.
TEST_F(GgufModels, AreSavedAsFolders) {
  for (size_t place = 0; place < 2; place++) {
    const Json fixture = recorded(place);
    SCOPED_TRACE(json_text(fixture, "name", ""));
    const std::string bytes = bytes_of(*json_member(fixture, "file")), path = write(bytes);
    const nn::ModulePtr model = load_gguf_model(path);
    const tests::TemporaryFolder saved;
    const Json config = config_of_gguf(checkpoint::parse_gguf_header(bytes, path).metadata, place == 0, 48, path);
    replace_file(saved.path() + "/config.json", print_json(config));
    checkpoint::save_safetensors(saved.path() + "/model.safetensors",
                                 nn::HubNames(*model).to_files(model->state_dict()), {});
    write_quantization_config(saved.path(), *model);
    const nn::ModulePtr again = load_model_folder(saved.path());
    again->train(false);
    EXPECT_EQ(nn::quantized_layers(*again), nn::quantized_layers(*model));
    EXPECT_TRUE(logits_of(*again, fixture).equal(logits_of(*model, fixture)));
  }
}

TEST_F(GgufModels, WhatIsNotHereIsRefusedByName) {
  const auto refused = [&](Status status, const std::string& part, const std::string& from, const std::string& to) {
    std::string bytes = bytes_of(*json_member(recorded(0), "file"));
    const size_t found = bytes.find(from);
    ASSERT_NE(found, std::string::npos);
    ASSERT_EQ(from.size(), to.size());
    const std::string path = write(bytes.replace(found, from.size(), to));
    expect_error(status, part, [&] { load_gguf_model(path); });
  };
  refused(Status::kUnsupported, "the architecture 'llamb'; expected llama, qwen2 or qwen3", "llama", "llamb");
  refused(Status::kUnsupported, "a tensor 'blk.0.attn_x.weight'", "blk.0.attn_k.weight", "blk.0.attn_x.weight");
}

TEST(GgufConfig, IsThatOfTheHub) {
  const Json metadata = parse_json(R"({"general.architecture": "llama", "llama.embedding_length": 8,
      "llama.block_count": 3, "llama.feed_forward_length": 16, "llama.attention.head_count": 4,
      "llama.attention.layer_norm_rms_epsilon": 1e-06, "llama.rope.freq_base": 500000.0})",
                                   "metadata");
  const Json config = config_of_gguf(metadata, false, 11, "model.gguf");
  EXPECT_EQ(print_json(config),
            R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"vocab_size":11,"tie_word_embeddings":true,)"
            R"("hidden_size":8,"num_hidden_layers":3,"intermediate_size":16,"num_attention_heads":4,)"
            R"("num_key_value_heads":4,"rms_norm_eps":1e-06,"rope_theta":500000.0})");
  const auto with = [](const std::string& more) {
    return parse_json(R"({"general.architecture": "llama", )" + more + "}", "metadata");
  };
  expect_error(Status::kUnsupported, "llama.rope.scaling.type 'yarn'",
               [&] { config_of_gguf(with(R"("llama.rope.scaling.type": "yarn")"), true, 11, "model.gguf"); });
  expect_error(Status::kUnsupported, "has experts",
               [&] { config_of_gguf(with(R"("llama.expert_count": 8)"), true, 11, "model.gguf"); });
  expect_error(Status::kCorrupt, "lacks llama.embedding_length",
               [&] { config_of_gguf(with(R"("a": 1)"), true, 11, "model.gguf"); });
}

}  // namespace
}  // namespace accel::bigmodel
