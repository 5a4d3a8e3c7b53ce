// SPDX-License-Identifier: Apache-2.0
// Configuration file: YAML or JSON with values of options, which come after the environment and before the defaults.
//
//   mixed_precision: bf16        # fields of accel_state_options_t
//   timeout_ms: 60000
//   ddp:                         # fields of accel_ddp_options_t
//     bucket_cap_mb: 50
//
// A section has the name of the struct without "accel_" and "_options_t". A file that Accelerate's questionnaire
// wrote is read as well, with its names (config/reference_configuration.hpp). Errors name the file and the line.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "config/option_table.hpp"

namespace accel {

class ConfigurationFile {
 public:
  struct Entry {
    std::string text;
    std::string place;  // "job.yaml:3"
    std::string name;   // which it has there: that of the field, or another one of Accelerate
  };

  // Throws kNotFound or kIo if the file cannot be read; kInvalidArgument if it has another form, a duplicate name or an
  // unknown one.
  explicit ConfigurationFile(const std::string& path);

  // The value of a field in the file; null: none.
  const Entry* find(const OptionTable& table, std::string_view field) const;

  // A value that no option can have is an error. Otherwise it is one of the call that would take the value.
  void check_values() const;

  // The file that ACCELERATE_CONFIG_FILE names, read once; null if the variable is not set.
  static const ConfigurationFile* of_environment();

 private:
  using Sections = std::map<std::string, std::map<std::string, Entry, std::less<>>, std::less<>>;
  class Reader;

  Sections sections_;  // "" is the state's
};

// Whether such a file may have this name outside of sections, as a section or as an option.
bool is_name_of_configuration_file(std::string_view name, bool is_section);

}  // namespace accel
