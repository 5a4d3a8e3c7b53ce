// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/launch_settings.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "config/configuration_file.hpp"
#include "config/option_text.hpp"
#include "config/yaml_document.hpp"
#include "json/json.hpp"
#include "launch/plan/scheduler_job.hpp"

namespace accel::launch {
namespace {

// Values of the file as text; a list is joined by commas. Null: nothing.
std::optional<std::string> text_of(const Json& value) {
  if (value.is_null()) return std::nullopt;
  if (value.text() != nullptr) return *value.text();
  if (value.flag() != nullptr) return *value.flag() ? "true" : "false";
  if (value.digits() != nullptr) return *value.digits();
  if (value.items() == nullptr) return print_json(value);
  std::string joined;
  for (const Json& item : *value.items()) joined += (joined.empty() ? "" : ",") + text_of(item).value_or("");
  if (joined.empty()) return std::nullopt;
  return joined;
}

// The option that a name of the file sets: names of some sections may lack the prefix that options have.
const LaunchOption* option_of_file(std::string_view section, std::string_view name) {
  if (section.empty() && name == "use_cpu") return find_launch_option("cpu");
  if (name == "fsdp_backward_prefetch_policy" || name == "backward_prefetch_policy")
    return find_launch_option("fsdp_backward_prefetch");
  for (const std::string_view prefix : {"fsdp", "fp8", "dynamo"})
    if (section == std::string(prefix) + "_config" && name.compare(0, prefix.size(), prefix) != 0)
      return find_launch_option(std::string(prefix) + "_" + std::string(name));
  return find_launch_option(name);
}

}  // namespace

std::string option_flag(std::string_view name) {
  std::string shown = "--" + std::string(name);
  std::replace(shown.begin(), shown.end(), '_', '-');
  return shown;
}

bool LaunchSettings::is_given_yes(const std::string& name) const {
  const auto found = given_.find(name);
  return found != given_.end() && parse_flag(found->second).value_or(false);
}

const PlannedSetting* LaunchSettings::find(const std::string& name) const {
  const auto found = settings_.find(name);
  return found == settings_.end() ? nullptr : &found->second;
}

std::string LaunchSettings::value_of(const std::string& name, const std::string& otherwise) const {
  const PlannedSetting* const setting = find(name);
  return setting == nullptr ? otherwise : setting->value;
}

bool LaunchSettings::is_yes(const std::string& name) const { return parse_flag(value_of(name, "no")).value_or(false); }

int LaunchSettings::integer_of(const std::string& name, int otherwise) const {
  const PlannedSetting* const setting = find(name);
  return setting == nullptr ? otherwise : static_cast<int>(parse_integer(setting->value).value());
}

std::string LaunchSettings::place_of(const std::string& name) const {
  const PlannedSetting* const setting = find(name);
  if (setting == nullptr || setting->source == kCommandLine || setting->source == kDefault) return option_flag(name);
  const char* const variable = find_launch_option(name)->field.variable;
  return variable != nullptr && setting->source == variable ? setting->source : text(setting->source, ": ", name);
}

bool LaunchSettings::is_from_file(const PlannedSetting& setting) const {
  return file_ && setting.source.compare(0, file_->path.size() + 1, file_->path + ":") == 0;
}

void LaunchSettings::set_default(const std::string& name, const std::string& value) {
  settings_.try_emplace(name, PlannedSetting{value, kDefault});
}

void LaunchSettings::read_file() {
  if (is_given("config_file")) {
    file_ = read_launch_configuration(given_.at("config_file"));
  } else if (const auto path = environment_text("ACCELERATE_CONFIG_FILE")) {
    // A file with settings of the ranks alone is for them to read.
    const YamlNode root = read_yaml(*path);
    if (root.is_map() && root.find("distributed_type") != nullptr)
      file_ = read_launch_configuration(*path);
    else
      ConfigurationFile(*path).check_values();
  } else if (const std::string default_path = default_configuration_path();
             !is_given_yes("cpu") && access(default_path.c_str(), F_OK) == 0) {
    file_ = read_launch_configuration(default_path);
  }
  if (!file_) return;
  require(!file_->is_sagemaker, Status::kUnsupported, file_->path,
          ": compute_environment is 'AMAZON_SAGEMAKER', and nothing is started on SageMaker; expected LOCAL_MACHINE");
  for (const LaunchConfiguration::Value& value : file_->values) add_of_file("", value);
  for (const LaunchConfiguration::Section& section : file_->sections)
    for (const LaunchConfiguration::Value& value : section.values) add_of_file(section.name, value);
}

void LaunchSettings::add_of_file(std::string_view section, const LaunchConfiguration::Value& value) {
  const LaunchOption* const option = option_of_file(section, value.name);
  const std::optional<std::string> written = text_of(value.value);
  if (option == nullptr || !written || (value.is_default() && value.name != "num_processes")) return;
  of_file_[option->field.name] = {*written, value.is_default() ? kDefault : value.place};
}

void LaunchSettings::follow_cluster() {
  if (is_given("machine_rank") || is_given("deepspeed_hostfile") || is_given("mpirun_hostfile")) return;
  const std::string machines = is_given("num_machines")              ? given_.at("num_machines")
                               : of_file_.count("num_machines") != 0 ? of_file_.at("num_machines").value
                                                                     : "1";
  const std::optional<SchedulerJob> job = find_scheduler_job(machines != "1" || is_given("nnodes"));
  if (!job) return;
  for (const auto& [name, value] : job->settings) of_cluster_[name] = {value, job->source};
}

void LaunchSettings::resolve() {
  for (const LaunchOption& option : launch_options()) resolve(option);
}

std::vector<PlannedSetting> LaunchSettings::values_of(const LaunchOption& option) const {
  const std::string name = option.field.name;
  std::vector<PlannedSetting> values;
  const auto add = [&values](const std::optional<std::string>& value, const std::string& source) {
    if (value && !value->empty()) values.push_back({*value, source});
  };
  if (const auto found = given_.find(name); found != given_.end()) values.push_back({found->second, kCommandLine});
  if (const auto found = of_cluster_.find(name); found != of_cluster_.end()) values.push_back(found->second);
  // Where the ranks meet is not what an older job left in the environment.
  if (option.field.variable != nullptr && option.group != &groups::hosts)
    add(environment_text(option.field.variable), option.field.variable);
  if (const auto found = of_file_.find(name); found != of_file_.end()) values.push_back(found->second);
  if (option.parser_default != nullptr && option.group->reason == nullptr)
    add(text_of(parse_json(option.parser_default, name)), kDefault);
  return values;
}

void LaunchSettings::resolve(const LaunchOption& option) {
  const std::string name = option.field.name;
  const std::vector<PlannedSetting> values = values_of(option);
  if (values.empty()) return;
  // "-1": to be given on the command line, which the plan refuses.
  const PlannedSetting& first = values.front();
  const bool is_from_variable = option.field.variable != nullptr && first.source == option.field.variable;
  if ((is_from_file(first) || is_from_variable) && first.value != "-1")
    check_option_text(option.field, first.value, name, first.source);
  settings_[name] = first;
}

std::vector<PlannedSetting> LaunchSettings::overruled(const LaunchOption& option) const {
  std::vector<PlannedSetting> others = values_of(option);
  const PlannedSetting* const winner = find(option.field.name);
  const auto is_winner = [winner](const PlannedSetting& one) {
    return winner != nullptr && one.source == winner->source;
  };
  others.erase(std::remove_if(others.begin(), others.end(), is_winner), others.end());
  return others;
}

std::vector<std::pair<std::string, PlannedSetting>> LaunchSettings::of_library() const {
  std::vector<std::pair<std::string, PlannedSetting>> settings;
  if (!file_) return settings;
  for (const LaunchConfiguration::Section& section : file_->own)
    for (const LaunchConfiguration::Value& value : section.values)
      if (const auto written = text_of(value.value))
        settings.push_back({(section.name.empty() ? "" : section.name + ".") + value.name, {*written, value.place}});
  return settings;
}

}  // namespace accel::launch
