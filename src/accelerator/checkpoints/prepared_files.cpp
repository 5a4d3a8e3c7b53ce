// SPDX-License-Identifier: Apache-2.0
#include "accelerator/checkpoints/prepared_files.hpp"

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/checkpoints/placed_state.hpp"
#include "accelerator/checkpoints/tied_copies.hpp"
#include "accelerator/prepared_model.hpp"
#include "accelerator/prepared_optimizer.hpp"
#include "accelerator/ranks.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "checkpoint/chunk_file.hpp"
#include "checkpoint/files/make_folders.hpp"
#include "checkpoint/formats/adapter_folder.hpp"
#include "checkpoint/formats/sharded_index.hpp"
#include "checkpoint/fsdp_files.hpp"
#include "checkpoint/model_check.hpp"
#include "checkpoint/optimizer_names.hpp"
#include "checkpoint/run_on_all_ranks.hpp"
#include "config/generated/settings/checkpoint/fsdp_file.hpp"
#include "nn/adapters/adapters.hpp"
#include "nn/architectures/hub_names.hpp"
#include "nn/module_walks.hpp"
#include "os/bus_error_guard.hpp"
#include "tensor/loading.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

using checkpoint::FsdpFile;
using checkpoint::FsdpLayout;
using checkpoint::StateKind;
using Models = std::vector<parallel::ParallelModelPtr>;

FsdpFile file_of(const FsdpFileSettings& settings, StateKind kind, const Models& models) {
  const StateDictType type = settings.state_dict_type.value.value_or(state_dict_type(models));
  FsdpFile file;
  file.kind = kind;
  file.index = static_cast<size_t>(settings.index.value);
  const bool is_local = type == StateDictType::kLocalStateDict && kind == StateKind::kModel;
  file.has_index_always = !is_local;
  if (type == StateDictType::kFullStateDict)
    file.layout = FsdpLayout::kOneFile;
  else
    file.layout = is_local || !settings.use_dcp ? FsdpLayout::kFileOfEachRank : FsdpLayout::kFolder;
  return file;
}

// The ranks agree on what is saved or loaded; `describe` finds it, or throws. A folder to write is made.
template <typename Describe>
FsdpFile agree(const std::string& folder, const checkpoint::Ranks& ranks, bool writes, const Describe& describe) {
  FsdpFile file;
  const std::vector<std::string> named = checkpoint::run_on_all_ranks(ranks, [&] {
    require(!folder.empty(), Status::kInvalidArgument, "folder is empty; expected a path");
    file = describe();
    return folder + "/" + checkpoint::fsdp_name(file, 0);
  });
  for (size_t rank = 1; rank < named.size(); rank++)
    require(named[rank] == named.front(), Status::kInvalidArgument, "rank ", rank, " names '", named[rank],
            "' and rank 0 '", named.front(),
            "'; expected the same folder, state_dict_type, index and use_dcp on all ranks");
  if (!writes) return file;
  checkpoint::run_on_all_ranks(ranks, [&]() -> std::string {
    if (ranks.rank == 0) checkpoint::make_folders(folder);
    return {};
  });
  return file;
}

// Brings a state into the form of the layout. Collective.
c10::IValue saved_form(const c10::IValue& state, FsdpLayout layout, const parallel::PlacedParameters& placed,
                       const std::string& folder, bool is_main) {
  if (layout == FsdpLayout::kFileOfEachRank) return stored_tensors(state);
  return form_to_save(state, placed, layout == FsdpLayout::kOneFile, is_main, folder);
}

// `check` throws for a state that the object cannot load; then all ranks throw, and nothing has changed.
template <typename Object, typename Check>
void load(Object& object, const std::string& folder, const FsdpFile& file, const checkpoint::Ranks& ranks,
          const Check& check) {
  const BusErrorGuard guard;  // the object copies from mapped files
  c10::IValue state;
  const bool is_stored = file.layout == FsdpLayout::kFileOfEachRank;
  checkpoint::run_on_all_ranks(ranks, [&]() -> std::string {
    const checkpoint::FsdpState found = checkpoint::load_fsdp_state(folder, file, ranks);
    state = check(found, is_stored);
    if (is_stored)
      object.check_stored(state);
    else if (object.takes_chunks())
      object.check_chunks(state);
    else
      state = checkpoint::read_chunks(state);
    return {};
  });
  const tensor::LoadingScope scope;
  if (is_stored)
    object.load_stored(state);
  else
    object.load_state_dict(state);
  guard.check();
}

// The files of FSDP have one list of parameters for all ranks.
void require_no_stages(const PreparedObjects& prepared) {
  for (const auto& model : prepared.parallel_models())
    require(!is_in_stages(*model), Status::kUnsupported,
            "a model is in stages on several ranks; expected accel_save_state(), which any mesh loads");
}

}  // namespace

nn::NamedTensors PreparedFiles::whole_state_dict(const nn::ModulePtr& module, bool keep, const std::string& folder,
                                                 const IsWanted& is_wanted) const {
  const nn::ModulePtr model = unwrap_model(module);
  for (const ModelEntry& entry : prepared_.models) {
    const parallel::ParallelModelPtr parallel = entry.parallel();
    if (entry.model != model || !ModelState(parallel).takes_chunks()) continue;
    auto wanted = tree::new_map();
    for (const auto& entry : ModelState(parallel).state_dict().toGenericDict())
      if (is_wanted(entry.key().toStringRef())) wanted.insert(entry.key(), entry.value());
    const c10::IValue state = gather_state(wanted, *prepared_.placed, keep, folder);
    return keep ? checkpoint::model_tensors(state) : nn::NamedTensors();
  }
  nn::NamedTensors tensors;
  for (auto& [name, tensor] : model->state_dict())
    if (is_wanted(name)) tensors.emplace_back(name, tensor);
  return tensors;
}

void PreparedFiles::save_model(const nn::ModulePtr& module, const std::string& folder, bool writes,
                               const SaveModelSettings& settings) const {
  checkpoint::parse_shard_size(settings.max_shard_size);  // a wrong one is an error on all ranks
  training_.require_known_parts();
  Models saved;  // of others the main process may call alone
  for (const ModelEntry& entry : prepared_.models)
    if (entry.model == unwrap_model(module)) saved.push_back(entry.parallel());
  require_equal_copies(saved, ranks_of(state_, false));
  const std::string parent = std::filesystem::path(folder).lexically_normal().parent_path().string();
  const nn::NamedTensors tensors = whole_state_dict(module, writes, parent.empty() ? "." : parent);
  if (!writes) return;
  const nn::Module& model = *unwrap_model(module);
  checkpoint::save_model(folder, nn::HubNames(model).to_files(nn::without_merged_adapters(model, tensors)), settings);
  log(LogLevel::kInfo, "the model is saved in '", folder, "'");
}

void PreparedFiles::save_adapter(const nn::ModulePtr& module, const std::string& name, const std::string& folder,
                                 bool writes) const {
  training_.require_known_parts();
  const nn::Module& model = *unwrap_model(module);
  const auto staged = std::find_if(prepared_.models.begin(), prepared_.models.end(), [&](const ModelEntry& entry) {
    return entry.model == unwrap_model(module) && entry.parallel() != nullptr && is_in_stages(*entry.parallel());
  });
  if (staged != prepared_.models.end())
    checkpoint::run_on_all_ranks(ranks_of(state_, false), [&] {
      const nn::AdapterNames names = nn::adapter_names(model);
      require(std::find(names.begin(), names.end(), name) != names.end(), Status::kNotFound,
              "the stages of this rank have no layer of the adapter '", name,
              "'; expected an adapter that was added, with layers in the stages of each rank, to save it");
      return std::string();
    });
  nn::AddedAdapter added = nn::find_adapter(model, name);
  if (staged != prepared_.models.end()) {
    nn::NamedTensors names;  // in all stages
    for (const auto& entry : ModelState(staged->parallel()).state_dict().toGenericDict())
      names.emplace_back(entry.key().toStringRef(), at::Tensor());
    added.layers = nn::adapter_layers(name, names);
  }
  const nn::NamedTensors tensors = whole_state_dict(
      module, writes, "", [&](const std::string& path) { return nn::is_saved_with_adapter(added, name, path); });
  if (!writes) return;
  checkpoint::save_adapter(model, name, folder, tensors);
  log(LogLevel::kInfo, "the adapter '", name, "' is saved in '", folder, "'");
}

void PreparedFiles::save_fsdp_model(const nn::ModulePtr& module, const std::string& folder,
                                    const FsdpFileSettings& settings) const {
  require_no_stages(prepared_);
  training_.require_known_parts();
  const checkpoint::Ranks ranks = ranks_of(state_, false);
  parallel::ParallelModelPtr model;
  const FsdpFile file = agree(folder, ranks, /*writes=*/true, [&] {
    model = prepared_.entry_of(module).parallel();
    return file_of(settings, StateKind::kModel, {model});
  });
  const c10::IValue state = saved_form(checkpoint::with_unwrapped_names(ModelState(model).state_dict()), file.layout,
                                       *prepared_.placed, folder, state_.is_main_process());
  checkpoint::save_fsdp_state(folder, file, state, ranks);
  log(LogLevel::kInfo, "the model is saved in '", folder, "'");
}

void PreparedFiles::load_fsdp_model(const nn::ModulePtr& module, const std::string& folder,
                                    const FsdpFileSettings& settings) const {
  require_no_stages(prepared_);
  training_.require_known_parts();
  const checkpoint::Ranks ranks = ranks_of(state_, false);
  const ModelEntry* entry = nullptr;
  const FsdpFile file = agree(folder, ranks, /*writes=*/false, [&] {
    entry = &prepared_.entry_of(module);
    return file_of(settings, StateKind::kModel, {entry->parallel()});
  });
  ModelState object(entry->parallel());
  load(object, folder, file, ranks, [&](const checkpoint::FsdpState& found, bool is_stored) {
    const c10::IValue current = object.state_dict();
    const c10::IValue named = checkpoint::with_names_of(current, found.state);
    checkpoint::check_model(named, is_stored ? stored_tensors(current) : current, found.path);
    return named;
  });
  if (entry->memory != nullptr) entry->memory->gather(*entry->parallel());
  log(LogLevel::kInfo, "the model is loaded from '", folder, "'");
}

void PreparedFiles::save_fsdp_optimizer(const std::shared_ptr<optim::Optimizer>& optimizer, const std::string& folder,
                                        const FsdpFileSettings& settings) const {
  require_no_stages(prepared_);
  training_.require_known_parts();
  const Models models = prepared_.parallel_models();
  const checkpoint::Ranks ranks = ranks_of(state_, false);
  c10::IValue state;
  const FsdpFile file = agree(folder, ranks, /*writes=*/true, [&] {
    prepared_.require_own(*optimizer);
    state = checkpoint::named_optimizer_state(OptimizerState(optimizer, models).state_dict(),
                                              named_groups(*optimizer, prepared_.modules()));
    return file_of(settings, StateKind::kOptimizer, models);
  });
  state = with_equal_parts([&state] { return state; }, ranks);
  checkpoint::save_fsdp_state(
      folder, file, saved_form(state, file.layout, *prepared_.placed, folder, state_.is_main_process()), ranks);
  log(LogLevel::kInfo, "the optimizer is saved in '", folder, "'");
}

void PreparedFiles::load_fsdp_optimizer(const std::shared_ptr<optim::Optimizer>& optimizer, const std::string& folder,
                                        const FsdpFileSettings& settings) const {
  require_no_stages(prepared_);
  training_.require_known_parts();
  const Models models = prepared_.parallel_models();
  const checkpoint::Ranks ranks = ranks_of(state_, false);
  const FsdpFile file = agree(folder, ranks, /*writes=*/false, [&] {
    prepared_.require_own(*optimizer);
    return file_of(settings, StateKind::kOptimizer, models);
  });
  OptimizerState object(optimizer, models);
  load(object, folder, file, ranks, [&](const checkpoint::FsdpState& found, bool /*is_stored*/) {
    require(checkpoint::is_by_names(found.state), Status::kCorrupt, "'", found.path,
            "' is not a state of an optimizer by the names of its parameters");
    return checkpoint::numbered_optimizer_state(found.state, named_groups(*optimizer, prepared_.modules()), found.path);
  });
  log(LogLevel::kInfo, "the optimizer is loaded from '", folder, "'");
}

}  // namespace accel::accelerator
