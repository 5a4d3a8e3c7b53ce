// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/offload_folder.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "checkpoint/files/atomic_file.hpp"
#include "checkpoint/files/make_folders.hpp"
#include "checkpoint/formats/safetensors.hpp"
#include "json/json.hpp"
#include "os/bus_error_guard.hpp"
#include "os/mapped_file.hpp"
#include "os/regular_file.hpp"
#include "tensor/dtype.hpp"

namespace accel::bigmodel {
namespace {

constexpr const char* kIndexName = "index.json";

std::string index_path(const std::string& folder) { return folder + "/" + kIndexName; }

std::string data_path(const std::string& folder, const std::string& name) {
  require(!name.empty() && name.find('/') == std::string::npos && name.front() != '.', Status::kInvalidArgument,
          "the name '", name,
          "' cannot be that of an offloaded weight; expected one without '/' and without a dot first");
  return folder + "/" + name + ".dat";
}

Json::Members parse_index(const std::string& text, const std::string& source) {
  const Json json = parse_json(text, source);
  require(json.members() != nullptr, Status::kCorrupt, "'", source, "' is not a JSON object; expected one of names");
  return *json.members();
}

Json::Members read_index(const std::string& folder) {
  return parse_index(RegularFile(index_path(folder)).read(), index_path(folder));
}

Json json_of(const OffloadEntry& entry) {
  Json::Members members;
  if (!entry.safetensors_file.empty()) {
    members.emplace_back("safetensors_file", Json(entry.safetensors_file));
    members.emplace_back("weight_name", Json(entry.weight_name));
  }
  members.emplace_back("dtype", Json(tensor::dtype_name(entry.dtype)));
  Json::Items shape;
  for (const int64_t size : entry.shape) shape.push_back(Json::number(size));
  members.emplace_back("shape", Json(std::move(shape)));
  return Json(std::move(members));
}

void write_file(const std::string& path, const void* data, size_t size) {
  checkpoint::AtomicFile file(path);
  file.output().write(data, size);
  file.commit();
}

void write_index(const std::string& folder, Json::Members index) {
  const std::string document = print_json(Json(std::move(index)));
  write_file(index_path(folder), document.data(), document.size());
}

// The shape of an entry, whose elements must fill the bytes.
std::vector<int64_t> read_shape(const Json& entry, const std::string& name, uint64_t bytes, size_t element_size) {
  const Json* const shape = json_member(entry, "shape");
  require(shape != nullptr && shape->items() != nullptr, Status::kCorrupt, "the index has no shape of '", name,
          "'; expected a list of sizes");
  std::vector<int64_t> sizes;
  uint64_t left = bytes / element_size;  // elements that further dimensions may have
  bool is_empty = false;
  for (const Json& item : *shape->items()) {
    const std::optional<int64_t> size = item.integer();
    require(size && *size >= 0, Status::kCorrupt, "the shape of '", name, "' in the index has ", print_json(item),
            "; expected sizes");
    sizes.push_back(*size);
    is_empty = is_empty || *size == 0;
    if (*size > 0) left /= static_cast<uint64_t>(*size);
  }
  // Nothing overflows: the product is compared only if no partial one is larger than the file.
  uint64_t elements = 1;
  for (const int64_t size : sizes)
    if (!is_empty && left > 0) elements *= static_cast<uint64_t>(size);
  require(is_empty || (left > 0 && elements * element_size == bytes), Status::kCorrupt, "the file of '", name, "' has ",
          bytes, " bytes; expected those of its shape and dtype in the index");
  return sizes;
}

at::Tensor open_data_file(const std::string& folder, const std::string& name, const Json& entry) {
  const std::string dtype_name = json_text(entry, "dtype", "");
  const tensor::Dtype* const dtype = tensor::find_dtype(dtype_name);
  require(dtype != nullptr, Status::kCorrupt, "the index has the dtype '", dtype_name, "' for '", name,
          "'; expected one such as float32");
  const auto file = std::make_shared<const MappedFile>(data_path(folder, name));
  const std::vector<int64_t> shape = read_shape(entry, name, file->size(), dtype->size);
  return at::from_blob(
      file->data(), shape, [file](void*) {}, at::TensorOptions().dtype(dtype->type));
}

using OpenFiles = std::map<std::string, std::unordered_map<std::string, at::Tensor>>;

at::Tensor find_in_safetensors(OpenFiles& files, const std::string& path, const std::string& name) {
  const auto [file, is_new] = files.try_emplace(path);
  if (is_new)
    for (auto& [key, tensor] : checkpoint::load_safetensors(path).tensors) file->second.emplace(key, std::move(tensor));
  const auto found = file->second.find(name);
  require(found != file->second.end(), Status::kCorrupt, "'", path, "' has no tensor '", name,
          "', which the index expects there");
  return found->second;
}

at::Tensor open_entry(const OffloadedWeightsPlace& place, const std::string& name, const Json& entry,
                      OpenFiles& files) {
  require(entry.members() != nullptr, Status::kCorrupt, "the index has no description of '", name,
          "'; expected an object with its dtype and shape");
  const std::string file = json_text(entry, "safetensors_file", "");
  if (file.empty()) {
    require(!place.folder.empty(), Status::kInvalidArgument, "'", name,
            "' has no safetensors_file in the index and folder is NULL; expected the folder of its .dat file");
    return open_data_file(place.folder, name, entry);
  }
  const at::Tensor tensor = find_in_safetensors(files, file, json_text(entry, "weight_name", name));
  const std::string dtype = json_text(entry, "dtype", "");
  return tensor.to(place.device.value_or(c10::kCPU),
                   dtype.empty() ? tensor.scalar_type() : tensor::dtype_from_name(dtype));
}

void remove_from_index(const std::string& folder, const nn::NamedTensors& tensors) {
  if (!has_offload_index(folder)) return;
  std::unordered_set<std::string> names;
  for (const auto& [name, tensor] : tensors) names.insert(name);
  Json::Members index = read_index(folder);
  const auto removed =
      std::remove_if(index.begin(), index.end(), [&](const auto& entry) { return names.count(entry.first) > 0; });
  if (removed == index.end()) return;
  index.erase(removed, index.end());
  write_index(folder, std::move(index));
}

}  // namespace

bool has_offload_index(const std::string& folder) {
  std::error_code error;
  return std::filesystem::is_regular_file(index_path(folder), error);
}

void write_offload_index(const std::string& folder, const std::vector<OffloadEntry>& entries) {
  checkpoint::make_folders(folder);
  Json::Members index = has_offload_index(folder) ? read_index(folder) : Json::Members();
  std::unordered_map<std::string, size_t> places;
  for (size_t i = 0; i < index.size(); i++) places.emplace(index[i].first, i);
  for (const OffloadEntry& entry : entries) {
    const auto [place, is_new] = places.emplace(entry.name, index.size());
    if (is_new)
      index.emplace_back(entry.name, json_of(entry));
    else
      index[place->second].second = json_of(entry);
  }
  write_index(folder, std::move(index));
}

void offload_state_dict(const std::string& folder, const nn::NamedTensors& tensors,
                        const std::vector<OffloadEntry>& further) {
  std::vector<OffloadEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    checkpoint::check_writable(name, tensor);
    data_path(folder, name);  // all names are checked before the first file
  }
  checkpoint::make_folders(folder);
  remove_from_index(folder, tensors);
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor plain = checkpoint::dense_on_cpu(tensor);
    write_file(data_path(folder, name), plain.const_data_ptr(), plain.nbytes());
    entries.push_back({name, plain.scalar_type(), plain.sizes().vec(), {}, {}});
  }
  entries.insert(entries.end(), further.begin(), further.end());
  write_offload_index(folder, entries);
}

nn::NamedTensors open_offloaded_weights(const OffloadedWeightsPlace& place) {
  nn::NamedTensors tensors;
  OpenFiles files;
  Json::Members index;
  if (place.index)
    index = parse_index(*place.index, "index");
  else if (!place.folder.empty())
    index = read_index(place.folder);
  const BusErrorGuard lost_pages;
  for (const auto& [name, entry] : index)
    if (starts_with(name, place.prefix))
      tensors.emplace_back(name.substr(place.prefix.size()), open_entry(place, name, entry, files));
  lost_pages.check();
  return tensors;
}

nn::NamedTensors open_offload_folder(const std::string& folder) {
  OffloadedWeightsPlace place;
  place.folder = folder;
  return open_offloaded_weights(place);
}

}  // namespace accel::bigmodel
