// SPDX-License-Identifier: Apache-2.0
#include "cli/manual_command.hpp"

#include <algorithm>
#include <sstream>

#include "base/error.hpp"
#include "cli/command_arguments.hpp"
#include "cli/described_commands.hpp"
#include "os/replaced_file.hpp"

namespace accel::program {
namespace {

constexpr char kManualHelp[] =
    R"(Writes the manual pages into FOLDER: accel.1, and one for each command.
)";

// Text for roff: a hyphen is one that can be copied, and no line begins with a command.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '\\')
      result += "\\e";
    else if (letter == '-')
      result += "\\-";
    else if ((letter == '.' || letter == '\'') && (result.empty() || result.back() == '\n'))
      result += std::string("\\&") + letter;
    else
      result += letter;
  }
  return result;
}

std::string dashed(const std::vector<std::string>& words) {
  std::string result = "accel";
  for (const std::string& word : words) result += "-" + word;
  return result;
}

void write_options(const DescribedCommand& command, const char* heading, std::ostringstream& out) {
  std::string group;
  for (const DescribedOption& option : command.options) {
    if (option.group != group) out << heading << " \"" << escaped(option.group) << "\"\n";
    group = option.group;
    out << ".TP\n";
    std::string names;
    for (const std::string& name : option.names) names += (names.empty() ? "\\fB" : ", \\fB") + escaped(name) + "\\fR";
    out << names;
    if (!option.value.empty()) out << (option.takes_value ? " " : "") << "\\fI" << escaped(option.value) << "\\fR";
    out << "\n" << (option.help.empty() ? "\\&" : escaped(option.help)) << "\n";
  }
}

std::string page_of(const DescribedCommand& command, const std::vector<DescribedCommand>& commands) {
  std::ostringstream out;
  out << ".TH " << escaped(dashed(command.words)) << " 1 \"\" \"accel " << ACCEL_VERSION
      << "\" \"User Commands\"\n.ad l\n"
      << ".SH NAME\n"
      << escaped(dashed(command.words)) << " \\- " << escaped(command.summary) << "\n"
      << ".SH SYNOPSIS\n"
      << ".nf\n"
      << escaped(command.usage.substr(std::min(command.usage.find("accel"), command.usage.size()))) << "\n"
      << ".fi\n"
      << ".SH DESCRIPTION\n"
      << ".nf\n"
      << escaped(command.description) << ".fi\n";
  write_options(command, ".SH", out);
  for (const DescribedCommand& inner : commands) {
    if (inner.words.size() != 2 || command.words.size() != 1 || inner.words.front() != command.words.front()) continue;
    out << ".SH \"" << inner.words[1] << "\"\n.nf\n" << escaped(inner.description) << ".fi\n";
    write_options(inner, ".SS", out);
  }
  if (!command.words.empty()) out << ".SH SEE ALSO\n.BR accel (1)\n";
  return out.str();
}

}  // namespace

int run_manual(const std::vector<std::string>& arguments, const ProgramCommands& all) {
  CLI::App app(kManualHelp, "accel manual");
  add_help(app, " FOLDER");
  const ParsedArguments parsed = parse(app, arguments);
  if (is_shown(parsed)) return 0;
  require(parsed.rest.size() == 1, Status::kInvalidArgument, "accel manual was given ", parsed.rest.size(),
          " folders; expected one");
  const std::vector<DescribedCommand> commands = describe_commands(all);
  for (const DescribedCommand& command : commands)
    if (command.words.size() < 2)
      replace_file(parsed.rest.front() + "/" + dashed(command.words) + ".1", page_of(command, commands));
  return 0;
}

}  // namespace accel::program
