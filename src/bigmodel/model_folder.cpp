// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/model_folder.hpp"

#include <c10/core/Device.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "bigmodel/gguf_model.hpp"
#include "bigmodel/load_and_dispatch.hpp"
#include "checkpoint/formats/model_files.hpp"
#include "nn/architectures/architecture.hpp"
#include "nn/creation_device.hpp"
#include "nn/quantized/packed_format.hpp"
#include "nn/quantized/packed_weights.hpp"
#include "nn/quantized/quantization_config.hpp"
#include "nn/quantized/quantized_model.hpp"
#include "os/list_folder.hpp"
#include "os/regular_file.hpp"
#include "os/replaced_file.hpp"
#include "track/run_folder.hpp"

namespace accel::bigmodel {
namespace {

constexpr const char* kConfigFile = "config.json";

// The folders of templates, and of the pooling of sentence-transformers.
constexpr std::array<const char*, 2> kCopiedFolders = {"additional_chat_templates", "1_Pooling"};

bool is_model_file(const std::string& name) {
  return (has_extension(name, ".json") && !has_extension(name, ".index.json")) || has_extension(name, ".jinja") ||
         has_extension(name, ".txt") || has_extension(name, ".model");
}

// Null without the file, which the reader of the model names.
Json read_config(const std::string& path) {
  std::error_code is_missing;
  return std::filesystem::exists(path, is_missing) ? parse_json(RegularFile(path).read(), path) : Json();
}

// Codes of files would be read as numbers where they have the sizes of the weight.
void refuse_codes(const std::string& folder, const nn::NamedTensors& weights) {
  for (const auto& [name, tensor] : weights)
    require(!ends_with(name, ".SCB") && !ends_with(name, ".qweight") && name.find(".quant_state.") == std::string::npos,
            Status::kInvalidArgument, "'", folder, "' has quantized weights, as '", name,
            "' says, and its config.json has no quantization_config; expected one that says how to read them");
}

}  // namespace

nn::ModulePtr load_model_folder(const std::string& folder, const nn::QuantizationOptions* quantization) {
  if (has_extension(folder, ".gguf")) {
    require(quantization == nullptr, Status::kInvalidArgument, "'", folder,
            "' has quantized weights, and options of another quantization are given; expected none");
    return load_gguf_model(folder);
  }
  const std::string path = folder + "/" + kConfigFile;
  const Json config = read_config(path);
  const std::optional<nn::QuantizationOptions> stored = nn::read_quantization_config(config);
  const std::optional<nn::PackedFormat> packed = nn::read_packed_format(config);
  const bool is_stored = stored || packed;
  require(!is_stored || quantization == nullptr, Status::kInvalidArgument, "'", path,
          "' has a quantization_config, and other options are given; expected none for weights that are quantized");
  nn::ModulePtr model;
  {
    const nn::CreationDevice meta(c10::Device(c10::kMeta), false);
    model = nn::module_from_config(is_stored ? print_json(nn::with_quantization_config(config, Json())) : path);
  }
  nn::NamedTensors weights = checkpoint::load_state_dict(folder);
  if (!is_stored) refuse_codes(folder, weights);
  if (packed) weights = nn::unpack_weights(*model, weights, *packed);
  if (stored)
    require(!nn::prepare_quantized(*model, weights, nn::make_quantized_kind(*stored)).empty(), Status::kNotFound, "'",
            folder,
            "' has a quantization_config, and no weight of its files is quantized; expected bitsandbytes' names, ",
            "such as 'weight.absmax' or 'SCB'");
  if (quantization != nullptr) weights = nn::quantize_weights(*model, weights, *quantization);
  const nn::LoadReport report = load_checkpoint_in_model(*model, weights, nullptr, {});
  require(report.missing.empty(), Status::kNotFound, "'", folder, "' has no weights for ",
          report.missing.empty() ? "" : report.missing.front(), " and ", report.missing.size() - 1,
          " others; expected those of all parameters. accel_module_from_config() and accel_load_checkpoint_in_model() "
          "leave new ones "
          "as they are made");
  return model;
}

void write_quantization_config(const std::string& folder, const nn::Module& model) {
  const std::string path = folder + "/" + kConfigFile;
  const Json quantization = nn::quantization_config(model);
  const Json config = read_config(path);
  if (quantization.is_null() && json_member(config, "quantization_config") == nullptr) return;
  replace_file(path, print_json(nn::with_quantization_config(config, quantization)) + "\n");
}

void copy_model_files(const std::string& folder, const std::string& copy) {
  std::error_code is_missing;
  if (std::filesystem::equivalent(folder, copy, is_missing)) return;
  for (const std::string& name : list_folder(folder)) {
    const std::string path = folder + "/" + name;
    const bool is_copied =
        is_folder(path) ? std::count(kCopiedFolders.begin(), kCopiedFolders.end(), name) > 0 : is_model_file(name);
    if (is_copied) track::copy_files(path, copy + "/" + name);
  }
}

}  // namespace accel::bigmodel
