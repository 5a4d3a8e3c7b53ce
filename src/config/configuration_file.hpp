// The configuration file: YAML or JSON, values of options between those of the environment and the defaults.
//
//   mixed_precision: bf16        # fields of accel_state_options_t
//   timeout_ms: 60000
//   ddp:                         # fields of accel_ddp_options_t
//     bucket_cap_mb: 50
//
// A section is named as the struct is, without "accel_" and "_options_t". Errors name the file and the line.
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
  };

  // Throws kNotFound or kIo for a file that cannot be read, kInvalidArgument for one that is no mapping of this form,
  // or that has a name twice or one that no struct has.
  explicit ConfigurationFile(const std::string& path);

  // What the file says of a field; null: nothing.
  const Entry* find(const OptionTable& table, std::string_view field) const;

  // The one that ACCELERATE_CONFIG_FILE names, read once; null where the variable is not set.
  static const ConfigurationFile* of_environment();

 private:
  std::map<std::string, std::map<std::string, Entry, std::less<>>, std::less<>> sections_;  // "" is the state's
};

}  // namespace accel
