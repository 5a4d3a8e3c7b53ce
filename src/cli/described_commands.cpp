// SPDX-License-Identifier: Apache-2.0
#include "cli/described_commands.hpp"

#include <utility>

#include "base/deadline.hpp"
#include "base/split_text.hpp"
#include "cli/command_description.hpp"
#include "json/json.hpp"
#include "launch/command_output.hpp"

namespace accel::program {
namespace {

constexpr Deadline::Milliseconds kLimit(10000);

// The output of this program with these arguments; nothing if it fails.
std::string output_of_self(const std::vector<std::string>& words) {
  std::vector<std::string> command = {"/proc/self/exe"};
  command.insert(command.end(), words.begin(), words.end());
  command.emplace_back(kDescribe);
  return launch::command_output(command, Deadline(kLimit)).value_or("");
}

std::vector<DescribedOption> options_of(const Json& described) {
  std::vector<DescribedOption> options;
  for (const Json& one : *json_member(described, "options")->items()) {
    DescribedOption option;
    for (const Json& name : *json_member(one, "names")->items()) option.names.push_back(*name.text());
    option.takes_value = json_flag(one, "takes_value", false);
    option.value = json_text(one, "value", "");
    option.help = json_text(one, "help", "");
    option.group = json_text(one, "group", "");
    if (option.takes_value && option.value.find('|') != std::string::npos)
      option.choices = split_text(option.value, '|');
    options.push_back(std::move(option));
  }
  return options;
}

DescribedCommand described(std::vector<std::string> words, const std::string& summary, const std::string& next_words) {
  DescribedCommand command;
  const std::string output = output_of_self(words);
  command.words = std::move(words);
  command.summary = summary;
  command.next_words = split_text(next_words, ' ');
  if (output.empty() || output.front() != '{') return command;
  const Json json = parse_json(output.substr(0, output.find('\n')), "the description of a command");
  command.usage = json_text(json, "usage", "");
  command.description = json_text(json, "description", "");
  command.options = options_of(json);
  return command;
}

}  // namespace

std::vector<DescribedCommand> describe_commands(const ProgramCommands& all) {
  std::vector<DescribedCommand> commands = {described({}, "starts and watches the processes of a training", "")};
  for (const ProgramCommand& one : all) {
    if (one.is_hidden) continue;
    commands.front().next_words.emplace_back(one.name);
    commands.push_back(described({one.name}, one.summary, one.words));
    if (one.program != nullptr) continue;  // its words have no options of their own
    for (const std::string& word : split_text(one.words, ' ')) {
      DescribedCommand inner = described({one.name, word}, "", "");
      if (!inner.options.empty()) commands.push_back(std::move(inner));
    }
  }
  return commands;
}

}  // namespace accel::program
