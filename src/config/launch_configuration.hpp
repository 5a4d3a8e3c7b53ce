// SPDX-License-Identifier: Apache-2.0
// The configuration file of `accel launch`, as Accelerate's classes hold it: names of older versions are converted,
// what is not written has its default.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "json/json.hpp"

namespace accel {

struct LaunchConfiguration {
  struct Value {
    std::string name;   // as it is written
    Json value;         // of the kind that the name has
    std::string place;  // "job.yaml:3"; "default": not in the file
    bool is_default() const { return place == "default"; }
  };
  struct Section {
    std::string name;           // "fsdp_config"
    std::vector<Value> values;  // in the order of the file
  };

  std::string path;
  bool is_sagemaker = false;
  std::vector<Value> values;      // outside of sections, in the order of Accelerate's class
  std::vector<Section> sections;  // those that the class has, empty ones too
  std::vector<Section> own;       // of the library ("ddp"; "" has options of accel_state_options_t), which ranks read

  // Null if there is none. "" is outside of sections. Prefixes that a name may lack in its section make no difference.
  const Value* find(std::string_view section, std::string_view name) const;
};

// $HF_HOME, else $XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface; then accelerate/default_config.yaml.
std::string default_configuration_path();

// kNotFound and kIo if the file cannot be read; kInvalidArgument for what is wrong in it. All unknown names are listed.
LaunchConfiguration read_launch_configuration(const std::string& path);
LaunchConfiguration parse_launch_configuration(const std::string& document, const std::string& path);

// One object, sections within.
Json json_of(const LaunchConfiguration& configuration);

}  // namespace accel
