#include "checkpoint/value_file.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/error.hpp"
#include "checkpoint/formats/compressed_tensors.hpp"
#include "checkpoint/formats/safetensors.hpp"
#include "checkpoint/formats/torch_file.hpp"
#include "checkpoint/value_json.hpp"
#include "tensor/bytes.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

constexpr std::string_view kSafetensors = ".safetensors";
constexpr std::string_view kCompressed = ".ztensors";
constexpr const char* kStructure = "accel.structure";  // the metadata key of the JSON

bool ends_with(std::string_view path, std::string_view extension) {
  return path.size() >= extension.size() && path.substr(path.size() - extension.size()) == extension;
}

NamedTensors named_tensors(const c10::IValue& value, const std::string& path) {
  NamedTensors tensors;
  require(value.isGenericDict(), Status::kTypeMismatch, "'", path, "' holds maps of tensors; the value is a ",
          tree::kind_name(value));
  for (const auto& entry : value.toGenericDict()) {
    require(entry.key().isString() && entry.value().isTensor(), Status::kTypeMismatch, "'", path,
            "' holds maps of tensors; the map has a ", tree::kind_name(entry.value()));
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

bool same_but_elements(const c10::IValue& written, const c10::IValue& read);

bool same_items(const c10::IValue& written, const c10::IValue& read) {
  if (!tree::is_sequence(read) || read.isTuple() != written.isTuple()) return false;
  const auto left = tree::sequence_items(written), right = tree::sequence_items(read);
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), same_but_elements);
}

bool same_members(const c10::impl::GenericDict& written, const c10::IValue& read) {
  if (!read.isGenericDict() || read.toGenericDict().size() != written.size()) return false;
  const auto members = read.toGenericDict();
  return std::all_of(written.begin(), written.end(), [&](const auto& entry) {
    const auto found = members.find(entry.key());
    return found != members.end() && same_but_elements(entry.value(), found->value());
  });
}

uint64_t bits_of(double number) {
  uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

bool same_but_elements(const c10::IValue& written, const c10::IValue& read) {
  if (written.isTensor()) {
    const at::Tensor& tensor = written.toTensor();
    if (!tensor.defined()) return read.isNone();
    return read.isTensor() && read.toTensor().scalar_type() == tensor.scalar_type() &&
           read.toTensor().sizes() == tensor.sizes();
  }
  if (written.isDouble()) return read.isDouble() && bits_of(written.toDouble()) == bits_of(read.toDouble());
  if (tree::is_sequence(written)) return same_items(written, read);
  if (written.isCapsule()) return tree::equal(written, read);
  if (written.isGenericDict()) return same_members(written.toGenericDict(), read);
  return written == read;
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
  return same_but_elements(value, read_value(std::make_shared<const MappedFile>(path)));
}

c10::IValue read_value(const std::shared_ptr<const MappedFile>& file) {
  if (ends_with(file->path(), kCompressed)) return read_compressed(file);
  if (!ends_with(file->path(), kSafetensors)) return read_torch_file(file);
  SafetensorsContents contents = read_safetensors(file);
  restore_tied(contents);
  auto map = tree::new_map();
  for (const auto& [name, tensor] : contents.tensors) map.insert(name, tensor);
  return map;
}

}  // namespace accel::checkpoint
