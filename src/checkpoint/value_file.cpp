#include "checkpoint/value_file.hpp"

#include <algorithm>
#include <string_view>

#include "base/error.hpp"
#include "base/text_check.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/value_json.hpp"

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
  if (value.isList()) {
    const auto items = value.toListRef();
    return std::any_of(items.begin(), items.end(), has_tensors);
  }
  if (value.isTuple()) {
    const auto& items = value.toTupleRef().elements();
    return std::any_of(items.begin(), items.end(), has_tensors);
  }
  if (!value.isGenericDict()) return false;
  const auto dict = value.toGenericDict();
  return std::any_of(dict.begin(), dict.end(), [](const auto& entry) { return has_tensors(entry.value()); });
}

c10::IValue decode_text(std::string_view text, const NamedTensors& tensors, const std::string& source) {
  const size_t bad = first_bad_byte(text, TextKind::kJson);
  require(bad == text.size(), Status::kCorrupt, "'", source,
          "' is damaged: it has an invalid or forbidden character at byte ", bad, " of its JSON");
  Json json;
  try {
    json = parse_json(text, "its JSON");
  } catch (const Error& error) {
    fail(Status::kCorrupt, "'", source, "' is damaged: ", error.message());
  }
  return decode_value(json.get(), tensors, source);
}

}  // namespace

const char* value_extension(const c10::IValue& value, ValueContainer container) {
  return container == ValueContainer::kSafetensors || has_tensors(value) ? kSafetensors : kJson;
}

void write_value(OutputFile& output, const c10::IValue& value) {
  NamedTensors tensors;
  const std::string structure = print_json(encode_value(value, tensors).get());
  if (has_extension(output.path(), kSafetensors)) {
    write_safetensors(output, tensors, {{kStructure, structure}});
    return;
  }
  require(tensors.empty(), Status::kInternal, "'", output.path(), "' cannot hold tensors");
  output.write(structure.data(), structure.size());
  output.write("\n", 1);
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
