// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/merge_weights.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "checkpoint/chunk_file.hpp"
#include "checkpoint/files/make_folders.hpp"
#include "checkpoint/folder_layout.hpp"
#include "checkpoint/formats/safetensors.hpp"
#include "checkpoint/formats/torch/distributed_checkpoint.hpp"
#include "checkpoint/formats/torch/torch_file.hpp"
#include "checkpoint/formats/value_file.hpp"
#include "checkpoint/training_state.hpp"
#include "os/list_folder.hpp"
#include "os/mapped_file.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

std::vector<std::string> chunks_of_model(const std::string& folder) {
  const std::string stem = numbered_stem(StateKind::kModel, 0) + "_rank_";
  std::vector<std::string> names;
  for (const std::string& name : list_folder(folder))
    if (starts_with(name, stem)) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

// The tensors that are not in chunks.
c10::IValue rest_of_model(const std::string& folder) {
  for (const std::string& name : possible_names(StateKind::kModel, numbered_stem(StateKind::kModel, 0)))
    if (std::filesystem::exists(folder + "/" + name))
      return read_value(std::make_shared<const MappedFile>(folder + "/" + name));
  return tree::new_map();
}

NamedTensors join_chunks(const std::string& folder, const std::vector<std::string>& names) {
  ChunkTable chunks(/*verify=*/true);
  for (const std::string& name : names) chunks.add(std::make_shared<const MappedFile>(folder + "/" + name));
  return model_tensors(read_chunks(chunks.join(rest_of_model(folder), /*is_model=*/true)));
}

[[noreturn]] void fail_not_found(const std::string& folder) {
  std::string meant;
  for (const std::string& name : list_folder(folder)) {
    const std::string path = folder + "/" + name;
    if (is_folder(path) && (is_distributed_checkpoint(path) || !chunks_of_model(path).empty()))
      meant += (meant.empty() ? "" : " or ") + path;
  }
  fail(Status::kNotFound, "'", folder,
       "' has no parts of a model: expected a .metadata file, or model_rank_*.safetensors",
       meant.empty() ? "" : "; perhaps " + meant + " is meant");
}

bool is_inside(const std::string& path, const std::string& folder) {
  std::error_code error;
  const auto inner = std::filesystem::weakly_canonical(path, error),
             outer = std::filesystem::weakly_canonical(folder, error);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

}  // namespace

void merge_weights(const std::string& folder, const std::string& destination, bool safe_serialization,
                   bool remove_folder) {
  require(is_folder(folder), Status::kNotFound, "'", folder,
          "' is not a folder; expected one with the parts of a model");
  require(!remove_folder || !is_inside(destination, folder), Status::kInvalidArgument, "the destination '", destination,
          "' is in '", folder, "', which is to be removed; choose another one");
  NamedTensors tensors;
  if (is_distributed_checkpoint(folder))
    tensors = read_distributed_checkpoint(folder);
  else if (const auto names = chunks_of_model(folder); !names.empty())
    tensors = join_chunks(folder, names);
  else
    fail_not_found(folder);
  make_folders(destination);
  const std::string stem = numbered_stem(StateKind::kModel, 0);
  const std::string path = destination + "/" + file_name(StateKind::kModel, stem, safe_serialization, false);
  if (safe_serialization) {
    const SafetensorsContents contents = drop_tied(tensors, {{"format", "pt"}});
    save_safetensors(path, contents.tensors, contents.metadata);
  } else {
    save_torch_file(path, model_state(tensors));
  }
  if (remove_folder && system_files().remove_tree(folder.c_str()) != 0) fail_system(Status::kIo, "remove", folder);
}

}  // namespace accel::checkpoint
