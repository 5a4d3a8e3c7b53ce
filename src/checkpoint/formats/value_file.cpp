// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/value_file.hpp"

#include <algorithm>
#include <string_view>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "checkpoint/formats/compressed_header.hpp"
#include "checkpoint/formats/compressed_tensors.hpp"
#include "checkpoint/formats/map_location.hpp"
#include "checkpoint/formats/safetensors.hpp"
#include "checkpoint/formats/torch/torch_file.hpp"
#include "checkpoint/formats/value_json.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

constexpr std::string_view kSafetensors = ".safetensors";
constexpr std::string_view kCompressed = ".ztensors";
constexpr const char* kStructure = "accel.structure";  // the metadata key of the JSON

NamedTensors named_tensors(const c10::IValue& value, const std::string& path) {
  NamedTensors tensors;
  require(value.isGenericDict(), Status::kTypeMismatch, "the value for '", path, "' is a ", tree::kind_name(value),
          "; expected a map of tensors, or a file of torch");
  for (const auto& entry : value.toGenericDict()) {
    require(entry.key().isString(), Status::kTypeMismatch, "the value for '", path, "' has a key that is a ",
            tree::kind_name(entry.key()), "; expected the name of a tensor");
    require(entry.value().isTensor(), Status::kTypeMismatch, "the value for '", path, "' has a ",
            tree::kind_name(entry.value()), " at '", entry.key().toStringRef(), "'; expected a tensor");
    tensors.emplace_back(entry.key().toStringRef(), entry.value().toTensor());
  }
  return tensors;
}

SafetensorsContents safetensors_contents(const c10::IValue& value, const std::string& path) {
  return drop_tied(named_tensors(value, path), {{"format", "pt"}});
}

SafetensorsContents compressed_contents(const c10::IValue& value) {
  NamedTensors tensors;
  const std::string structure = print_json(encode_value(value, tensors));
  return drop_tied(tensors, {{kStructure, structure}});
}

c10::IValue read_compressed(const std::shared_ptr<const MappedFile>& file) {
  SafetensorsContents contents = read_compressed_tensors(file);
  restore_tied(contents);
  const auto structure = std::find_if(contents.metadata.begin(), contents.metadata.end(),
                                      [](const auto& entry) { return entry.first == kStructure; });
  require(structure != contents.metadata.end(), Status::kCorrupt, "'", file->path(),
          "' holds no value: its metadata has no '", kStructure, "'");
  try {
    return decode_value(parse_json(structure->second, kStructure), contents.tensors, file->path());
  } catch (const Error& error) {
    if (error.status() == Status::kCorrupt) throw;
    fail(Status::kCorrupt, "'", file->path(), "' is damaged: ", error.message());
  }
}

}  // namespace

void write_value(OutputFile& output, const c10::IValue& value, int compression_level) {
  if (ends_with(output.path(), kSafetensors)) {
    const SafetensorsContents contents = safetensors_contents(value, output.path());
    write_safetensors(output, contents.tensors, contents.metadata);
    return;
  }
  if (ends_with(output.path(), kCompressed)) {
    const SafetensorsContents contents = compressed_contents(value);
    write_compressed_tensors(output, contents.tensors, contents.metadata, compression_level);
    return;
  }
  write_torch_file(output, value);
}

bool holds_value(const std::string& path, const c10::IValue& value) {
  if (ends_with(path, kSafetensors)) {
    const SafetensorsContents contents = safetensors_contents(value, path);
    return has_header_of(path, contents.tensors, contents.metadata);
  }
  if (ends_with(path, kCompressed)) {
    const SafetensorsContents contents = compressed_contents(value);
    return has_compressed_header_of(path, contents.tensors, contents.metadata);
  }
  return is_torch_file_of(path, value);
}

c10::IValue read_value(const std::shared_ptr<const MappedFile>& file) {
  if (is_compressed(file->text())) return read_compressed(file);
  if (is_torch_file(file->text().substr(0, kTorchFileBytes))) return read_torch_file(file);
  SafetensorsContents contents = read_safetensors(file);
  restore_tied(contents);
  auto map = tree::new_map();
  for (const auto& [name, tensor] : contents.tensors) map.insert(name, tensor);
  return map;
}

void save_value(const std::string& path, const c10::IValue& value, bool safe_serialization, const Metadata& metadata,
                FileSystem& files) {
  if (safe_serialization) {
    const SafetensorsContents contents = drop_tied(named_tensors(value, path), metadata);
    save_safetensors(path, contents.tensors, contents.metadata, files);
    return;
  }
  require(metadata.empty(), Status::kInvalidArgument, "metadata is given for '", path,
          "' with safe_serialization 0; expected none, because only safetensors have metadata");
  save_torch_file(path, value, files);
}

c10::IValue load_value(const std::string& path, std::optional<c10::Device> device) {
  const c10::IValue value = read_value(std::make_shared<const MappedFile>(path));
  return device.has_value() ? map_location(value, *device) : value;
}

}  // namespace accel::checkpoint
