// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/split_text.hpp"
#include "cli/command_arguments.hpp"
#include "cli/command_list.hpp"
#include "cli/launch_report.hpp"
#include "cli/option_help.hpp"
#include "json/json.hpp"
#include "launch/environment_report.hpp"
#include "launch/hosts/remote_launcher.hpp"
#include "launch/plan/launch_option_list.hpp"

namespace accel::program {
namespace {

using launch::GivenOptions;
using launch::LaunchOption;

constexpr char kLaunchHelp[] =
    R"(Starts PROGRAM in several processes, the ranks, and sets the variables that give each its rank. The output of
rank 0 is shown as it is. If a rank fails, its last lines are shown, the other ranks are ended, and the exit status is
that of the failed rank. python3 runs a PROGRAM whose name ends with .py.
Options may be written with - or _, and their values after a blank or =. The last of several values counts. An option
replaces its environment variable, which replaces the default; a setting that the program makes itself comes first.
)";

constexpr char kTestHelp[] =
    R"(Tests the library on this machine, with 2 processes or as the configuration file says: start, collectives, loaders,
training in float32 and bf16, checkpoints. Each part has a result that is known. Exit status 1 if one does not work.
With --soak it tests the machine instead: each processor computes products with known results, and compares half of the
memory that is free with what it wrote there. Ctrl-C ends it, and it says what was done; the exit status is 130 then.
)";

constexpr char kEnvironmentHelp[] =
    R"(Describes this machine for a bug report: system, processors, memory, limits, devices, libraries, Python,
the configuration file, and the variables that are set of those that a training looks at. Secrets are masked.
)";

// "--num-processes,--num_processes", "-m"
std::string spellings(const std::string& name) {
  if (name.size() == 1) return "-" + name;
  std::string dashed = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return "--" + dashed + (dashed == name ? "" : ",--" + name);
}

// Options that have no meaning here are accepted, but are not in the help.
void add_option(CLI::App& app, const LaunchOption& option, GivenOptions& given) {
  std::string names = spellings(option.field.name);
  for (const std::string& alias : split_text(option.aliases)) names += "," + spellings(alias);
  const auto keep = [&option, &given](const CLI::results_t& values) {
    std::string kept = values.back();
    if (option.may_repeat)
      kept = std::accumulate(values.begin() + 1, values.end(), values.front(),
                             [](const std::string& one, const std::string& other) { return one + "," + other; });
    given[option.field.name] = kept;
    return true;
  };
  const bool is_explained = option.group->reason == nullptr;
  CLI::Option* const added = app.add_option(names, keep, is_explained ? describe(option.field) : "");
  added->multi_option_policy(option.may_repeat ? CLI::MultiOptionPolicy::TakeAll : CLI::MultiOptionPolicy::TakeLast)
      ->type_name(option.has_value && option.is_flag() ? "yes|no" : value_name(option.field))
      ->group(is_explained ? option.group->heading : "");
  if (!option.has_value) added->expected(0);
}

std::string program_help() {
  constexpr size_t kWidth = 17;
  std::string help = "Starts and watches the processes of a training.\n\nCommands, each with --help:\n";
  for (const ProgramCommand& command : program_commands()) {
    if (command.is_hidden) continue;
    std::string name = command.name;
    name.resize(std::max(name.size(), kWidth), ' ');
    help += "  " + name + command.summary + "\n";
  }
  return help;
}

std::string command_names() {
  std::string names;
  for (const ProgramCommand& command : program_commands())
    if (!command.is_hidden) names += (names.empty() ? "" : ", ") + std::string(command.name);
  return names;
}

CommandLine show(std::string text) { return {Command::kShow, std::move(text), {}, nullptr}; }

// Groups of options that the help does not list by name.
std::string help_without_meaning() {
  std::string rows;
  std::vector<const launch::OptionGroup*> named;
  for (const LaunchOption& option : launch::launch_options()) {
    const launch::OptionGroup* const group = option.group;
    if (group->reason == nullptr || std::find(named.begin(), named.end(), group) != named.end()) continue;
    named.push_back(group);
    rows += help_row(group->heading, group->reason);
  }
  return "\nAccepted from command lines of Accelerate without effect; what turns it on is refused:\n" + rows;
}

CommandLine parse_launch(const std::vector<std::string>& arguments) {
  CLI::App app(kLaunchHelp, "accel launch");
  GivenOptions given;
  for (const LaunchOption& option : launch::launch_options()) add_option(app, option, given);
  bool list_options = false;  // for the parser of the Python binding
  app.add_flag("--list-options,--list_options", list_options)->group("");
  add_help(app, " [OPTION ...] [--] PROGRAM [ARGUMENT ...]");
  ParsedArguments parsed = parse(app, arguments);
  if (parsed.shown) return show(*std::move(parsed.shown) + help_without_meaning());
  if (list_options) return show(print_json(list_launch_options()) + '\n');
  const bool is_dry = given.count("dry_run") != 0, is_json = given.count("json") != 0;
  require(!parsed.rest.empty(), Status::kInvalidArgument,
          "no program is given; expected accel launch [OPTION ...] PROGRAM");
  require(is_dry || !is_json, Status::kInvalidArgument, "--json is given; expected --dry-run beside it");
  std::vector<std::string> options(
      arguments.begin(), arguments.end() - static_cast<std::ptrdiff_t>(parsed.rest.size() + parsed.ended_options));
  CommandLine result{Command::kLaunch, "", launch::plan_launch(given, std::move(parsed.rest)), nullptr};
  result.plan.options.given = std::move(options);
  result.plan.options.hosts.version = ACCEL_VERSION;
  if (!is_dry) return result;
  return show(is_json ? print_json(json_of(result.plan)) + '\n' : describe(result.plan));
}

CommandLine parse_environment(const std::vector<std::string>& arguments) {
  CLI::App app(kEnvironmentHelp, "accel env");
  bool is_json = false;
  std::string configuration;
  app.add_flag("--json", is_json, "Prints one JSON object instead of lines.")->group("Options");
  app.add_option("--config-file,--config_file", configuration,
                 "Configuration file to report, instead of that of accel config.")
      ->type_name("FILE")
      ->group("Options");
  add_help(app, " [OPTION ...]");
  ParsedArguments parsed = parse(app, arguments);
  if (parsed.shown) return show(*std::move(parsed.shown));
  require(parsed.rest.empty(), Status::kInvalidArgument, "'", parsed.rest.empty() ? "" : parsed.rest.front(),
          "' is given to accel env; expected no arguments");
  Json::Members report = {{"accel", Json(ACCEL_VERSION)}};
  const Json found = launch::environment_report(configuration);
  report.insert(report.end(), found.members()->begin(), found.members()->end());
  const Json whole(std::move(report));
  return show(is_json ? print_json(whole) + '\n' : lines_of(whole));
}

CommandLine parse_test(const std::vector<std::string>& arguments) {
  CLI::App app(kTestHelp, "accel test");
  GivenOptions given;
  add_option(app, *launch::find_launch_option("config_file"), given);
  add_option(app, *launch::find_launch_option("num_processes"), given);
  bool is_json = false;
  int seconds = 120;
  app.add_option("--timeout", seconds, "Time limit in seconds; checks that still run are ended. Default 120")
      ->type_name("SECONDS")
      ->check(CLI::Range(1, 86400))
      ->group("Options");
  double soak_minutes = 0;
  app.add_option("--soak", soak_minutes, "Minutes in which each processor and the memory are tested. Default: none")
      ->type_name("MINUTES")
      ->check(CLI::Range(0.001, 100000.0))
      ->group("Options");
  app.add_flag("--json", is_json, "Prints one JSON object for each check instead of a table.")->group("Options");
  add_help(app, " [OPTION ...]");
  ParsedArguments parsed = parse(app, arguments);
  if (parsed.shown) return show(*std::move(parsed.shown));
  require(parsed.rest.empty(), Status::kInvalidArgument, "'", parsed.rest.empty() ? "" : parsed.rest.front(),
          "' is given to accel test; expected no arguments");
  given.try_emplace("num_processes", "2");
  CommandLine result{Command::kTest, is_json ? "json" : "text", launch::plan_launch(given, {}), nullptr};
  result.plan.options.program = {std::to_string(seconds)};
  result.plan.options.hosts.version = ACCEL_VERSION;
  result.soak_minutes = soak_minutes;
  return result;
}

}  // namespace

launch::LaunchOptions remote_launch() {
  const launch::RemoteStart start = launch::take_remote_start();
  launch::LaunchOptions options = parse_launch(start.arguments).plan.options;
  options.num_processes = start.num_processes;
  options.hosts.slots = start.slots;
  options.hosts.secret = start.secret;
  options.hosts.lifeline = start.lifeline;
  options.hosts.is_remote = true;
  return options;
}

// The commands are not subcommands of CLI11, which `--` would end.
CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  const std::string expected = "expected " + command_names() + ", --version or --help";
  require(!arguments.empty(), Status::kInvalidArgument, "no command is given; ", expected);
  const std::vector<std::string> others(arguments.begin() + 1, arguments.end());
  if (arguments.front() == "launch") return parse_launch(others);
  if (arguments.front() == "host" && arguments.size() == 1) return {Command::kBeRemote, "", {}, nullptr};
  if (arguments.front() == "env") return parse_environment(others);
  if (arguments.front() == "test") return parse_test(others);
  if (const ProgramCommand* const command = find_program_command(arguments.front())) {
    if (command->program == nullptr) return {Command::kRun, "", {}, command->run};
    if (auto text = command->shown(command->name, others)) return show(*std::move(text));
    return {Command::kBecome, command->program, {}, nullptr};
  }
  CLI::App app(program_help(), "accel");
  app.set_version_flag("--version", "accel " ACCEL_VERSION, "Shows the version.")->group("Information");
  add_help(app, " COMMAND");
  ParsedArguments parsed = parse(app, arguments);
  if (parsed.shown) return show(*std::move(parsed.shown));
  fail(Status::kInvalidArgument, "'", arguments.front(), "' is not a command; ", expected);
}

}  // namespace accel::program
