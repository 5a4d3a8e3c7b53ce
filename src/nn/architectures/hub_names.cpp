// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/hub_names.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string_view>

#include "base/error.hpp"
#include "nn/layers/encoded_tensors.hpp"
#include "nn/layers/mixture_of_experts.hpp"
#include "nn/module_walks.hpp"

namespace accel::nn {
namespace {

// The path before a module of this name, and that behind it; false: the path leads through none.
bool split_path(std::string_view path, const std::string& module, std::string_view& before, std::string_view& behind) {
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = path.find('.', begin);
    if (end == std::string_view::npos) return false;
    if (path.substr(begin, end - begin) == module) {
      before = path.substr(0, begin);
      behind = path.substr(end + 1);
      return true;
    }
    begin = end + 1;
  }
  return false;
}

}  // namespace

at::Tensor HubPart::of(const at::Tensor& whole) const {
  return expert < 0 ? whole : whole.select(0, expert).narrow(0, begin, rows);
}

HubNames::HubNames(const Module& model) {
  for (const auto& [path, module] : named_modules(model)) {
    if (const auto* const renamed = dynamic_cast<const RenamedChildren*>(module))
      for (const auto& [child, hub_name] : renamed->hub_children())
        paths_.emplace_back(join_path(path, child) + ".", join_path(path, hub_name) + ".");
    if (const auto* const with_numbers = dynamic_cast<const SingleNumbers*>(module))
      for (const std::string& number : with_numbers->single_numbers()) numbers_.insert(join_path(path, number));
    if (const EncodedWeight* const encoded = encoded_weight(*module))
      for (const auto& [member, hub_name] : encoded->file_names())
        members_.emplace(join_path(path, member), join_path(path, hub_name));
    const auto* const mixture = dynamic_cast<const MixtureOfExperts*>(module);
    if (mixture == nullptr || mixture->files().path.empty()) continue;
    const std::string name = path.substr(path.rfind('.') + 1);
    const bool is_known =
        std::any_of(mixtures_.begin(), mixtures_.end(), [&](const auto& known) { return known.first == name; });
    if (!is_known) mixtures_.emplace_back(name, mixture->files());
  }
}

std::vector<HubPart> HubNames::parts_of(const std::string& name, at::IntArrayRef sizes) const {
  const auto member = members_.find(name);
  if (member == members_.end()) return parts_of_path(name, sizes);
  std::vector<HubPart> parts = parts_of_path(member->second, sizes);
  if (parts.empty()) parts.push_back({member->second});
  return parts;
}

std::vector<HubPart> HubNames::parts_of_path(const std::string& name, at::IntArrayRef sizes) const {
  for (const auto& [path, hub_path] : paths_)
    if (name.compare(0, path.size(), path) == 0) return {{hub_path + name.substr(path.size())}};
  for (const auto& [mixture, files] : mixtures_) {
    std::string_view before, behind;
    if (!split_path(name, mixture, before, behind)) continue;
    const std::string base = std::string(before) + files.path + ".";
    const bool is_gate_up = behind == "experts.gate_up_proj";
    if (!is_gate_up && behind != "experts.down_proj") {
      if (files.path == mixture) return {};
      return {{base + std::string(behind)}};
    }
    if (sizes.size() != 3) return {};
    std::vector<HubPart> parts;
    for (int64_t expert = 0; expert < sizes[0]; expert++) {
      const std::string path = text(base, "experts.", expert, ".");
      const int64_t rows = is_gate_up ? sizes[1] / 2 : sizes[1];
      parts.push_back({path + (is_gate_up ? files.gate : files.down) + ".weight", expert, 0, rows});
      if (is_gate_up) parts.push_back({path + files.up + ".weight", expert, rows, rows});
    }
    return parts;
  }
  return {};
}

NamedTensors HubNames::to_files(const NamedTensors& state) const {
  NamedTensors named;
  for (const auto& [name, tensor] : state) {
    const std::vector<HubPart> parts = parts_of(name, tensor.sizes());
    const bool is_number = numbers_.count(name) > 0 && tensor.numel() == 1;
    if (parts.empty()) named.emplace_back(name, is_number ? tensor.view(at::IntArrayRef{}) : tensor);
    for (const HubPart& part : parts) named.emplace_back(part.name, part.of(tensor));
  }
  return named;
}

void check_hub_parts(const std::vector<HubPart>& parts, const std::vector<at::Tensor>& tensors, at::IntArrayRef sizes) {
  for (size_t i = 0; i < parts.size(); i++) {
    const bool is_whole = parts[i].expert < 0;
    const std::vector<int64_t> matrix{parts[i].rows, is_whole ? 0 : sizes.back()};
    const at::IntArrayRef expected = is_whole ? sizes : at::IntArrayRef(matrix);
    require(tensors[i].sizes() == expected, Status::kShapeMismatch, "weights of another shape: ", parts[i].name, " ",
            tensors[i].sizes(), " instead of ", expected, "; expected the shapes of the model");
  }
}

at::Tensor join_hub_parts(const std::vector<HubPart>& parts, const std::vector<at::Tensor>& tensors,
                          at::IntArrayRef sizes) {
  check_hub_parts(parts, tensors, sizes);
  if (parts.size() == 1 && parts[0].expert < 0) return tensors[0];
  const at::Tensor whole = at::empty(sizes, tensors[0].options());
  for (size_t i = 0; i < parts.size(); i++) parts[i].of(whole).copy_(tensors[i]);
  return whole;
}

}  // namespace accel::nn
