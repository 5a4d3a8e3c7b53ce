// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/launch_option.hpp"

namespace accel::launch {

namespace groups {
const OptionGroup processes{"Processes"};
const OptionGroup program{"Program"};
const OptionGroup hosts{"Several machines"};
const OptionGroup output{"Output"};
const OptionGroup settings{"Settings of the ranks"};
const OptionGroup fsdp{"Sharding in the words of FSDP", "use_fsdp"};
const OptionGroup deepspeed{"Sharding in the words of DeepSpeed", "use_deepspeed"};
const OptionGroup parallelism{"Axes of the mesh", "use_parallelism_config"};
const OptionGroup compilation{"Compilation by torch.compile, in programs of Python"};
const OptionGroup fp8{"8-bit floating point", "mixed_precision"};
const OptionGroup megatron{"Splitting and training in the words of Megatron-LM", "use_megatron_lm"};
const OptionGroup tpu{"TPU", "", "there are no TPUs"};
const OptionGroup sagemaker{"Amazon SageMaker", "", "nothing is started on SageMaker"};
}  // namespace groups

}  // namespace accel::launch
