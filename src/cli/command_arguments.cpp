// SPDX-License-Identifier: Apache-2.0
#include "cli/command_arguments.hpp"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <utility>

#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "cli/command_description.hpp"
#include "cli/option_help.hpp"

namespace accel::program {
namespace {

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
    if (group.empty()) continue;  // accepted, not explained
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

}  // namespace

ParsedArguments parse(CLI::App& app, const std::vector<std::string>& arguments) {
  ParsedArguments parsed;
  if (arguments == std::vector<std::string>{kDescribe}) {
    parsed.shown = describe_command(app);
    return parsed;
  }
  require_values(app, arguments);
  app.prefix_command();
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
  parsed.ended_options = parsed.rest.front() == "--";
  if (parsed.ended_options)
    parsed.rest.erase(parsed.rest.begin());
  else if (is_dashed(parsed.rest.front()))
    refuse_option(app, parsed.rest.front());
  return parsed;
}

ParsedArguments parse_anywhere(CLI::App& app, const std::vector<std::string>& arguments) {
  ParsedArguments parsed = parse(app, arguments);
  std::vector<std::string> others;
  while (!parsed.shown && !parsed.ended_options && !parsed.rest.empty()) {
    others.push_back(parsed.rest.front());
    parsed = parse(app, {parsed.rest.begin() + 1, parsed.rest.end()});
  }
  parsed.rest.insert(parsed.rest.begin(), others.begin(), others.end());
  return parsed;
}

ParsedArguments parse_all(CLI::App& app, const std::vector<std::string>& arguments) {
  ParsedArguments parsed = parse(app, arguments);
  require(parsed.rest.empty(), Status::kInvalidArgument, "'", parsed.rest.empty() ? "" : parsed.rest.front(),
          "' is given to ", app.get_name(), "; expected options alone, see ", app.get_name(), " --help");
  return parsed;
}

bool is_shown(const ParsedArguments& parsed) {
  if (parsed.shown) std::fputs(parsed.shown->c_str(), stdout);
  return parsed.shown.has_value();
}

void add_help(CLI::App& app, const char* arguments) {
  app.set_help_flag();  // so that it comes last
  app.set_help_flag("-h,--help", "Shows this text.")->group("Information");
  app.formatter_fn([arguments](const CLI::App* shown, const std::string&, CLI::AppFormatMode) {
    return help_of(*shown, arguments);
  });
}

}  // namespace accel::program
