// SPDX-License-Identifier: Apache-2.0
#include "cli/tpu_command.hpp"

#include <cstdio>
#include <filesystem>

#include "base/error.hpp"
#include "base/split_text.hpp"
#include "cli/command_arguments.hpp"
#include "config/launch_configuration.hpp"
#include "os/regular_file.hpp"

namespace accel::program {
namespace {

constexpr char kTpuHelp[] =
    R"(Would run commands on the hosts of a TPU, as Accelerate does with gcloud. This version trains on no TPU and runs
nothing there: with --debug it prints the command that Accelerate would run, without it it is an error.
)";

struct TpuOptions {
  std::string config_file, name, zone, command_file, version = "latest";
  std::vector<std::string> commands;
  bool uses_alpha = false, installs = false, is_debug = false;
};

void declare_tpu(CLI::App& app, TpuOptions& options) {
  const auto add = [&app](const char* names, auto& value, const char* type, const char* description) {
    app.add_option(names, value, description)->type_name(type)->group("Options");
  };
  const auto add_switch = [&app](const char* names, bool& value, const char* description) {
    app.add_flag(names, value, description)->group("Options");
  };
  add("--config-file,--config_file", options.config_file, "FILE", "Configuration file that names the TPU.");
  add("--tpu-name,--tpu_name", options.name, "TEXT", "Name of the TPU. Default: that of the configuration");
  add("--tpu-zone,--tpu_zone", options.zone, "TEXT", "Zone of the TPU. Default: that of the configuration");
  add_switch("--use-alpha,--use_alpha", options.uses_alpha, "Uses gcloud alpha.");
  add("--command-file,--command_file", options.command_file, "FILE", "File with commands, one a line.");
  add("--command", options.commands, "TEXT", "Command to run; may be given several times.");
  add_switch("--install-accelerate,--install_accelerate", options.installs, "Installs Accelerate first.");
  add("--accelerate-version,--accelerate_version", options.version, "TEXT", "Version of Accelerate. Default latest");
  add_switch("--debug", options.is_debug, "Prints the command instead of running it.");
}

std::string text_in(const LaunchConfiguration& configuration, const char* name) {
  const LaunchConfiguration::Value* const value = configuration.find("", name);
  return value == nullptr || value->value.text() == nullptr ? "" : *value->value.text();
}

// Adds the settings that the command line lacks.
void add_tpu_configuration(TpuOptions& options) {
  std::error_code error;
  const std::string usual = default_configuration_path();
  if (options.config_file.empty() && !std::filesystem::is_regular_file(usual, error)) return;
  const LaunchConfiguration configuration =
      read_launch_configuration(options.config_file.empty() ? usual : options.config_file);
  if (options.command_file.empty() && options.commands.empty())
    options.command_file = text_in(configuration, "command_file");
  const LaunchConfiguration::Value* const commands = configuration.find("", "commands");
  if (options.commands.empty() && commands != nullptr && commands->value.items() != nullptr)
    for (const Json& command : *commands->value.items())
      options.commands.push_back(command.text() == nullptr ? print_json(command) : *command.text());
  if (options.name.empty()) options.name = text_in(configuration, "tpu_name");
  if (options.zone.empty()) options.zone = text_in(configuration, "tpu_zone");
}

std::string package_of(const std::string& version) {
  if (version == "latest") return "accelerate -U";
  if (version == "dev") return "git+https://github.com/huggingface/accelerate.git";
  return "accelerate==" + version;
}

}  // namespace

int run_tpu_config(const std::vector<std::string>& arguments) {
  CLI::App app(kTpuHelp, "accel tpu-config");
  TpuOptions options;
  declare_tpu(app, options);
  add_help(app, " [OPTION ...]");
  if (is_shown(parse_all(app, arguments))) return 0;
  add_tpu_configuration(options);
  require(!options.command_file.empty() || !options.commands.empty(), Status::kInvalidArgument,
          "there is nothing to run; expected --command TEXT or --command-file FILE");
  if (!options.command_file.empty()) options.commands = split_text(RegularFile(options.command_file).read(), '\n');
  std::string command = "cd /usr/share";
  if (options.installs) command += "; pip install " + package_of(options.version);
  for (const std::string& one : options.commands) command += "; " + one;
  require(options.is_debug, Status::kUnsupported,
          "tpu-config asks for TPUs; this version does not support it: --debug prints the command of Accelerate");
  std::printf("Running gcloud %scompute tpus tpu-vm ssh %s --zone %s --command %s --worker all\n",
              options.uses_alpha ? "alpha " : "", options.name.c_str(), options.zone.c_str(), command.c_str());
  return 0;
}

}  // namespace accel::program
