// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/load_checkpoint.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/name_list.hpp"
#include "base/split_text.hpp"
#include "bigmodel/device_map/device_place.hpp"
#include "bigmodel/offload_folder.hpp"
#include "nn/architectures/hub_names.hpp"
#include "nn/layers/encoded_tensors.hpp"
#include "nn/module_walks.hpp"
#include "os/bus_error_guard.hpp"
#include "tensor/dtype.hpp"
#include "tensor/set_data.hpp"
#include "tensor/tensor_chunk.hpp"

namespace accel::bigmodel {
namespace {

// A tensor of the model that gets values.
struct Load {
  std::string name;
  at::Tensor member, weight;  // weight: a tensor of a file, the first one if there are several
  at::ScalarType dtype;
  std::optional<c10::Device> device;  // nothing: it is offloaded
  tensor::PlacementPtr placement;     // in the weight, of a member of which this rank has a part; else null
  std::vector<nn::HubPart> parts;     // what the tensors of files are of the weight; empty: there is one
  std::vector<at::Tensor> tensors;
  std::vector<int64_t> sizes;  // of the weight

  // Reads several tensors of files into memory of its own.
  at::Tensor whole() const { return parts.empty() ? weight : nn::join_hub_parts(parts, tensors, sizes); }
};

class Loader {
 public:
  Loader(const DeviceMap* map, std::optional<c10::Device> main_device, const DispatchSettings& settings)
      : map_(map), settings_(settings) {
    if (map == nullptr) return;
    main_device_ = main_device ? *main_device : main_device_of(*map);
    places_.emplace(*map);
  }

  // All checks.
  std::vector<Load> plan(const nn::Module& model, const nn::NamedTensors& weights, nn::LoadReport& report) const {
    Given given;
    for (const auto& [name, tensor] : weights) given.emplace(name, tensor);
    std::vector<Load> loads;
    std::vector<std::string> misfits, unplaced;
    std::unordered_set<const at::TensorImpl*> planned;  // under any of their names
    std::unordered_set<std::string> known;
    const nn::NamedTensors members = nn::named_members(model);
    const nn::Placements placements = nn::placements(model);
    const nn::HubNames files(model);
    const auto encoded = nn::encoded_tensors(model);
    for (const auto& [name, member] : members) {
      known.insert(name);
      const bool is_exact = encoded.count(member.unsafeGetTensorImpl()) > 0;
      const tensor::PlacementPtr placement = placements.find(member);
      const c10::IntArrayRef sizes = placement == nullptr ? member.sizes() : c10::IntArrayRef(placement->shape);
      std::vector<nn::HubPart> parts;
      std::vector<at::Tensor> tensors;
      auto weight = given.find(name);
      if (weight == given.end()) {
        parts = files.parts_of(name, sizes);
        if (!find_parts(parts, given, known, tensors)) continue;
        weight = given.find(parts.front().name);
        nn::check_hub_parts(parts, tensors, sizes);
        if (parts.front().expert < 0) parts.clear();  // it has another name there
      } else if (weight->second.dim() == 0 && sizes == c10::IntArrayRef{1}) {
        weight->second = weight->second.view({1});  // a number, as files have it
      } else if (weight->second.sizes() != sizes) {
        misfits.push_back(text(name, " ", weight->second.sizes(), " instead of ", sizes));
      }
      require(placement == nullptr || map_ == nullptr, Status::kInvalidArgument, "this rank has a part of '", name,
              "', and there is a device map; expected none for a model that is split over ranks");
      if (placement != nullptr && !member.is_meta()) {
        const at::ScalarType dtype =
            is_exact ? member.scalar_type() : loaded_dtype(name, member, weight->second, settings_);
        require(dtype == member.scalar_type(), Status::kInvalidArgument, "dtype is ", tensor::dtype_name(dtype),
                ", and this rank's part of '", name, "' is ", tensor::dtype_name(member.scalar_type()),
                "; expected this dtype, or a model without memory");
      }
      if (!planned.insert(member.unsafeGetTensorImpl()).second) continue;
      Load load{name,
                member,
                weight->second,
                is_exact ? member.scalar_type() : loaded_dtype(name, member, weight->second, settings_),
                member.device(),
                placement,
                std::move(parts),
                std::move(tensors),
                sizes.vec()};
      if (member.is_meta()) load.device = c10::Device(c10::kCPU);
      if (map_ != nullptr && !find_device(name, load.device)) unplaced.push_back(name);
      loads.push_back(std::move(load));
    }
    for (const auto& [name, tensor] : model.state_dict())
      if (planned.count(nn::find_tensor(model, name).unsafeGetTensorImpl()) == 0) report.missing.push_back(name);
    for (const auto& [name, tensor] : weights)
      if (known.count(name) == 0) report.unexpected.push_back(name);
    require(misfits.empty(), Status::kShapeMismatch, "weights of another shape: ", list_names(misfits),
            "; expected the shapes of the model");
    require(unplaced.empty(), Status::kInvalidArgument, "the device map has no place for ", list_names(unplaced),
            "; expected an entry for each of them, for a module above, or for \"\", the whole model");
    require(!settings_.strict || report.unexpected.empty(), Status::kNotFound, "the checkpoint has ",
            list_names(report.unexpected), ", which the model lacks; load it without strict to leave them out");
    require(!settings_.strict || report.missing.empty(), Status::kNotFound, "the checkpoint lacks ",
            list_names(report.missing), ", which the model has; load it without strict to keep its own");
    return loads;
  }

  // The memory of a weight on the device, of the dtype.
  at::Tensor place(const Load& load) const {
    const at::Tensor whole = load.whole();
    // Reads what the member has of the weight, and no other elements where it is one tensor.
    const at::Tensor part = load.placement == nullptr ? whole : tensor::read_part(whole, *load.placement, load.name);
    if (!load.device->is_cpu() || part.scalar_type() != load.dtype) return part.to(*load.device, load.dtype);
    const bool is_joined = !load.parts.empty();
    const bool is_own = (is_joined && load.placement == nullptr) || !part.is_alias_of(whole);
    const bool may_be_mapped = settings_.map_weights && !is_joined;
    if (is_own || (may_be_mapped && (load.placement == nullptr || part.is_contiguous()))) return part;
    return part.clone();
  }

 private:
  using Given = std::unordered_map<std::string_view, at::Tensor>;
  // The tensors of files that together are a weight. False: there is none of them.
  static bool find_parts(const std::vector<nn::HubPart>& parts, const Given& given,
                         std::unordered_set<std::string>& known, std::vector<at::Tensor>& tensors) {
    std::vector<std::string> lacking;
    for (const nn::HubPart& part : parts) {
      const auto found = given.find(part.name);
      if (found == given.end()) {
        lacking.push_back(part.name);
        continue;
      }
      known.insert(part.name);
      tensors.push_back(found->second);
    }
    require(tensors.empty() || lacking.empty(), Status::kNotFound, "the checkpoint lacks ", list_names(lacking),
            "; expected them beside ", parts.empty() ? "" : parts.front().name, " and its like");
    return !tensors.empty();
  }

  // False if the map does not cover the name.
  bool find_device(const std::string& name, std::optional<c10::Device>& device) const {
    const std::string* const place = places_->find(name);
    if (place == nullptr) return false;
    device = is_offloaded(*place, main_device_) ? std::nullopt : device_of_place(*place);
    return true;
  }

  const DeviceMap* map_;
  const DispatchSettings& settings_;
  c10::Device main_device_{c10::kCPU};
  std::optional<DevicePlaces> places_;
};

// A name matches anywhere in a path, as in Accelerate: "norm" means "layers.0.layernorm" too, and "wo" does not mean
// "word_embeddings".
bool is_in_any_module(const std::string& name, const std::vector<std::string>& modules) {
  return std::any_of(modules.begin(), modules.end(), [&name](const std::string& module) {
    return name == module || name.find(module + ".") != std::string::npos;
  });
}

at::Tensor meta_like(const Load& load) {
  const auto options = load.weight.options().dtype(load.dtype).device(at::kMeta);
  return load.parts.empty() ? at::empty_like(load.weight, options) : at::empty(load.sizes, options);
}

}  // namespace

at::ScalarType loaded_dtype(const std::string& name, const at::Tensor& member, const at::Tensor& weight,
                            const DispatchSettings& settings) {
  if (!member.is_floating_point() || !settings.dtype.value) return member.scalar_type();
  // Integers are not numbers to be rounded, but what gets gradients cannot be integer.
  if (!weight.is_floating_point() && !member.requires_grad()) return weight.scalar_type();
  const at::ScalarType dtype = tensor::dtype_from_number(static_cast<int32_t>(*settings.dtype.value));
  require(at::isFloatingType(dtype), Status::kInvalidArgument, "dtype is ", tensor::dtype_name(dtype),
          "; expected a floating one, for weights");
  if (dtype != at::kHalf) return dtype;
  return is_in_any_module(name, split_text(settings.keep_in_fp32_modules.value)) ? at::kFloat : dtype;
}

LoadedCheckpoint load_checkpoint(nn::Module& model, const nn::NamedTensors& weights, const DeviceMap* map,
                                 std::optional<c10::Device> main_device, const DispatchSettings& settings,
                                 bool needs_all) {
  const at::NoGradGuard no_grad;
  const Loader loader(map, main_device, settings);
  LoadedCheckpoint loaded;
  const std::vector<Load> loads = loader.plan(model, weights, loaded.report);
  if (needs_all) {
    std::vector<std::string> without;
    for (const std::string& name : loaded.report.missing)
      if (nn::find_tensor(model, name).is_meta()) without.push_back(name);
    require(without.empty(), Status::kNotFound, "the checkpoint has no weights for ", list_names(without),
            ", which are meta tensors in the model; expected a checkpoint of this model");
  }
  const BusErrorGuard lost_pages;
  std::vector<at::Tensor> values;
  for (const Load& load : loads) values.push_back(load.device ? loader.place(load) : meta_like(load));
  lost_pages.check();
  for (size_t i = 0; i < loads.size(); i++) {
    if (loads[i].placement != nullptr && !loads[i].member.is_meta()) {  // its memory may be a part of other memory
      loads[i].member.detach().copy_(values[i]);
      continue;
    }
    tensor::set_data(loads[i].member, values[i].detach());
    if (loads[i].device)
      loaded.files.add(values[i]);
    else
      loaded.offloaded.emplace_back(loads[i].name, loads[i].whole());
  }
  lost_pages.check();
  return loaded;
}

nn::NamedTensors place_weights(const nn::NamedTensors& weights, const DeviceMap& map) {
  const DevicePlaces places(map);
  std::map<std::pair<const at::TensorImpl*, std::string>, at::Tensor> placed;  // tied ones stay one on each device
  nn::NamedTensors result;
  const BusErrorGuard lost_pages;
  for (const auto& [name, weight] : weights) {
    const std::string* const place = places.find(name);
    const auto [entry, is_new] =
        placed.try_emplace({weight.unsafeGetTensorImpl(), place == nullptr ? "disk" : *place}, weight);
    if (is_new)
      if (const std::optional<c10::Device> device = device_of_place(entry->first.second))
        entry->second = weight.to(*device);
    result.emplace_back(name, entry->second);
  }
  lost_pages.check();
  return result;
}

void write_offload_folder(const std::string& folder, const nn::Module& model, const nn::NamedTensors& offloaded,
                          bool all) {
  std::vector<OffloadEntry> entries;
  nn::NamedTensors copies;
  const nn::HubNames names(model);
  for (const auto& [name, weight] : offloaded) {
    const at::ScalarType dtype = nn::find_tensor(model, name).scalar_type();
    const std::string file = mapped_path(weight.const_data_ptr());
    constexpr std::string_view kSuffix = ".safetensors";
    const bool is_safetensors = file.size() > kSuffix.size() && file.rfind(kSuffix) == file.size() - kSuffix.size();
    const bool has_its_name = names.parts_of(name, weight.sizes()).empty();
    if (!all && is_safetensors && has_its_name && weight.scalar_type() == dtype)
      entries.push_back({name, dtype, weight.sizes().vec(), file, name});
    else
      copies.emplace_back(name, weight.to(dtype));
  }
  offload_state_dict(folder, copies, entries);
}

}  // namespace accel::bigmodel
