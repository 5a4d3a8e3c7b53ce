// The options of `accel launch`: the launcher's own, and one for each field of accel_state_options_t that a rank reads
// from a variable. Their descriptions are those of include/accel.h.
#pragma once

#include <string>
#include <vector>

#include "config/option_table.hpp"
#include "launch/options.hpp"

namespace accel::launch {

struct LaunchOption {
  OptionField field;
  const char* group;  // the heading in the help
  // `value` is one that the field can have.
  void (*apply)(const OptionField& field, const std::string& value, LaunchOptions& options);
  const char* other_name = nullptr;  // a letter, or what Accelerate calls it
};

// In the order of the help.
std::vector<LaunchOption> launch_options();

// Checks the options against each other.
void check_together(LaunchOptions& options);

}  // namespace accel::launch
