// SPDX-License-Identifier: Apache-2.0
// Writes configuration files of `accel launch` in the form of Accelerate's.
#pragma once

#include <string>

#include "config/launch_configuration.hpp"
#include "json/json.hpp"

namespace accel {

// Writes the form of Accelerate's files: sorted by name, without nulls and empty sections. Old names are left out.
Json file_form(const LaunchConfiguration& configuration);
Json file_form(const Json& configuration);

// JSON if the name of the file ends with ".json", else YAML. The file is replaced as a whole or stays as it was; one
// that is there keeps its permissions, a new one is for its owner to write. Folders that are missing are made.
void write_configuration(const std::string& path, const Json& configuration);

// A configuration of this one machine: a process for each GPU, or one on the processor. False if the file is there: it
// stays as it is. `mixed_precision` is one of no, fp16, bf16 and fp8 in any case.
bool write_basic_configuration(const std::string& mixed_precision, const std::string& path, size_t num_gpus);

}  // namespace accel
