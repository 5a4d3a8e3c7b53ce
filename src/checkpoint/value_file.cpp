#include "checkpoint/value_file.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/error.hpp"
#include "checkpoint/formats/safetensors.hpp"
#include "checkpoint/value_json.hpp"
#include "tensor/bytes.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

constexpr const char* kJson = "json";
constexpr const char* kSafetensors = "safetensors";
constexpr const char* kStructure = "accel.structure";  // the metadata key of the JSON

bool has_extension(std::string_view path, std::string_view extension) {
  return path.size() > extension.size() && path.substr(path.size() - extension.size()) == extension &&
         path[path.size() - extension.size() - 1] == '.';
}

bool has_tensors(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined();
  if (tree::bytes_of(value) != nullptr) return true;  // they are written as one
  if (tree::is_sequence(value)) {
    const auto items = tree::sequence_items(value);
    return std::any_of(items.begin(), items.end(), has_tensors);
  }
  if (!value.isGenericDict()) return false;
  const auto dict = value.toGenericDict();
  return std::any_of(dict.begin(), dict.end(), [](const auto& entry) { return has_tensors(entry.value()); });
}

c10::IValue decode_text(std::string_view text, const NamedTensors& tensors, const std::string& source) {
  Json json;
  try {
    json = parse_json(text, "its JSON");
  } catch (const Error& error) {
    fail(Status::kCorrupt, "'", source, "' is damaged: ", error.message());
  }
  return decode_value(json, tensors, source);
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
  if (tree::bytes_of(written) != nullptr) return tree::equal(written, read);
  if (written.isGenericDict()) return same_members(written.toGenericDict(), read);
  return written == read;
}

}  // namespace

const char* value_extension(const c10::IValue& value, ValueContainer container) {
  return container == ValueContainer::kSafetensors || has_tensors(value) ? kSafetensors : kJson;
}

void write_value(OutputFile& output, const c10::IValue& value) {
  NamedTensors tensors;
  const std::string structure = print_json(encode_value(value, tensors));
  if (has_extension(output.path(), kSafetensors)) {
    write_safetensors(output, tensors, {{kStructure, structure}});
    return;
  }
  require(tensors.empty(), Status::kInternal, "'", output.path(), "' cannot hold tensors");
  output.write(structure.data(), structure.size());
  output.write("\n", 1);
}

bool holds_value(const std::string& path, const c10::IValue& value) {
  return same_but_elements(value, read_value(std::make_shared<const MappedFile>(path)));
}

c10::IValue read_value(const std::shared_ptr<const MappedFile>& file) {
  if (!has_extension(file->path(), kSafetensors)) return decode_text(file->text(), {}, file->path());
  const SafetensorsContents contents = read_safetensors(file);
  const auto structure = std::find_if(contents.metadata.begin(), contents.metadata.end(),
                                      [](const auto& entry) { return entry.first == kStructure; });
  require(structure != contents.metadata.end(), Status::kCorrupt, "'", file->path(),
          "' holds no nested value: its metadata has no '", kStructure, "'");
  return decode_text(structure->second, contents.tensors, file->path());
}

}  // namespace accel::checkpoint
