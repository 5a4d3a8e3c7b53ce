// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/deepspeed_folder.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "checkpoint/formats/torch/torch_file.hpp"
#include "os/list_folder.hpp"
#include "os/mapped_file.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

constexpr std::string_view kModelEnd = "_model_states.pt";
constexpr std::string_view kOptimizerEnd = "_optim_states.pt";
constexpr std::string_view kRank = "zero_pp_rank_";
constexpr std::string_view kFirstPart = "mp_rank_00";  // of models that are split over ranks
constexpr const char* kFlatWeights = "single_partition_of_fp32_groups";
constexpr const char* kFlatWeightsOfStage3 = "fp32_flat_groups";

bool has_end(std::string_view name, std::string_view end) {
  return name.size() >= end.size() && name.substr(name.size() - end.size()) == end;
}

// Tensors one behind the other, as one of one dimension.
class FlatTensor {
 public:
  void add(const at::Tensor& part) { parts_.push_back(part.detach().reshape({-1})); }

  int64_t size() const {
    int64_t size = 0;
    for (const at::Tensor& part : parts_) size += part.numel();
    return size;
  }

  at::Tensor take(int64_t begin, int64_t count) const {
    std::vector<at::Tensor> taken;
    for (const at::Tensor& part : parts_) {
      const int64_t first = std::clamp<int64_t>(begin, 0, part.numel());
      const int64_t last = std::clamp<int64_t>(begin + count, 0, part.numel());
      if (first < last) taken.push_back(part.narrow(0, first, last - first));
      begin -= part.numel();
    }
    if (taken.size() == 1) return taken[0];
    return taken.empty() ? parts_.at(0).narrow(0, 0, 0) : at::cat(taken);
  }

 private:
  std::vector<at::Tensor> parts_;
};

struct FlatParameter {
  std::string name;
  std::vector<int64_t> shape;
  int64_t elements;
  int64_t padding;  // behind it
};
using FlatGroup = std::vector<FlatParameter>;

int64_t part_of(int64_t elements, size_t ranks) {
  const auto count = static_cast<int64_t>(ranks);
  return elements / count + (elements % count == 0 ? 0 : 1);
}

class DeepspeedReader {
 public:
  explicit DeepspeedReader(const std::string& folder) : folder_(folder) {
    for (std::string& name : list_folder(folder)) {
      if (!has_end(name, kModelEnd) && !has_end(name, kOptimizerEnd)) continue;
      require(is_of_whole_model(name), Status::kUnsupported, "'", folder, "/", name,
              "' is a part of a model that DeepSpeed has split over ranks, or of its experts; expected ", kFirstPart,
              " alone");
      (has_end(name, kModelEnd) ? model_files_ : optimizer_files_).emplace(rank_of(name), std::move(name));
    }
    require(!model_files_.empty(), Status::kCorrupt, "'", folder,
            "' has no file of weights, as mp_rank_00_model_states.pt; expected a folder of DeepSpeed's "
            "save_checkpoint()");
    first_ = read(model_files_.begin()->second);
    groups_ = read_groups();
    read_parts();
  }

  c10::IValue model() const {
    auto tensors = tree::new_map();
    const c10::IValue& module = member(first_, "module", model_path());
    require(module.isGenericDict(), Status::kCorrupt, "'", model_path(), "' has weights that are a ",
            tree::kind_name(module), "; expected a map");
    for (const auto& entry : module.toGenericDict())
      if (entry.value().isTensor() && (!is_stage_3_ || is_buffer(entry.key())))
        tensors.insert(entry.key(), entry.value());
    if (is_stage_3_) add_frozen(tensors);
    if (!parts_.empty()) {
      const std::vector<FlatTensor> weights = flats([&](size_t rank) { return weights_of(rank); });
      for_each_parameter([&](const FlatParameter& parameter, size_t group, int64_t offset) {
        tensors.insert(parameter.name, join(weights, parameter, group, offset));
      });
    }
    if (const c10::IValue* const shared = tree::find_member(first_, "shared_params");
        shared != nullptr && shared->isGenericDict())
      for (const auto& pair : shared->toGenericDict())
        if (tensors.contains(pair.value())) tensors.insert(pair.key(), tensors.at(pair.value()));
    return tensors;
  }

  c10::IValue optimizer() const {
    if (parts_.empty()) return optimizer_without_zero();
    const char* const key = is_stage_3_ ? "optimizer_state_dict" : "base_optimizer_state";
    std::vector<FlatStates> states;
    const c10::IValue* settings = nullptr;
    for (const c10::IValue& part : parts_) {
      const c10::IValue* const state = tree::find_member(part, key);
      const c10::IValue* const groups = state == nullptr ? nullptr : tree::find_member(*state, "param_groups");
      if (groups == nullptr || !groups->isList() || groups->toListRef().size() != groups_.size())
        return lacks("of its optimizer by groups of parameters");
      if (settings == nullptr) settings = groups;
      auto& numbered = states.emplace_back();
      if (const c10::IValue* const entries = tree::find_member(*state, "state");
          entries != nullptr && entries->isGenericDict())
        for (const auto& entry : entries->toGenericDict())
          if (entry.key().isInt()) numbered.emplace(entry.key().toInt(), entry.value());
    }
    std::vector<std::pair<c10::IValue, c10::IValue>> named;
    for (const auto& [name, state] : states_by_names(states)) {
      if (!state) return lacks("of its optimizer whose tensors are like the weights");
      named.emplace_back(name, *state);
    }
    auto groups = tree::new_list();
    for (size_t i = 0; i < groups_.size(); i++) groups.push_back(named_group(settings->toListRef()[i], groups_[i]));
    auto result = tree::new_map();
    result.insert("state", tree::new_map(std::move(named)));
    result.insert("param_groups", groups);
    return result;
  }

 private:
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string model_path() const { return path(model_files_.begin()->second); }

  static bool is_of_whole_model(std::string_view name) {
    for (const std::string_view precision : {"bf16_", "fp16_"})
      if (name.substr(0, precision.size()) == precision) name.remove_prefix(precision.size());
    return name.substr(0, kFirstPart.size()) == kFirstPart ||
           (name.substr(0, kRank.size()) == kRank && name.find(kFirstPart) != std::string_view::npos);
  }

  // The number in "zero_pp_rank_1_mp_rank_00_..."; 0 of a file of all ranks.
  static int64_t rank_of(const std::string& name) {
    const size_t at = name.find(kRank);
    int64_t rank = 0;
    for (size_t i = at + kRank.size(); at != std::string::npos && i < name.size() && name[i] >= '0' && name[i] <= '9';
         i++)
      rank = std::min<int64_t>(rank * 10 + (name[i] - '0'), int64_t{1} << 32);
    return rank;
  }

  c10::IValue read(const std::string& name) const {
    c10::IValue value = read_torch_file_of_objects(std::make_shared<const MappedFile>(path(name)));
    require(value.isGenericDict(), Status::kCorrupt, "'", path(name), "' holds a ", tree::kind_name(value),
            "; expected a map");
    return value;
  }

  static const c10::IValue& member(const c10::IValue& map, const char* key, const std::string& source) {
    const c10::IValue* const found = tree::find_member(map, key);
    require(found != nullptr, Status::kCorrupt, "'", source, "' has no '", key, "'");
    return *found;
  }

  FlatParameter shape_of(const c10::IValue& name, const c10::IValue& sizes) const {
    require(name.isString() && tree::is_sequence(sizes), Status::kCorrupt, "'", model_path(),
            "' has a shape of a parameter that is a ", tree::kind_name(sizes));
    FlatParameter parameter{name.toStringRef(), {}, 1, 0};
    for (const c10::IValue& size : tree::sequence_items(sizes)) {
      require(size.isInt() && size.toInt() >= 0 &&
                  !__builtin_mul_overflow(parameter.elements, size.toInt(), &parameter.elements),
              Status::kCorrupt, "'", model_path(), "' has a shape of '", parameter.name, "' that is not a shape");
      parameter.shape.push_back(size.toInt());
    }
    return parameter;
  }

  // The order of parameters in flat tensors.
  std::vector<FlatGroup> read_groups() const {
    std::vector<FlatGroup> groups;
    const c10::IValue* const shapes = tree::find_member(first_, "param_shapes");
    if (shapes == nullptr) return groups;
    require(shapes->isList(), Status::kCorrupt, "'", model_path(), "' has param_shapes that are not a list");
    for (const c10::IValue& given : shapes->toListRef()) {
      require(given.isGenericDict(), Status::kCorrupt, "'", model_path(),
              "' has a group of param_shapes that is not a map");
      FlatGroup& group = groups.emplace_back();
      for (const auto& entry : given.toGenericDict()) group.push_back(shape_of(entry.key(), entry.value()));
    }
    return groups;
  }

  void read_parts() {
    is_stage_3_ = model_files_.begin()->second.find(kRank) != std::string::npos;
    require(!is_stage_3_ || !optimizer_files_.empty(), Status::kCorrupt, "'", folder_,
            "' has no *_optim_states.pt, in which ZeRO 3 has the weights");
    if (optimizer_files_.empty() || groups_.empty()) return;
    for (const auto& [rank, name] : optimizer_files_)
      parts_.push_back(member(read(name), "optimizer_state_dict", path(name)));
    const size_t expected = num_ranks();
    for (size_t rank = 0; rank < expected; rank++)
      require(optimizer_files_.count(static_cast<int64_t>(rank)) > 0, Status::kCorrupt, "'", folder_, "' has no ",
              kRank, rank, "_*", kOptimizerEnd, "; ", expected, " ranks have parts of the weights");
    require(parts_.size() == expected, Status::kCorrupt, "'", folder_, "' has ", parts_.size(), " *", kOptimizerEnd,
            ", and ", expected, " ranks have parts of the weights");
    read_paddings();
  }

  size_t num_ranks() const {
    const c10::IValue* count = tree::find_member(parts_[0], "partition_count");
    if (count != nullptr && count->isList() && !count->toListRef().empty()) count = &count->toListRef()[0];
    return count != nullptr && count->isInt() && count->toInt() > 0 ? static_cast<size_t>(count->toInt())
                                                                    : parts_.size();
  }

  void read_paddings() {
    const c10::IValue* const paddings = tree::find_member(parts_[0], "param_alignment_paddings");
    if (paddings == nullptr || is_stage_3_) return;
    for (size_t i = 0; i < groups_.size(); i++) {
      const bool fits = paddings->isList() && i < paddings->toListRef().size() && paddings->toListRef()[i].isList() &&
                        paddings->toListRef()[i].toListRef().size() == groups_[i].size();
      require(fits, Status::kCorrupt, "'", folder_, "' has param_alignment_paddings that do not fit its param_shapes");
      for (size_t j = 0; j < groups_[i].size(); j++) {
        const c10::IValue& padding = paddings->toListRef()[i].toListRef()[j];
        require(padding.isInt() && padding.toInt() >= 0, Status::kCorrupt, "'", folder_, "' has a padding that is a ",
                tree::kind_name(padding));
        groups_[i][j].padding = padding.toInt();
      }
    }
  }

  bool is_buffer(const c10::IValue& name) const {
    const c10::IValue* const names = tree::find_member(first_, "buffer_names");
    if (names == nullptr || !names->isList()) return false;
    const auto items = names->toListRef();
    return std::any_of(items.begin(), items.end(), [&](const c10::IValue& item) {
      return item.isString() && item.toStringRef() == name.toStringRef();
    });
  }

  // With ZeRO 3 each rank has a part of each.
  void add_frozen(c10::impl::GenericDict& tensors) const {
    const c10::IValue* const shapes = tree::find_member(first_, "frozen_param_shapes");
    if (shapes == nullptr || !shapes->isGenericDict() || shapes->toGenericDict().empty()) return;
    std::vector<c10::IValue> files;
    for (const auto& [rank, name] : model_files_) files.push_back(read(name));
    require(files.size() == parts_.size(), Status::kCorrupt, "'", folder_, "' has ", files.size(), " *", kModelEnd,
            ", and ", parts_.size(), " ranks have parts of the frozen parameters");
    for (const auto& entry : shapes->toGenericDict()) {
      const FlatParameter parameter = shape_of(entry.key(), entry.value());
      FlatTensor flat;
      for (const c10::IValue& file : files) {
        const c10::IValue& parts = member(file, "frozen_param_fragments", folder_);
        const c10::IValue* const part = tree::find_member(parts, parameter.name.c_str());
        require(part != nullptr && part->isTensor(), Status::kCorrupt, "'", folder_, "' lacks a part of '",
                parameter.name, "'");
        flat.add(part->toTensor());
      }
      tensors.insert(entry.key(), shaped(flat.take(0, parameter.elements), parameter));
    }
  }

  std::vector<at::Tensor> weights_of(size_t rank) const {
    const char* const key = is_stage_3_ ? kFlatWeightsOfStage3 : kFlatWeights;
    const c10::IValue& flat = member(parts_[rank], key, folder_);
    require(flat.isList(), Status::kCorrupt, "'", folder_, "' has a '", key, "' that is a ", tree::kind_name(flat),
            "; expected a list");
    std::vector<at::Tensor> tensors;
    for (const c10::IValue& item : flat.toListRef()) {
      require(item.isTensor(), Status::kCorrupt, "'", folder_, "' has a '", key, "' with a ", tree::kind_name(item));
      tensors.push_back(item.toTensor());
    }
    require(is_stage_3_ || tensors.size() == groups_.size(), Status::kCorrupt, "'", folder_, "' has ", tensors.size(),
            " flat groups of weights, and ", groups_.size(), " in param_shapes");
    return tensors;
  }

  // One for each group, over all ranks; with ZeRO 3 one for each rank, over all groups. `of_rank` gives the flat
  // tensors of a rank.
  template <typename OfRank>
  std::vector<FlatTensor> flats(const OfRank& of_rank) const {
    std::vector<FlatTensor> flats(is_stage_3_ ? parts_.size() : groups_.size());
    for (size_t rank = 0; rank < parts_.size(); rank++) {
      const std::vector<at::Tensor> tensors = of_rank(rank);
      for (size_t i = 0; i < tensors.size(); i++) flats[is_stage_3_ ? rank : i].add(tensors[i]);
    }
    return flats;
  }

  // visit(parameter, group, offset of its first element in a flat tensor)
  template <typename Visit>
  void for_each_parameter(const Visit& visit) const {
    int64_t offset = 0;
    for (size_t group = 0; group < groups_.size(); group++) {
      if (!is_stage_3_) offset = 0;
      for (const FlatParameter& parameter : groups_[group]) {
        visit(parameter, group, offset);
        offset += is_stage_3_ ? part_of(parameter.elements, parts_.size()) : parameter.elements + parameter.padding;
      }
    }
  }

  at::Tensor join(const std::vector<FlatTensor>& flats, const FlatParameter& parameter, size_t group,
                  int64_t offset) const {
    if (!is_stage_3_) return shaped(flats[group].take(offset, parameter.elements), parameter);
    FlatTensor parts;
    for (const FlatTensor& of_rank : flats) parts.add(of_rank.take(offset, part_of(parameter.elements, parts_.size())));
    return shaped(parts.take(0, parameter.elements), parameter);
  }

  at::Tensor shaped(const at::Tensor& flat, const FlatParameter& parameter) const {
    require(flat.numel() == parameter.elements, Status::kCorrupt, "'", folder_, "' is damaged: '", parameter.name,
            "' has ", flat.numel(), " of its ", parameter.elements, " elements in the flat tensors of the ranks");
    return flat.view(parameter.shape);
  }

  using FlatStates = std::map<int64_t, c10::IValue>;  // of a rank, by the numbers of its flat tensors

  // The tensors of a key beside all flat weights; nothing if one of them is not as large.
  std::optional<std::vector<FlatTensor>> flat_states(const std::vector<FlatStates>& states,
                                                     const std::string& key) const {
    bool fits = true;
    std::vector<FlatTensor> found = flats([&](size_t rank) {
      std::vector<at::Tensor> tensors;
      for (size_t i = 0; i < weights_of(rank).size(); i++) {
        const auto state = states[rank].find(static_cast<int64_t>(i));
        const c10::IValue* const entry =
            state == states[rank].end() ? nullptr : tree::find_member(state->second, key.c_str());
        fits = fits && entry != nullptr && entry->isTensor() && entry->toTensor().dim() == 1;
        if (fits) tensors.push_back(entry->toTensor());
      }
      return tensors;
    });
    const std::vector<FlatTensor> weights = flats([&](size_t rank) { return weights_of(rank); });
    for (size_t i = 0; fits && i < weights.size(); i++) fits = found[i].size() >= weights[i].size();
    return fits ? std::optional(std::move(found)) : std::nullopt;
  }

  // The state of each parameter; nothing if it cannot be taken apart. Values that are not tensors are those of the
  // first flat parameter.
  using NamedStates = std::vector<std::pair<std::string, std::optional<c10::IValue>>>;
  NamedStates states_by_names(const std::vector<FlatStates>& states) const {
    NamedStates named;
    if (states[0].empty()) return named;
    std::map<std::string, std::vector<FlatTensor>> tensors;
    std::vector<std::vector<std::pair<std::string, c10::IValue>>> numbers(groups_.size());  // of each group
    for (const auto& [key, value] : entries_of(states[0].begin()->second)) {
      if (!value.isTensor() || value.toTensor().dim() == 0) continue;
      auto found = flat_states(states, key);
      if (!found) return {{key, std::nullopt}};
      tensors.emplace(key, std::move(*found));
    }
    for (size_t group = 0; group < groups_.size(); group++) {
      const auto found = states[0].find(is_stage_3_ ? 0 : static_cast<int64_t>(group));
      if (found == states[0].end()) continue;
      for (const auto& [key, value] : entries_of(found->second))
        if (tensors.count(key) == 0) numbers[group].emplace_back(key, value);
    }
    for_each_parameter([&](const FlatParameter& parameter, size_t group, int64_t offset) {
      auto state = tree::new_map();
      for (const auto& [key, value] : numbers[group])
        state.insert(key, value.isTensor() ? c10::IValue(value.toTensor().clone()) : value);
      for (const auto& [key, flat] : tensors) state.insert(key, join(flat, parameter, group, offset));
      named.emplace_back(parameter.name, c10::IValue(state));
    });
    return named;
  }

  static std::vector<std::pair<std::string, c10::IValue>> entries_of(const c10::IValue& state) {
    std::vector<std::pair<std::string, c10::IValue>> entries;
    if (!state.isGenericDict()) return entries;
    for (const auto& entry : state.toGenericDict())
      if (entry.key().isString()) entries.emplace_back(entry.key().toStringRef(), entry.value());
    return entries;
  }

  static c10::IValue named_group(const c10::IValue& settings, const FlatGroup& group) {
    auto named = tree::new_map();
    for (const auto& [key, value] : entries_of(settings))
      if (key != "params") named.insert(key, value);
    auto names = tree::new_list();
    for (const FlatParameter& parameter : group) names.push_back(parameter.name);
    named.insert("params", names);
    return named;
  }

  // Without ZeRO it is torch's own, unless DeepSpeed keeps float32 copies.
  c10::IValue optimizer_without_zero() const {
    const c10::IValue* const state = tree::find_member(first_, "optimizer");
    if (state != nullptr && tree::find_member(*state, "state") != nullptr &&
        tree::find_member(*state, "param_groups") != nullptr)
      return *state;
    return lacks("of its optimizer by parameters");
  }

  c10::IValue lacks(const char* what) const {
    log(LogLevel::kWarning, "'", folder_, "' holds no state ", what, ": the optimizer continues as it is");
    return {};
  }

  const std::string& folder_;
  std::map<int64_t, std::string> model_files_, optimizer_files_;  // by ranks
  c10::IValue first_;                                             // the first of the former
  std::vector<FlatGroup> groups_;
  bool is_stage_3_ = false;
  std::vector<c10::IValue> parts_;  // "optimizer_state_dict" of each rank
};

}  // namespace

c10::IValue read_deepspeed_model(const std::string& folder) { return DeepspeedReader(folder).model(); }

c10::IValue read_deepspeed_optimizer(const std::string& folder) { return DeepspeedReader(folder).optimizer(); }

}  // namespace accel::checkpoint
