// SPDX-License-Identifier: Apache-2.0
// Writer of folders of torch.distributed.checkpoint; see distributed_checkpoint.hpp. Each rank writes a file with what
// it has, and one of them the list of all.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "checkpoint/files/file_system.hpp"

namespace accel::checkpoint {

// Writes the chunks of tensors in a state dict, {key: state}, and with `all` also whole tensors and other values.
// Returns what write_distributed_list() needs. A rank without anything to write makes no file.
std::string write_distributed_chunks(const std::string& folder, int rank, const c10::IValue& state_dict, bool all,
                                     FileSystem& files = system_files());

// `written` is of the ranks, in order. kInternal if a chunk overlaps another, or elements of a tensor are missing.
void write_distributed_list(const std::string& folder, const std::vector<std::string>& written,
                            FileSystem& files = system_files());

// Whether a file of that name is one of such a folder.
bool is_distributed_file(const std::string& name);

}  // namespace accel::checkpoint
