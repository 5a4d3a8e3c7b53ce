// SPDX-License-Identifier: Apache-2.0
#include "cli/launch_report.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/error.hpp"
#include "base/split_text.hpp"
#include "cli/option_help.hpp"
#include "launch/hosts/exec_program.hpp"
#include "launch/plan/launch_option_list.hpp"
#include "launch/ranks/rank_environment.hpp"

namespace accel::program {
namespace {

using launch::LaunchOption;
using launch::LaunchPlan;
using launch::Variables;

// The command that is executed, by this launcher or mpirun.
std::vector<std::string> command_of(const LaunchPlan& plan) {
  return plan.options.mpirun_hostfile.empty() ? plan.options.program : mpirun_command(plan.options);
}

struct PlannedRank {
  int rank = 0, local_rank = 0;
  Variables own;
};

struct PlannedRanks {
  Variables shared;
  std::vector<PlannedRank> ranks;
};

PlannedRanks ranks_of(const LaunchPlan& plan) {
  const launch::LaunchOptions& options = plan.options;
  launch::HostRanks host_ranks;
  host_ranks.local_processes = options.local_processes();
  host_ranks.first_rank = options.machine_rank * host_ranks.local_processes;
  host_ranks.world_size = options.num_processes;
  host_ranks.host_number = options.machine_rank;
  host_ranks.num_hosts = options.num_machines;
  host_ranks.master_port = options.main_process_port.value_or(0);
  PlannedRanks planned;
  for (int local_rank = 0; local_rank < host_ranks.local_processes; ++local_rank) {
    PlannedRank rank{host_ranks.first_rank + local_rank, local_rank, {}};
    for (auto& variable : rank_variables(options, host_ranks, local_rank)) {
      const bool is_own = variable.first == "RANK" || variable.first == "LOCAL_RANK";
      if (variable.first == "MASTER_PORT" && host_ranks.master_port == 0) continue;
      if (is_own)
        rank.own.push_back(std::move(variable));
      else if (local_rank == 0)
        planned.shared.push_back(std::move(variable));
    }
    planned.ranks.push_back(std::move(rank));
  }
  return planned;
}

Json object_of(const Variables& variables) {
  Json::Members members;
  for (const auto& [name, value] : variables) members.emplace_back(name, Json(value));
  return Json(std::move(members));
}

// Quotes the word for a shell.
std::string quoted(const std::string& word) {
  const bool is_plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("-_./=:,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (is_plain) return word;
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

const char* kind_name(const LaunchOption& option) {
  if (option.may_repeat) return "list";
  if (option.is_flag()) return option.has_value ? "yes_or_no" : "flag";
  return option_kind_name(option.field.kind);
}

// Names of FSDP, DeepSpeed and fp8 are accepted in any case, and by their numbers.
bool has_listed_choices(const LaunchOption& option) {
  return option.group != &launch::groups::fsdp && option.group != &launch::groups::deepspeed &&
         option.group != &launch::groups::fp8;
}

std::string refusal_of(const LaunchOption& option) {
  for (const char* const value : {"true", "2"})
    if (const char* const asked = refused_meaning(option, value))
      return text("'", value, "' asks for ", asked, ", which is not there");
  return "";
}

}  // namespace

Json json_of(const LaunchPlan& plan) {
  PlannedRanks planned = ranks_of(plan);
  Json::Items command, ranks, notes;
  for (const std::string& word : command_of(plan)) command.emplace_back(word);
  for (const std::string& note : plan.notes) notes.emplace_back(note);
  for (const PlannedRank& rank : planned.ranks)
    ranks.emplace_back(Json::Members{{"rank", Json::number(int64_t{rank.rank})},
                                     {"local_rank", Json::number(int64_t{rank.local_rank})},
                                     {"environment", object_of(rank.own)}});
  Json::Members settings;
  for (const auto& [name, setting] : plan.settings)
    settings.emplace_back(name, Json(Json::Members{{"value", Json(setting.value)}, {"source", Json(setting.source)}}));
  return Json(Json::Members{{"launcher", Json(plan.launcher)},
                            {"command", Json(std::move(command))},
                            {"environment", object_of(planned.shared)},
                            {"ranks", Json(std::move(ranks))},
                            {"settings", Json(std::move(settings))},
                            {"notes", Json(std::move(notes))}});
}

std::string lines_of(const Json& report) {
  std::string lines;
  const auto add = [&lines](std::string name, const std::string& value) {
    name.resize(std::max<size_t>(name.size() + 1, 28), ' ');
    lines += name + value + '\n';
  };
  const auto print = [](const Json& value) {
    if (value.text() != nullptr) return *value.text();
    if (value.flag() != nullptr) return std::string(*value.flag() ? "yes" : "no");
    std::string joined;
    if (value.items() == nullptr) return print_json(value);
    for (const Json& item : *value.items())
      joined += (joined.empty() ? "" : ", ") + (item.text() != nullptr ? *item.text() : print_json(item));
    return joined.empty() ? std::string("none") : joined;
  };
  for (const auto& [name, value] : *report.members()) {
    if (value.members() == nullptr)
      add(name, print(value));
    else if (value.members()->empty())
      add(name, "none found");
    else
      for (const auto& [inner, one] : *value.members())
        add(name == "variables" ? inner : name + ' ' + inner, print(one));
  }
  return lines;
}

std::string describe(const LaunchPlan& plan) {
  const PlannedRanks planned = ranks_of(plan);
  std::string shown = "command:\n ";
  for (const std::string& word : command_of(plan)) shown += ' ' + quoted(word);
  shown += text("\nranks ", planned.ranks.front().rank, " to ", planned.ranks.back().rank, " of ",
                plan.options.num_processes, ", with\n");
  for (const auto& [name, value] : planned.shared) shown += text("  ", name, '=', quoted(value), '\n');
  if (!plan.options.main_process_port) shown += "  MASTER_PORT, which is a free one\n";
  shown += "settings that are not the defaults:\n";
  for (const auto& [name, setting] : plan.settings)
    if (setting.source != "default" && name != "dry_run")
      shown += text("  ", name, " = ", setting.value, " (", setting.source, ")\n");
  for (const std::string& note : plan.notes) shown += text("note: ", note, '\n');
  return shown;
}

Json list_launch_options() {
  Json::Items listed;
  for (const LaunchOption& option : launch::launch_options()) {
    Json::Items aliases, choices;
    for (const std::string& alias : split_text(option.aliases)) aliases.emplace_back(alias);
    for (size_t i = 0; i < option.field.num_choices && has_listed_choices(option); ++i)
      choices.emplace_back(option.field.choices[i].name);
    const std::string reason = option.group->reason != nullptr ? option.group->reason : refusal_of(option);
    Json::Members members = {{"name", Json(option.field.name)},
                             {"aliases", Json(std::move(aliases))},
                             {"kind", Json(kind_name(option))},
                             {"has_value", Json(option.has_value)},
                             {"choices", choices.empty() ? Json() : Json(std::move(choices))},
                             {"group", Json(option.group->heading)},
                             {"help", Json(describe(option.field))},
                             {"variable", option.field.variable == nullptr ? Json() : Json(option.field.variable)},
                             {"reason", reason.empty() ? Json() : Json(reason)}};
    if (option.parser_default != nullptr)
      members.emplace_back("default", parse_json(option.parser_default, option.field.name));
    listed.emplace_back(std::move(members));
  }
  return Json(std::move(listed));
}

}  // namespace accel::program
