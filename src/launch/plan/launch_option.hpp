// SPDX-License-Identifier: Apache-2.0
// One option of `accel launch`, and the groups of options in its help.
#pragma once

#include <string_view>

#include "config/option_table.hpp"

namespace accel::launch {

struct OptionGroup {
  const char* heading;           // in the help
  const char* switch_name = "";  // the option that makes the ranks get the others of the group
  const char* reason = nullptr;  // why they mean nothing here; they are accepted and named then
};

namespace groups {
extern const OptionGroup processes, program, hosts, output, settings, fsdp, deepspeed, parallelism, compilation, fp8,
    megatron, tpu, sagemaker;
}

struct LaunchOption {
  // Its name with _, what it can be, its description, and the variable of the ranks.
  OptionField field;
  const OptionGroup* group;
  // Other names: a letter, what this library calls it, with commas between them.
  std::string_view aliases = "";
  // The default of Accelerate's parser as JSON; null: the option is not Accelerate's.
  const char* parser_default = nullptr;
  bool has_value = true;     // false: its name alone means yes
  const char* yes = "true";  // what a flag is in the variable
  const char* no = "false";
  bool may_repeat = false;

  bool is_flag() const { return field.kind == OptionKind::kFlag; }
};

}  // namespace accel::launch
