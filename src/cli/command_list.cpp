// SPDX-License-Identifier: Apache-2.0
#include "cli/command_list.hpp"

#include <algorithm>
#include <iterator>

#include "cli/checkpoint_arguments.hpp"
#include "cli/compile/compile_command.hpp"
#include "cli/completions_command.hpp"
#include "cli/config_command.hpp"
#include "cli/manual_command.hpp"
#include "cli/model_arguments.hpp"
#include "cli/profile_command.hpp"
#include "cli/report_command.hpp"
#include "cli/to_fsdp2_command.hpp"
#include "cli/tpu_command.hpp"

namespace accel::program {
namespace {

constexpr char kCheckpoints[] = "accel-checkpoint";
constexpr char kModels[] = "accel-models";

constexpr ProgramCommand kCommands[] = {
    {"launch", "starts a program in several processes"},
    {"config", "asks for a configuration of launch, and explains its values", run_config, nullptr, nullptr,
     "default update explain"},
    {"env", "describes this machine for a bug report"},
    {"test", "tests the library on this machine"},
    {"checkpoint", "verifies, lists, shows or compares checkpoints", nullptr, kCheckpoints, shown_of_checkpoints,
     "verify list show diff"},
    {"merge-weights", "merges the weights that several ranks wrote in parts into one file", nullptr, kCheckpoints,
     shown_of_checkpoints},
    {"estimate-memory", "estimates the memory that loading and training a model takes", nullptr, kCheckpoints,
     shown_of_checkpoints},
    {"run", "generates text with a model", nullptr, kModels, shown_of_models},
    {"embed", "writes the embeddings of lines of text", nullptr, kModels, shown_of_models},
    {"serve", "serves a model over HTTP, by the routes of OpenAI", nullptr, kModels, shown_of_models},
    {"compile", "compiles a model of torch for inference without Python", run_compile},
    {"profile", "records traces of the ranks of a program", run_profile},
    {"report", "writes or serves a page of charts of runs", run_report},
    {"to-fsdp2", "turns a configuration of FSDP 1 into one of FSDP 2", run_to_fsdp2},
    {"tpu-config", "would prepare TPUs, of which this version has none", run_tpu_config},
    {"completions", "prints the completions of these commands for a shell",
     [](const std::vector<std::string>& arguments) { return run_completions(arguments, program_commands()); }, nullptr,
     nullptr, "bash zsh fish"},
    {"manual", "writes the manual pages",
     [](const std::vector<std::string>& arguments) { return run_manual(arguments, program_commands()); }, nullptr,
     nullptr, "", true},
};

}  // namespace

ProgramCommands program_commands() { return {kCommands, std::size(kCommands)}; }

const ProgramCommand* find_program_command(const std::string& name) {
  const auto found = std::find_if(std::begin(kCommands), std::end(kCommands),
                                  [&name](const ProgramCommand& command) { return name == command.name; });
  return found == std::end(kCommands) ? nullptr : &*found;
}

}  // namespace accel::program
