// SPDX-License-Identifier: Apache-2.0
#include "cli/config_command.hpp"

#include <cstdio>
#include <filesystem>

#include "base/error.hpp"
#include "cli/cluster_questions.hpp"
#include "cli/command_arguments.hpp"
#include "cli/questions.hpp"
#include "config/configuration_writer.hpp"
#include "config/launch_configuration.hpp"
#include "config/reference_configuration.hpp"
#include "launch/plan/launch_explanation.hpp"
#include "machine/visible_gpus.hpp"

namespace accel::program {
namespace {

constexpr char kConfigHelp[] =
    R"(Asks on the terminal how trainings run here, and writes the configuration that accel launch reads. An empty answer takes
the default in brackets.

Commands, each with --help:
  default  writes a configuration of this machine without questions
  update   reads a configuration and writes it with the names and defaults of this version
  explain  shows each value that a launch here would use, where it comes from, and what it wins over
)";
constexpr char kDefaultHelp[] =
    R"(Writes a configuration of this machine without questions: a process for each GPU, or one on the processor. A file that
is there stays as it is.
)";
constexpr char kUpdateHelp[] =
    R"(Reads a configuration and writes it again: old names become those of today, defaults are written out.
)";
constexpr char kExplainHelp[] =
    R"(Shows each value that a launch here would use without options, where it comes from - the environment, a line of the
configuration, the default - and what it wins over. Secrets are not shown.
)";

void add_file(CLI::App& app, std::string& file) {
  app.add_option("--config-file,--config_file", file,
                 "Configuration file. Default: accelerate/default_config.yaml in HF_HOME, else in the cache folder's "
                 "huggingface")
      ->type_name("FILE")
      ->group("Options");
}

std::string path_of(const std::string& file) { return file.empty() ? default_configuration_path() : file; }

// Notes answers that ask for features which this version does not have.
void note_what_is_not_there(const LaunchConfiguration& configuration) {
  const auto note = [](const LaunchConfiguration::Value& value) {
    if (value.value.is_null()) return;
    const std::string written = value.value.text() != nullptr ? *value.value.text() : print_json(value.value);
    try {
      refuse_reference_value(value.name, written, "note");
    } catch (const Error& refused) {
      std::fprintf(stderr, "accel: %s\n", refused.what());
    }
  };
  for (const LaunchConfiguration::Value& value : configuration.values) note(value);
  for (const LaunchConfiguration::Section& section : configuration.sections)
    for (const LaunchConfiguration::Value& value : section.values) note(value);
}

int write_default(const std::string& precision, const std::string& path) {
  const size_t gpus = launch::visible_gpus(launch::visible_gpu_ids()).size();
  if (write_basic_configuration(precision, path, gpus))
    std::printf("accel configuration saved at %s\n", path.c_str());
  else
    std::printf("there is a configuration at %s already, which stays as it is; --config-file names another\n",
                path.c_str());
  return 0;
}

int run_default(const std::vector<std::string>& arguments) {
  CLI::App app(kDefaultHelp, "accel config default");
  std::string file, precision = "no";
  add_file(app, file);
  app.add_option("--mixed-precision,--mixed_precision", precision, "Precision of the training. Default no")
      ->type_name("no|fp16|bf16")
      ->group("Options");
  add_help(app, " [OPTION ...]");
  return is_shown(parse_all(app, arguments)) ? 0 : write_default(precision, path_of(file));
}

int run_update(const std::vector<std::string>& arguments) {
  CLI::App app(kUpdateHelp, "accel config update");
  std::string file;
  add_file(app, file);
  add_help(app, " [OPTION ...]");
  if (is_shown(parse_all(app, arguments))) return 0;
  const std::string path = path_of(file);
  write_configuration(path, file_form(read_launch_configuration(path)));
  std::printf("configuration updated at %s\n", path.c_str());
  return 0;
}

int run_explain(const std::vector<std::string>& arguments) {
  CLI::App app(kExplainHelp, "accel config explain");
  std::string file;
  bool is_json = false;
  add_file(app, file);
  app.add_flag("--json", is_json, "Prints one JSON object.")->group("Options");
  add_help(app, " [OPTION ...]");
  if (is_shown(parse_all(app, arguments))) return 0;
  const Json explanation = launch::explain_launch(file);
  std::fputs((is_json ? print_json(explanation) + "\n" : launch::describe_explanation(explanation)).c_str(), stdout);
  return 0;
}

int ask(const std::string& path) {
  const Questions questions(
      "expected one, or accel config --default, which writes a configuration of this machine to " + path +
      " without questions");
  const std::string place = questions.choice("Where do trainings run?", {"This machine", "AWS (Amazon SageMaker)"});
  require(place == "This machine", Status::kUnsupported,
          "this version starts nothing on SageMaker, and so asks nothing about it; files for it are read and left as "
          "they are");
  const Json answers = file_form(ask_for_cluster(questions, launch::visible_gpus(launch::visible_gpu_ids()).size()));
  write_configuration(path, answers);
  std::printf("accel configuration saved at %s\n", path.c_str());
  note_what_is_not_there(read_launch_configuration(path));
  return 0;
}

}  // namespace

int run_config(const std::vector<std::string>& arguments) {
  if (!arguments.empty()) {
    const std::vector<std::string> others(arguments.begin() + 1, arguments.end());
    if (arguments.front() == "default") return run_default(others);
    if (arguments.front() == "update") return run_update(others);
    if (arguments.front() == "explain") return run_explain(others);
  }
  CLI::App app(kConfigHelp, "accel config");
  std::string file;
  bool takes_defaults = false;
  add_file(app, file);
  app.add_flag("--default", takes_defaults, "Asks nothing, as accel config default.")->group("Options");
  add_help(app, " [default | update | explain] [OPTION ...]");
  const ParsedArguments parsed = parse(app, arguments);
  if (is_shown(parsed)) return 0;
  require(parsed.rest.empty(), Status::kInvalidArgument, "'", parsed.rest.empty() ? "" : parsed.rest.front(),
          "' is not a command of accel config; expected default, update or explain");
  return takes_defaults ? write_default("no", path_of(file)) : ask(path_of(file));
}

}  // namespace accel::program
