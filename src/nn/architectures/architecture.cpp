// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/architecture.hpp"

#include <string>

#include "base/error.hpp"
#include "base/first_line.hpp"
#include "json/json.hpp"
#include "nn/architectures/bert.hpp"
#include "nn/architectures/decoder_config.hpp"
#include "nn/architectures/encoder_decoders/bart.hpp"
#include "nn/architectures/encoder_decoders/t5.hpp"
#include "nn/architectures/encoder_decoders/whisper.hpp"
#include "nn/architectures/gpt2.hpp"
#include "nn/architectures/llama.hpp"
#include "nn/architectures/vision/clip_model.hpp"
#include "nn/architectures/vision/resnet.hpp"
#include "nn/architectures/vision/vit.hpp"
#include "os/regular_file.hpp"

namespace accel::nn {
namespace {

struct Architecture {
  const char* model_type;
  ModulePtr (*build)(const Json& config);
};

// New architectures are added here, and relatives of Llama in decoder_config.cpp.
constexpr Architecture kArchitectures[] = {
    {"bart", build_bart},
    {"bert", build_bert},
    {"clip", build_clip},
    {"clip_text_model", build_clip_text},
    {"clip_vision_model", build_clip_vision},
    {"distilbert", build_distilbert},
    {"gpt2", build_gpt2},
    {"mbart", build_mbart},
    {"resnet", build_resnet},
    {"roberta", build_roberta},
    {"t5", build_t5},
    {"vit", build_vit},
    {"whisper", build_whisper},
};

bool is_document(const std::string& config) {
  const size_t start = config.find_first_not_of(" \t\r\n");
  return start != std::string::npos && config[start] == '{';
}

std::string read_file(const std::string& path) {
  try {
    return RegularFile(path).read();
  } catch (const Error& error) {
    fail(error.status(), error.message(), "; expected a config.json or its JSON text");
  }
}

}  // namespace

ModulePtr module_from_config(const std::string& config) {
  const bool is_text = is_document(config);
  const Json json = parse_json(is_text ? config : read_file(config), is_text ? "the configuration" : config);
  require(json.members() != nullptr, Status::kInvalidArgument, "the configuration is not a JSON object; expected one");
  const std::string model_type = json_text(json, "model_type", "");
  if (is_decoder_type(model_type)) return build_llama(json);
  std::string names = decoder_types();
  for (const Architecture& architecture : kArchitectures) {
    if (model_type == architecture.model_type) return architecture.build(json);
    names += text(", ", architecture.model_type);
  }
  fail(Status::kUnsupported, "model_type '", first_line(model_type), "' is not known; expected one of ", names);
}

}  // namespace accel::nn
