// SPDX-License-Identifier: Apache-2.0
#include "cli/models/loaded_model.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/text_ends.hpp"
#include "json/json.hpp"

namespace accel::program {
namespace {

Json read_json_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) throw cpp::Error(ACCEL_ERROR_IO, path + " cannot be read; see who may read it");
  Json json = parse_json(content, path);
  if (json.members() == nullptr)
    throw cpp::Error(ACCEL_ERROR_INVALID_ARGUMENT, path + " is not a JSON object; expected one");
  return json;
}

void require_file(const std::string& folder, const char* name, const char* advice) {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::path(folder) / name, error)) return;
  throw cpp::Error(ACCEL_ERROR_NOT_FOUND, "'" + folder + "' has no " + name + "; " + advice);
}

void require_model_files(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw cpp::Error(ACCEL_ERROR_NOT_FOUND,
                     "'" + folder +
                         "' is neither a folder nor a GGUF file; expected a folder with config.json, weights and "
                         "tokenizer.json, or a file that ends with .gguf");
  require_file(folder, "config.json", "expected the folder of a model, as the hub of Hugging Face has it");
  require_file(folder, "tokenizer.json",
               "where the vocabulary is in another file, transformers writes one: "
               "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)");
}

// Encoders without a head, such as "BertModel".
bool names_encoder(const Json& config) {
  const Json* const classes = json_member(config, "architectures");
  if (classes == nullptr || classes->items() == nullptr || classes->items()->empty()) return false;
  const std::string* const name = classes->items()->front().text();
  constexpr std::string_view kEnd = "Model";
  return name != nullptr && name->size() > kEnd.size() &&
         name->compare(name->size() - kEnd.size(), kEnd.size(), kEnd) == 0;
}

accel_sentence_pooling_t pooling_of(const std::string& folder) {
  const std::string path = folder + "/1_Pooling/config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return ACCEL_SENTENCE_POOLING_MEAN;
  const Json config = read_json_file(path);
  constexpr std::pair<const char*, accel_sentence_pooling_t> kKinds[] = {
      {"pooling_mode_mean_tokens", ACCEL_SENTENCE_POOLING_MEAN},
      {"pooling_mode_cls_token", ACCEL_SENTENCE_POOLING_FIRST},
      {"pooling_mode_lasttoken", ACCEL_SENTENCE_POOLING_LAST},
      {"pooling_mode_max_tokens", ACCEL_SENTENCE_POOLING_MAX}};
  std::vector<accel_sentence_pooling_t> found;
  for (const auto& [name, kind] : kKinds)
    if (json_flag(config, name, false)) found.push_back(kind);
  if (found.size() != 1)
    throw cpp::Error(ACCEL_ERROR_UNSUPPORTED, path + " has " + std::to_string(found.size()) +
                                                  " of the modes mean, cls, lasttoken and max; expected one");
  return found.front();
}

// Vectors have the length 1 if a folder says so, or says nothing.
bool is_normalized(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder + "/modules.json", error)) return true;
  return std::filesystem::is_directory(folder + "/2_Normalize", error);
}

// Weights on the CPU need no dispatch, whose hooks cost time.
void load_weights(const cpp::Module& module, const ModelArguments& arguments) {
  const accel_device_t device = arguments.device.empty() ? cpp::device_default() : cpp::device_parse(arguments.device);
  cpp::DispatchOptions options;
  if (!arguments.dtype.empty()) options.dtype = cpp::dtype_from_name(arguments.dtype);
  cpp::Value map;
  if (device.type != ACCEL_DEVICE_CPU) {
    options.force_hooks = 1;
    map = arguments.device.empty() ? cpp::Value("auto") : cpp::Value::map({{"", device}});
  }
  detail::check(accel_load_checkpoint_and_dispatch(nullptr, module.get(), arguments.folder.c_str(), map.get(), nullptr,
                                                   &options, nullptr));
}

bool is_gguf_file(const std::string& path) {
  std::error_code error;
  return has_extension(path, ".gguf") && !std::filesystem::is_directory(path, error);
}

void take_tokenizer(LoadedModel& model, const std::string& path) {
  model.tokenizer = cpp::Tokenizer::load(path);
  const cpp::Value description = model.tokenizer.describe();
  for (const cpp::Value& id : description.at("eos_token_ids").items()) model.end_tokens.push_back(id.integer());
  if (const auto longest = description.find("model_max_length"); longest && !longest->is_none())
    model.max_positions = longest->integer();
}

// A decoder, whose file has the tokenizer, its templates and the context length inside.
LoadedModel load_gguf_file(const ModelArguments& arguments) {
  LoadedModel model;
  take_tokenizer(model, arguments.folder);
  model.vocabulary = model.tokenizer.vocabulary_size();  // no more than the rows
  model.module = cpp::Module::from_folder(arguments.folder);
  const accel_device_t device = arguments.device.empty() ? cpp::device_default() : cpp::device_parse(arguments.device);
  model.module.to(arguments.dtype.empty() ? ACCEL_UNSET : cpp::dtype_from_name(arguments.dtype), device);
  return model;
}

}  // namespace

std::string text_of_value(const cpp::Value& value) {
  return value.kind() == ACCEL_VALUE_BYTES ? std::string(value.bytes()) : value.string();
}

void require_tokens(const cpp::Tensor& ids, const LoadedModel& model) {
  const auto* const data = static_cast<const std::int64_t*>(ids.data());
  const auto* const wrong = std::find_if(data, data + ids.numel(), [&model](std::int64_t id) {
    return id < 0 || (model.vocabulary > 0 && id >= model.vocabulary);
  });
  if (wrong != data + ids.numel())
    throw cpp::Error(ACCEL_ERROR_INVALID_ARGUMENT, "the token id is " + std::to_string(*wrong) + "; expected 0 to " +
                                                       std::to_string(model.vocabulary - 1) +
                                                       ", the vocabulary of the model");
}

LoadedModel load_model(const ModelArguments& arguments) {
  const std::string& folder = arguments.folder;
  if (is_gguf_file(folder)) return load_gguf_file(arguments);
  require_model_files(folder);
  const Json config = read_json_file(folder + "/config.json");
  LoadedModel model;
  model.gives_embeddings = names_encoder(config);
  take_tokenizer(model, folder);
  {
    const cpp::Scope empty = cpp::init_empty_weights(false);
    model.module = cpp::Module::from_config(folder + "/config.json");
  }
  model.module.train(false);
  load_weights(model.module, arguments);
  model.vocabulary = json_integer(config, "vocab_size", 0);
  if (const std::int64_t positions = json_integer(config, "max_position_embeddings", 0); positions != 0)
    model.max_positions = model.max_positions == 0 ? positions : std::min(model.max_positions, positions);
  if (model.gives_embeddings) {
    cpp::SentenceEmbeddingOptions options;
    options.pooling = pooling_of(folder);
    options.normalize = is_normalized(folder) ? 1 : 0;
    model.module = model.module.sentence_embedding(options);
    model.module.train(false);
  }
  return model;
}

LoadedModel load_decoder(const ModelArguments& arguments, const std::string& command) {
  LoadedModel model = load_model(arguments);
  if (model.gives_embeddings)
    throw cpp::Error(ACCEL_ERROR_UNSUPPORTED, "'" + arguments.folder + "' has an encoder, which generates no text; " +
                                                  command + " needs a decoder, and accel embed takes this one");
  return model;
}

LoadedModel load_encoder(const ModelArguments& arguments, const std::string& command) {
  LoadedModel model = load_model(arguments);
  if (!model.gives_embeddings)
    throw cpp::Error(ACCEL_ERROR_UNSUPPORTED,
                     "'" + arguments.folder + "' has no encoder: " +
                         (is_gguf_file(arguments.folder) ? "a GGUF file is read as a decoder; "
                                                         : "its class in config.json does not end with Model; ") +
                         command + " needs one such as BertModel, and accel run takes decoders");
  return model;
}

}  // namespace accel::program
