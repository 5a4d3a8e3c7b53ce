#include "program/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "config/option_text.hpp"
#include "launch/launch_option.hpp"
#include "launch/remote_launcher.hpp"
#include "program/command_arguments.hpp"
#include "program/option_text.hpp"

namespace accel::program {
namespace {

using launch::LaunchOption;
using launch::LaunchOptions;

constexpr char kProgramHelp[] =
    R"(Starts and watches the processes of a training.

Commands, each with --help:
  launch           starts a program in several processes
  env              says what a bug report should know of this machine
  checkpoint       verifies, lists, shows or compares checkpoints
  merge-weights    makes one file of the weights that several ranks wrote in parts
  estimate-memory  says what loading and training a model takes
)";

constexpr char kLaunchHelp[] =
    R"(Starts PROGRAM in several processes and tells each its rank. The output of rank 0 is shown as it is; of a failing
rank the last lines are shown. When a rank fails, the others are ended and the exit status is that of the failed one.
A PROGRAM whose name ends with .py is run by python3.
Names of options may be written with - or _, values behind a blank or =. The last of several holds. A setting holds
where the program does not make it itself; without its option its variable holds, else the default.
)";

constexpr char kEnvironmentHelp[] =
    R"(Says what a bug report should know of this machine: its processors, memory and GPUs, and the variables that are set
of those that a training looks at.
)";

// "--num-processes,--num_processes", "-m"
std::string spellings(const std::string& name) {
  if (name.size() == 1) return "-" + name;
  std::string dashed = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return "--" + dashed + (dashed == name ? "" : ",--" + name);
}

void add_option(CLI::App& app, const LaunchOption& option, LaunchOptions& options) {
  std::string names = spellings(option.field.name);
  if (option.other_name != nullptr) names += "," + spellings(option.other_name);
  const auto apply = [option, &options](const CLI::results_t& values) {
    check_option_text(option.field, values.back(), "--" + option_name(option.field), "");
    option.apply(option.field, values.back(), options);
    options.given_names.emplace_back(option.field.name);
    return true;
  };
  CLI::Option* const added = app.add_option(names, apply, describe(option.field));
  added->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->type_name(value_name(option.field))
      ->group(option.group);
  if (option.field.kind == OptionKind::kFlag) added->expected(0);
}

// As Accelerate starts it: scripts and modules of Python by python3.
std::vector<std::string> command_of(std::vector<std::string> program, const LaunchOptions& options) {
  constexpr std::string_view kScript = ".py";
  const std::string& name = program.front();
  const bool is_script =
      name.size() > kScript.size() && name.compare(name.size() - kScript.size(), kScript.size(), kScript) == 0;
  if (options.is_module)
    program.insert(program.begin(), {"python3", "-m"});
  else if (is_script && !options.is_program_itself)
    program.insert(program.begin(), "python3");
  return program;
}

CommandLine shown(std::string text) { return {Command::kShow, std::move(text), {}}; }

CommandLine parse_launch(const std::vector<std::string>& arguments) {
  CLI::App app(kLaunchHelp, "accel launch");
  CommandLine result{Command::kLaunch, "", {}};
  for (const LaunchOption& option : launch::launch_options()) add_option(app, option, result.launch);
  add_help(app, " [OPTION ...] [--] PROGRAM [ARGUMENT ...]");
  ParsedArguments parsed = parse(app, arguments);
  if (parsed.shown) return shown(*std::move(parsed.shown));
  require(!parsed.rest.empty(), Status::kInvalidArgument,
          "no program is given; expected accel launch [OPTION ...] PROGRAM");
  result.launch.hosts.version = ACCEL_VERSION;
  result.launch.given.assign(arguments.begin(),
                             arguments.end() - static_cast<std::ptrdiff_t>(parsed.rest.size() + parsed.ended_options));
  launch::check_together(result.launch);
  result.launch.program = command_of(std::move(parsed.rest), result.launch);
  return result;
}

CommandLine parse_environment(const std::vector<std::string>& arguments) {
  CLI::App app(kEnvironmentHelp, "accel env");
  add_help(app, "");
  ParsedArguments parsed = parse(app, arguments);
  if (parsed.shown) return shown(*std::move(parsed.shown));
  require(parsed.rest.empty(), Status::kInvalidArgument, "'", parsed.rest.empty() ? "" : parsed.rest.front(),
          "' is given to accel env; expected no arguments");
  return {Command::kReportEnvironment, "", {}};
}

}  // namespace

launch::LaunchOptions remote_launch() {
  const launch::RemoteStart start = launch::take_remote_start();
  launch::LaunchOptions options = parse_launch(start.arguments).launch;
  options.num_processes = start.num_processes;
  options.hosts.slots = start.slots;
  options.hosts.secret = start.secret;
  options.hosts.lifeline = start.lifeline;
  options.hosts.is_remote = true;
  return options;
}

// The commands are not subcommands of CLI11, which `--` would end.
CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  constexpr char kExpected[] = "expected launch, env, checkpoint, merge-weights, estimate-memory, --version or --help";
  require(!arguments.empty(), Status::kInvalidArgument, "no command is given; ", kExpected);
  const std::vector<std::string> others(arguments.begin() + 1, arguments.end());
  if (arguments.front() == "launch") return parse_launch(others);
  if (arguments.front() == "host" && arguments.size() == 1) return {Command::kBeRemote, "", {}};
  if (arguments.front() == "env") return parse_environment(others);
  if (arguments.front() == "checkpoint" || arguments.front() == "merge-weights" ||
      arguments.front() == "estimate-memory")
    return {Command::kUseCheckpoints, "", {}};
  CLI::App app(kProgramHelp, "accel");
  app.set_version_flag("--version", "accel " ACCEL_VERSION, "Shows the version.")->group("Information");
  add_help(app, " COMMAND");
  ParsedArguments parsed = parse(app, arguments);
  if (parsed.shown) return shown(*std::move(parsed.shown));
  fail(Status::kInvalidArgument, "'", arguments.front(), "' is not a command; ", kExpected);
}

}  // namespace accel::program
