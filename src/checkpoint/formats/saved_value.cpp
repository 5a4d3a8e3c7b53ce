#include "checkpoint/formats/saved_value.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>

#include "base/error.hpp"
#include "checkpoint/formats/torch_file.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

bool is_map_of_tensors(const c10::IValue& value) {
  if (!value.isGenericDict()) return false;
  const auto map = value.toGenericDict();
  return std::all_of(map.begin(), map.end(), [](const auto& member) {
    return member.key().isString() && member.value().isTensor() && member.value().toTensor().defined();
  });
}

}  // namespace

void save_value(const std::string& path, const c10::IValue& value, bool safe_serialization, const Metadata& metadata,
                FileSystem& files) {
  if (safe_serialization && is_map_of_tensors(value)) {
    NamedTensors tensors;
    for (const auto& member : value.toGenericDict())
      tensors.emplace_back(member.key().toStringRef(), member.value().toTensor());
    const SafetensorsContents contents = drop_tied(tensors, metadata);
    save_safetensors(path, contents.tensors, contents.metadata, files);
    return;
  }
  require(metadata.empty(), Status::kInvalidArgument,
          "metadata is given for a value that is no map of tensors; only safetensors files hold metadata");
  save_torch_file(path, value, files);
}

c10::IValue load_value(const std::string& path) {
  const auto file = std::make_shared<const MappedFile>(path);
  if (is_torch_file(file->text().substr(0, kTorchFileBytes))) return read_torch_file(file);
  SafetensorsContents contents = read_safetensors(file);
  restore_tied(contents);
  auto map = tree::new_map();
  for (auto& [name, tensor] : contents.tensors) map.insert(name, std::move(tensor));
  return map;
}

}  // namespace accel::checkpoint
