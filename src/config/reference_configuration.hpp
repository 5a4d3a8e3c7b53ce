// SPDX-License-Identifier: Apache-2.0
// Configuration files of Accelerate, as its questionnaire writes them: what their names (config/reference_names.hpp)
// mean to the library.
//
//   compute_environment: LOCAL_MACHINE     # of the launcher, which starts the ranks
//   distributed_type: FSDP                 # fsdp.enabled
//   fsdp_config:
//     fsdp_offload_params: false           # fsdp.cpu_offload
#pragma once

#include <string>
#include <string_view>

#include "config/option_table.hpp"

namespace accel {

// A value of a setting that asks for what is not there.
struct RefusedValue {
  std::string_view name, value;  // "": every value but `otherwise`
  std::string_view otherwise;
  const char* asks_for;

  // In any case.
  bool matches(std::string_view setting, std::string_view written) const;
};

// A value that asks for what is not there is an error that names the place.
void refuse_reference_value(std::string_view name, const std::string& written, const std::string& place);
// The setting that a name without a field decides by its value; no table: none.
struct ReferenceMeaning {
  const OptionTable* table = nullptr;
  std::string_view field;
  std::string value;
};
ReferenceMeaning reference_meaning(std::string_view name, const std::string& written);

// Whether a distributed_type is that of files whose section megatron_lm_config counts.
bool is_megatron(std::string_view distributed_type);

// A file with one of these names is one of Accelerate, where the number of processes and the address of the first
// are for the launcher.
bool is_name_of_reference_files(std::string_view name);
constexpr std::string_view kOfTheLauncher[] = {"num_processes", "main_process_ip", "main_process_port"};

}  // namespace accel
