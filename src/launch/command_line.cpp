#include "launch/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "config/option_text.hpp"
#include "launch/launch_option.hpp"
#include "launch/option_text.hpp"

namespace accel::launch {
namespace {

constexpr char kProgramHelp[] =
    R"(Starts and watches the processes of a training.

Commands, each with --help:
  launch  starts a program in several processes
  env     says what a bug report should know of this machine
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

bool is_dashed(const std::string& argument) { return !argument.empty() && argument.front() == '-'; }

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// "--num-processes N"
std::string usage(const CLI::Option& option) {
  std::string result;
  for (const std::string& name : option.get_snames()) result += "-" + name + ", ";
  return result + "--" + option.get_lnames().front() + (takes_value(option) ? " " : "") + option.get_type_name();
}

std::string help_of(const CLI::App& app, const char* arguments) {
  std::ostringstream out;
  out << "usage: " << app.get_name() << arguments << "\n\n" << app.get_description();
  for (const std::string& group : app.get_groups()) {
    out << '\n' << group << ":\n";
    const auto is_in_group = [&group](const CLI::Option* option) { return option->get_group() == group; };
    for (const CLI::Option* const option : app.get_options(is_in_group))
      out << help_row(usage(*option), option->get_description());
  }
  return out.str();
}

// Checks that every option before the first other argument has a value: CLI11 would use the next argument for
// `--name=`.
void require_values(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (auto argument = arguments.begin(); argument != arguments.end() && is_dashed(*argument); ++argument) {
    const size_t equals = argument->find('=');
    const std::string name = argument->substr(0, equals);
    const CLI::Option* const option = app.get_option_no_throw(name);
    if (option == nullptr) return;
    const bool has_value = equals == std::string::npos ? !takes_value(*option) || ++argument != arguments.end()
                                                       : equals + 1 < argument->size();
    require(has_value, Status::kInvalidArgument, name, " has no value; see ", app.get_name(), " --help");
  }
}

[[noreturn]] void refuse_option(const CLI::App& app, const std::string& argument) {
  const std::string given = argument.substr(0, argument.find('='));
  std::string name = given.substr(std::min(given.find_first_not_of('-'), given.size()));
  std::replace(name.begin(), name.end(), '_', '-');
  std::pair<size_t, std::string> nearest((name.size() + 2) / 3 + 1, "");  // farther away is none
  for (const CLI::Option* const option : app.get_options())
    for (const std::string& known : option->get_lnames())
      nearest = std::min(nearest, {edit_distance(name, known), known});
  const std::string hint = nearest.second.empty() ? "" : "the nearest is --" + nearest.second + "; ";
  fail(Status::kInvalidArgument, "'", given, "' is not an option; ", hint, "see ", app.get_name(), " --help");
}

// The arguments of one command: its options, then the rest.
struct Parsed {
  std::optional<std::string> shown;  // instead of doing anything
  std::vector<std::string> rest;
};

Parsed parse(CLI::App& app, const std::vector<std::string>& arguments) {
  require_values(app, arguments);
  app.prefix_command();
  Parsed parsed;
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    parsed.shown = app.help();
    return parsed;
  } catch (const CLI::CallForVersion& version) {
    parsed.shown = text(version.what(), '\n');
    return parsed;
  } catch (const CLI::ParseError& error) {
    fail(Status::kInvalidArgument, error.what(), "; see ", app.get_name(), " --help");
  }
  parsed.rest = app.remaining();
  if (parsed.rest.empty()) return parsed;
  if (parsed.rest.front() == "--")
    parsed.rest.erase(parsed.rest.begin());
  else if (is_dashed(parsed.rest.front()))
    refuse_option(app, parsed.rest.front());
  return parsed;
}

void add_help(CLI::App& app, const char* arguments) {
  app.set_help_flag();  // so that it comes last
  app.set_help_flag("-h,--help", "Shows this text.")->group("Information");
  app.formatter_fn([arguments](const CLI::App* shown, const std::string&, CLI::AppFormatMode) {
    return help_of(*shown, arguments);
  });
}

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
  for (const LaunchOption& option : launch_options()) add_option(app, option, result.launch);
  add_help(app, " [OPTION ...] [--] PROGRAM [ARGUMENT ...]");
  Parsed parsed = parse(app, arguments);
  if (parsed.shown) return shown(*std::move(parsed.shown));
  require(!parsed.rest.empty(), Status::kInvalidArgument,
          "no program is given; expected accel launch [OPTION ...] PROGRAM");
  check_together(result.launch);
  result.launch.program = command_of(std::move(parsed.rest), result.launch);
  return result;
}

CommandLine parse_environment(const std::vector<std::string>& arguments) {
  CLI::App app(kEnvironmentHelp, "accel env");
  add_help(app, "");
  Parsed parsed = parse(app, arguments);
  if (parsed.shown) return shown(*std::move(parsed.shown));
  require(parsed.rest.empty(), Status::kInvalidArgument, "'", parsed.rest.empty() ? "" : parsed.rest.front(),
          "' is given to accel env; expected no arguments");
  return {Command::kReportEnvironment, "", {}};
}

}  // namespace

// The commands are not subcommands of CLI11, which `--` would end.
CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  constexpr char kExpected[] = "expected launch, env, --version or --help";
  require(!arguments.empty(), Status::kInvalidArgument, "no command is given; ", kExpected);
  const std::vector<std::string> others(arguments.begin() + 1, arguments.end());
  if (arguments.front() == "launch") return parse_launch(others);
  if (arguments.front() == "env") return parse_environment(others);
  CLI::App app(kProgramHelp, "accel");
  app.set_version_flag("--version", "accel " ACCEL_VERSION, "Shows the version.")->group("Information");
  add_help(app, " COMMAND");
  Parsed parsed = parse(app, arguments);
  if (parsed.shown) return shown(*std::move(parsed.shown));
  fail(Status::kInvalidArgument, "'", arguments.front(), "' is not a command; ", kExpected);
}

}  // namespace accel::launch
