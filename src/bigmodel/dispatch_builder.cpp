// SPDX-License-Identifier: Apache-2.0
// Makes a Dispatch: decides where each tensor of a model is, and which modules are blocks.
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <unordered_set>

#include "base/error.hpp"
#include "base/name_list.hpp"
#include "base/split_text.hpp"
#include "bigmodel/device_map/device_map.hpp"
#include "bigmodel/device_map/device_place.hpp"
#include "bigmodel/dispatch.hpp"
#include "bigmodel/offload_folder.hpp"
#include "nn/module_walks.hpp"
#include "os/bus_error_guard.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/set_data.hpp"
#include "tensor/tree.hpp"

namespace accel::bigmodel {
namespace {

constexpr int64_t kLeastBlockBytes = int64_t{64} << 20;

bool can_be_hooked(const nn::Module& module) {
  try {
    module.check_hookable();
    return module.has_forward();
  } catch (const Error&) {  // a part of a script
    return false;
  }
}

}  // namespace

class DispatchBuilder {
 public:
  DispatchBuilder(nn::Module& model, const DeviceMap& map, const nn::NamedTensors& offloaded,
                  const DispatchSettings& settings, std::optional<int64_t> main_bytes)
      : settings_(settings),
        main_bytes_(main_bytes),
        places_(map),
        dispatch_(new Dispatch(map)),
        values_(by_name(offloaded)) {
    dispatch_->main_device_ = main_device(map);
    require_paths(model, map);
    for (const auto& [path, place] : map) device_of_place(place);
    for (const auto& [name, tensor] : model.state_dict()) saved_names_.insert(name);
    add_node(model, "");
    check_places();
  }

  std::shared_ptr<Dispatch> build(MappedFiles files) {
    std::vector<DeviceCopy> copies = plan_copies();
    find_values(copies);
    write_weights(copies);
    place(copies);
    const bool is_spread = dispatch_->is_spread() || !dispatch_->offloaded_.empty();
    if (!is_spread && !settings_.force_hooks) return nullptr;
    add_blocks();
    dispatch_->files_ = std::move(files);
    for (const auto& [key, tensor] : dispatch_->offloaded_) dispatch_->files_.add(tensor->source());
    for (size_t node = 0; node < nodes_.size(); node++) add_hooks(node);
    return dispatch_;
  }

 private:
  using Values = std::unordered_map<std::string, at::Tensor>;

  // The first of each name.
  static Values by_name(const nn::NamedTensors& tensors) { return {tensors.begin(), tensors.end()}; }

  // A module of the tree, once, under its first path.
  struct ModuleNode {
    nn::Module* module;
    std::string path;
    bool is_called;      // hooks on it have an effect
    c10::Device device;  // that computes
    std::vector<size_t> children;
  };

  // A tensor of a module.
  struct TensorUse {
    size_t node;
    std::string name, path;
    bool is_buffer;
    c10::Device device;
    bool is_offloaded;
    bool is_on_disk;
  };

  // A tensor and all of its uses, also tied ones.
  struct PlacedTensor {
    at::Tensor tensor;
    std::vector<TensorUse> uses;
  };

  // The copy of a tensor that one device needs.
  struct DeviceCopy {
    at::Tensor tensor;  // the member
    const PlacedTensor* of;
    at::Tensor value;
    c10::Device device;
    bool is_offloaded;
  };

  c10::Device main_device(const DeviceMap& map) const {
    if (settings_.main_device.value.empty()) return main_device_of(map);
    const std::optional<c10::Device> device = device_of_place(settings_.main_device);
    require(device.has_value(), Status::kInvalidArgument, "main_device is 'disk'; expected the CPU or an accelerator");
    return *device;
  }

  // The device that computes what has this place.
  c10::Device computes(const std::string& place) const {
    return is_offloaded(place, dispatch_->main_device_) ? dispatch_->main_device_ : *device_of_place(place);
  }

  size_t add_node(nn::Module& module, const std::string& path) {
    const auto [known, is_new] = indexes_.emplace(&module, nodes_.size());
    if (!is_new) return known->second;
    const size_t index = nodes_.size();
    const std::string* const place = places_.find(path);
    nodes_.push_back(
        {&module, path, can_be_hooked(module), place == nullptr ? dispatch_->main_device_ : computes(*place), {}});
    for (const nn::Module::Member& member : nn::members_of(module)) add_use(index, member);
    for (const auto& [name, child] : module.children()) {
      const size_t node = add_node(*child, tree::path_below(path, name));
      nodes_[index].children.push_back(node);
    }
    return index;
  }

  void add_use(size_t node, const nn::Module::Member& member) {
    const std::string path = tree::path_below(nodes_[node].path, member.name);
    const std::string* const place = places_.find(path);
    if (place == nullptr) {
      unplaced_.push_back(path);
      return;
    }
    const auto [known, is_new] = tensor_indexes_.emplace(member.tensor.unsafeGetTensorImpl(), tensors_.size());
    if (is_new) tensors_.push_back({member.tensor, {}});
    const bool moves = is_offloaded(*place, dispatch_->main_device_);
    tensors_[known->second].uses.push_back({node, member.name, path, member.is_buffer, computes(*place),
                                            moves && (!member.is_buffer || settings_.offload_buffers),
                                            *place == "disk"});
  }

  void check_places() const {
    require(unplaced_.empty(), Status::kInvalidArgument, "the device map has no place for ", list_names(unplaced_),
            "; expected an entry for each of them, for a module above, or for \"\", the whole model");
  }

  // One for each device that computes with the tensor. On further devices a tied tensor is one of its own.
  std::vector<DeviceCopy> plan_copies() const {
    std::vector<DeviceCopy> copies;
    for (const PlacedTensor& tensor : tensors_) {
      const size_t first = copies.size();
      for (const TensorUse& use : tensor.uses) {
        const auto known = std::find_if(copies.begin() + static_cast<std::ptrdiff_t>(first), copies.end(),
                                        [&use](const DeviceCopy& copy) { return copy.device == use.device; });
        if (known == copies.end())
          copies.push_back({tensor.tensor, &tensor, {}, use.device, use.is_offloaded});
        else
          known->is_offloaded = known->is_offloaded && use.is_offloaded;
      }
    }
    return copies;
  }

  static at::Tensor find_value(const Values& values, const PlacedTensor& tensor) {
    for (const TensorUse& use : tensor.uses) {
      const auto value = values.find(use.path);
      if (value != values.end()) return value->second;
    }
    return {};
  }

  at::Tensor value_of(const PlacedTensor& tensor) const {
    const at::Tensor given = find_value(values_, tensor);
    return given.defined() || tensor.tensor.is_meta() ? given : tensor.tensor.detach();
  }

  void find_values(std::vector<DeviceCopy>& copies) const {
    std::vector<std::string> missing, misfits;
    for (DeviceCopy& copy : copies) {
      copy.value = value_of(*copy.of);
      const std::string& path = copy.of->uses[0].path;
      if (!copy.value.defined())
        missing.push_back(path);
      else if (copy.value.sizes() != copy.tensor.sizes())
        misfits.push_back(text(path, " ", copy.value.sizes(), " instead of ", copy.tensor.sizes()));
    }
    require(missing.empty(), Status::kNotFound, "no weights for ", list_names(missing),
            ": they are meta tensors, and neither loaded nor offloaded; load a checkpoint that has them first");
    require(misfits.empty(), Status::kShapeMismatch, "offloaded weights of another shape: ", list_names(misfits),
            "; expected the shapes of the model");
  }

  // Weights on disk that are in the memory of the model, and nowhere else, go to the offload folder. So do buffers,
  // which stay in memory too: the folder is complete for those who use it next. Buffers that are never saved are not
  // weights.
  void write_weights(std::vector<DeviceCopy>& copies) const {
    nn::NamedTensors written;
    std::vector<std::string> moved;
    for (const DeviceCopy& copy : copies) {
      if (find_value(values_, *copy.of).defined()) continue;
      for (const TensorUse& use : copy.of->uses) {
        if (use.device != copy.device || !use.is_on_disk || saved_names_.count(use.path) == 0) continue;
        if (copy.is_offloaded) moved.push_back(use.path);
        if (copy.is_offloaded || use.is_buffer) written.emplace_back(use.path, copy.value);
      }
    }
    if (moved.empty()) return;
    require(!settings_.offload_folder.value.empty(), Status::kInvalidArgument, "the device map has ", list_names(moved),
            " on disk, where no file has them, and offload_folder is not set; expected a folder for them");
    const BusErrorGuard lost_pages;
    offload_state_dict(settings_.offload_folder, written);
    lost_pages.check();
    Values files;  // others there may be older
    const Values known = by_name(written);
    for (auto& [name, tensor] : open_offload_folder(settings_.offload_folder))
      if (known.count(name) != 0) files.emplace(name, tensor);
    for (DeviceCopy& copy : copies)
      if (copy.is_offloaded && !find_value(values_, *copy.of).defined())
        if (const at::Tensor value = find_value(files, *copy.of); value.defined()) copy.value = value;
  }

  void place(std::vector<DeviceCopy>& copies) {
    const at::NoGradGuard no_grad;
    const BusErrorGuard lost_pages;
    // Steps that may fail come first: devices may be full.
    std::vector<at::Tensor> resident;
    for (const DeviceCopy& copy : copies) resident.push_back(copy.is_offloaded ? at::Tensor() : on_device(copy));
    lost_pages.check();
    for (size_t i = 0; i < copies.size(); i++) {
      DeviceCopy& copy = copies[i];
      const bool is_first = copy.device == copy.of->uses[0].device;
      if (!is_first) copy.tensor = untied(copy);
      if (!copy.is_offloaded && copy.device == dispatch_->main_device_)
        resident_bytes_ += static_cast<int64_t>(copy.tensor.nbytes());
      if (copy.is_offloaded)
        offload(copy);
      else if (resident[i].unsafeGetTensorImpl() != copy.tensor.unsafeGetTensorImpl())
        tensor::set_data(copy.tensor, resident[i]);
    }
  }

  static at::Tensor on_device(const DeviceCopy& copy) {
    const bool stays = copy.value.is_alias_of(copy.tensor) && copy.tensor.device() == copy.device;
    if (stays) return copy.tensor;
    try {
      return copy.value.detach().to(copy.device, copy.tensor.scalar_type());
    } catch (const c10::OutOfMemoryError& error) {
      fail(Status::kOutOfMemory, "'", copy.of->uses[0].path, "' needs ", copy.value.nbytes(), " bytes on ", copy.device,
           "; expected a device map whose parts fit (", error.what_without_backtrace(), ")");
    }
  }

  // A tensor of its own for the modules on this device.
  at::Tensor untied(const DeviceCopy& copy) {
    at::Tensor own = copy.of->tensor.detach().clone();
    own.set_requires_grad(copy.of->tensor.requires_grad());
    for (const TensorUse& use : copy.of->uses)
      if (use.device == copy.device) nodes_[use.node].module->replace_tensor(use.name, own);
    return own;
  }

  void offload(const DeviceCopy& copy) {
    const c10::Device home = copy.tensor.is_meta() ? c10::Device(c10::kCPU) : copy.tensor.device();
    const auto offloaded = std::make_shared<OffloadedTensor>(copy.of->uses[0].path, copy.tensor, copy.value,
                                                             copy.tensor.scalar_type(), home);
    dispatch_->offloaded_.emplace(copy.tensor.unsafeGetTensorImpl(), offloaded);
    for (const TensorUse& use : copy.of->uses)
      if (use.device == copy.device) offloaded_of_[use.node].push_back(offloaded);
  }

  // Blocks.

  using Offloaded = std::vector<std::shared_ptr<OffloadedTensor>>;

  // The offloaded tensors of the module and its descendants, each once. `own`: only those that its own forward uses,
  // parts that are not called included.
  Offloaded collect(size_t node, bool own) const {
    Offloaded found;
    std::unordered_set<const OffloadedTensor*> seen;
    const std::function<void(size_t)> visit = [&](size_t index) {
      const auto direct = offloaded_of_.find(index);
      if (direct != offloaded_of_.end())
        for (const auto& tensor : direct->second)
          if (seen.insert(tensor.get()).second) found.push_back(tensor);
      for (const size_t child : nodes_[index].children)
        if (!own || !nodes_[child].is_called) visit(child);
    };
    visit(node);
    return found;
  }

  static int64_t bytes_of(const Offloaded& tensors) {
    int64_t bytes = 0;
    for (const auto& tensor : tensors) bytes += tensor->bytes();
    return bytes;
  }

  // The memory that is left for offloaded weights.
  int64_t free_bytes() const {
    return main_bytes_ ? std::max<int64_t>(*main_bytes_ - resident_bytes_, 0) : std::numeric_limits<int64_t>::max();
  }

  int64_t block_limit() const {
    if (settings_.block_bytes.value) return *settings_.block_bytes.value;
    int64_t most = std::min(kLeastBlockBytes, free_bytes());
    for (size_t node = 0; node < nodes_.size(); node++) most = std::max(most, bytes_of(collect(node, /*own=*/true)));
    return most;
  }

  void add_blocks() {
    if (dispatch_->offloaded_.empty()) return;
    const int64_t limit = block_limit();
    const std::vector<std::string> preloaded = split_text(settings_.preload_module_classes.value);
    std::vector<Block> blocks;
    block_of_.resize(nodes_.size());
    std::unordered_set<size_t> visited;
    const std::function<void(size_t, std::optional<size_t>)> visit = [&](size_t node, std::optional<size_t> outer) {
      if (!visited.insert(node).second) return;
      const nn::Module& module = *nodes_[node].module;
      if (nodes_[node].is_called) {
        const Offloaded all = collect(node, /*own=*/false), own = collect(node, /*own=*/true);
        const bool is_preloaded = std::find(preloaded.begin(), preloaded.end(), module.kind()) != preloaded.end();
        if (outer) {
          if (!own.empty()) block_of_[node] = outer;
        } else if (!all.empty() && (bytes_of(all) <= limit || is_preloaded)) {
          outer = block_of_[node] = blocks.size();
          blocks.push_back({nodes_[node].path, all, bytes_of(all)});
        } else if (!own.empty()) {
          block_of_[node] = blocks.size();
          blocks.push_back({nodes_[node].path, own, bytes_of(own)});
        }
      }
      for (const size_t child : nodes_[node].children) visit(child, outer);
    };
    visit(0, std::nullopt);
    int64_t largest = 0;
    for (const Block& block : blocks) largest = std::max(largest, buffer_bytes(block));
    const int64_t prefetch =
        std::min(settings_.prefetch_bytes.value_or(limit), std::max<int64_t>(free_bytes() - largest, 0));
    dispatch_->stream_ = std::make_shared<BlockStream>(std::move(blocks), dispatch_->main_device_, prefetch);
  }

  void add_hooks(size_t index) {
    const ModuleNode& node = nodes_[index];
    const bool has_offloaded = !collect(index, /*own=*/false).empty();
    if (index == 0 || has_offloaded) node.module->set_weight_store(dispatch_);
    if (!node.is_called) return;
    Dispatch::Plan plan;
    plan.is_root = index == 0;
    if (!block_of_.empty()) plan.block = block_of_[index];
    const bool is_entry = std::any_of(dispatch_->map_.begin(), dispatch_->map_.end(),
                                      [&node](const auto& entry) { return entry.first == node.path; });
    if (is_entry || !nn::members_of(*node.module).empty()) plan.device = node.device;
    if (!plan.is_root && !plan.block && !plan.device) return;
    const std::vector<std::string> skipped = split_text(settings_.skip_keys.value), names = node.module->input_names();
    for (const std::string& name : names)
      plan.skipped.push_back(std::find(skipped.begin(), skipped.end(), name) != skipped.end());
    dispatch_->add_hooks(*node.module, std::move(plan));
  }

  const DispatchSettings& settings_;
  const std::optional<int64_t> main_bytes_;
  int64_t resident_bytes_ = 0;  // on the main device
  const DevicePlaces places_;
  std::shared_ptr<Dispatch> dispatch_;
  const Values values_;
  std::unordered_set<std::string> saved_names_;  // of parameters and of persistent buffers
  std::vector<ModuleNode> nodes_;
  std::unordered_map<const nn::Module*, size_t> indexes_;
  std::vector<PlacedTensor> tensors_;
  std::unordered_map<const at::TensorImpl*, size_t> tensor_indexes_;
  std::vector<std::string> unplaced_;
  std::unordered_map<size_t, Offloaded> offloaded_of_;  // by node
  std::vector<std::optional<size_t>> block_of_;         // by node
};

std::shared_ptr<Dispatch> Dispatch::create(nn::Module& model, const DeviceMap& map, const nn::NamedTensors& offloaded,
                                           MappedFiles files, const DispatchSettings& settings,
                                           std::optional<int64_t> main_bytes) {
  for (const auto& [path, module] : nn::named_modules(model))
    require(module->weight_store() == nullptr, Status::kInvalidState, "the module '", path,
            "' is dispatched already; end that with accel_remove_dispatch() first");
  return DispatchBuilder(model, map, offloaded, settings, main_bytes).build(std::move(files));
}

}  // namespace accel::bigmodel
