// SPDX-License-Identifier: Apache-2.0
#include "cli/completions_command.hpp"

#include <cstdio>
#include <sstream>

#include "base/error.hpp"
#include "cli/command_arguments.hpp"
#include "cli/described_commands.hpp"

namespace accel::program {
namespace {

constexpr char kCompletionsHelp[] =
    R"help(Prints a script that makes a shell complete the commands of accel, their options and values.

  bash   eval "$(accel completions bash)" in ~/.bashrc
  zsh    accel completions zsh > ~/.zfunc/_accel, a folder of fpath
  fish   accel completions fish > ~/.config/fish/completions/accel.fish
)help";

std::string joined(const std::vector<std::string>& parts, const std::string& separator = " ") {
  std::string result;
  for (const std::string& part : parts) result += (result.empty() ? "" : separator) + part;
  return result;
}

std::string all_names(const DescribedCommand& command) {
  std::vector<std::string> names;
  for (const DescribedOption& option : command.options)
    for (const std::string& name : option.names) names.push_back(name);
  return joined(names);
}

// The first sentence, without what the shells' quotes would end.
std::string quotable(const std::string& help) {
  std::string result;
  for (const char letter : help.substr(0, help.find(". ")))
    if (letter != '\'' && letter != '\\') result += letter;
  return result;
}

// A function that knows for each command what may follow it, and the values of options. Options are offered until the
// first word that is none: the program that is launched, whose arguments are files.
std::string bash_script(const std::vector<DescribedCommand>& commands) {
  std::ostringstream out;
  out << "_accel() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}\n"
         "  local names= words= values= i=2\n"
         "  [ \"$COMP_CWORD\" -gt 1 ] || command= i=1\n"
         "  [ \"$COMP_CWORD\" -gt 2 ] && case $command/${COMP_WORDS[2]} in\n";
  for (const DescribedCommand& command : commands)
    if (command.words.size() == 2) {
      const std::string name = joined(command.words, "/");
      out << "    " << name << ") command=" << name << " i=3 ;;\n";
    }
  out << "  esac\n"
         "  case $command in\n";
  for (const DescribedCommand& command : commands)
    out << "    " << (command.words.empty() ? "''" : joined(command.words, "/")) << ") words='"
        << joined(command.next_words) << "' names='" << all_names(command) << "' ;;\n";
  out << "  esac\n"
         "  case $command:${before//_/-} in\n";
  for (const DescribedCommand& command : commands) {
    const std::string prefix = joined(command.words, "/") + ":";
    std::vector<std::string> others;  // options with values that nobody can list
    for (const DescribedOption& option : command.options) {
      const std::string names = prefix + joined(option.names, "|" + prefix);
      if (!option.choices.empty()) out << "    " << names << ") values='" << joined(option.choices) << "' ;;\n";
      if (option.takes_value && option.choices.empty()) others.push_back(names);
    }
    if (!others.empty()) out << "    " << joined(others, "|") << ") values=- ;;\n";
  }
  out << "  esac\n"
         "  COMPREPLY=()\n"
         "  if [ \"$values\" = - ]; then\n"
         "    return\n"
         "  elif [ -n \"$values\" ]; then\n"
         "    COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n"
         "  elif [[ $word == -* ]]; then\n"
         "    [[ $word == *_* ]] && names=${names//-/_} names=${names//__/--}\n"
         "    COMPREPLY=($(compgen -W \"$names\" -- \"$word\"))\n"
         "  elif [ \"$COMP_CWORD\" -eq $i ]; then\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "  fi\n"
         "}\n"
         "complete -o default -F _accel accel\n";
  return out.str();
}

std::string zsh_option(const DescribedOption& option) {
  std::string row;
  for (const std::string& name : option.names) {
    std::string help;
    for (const char letter : quotable(option.help))
      help += letter == '[' || letter == ']' || letter == ':' ? ' ' : letter;
    row += text("    '", name, option.takes_value && name.compare(0, 2, "--") == 0 ? "=" : "", "[", help, "]");
    if (option.takes_value)
      row += option.choices.empty() ? ":value:_files" : text(":value:(", joined(option.choices), ")");
    row += "' \\\n";
  }
  return row;
}

std::string zsh_script(const std::vector<DescribedCommand>& commands) {
  std::ostringstream out;
  out << "#compdef accel\n"
         "_accel() {\n"
         "  local command=${words[2]}\n"
         "  if (( CURRENT == 2 )); then\n"
         "    local -a commands=(\n";
  for (const DescribedCommand& command : commands)
    if (command.words.size() == 1) out << "      '" << command.words[0] << ":" << quotable(command.summary) << "'\n";
  out << "    )\n"
         "    _describe command commands\n"
         "    return\n"
         "  fi\n"
         "  (( CURRENT > 3 )) && command=$command/${words[3]}\n"
         "  case $command in\n";
  // Longer ones first, so that "config/default" is not "config/*".
  for (const size_t count : {size_t{2}, size_t{1}})
    for (const DescribedCommand& command : commands) {
      if (command.words.size() != count) continue;
      out << "  " << joined(command.words, "/") << (count == 1 ? "|" + command.words[0] + "/*" : "")
          << ")\n    _arguments \\\n";
      for (const DescribedOption& option : command.options) out << zsh_option(option);
      if (!command.next_words.empty()) out << "    '2:word:(" << joined(command.next_words) << ")' \\\n";
      out << "    '*:file:_files' ;;\n";
    }
  out << "  esac\n"
         "}\n"
         "_accel \"$@\"\n";
  return out.str();
}

std::string fish_script(const std::vector<DescribedCommand>& commands) {
  std::ostringstream out;
  for (const DescribedCommand& command : commands) {
    std::string condition = "__fish_use_subcommand";
    if (!command.words.empty()) condition = "__fish_seen_subcommand_from " + command.words.back();
    if (command.words.size() == 1)
      out << "complete -c accel -n __fish_use_subcommand -a " << command.words[0] << " -d '"
          << quotable(command.summary) << "'\n";
    if (command.words.size() == 1 && !command.next_words.empty())
      out << "complete -c accel -n '" << condition << "' -a '" << joined(command.next_words) << "'\n";
    for (const DescribedOption& option : command.options) {
      out << "complete -c accel -n '" << condition << "'";
      for (const std::string& name : option.names)
        out << (name.compare(0, 2, "--") == 0 ? " -l " : " -s ") << name.substr(name.find_first_not_of('-'));
      if (option.takes_value) out << " -r";
      if (!option.choices.empty()) out << " -f -a '" << joined(option.choices) << "'";
      out << " -d '" << quotable(option.help) << "'\n";
    }
  }
  return out.str();
}

}  // namespace

int run_completions(const std::vector<std::string>& arguments, const ProgramCommands& all) {
  CLI::App app(kCompletionsHelp, "accel completions");
  add_help(app, " (bash | zsh | fish)");
  const ParsedArguments parsed = parse(app, arguments);
  if (is_shown(parsed)) return 0;
  require(parsed.rest.size() == 1, Status::kInvalidArgument, "accel completions was given ", parsed.rest.size(),
          " shells; expected bash, zsh or fish");
  const std::string& shell = parsed.rest.front();
  require(shell == "bash" || shell == "zsh" || shell == "fish", Status::kInvalidArgument, "'", shell,
          "' is not a shell that is known; expected bash, zsh or fish");
  const std::vector<DescribedCommand> commands = describe_commands(all);
  const std::string script = shell == "bash"  ? bash_script(commands)
                             : shell == "zsh" ? zsh_script(commands)
                                              : fish_script(commands);
  std::fputs(script.c_str(), stdout);
  return 0;
}

}  // namespace accel::program
