// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/safetensors.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "base/error.hpp"
#include "checkpoint/formats/torch/mapped_storage.hpp"
#include "os/bus_error_guard.hpp"

namespace accel::checkpoint {
namespace {

constexpr const char* kFormatKey = "format";  // of metadata; its value is never the name of a tensor

std::vector<TensorEntry> entries_of(const NamedTensors& tensors) {
  std::vector<TensorEntry> entries;
  entries.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors)
    entries.push_back({name, tensor.scalar_type(), tensor.sizes().vec(), 0, 0});
  return entries;
}

}  // namespace

void check_writable(const std::string& name, const at::Tensor& tensor) {
  require(tensor.defined(), Status::kTypeMismatch, "tensor '", name, "' is empty; expected a tensor with a dtype");
  require(tensor.layout() == at::kStrided && !tensor.is_quantized(), Status::kTypeMismatch, "tensor '", name,
          "' is sparse or quantized; safetensors files hold dense tensors");
  require(!tensor.is_meta(), Status::kTypeMismatch, "tensor '", name,
          "' is on the meta device and has no data to write");
}

at::Tensor dense_on_cpu(const at::Tensor& tensor) {
  return tensor::on_host(tensor.detach()).resolve_conj().resolve_neg().contiguous();
}

void visit_elements(const at::Tensor& tensor, const tensor::VisitBytes& visit) {
  const bool is_as_written = tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  tensor::read_on_host(is_as_written ? tensor : dense_on_cpu(tensor), visit);
}

void write_safetensors(OutputFile& output, const NamedTensors& tensors, const Metadata& metadata) {
  std::unordered_map<std::string_view, const at::Tensor*> by_name;
  for (const auto& [name, tensor] : tensors) {
    check_writable(name, tensor);
    by_name.emplace(name, &tensor);
  }
  std::vector<TensorEntry> entries = entries_of(tensors);
  const std::string header = print_safetensors_header(metadata, entries);
  output.write(header.data(), header.size());
  for (const TensorEntry& entry : entries)
    visit_elements(*by_name.at(entry.name), [&](const char* data, size_t size) { output.write(data, size); });
}

void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata,
                      FileSystem& files) {
  AtomicFile file(path, files);
  write_safetensors(file.output(), tensors, metadata);
  file.commit([&](const std::string& written) {
    read_back(written, [&] { return has_header_of(written, tensors, metadata); });
  });
}

bool has_header_of(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  const MappedFile file(path);
  const SafetensorsHeader header = parse_safetensors_header(file.text(), path);
  std::vector<TensorEntry> entries = entries_of(tensors);
  return header.metadata == metadata &&
         file.text().substr(0, header.data_begin) == print_safetensors_header(metadata, entries) &&
         header.tensors == entries;
}

SafetensorsContents read_safetensors(const std::shared_ptr<const MappedFile>& file) {
  const BusErrorGuard guard;
  SafetensorsHeader header = parse_safetensors_header(file->text(), file->path());
  SafetensorsContents contents;
  contents.metadata = std::move(header.metadata);
  contents.tensors.reserve(header.tensors.size());
  for (TensorEntry& entry : header.tensors) {
    at::Tensor tensor = at::empty({0}, at::TensorOptions().dtype(entry.dtype));
    if (entry.begin == entry.end) {
      tensor = tensor.view(entry.shape);  // its strides may be larger than 64 bits hold
    } else {
      const std::string_view bytes = file->text().substr(header.data_begin + entry.begin, entry.end - entry.begin);
      at::DataPtr data = mapped_data(file, bytes, c10::elementSize(entry.dtype));
      tensor.set_(fixed_storage(std::move(data), bytes.size()), 0, entry.shape);
    }
    contents.tensors.emplace_back(std::move(entry.name), std::move(tensor));
  }
  guard.check();
  return contents;
}

SafetensorsContents load_safetensors(const std::string& path) {
  return read_safetensors(std::make_shared<const MappedFile>(path));
}

SafetensorsContents drop_tied(const NamedTensors& tensors, const Metadata& metadata) {
  using Identity = std::tuple<const void*, at::ScalarType, std::vector<int64_t>, std::vector<int64_t>>;
  std::map<Identity, std::string> first_names;
  SafetensorsContents contents;
  for (const auto& [name, tensor] : tensors) {
    check_writable(name, tensor);
    if (tensor.numel() > 0) {
      const Identity identity{tensor.const_data_ptr(), tensor.scalar_type(), tensor.sizes().vec(),
                              tensor.strides().vec()};
      const auto [first, is_new] = first_names.emplace(identity, name);
      if (!is_new) {
        contents.metadata.emplace_back(name, first->second);
        continue;
      }
    }
    contents.tensors.emplace_back(name, tensor);
  }
  const Metadata tied = contents.metadata;
  std::unordered_set<std::string_view> written;
  for (const auto& entry : contents.tensors) written.insert(entry.first);
  for (const auto& entry : metadata) {
    for (const auto& [name, first] : tied)
      require(entry.first != name, Status::kInvalidArgument, "metadata has '", name,
              "', which is the name of a tensor that is the same as '", first, "'; expected another key");
    require(entry.first == kFormatKey || written.count(entry.first) > 0 || written.count(entry.second) == 0,
            Status::kInvalidArgument, "metadata['", entry.first, "'] is '", entry.second,
            "', the name of a tensor: it would be read as another name of that; expected another text");
    contents.metadata.push_back(entry);
  }
  return contents;
}

void restore_tied(SafetensorsContents& contents) {
  std::unordered_map<std::string, at::Tensor> by_name(contents.tensors.begin(), contents.tensors.end());
  for (const auto& [name, first] : contents.metadata) {
    if (name == kFormatKey) continue;
    const auto found = by_name.find(first);
    if (found != by_name.end() && by_name.count(name) == 0) contents.tensors.emplace_back(name, found->second);
  }
}

}  // namespace accel::checkpoint
