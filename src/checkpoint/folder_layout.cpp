// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder_layout.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "checkpoint/formats/file_names.hpp"
#include "checkpoint/manifest.hpp"

namespace accel::checkpoint {
namespace {

struct Kind {
  const char* stem;
  const char* extension;
  const char* plural;
};
// In the order of StateKind.
constexpr std::array<Kind, kNumStateKinds> kKinds = {{
    {"model", ".safetensors", "models"},
    {"optimizer", ".bin", "optimizers"},
    {"scheduler", ".bin", "schedulers"},
    {"scaler", ".pt", "gradient scalers"},
    {"custom_checkpoint", ".pkl", "registered objects"},
    {"random_states", ".pkl", "random generators"},
    {"accel_rank", ".bin", "data loaders"},
    {"accel_rank", ".bin", "states of ranks"},
}};
constexpr const char* kNamedStem = "custom_";
constexpr const char* kNamedExtension = ".bin";
constexpr const char* kUnsafePrefix = "pytorch_";
constexpr const char* kUnsafeExtension = ".bin";
constexpr const char* kCompressedExtension = ".ztensors";
constexpr const char* kModelIndexExtension = ".safetensors.index.json";
constexpr std::string_view kLoadersOfTorch[] = {kSamplerName, kDataloaderStateName};

const Kind& kind_of(StateKind kind) { return kKinds[static_cast<size_t>(kind)]; }

// "model.safetensors", "model_1.safetensors" and "model-00001-of-00002.safetensors" have the stem "model".
bool has_stem(std::string_view name, std::string_view stem) {
  const std::string_view rest = name.substr(std::min(stem.size(), name.size()));
  return starts_with(name, stem) && !rest.empty() &&
         (rest.front() == '.' || rest.front() == '_' || rest.front() == '-');
}

bool is_numbered_object(const std::string& stem) {
  return starts_with(stem, kKinds[static_cast<size_t>(StateKind::kCustom)].stem);
}

}  // namespace

const char* plural_of(StateKind kind) { return kind_of(kind).plural; }

std::string numbered_stem(StateKind kind, size_t index) {
  const char* const stem = kind_of(kind).stem;
  if (kind == StateKind::kCustom) return text(stem, "_", index);
  return index == 0 ? stem : text(stem, "_", index);
}

std::string Stems::next(const StateEntry& entry) {
  if (entry.kind == StateKind::kCustom && !entry.name.empty()) return kNamedStem + entry.name;
  return numbered_stem(entry.kind, counts_[static_cast<size_t>(entry.kind)]++);
}

std::string file_name(StateKind kind, const std::string& stem, bool safe_serialization, bool compressed) {
  const bool is_large = kind == StateKind::kModel || kind == StateKind::kOptimizer;
  if (is_large && compressed) return stem + kCompressedExtension;
  if (kind == StateKind::kModel && !safe_serialization) return kUnsafePrefix + stem + kUnsafeExtension;
  if (kind == StateKind::kCustom && !is_numbered_object(stem)) return stem + kNamedExtension;
  return stem + kind_of(kind).extension;
}

std::vector<std::string> possible_names(StateKind kind, const std::string& stem) {
  std::vector<std::string> names = {file_name(kind, stem, true, false)};
  if (kind == StateKind::kModel) {
    names.push_back(index_name(stem));
    names.push_back(file_name(kind, stem, false, false));
  }
  if (kind != StateKind::kModel && kind != StateKind::kOptimizer) return names;
  names.push_back(stem + kCompressedExtension);
  const std::string number = stem.substr(std::strlen(kind_of(kind).stem));  // "" or "_1"
  const std::string folder_number = number.empty() ? "_0" : number;
  if (kind == StateKind::kModel) {
    names.push_back(kFsdpModelName + number + kUnsafeExtension);
    names.push_back(kFsdpModelName + folder_number);
  } else {
    names.push_back(kOptimizerName + folder_number);
  }
  names.push_back(kModelName + number);
  return names;
}

std::string index_name(const std::string& stem) { return stem + kModelIndexExtension; }

bool is_index(std::string_view name) { return has_extension(name, kModelIndexExtension); }

std::string shard_name(const std::string& stem, size_t shard) {
  return text(stem, "-0000", shard + 1, "-of-00002.safetensors");
}

std::string random_states_name(int rank) {
  return text(kind_of(StateKind::kRandom).stem, "_", rank, kind_of(StateKind::kRandom).extension);
}

std::string rank_state_name(int rank) {
  return text(kind_of(StateKind::kRankState).stem, "_", rank, kind_of(StateKind::kRankState).extension);
}

std::string chunks_name(const std::string& stem, int rank) {
  char number[16];
  std::snprintf(number, sizeof number, "%05d", rank);
  return text(stem, "_rank_", number, ".safetensors");
}

bool is_sharded_name(std::string_view name) { return has_stem(name, kFsdpModelName); }

bool is_rank_file(std::string_view name) {
  return name.find("_rank") != std::string_view::npos && (is_sharded_name(name) || has_stem(name, kOptimizerName)) &&
         has_extension(name, kUnsafeExtension);
}

bool is_custom_file(std::string_view name) { return starts_with(name, kNamedStem); }

bool is_loader_of_torch(std::string_view name) {
  return std::any_of(std::begin(kLoadersOfTorch), std::end(kLoadersOfTorch),
                     [name](std::string_view stem) { return has_stem(name, stem); });
}

bool is_own_file(std::string_view name) {
  const bool has_chunks = name.find("_rank_") != std::string_view::npos && has_extension(name, ".safetensors");
  return has_chunks || has_stem(name, kind_of(StateKind::kRankState).stem);
}

bool is_checkpoint_file(std::string_view name) {
  if (name == kManifestName || name == kModelName || is_custom_file(name) || is_loader_of_torch(name) ||
      has_stem(name, kModelName))
    return true;
  return std::any_of(kKinds.begin(), kKinds.end(), [name](const Kind& kind) { return has_stem(name, kind.stem); });
}

}  // namespace accel::checkpoint
