// SPDX-License-Identifier: Apache-2.0
// Settings of a launch, each with its source: command line > environment > configuration file > default.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/launch_configuration.hpp"
#include "launch/plan/launch_option_list.hpp"

namespace accel::launch {

struct PlannedSetting {
  std::string value;
  std::string source;  // "command line", "ACCELERATE_MIXED_PRECISION", "job.yaml:3", "default"
};

// The options on the command line, by the names of launch_options().
using GivenOptions = std::map<std::string, std::string>;

inline constexpr const char* kCommandLine = "command line";
inline constexpr const char* kDefault = "default";

std::string option_flag(std::string_view name);  // "--num-processes"

// The sources may be changed until resolve() has looked at them.
class LaunchSettings {
 public:
  explicit LaunchSettings(const GivenOptions& given) : given_(given) {}

  bool is_given(const std::string& name) const { return given_.count(name) != 0; }
  bool is_given_yes(const std::string& name) const;
  const GivenOptions& given() const { return given_; }

  // The file of the command line, of the variable that the ranks read, too, or that of `accel config`.
  void read_file();
  const std::optional<LaunchConfiguration>& file() const { return file_; }
  void set_of_file(const std::string& name, PlannedSetting setting) { of_file_[name] = std::move(setting); }
  void forget_of_file(const std::string& name) { of_file_.erase(name); }

  // Takes the hosts from a batch system, where the command line leaves them open.
  void follow_cluster();
  bool is_of_cluster(const std::string& name) const { return of_cluster_.count(name) != 0; }

  void resolve();

  // Once they are resolved. Null: it has no value.
  const PlannedSetting* find(const std::string& name) const;
  std::string value_of(const std::string& name, const std::string& otherwise = "") const;
  bool is_yes(const std::string& name) const;
  int integer_of(const std::string& name, int otherwise) const;
  // For messages: "--num-processes", or "job.yaml:3: num_processes".
  std::string place_of(const std::string& name) const;
  bool is_from_file(const PlannedSetting& setting) const;
  // The settings that the option's value wins over.
  std::vector<PlannedSetting> overruled(const LaunchOption& option) const;
  // Settings of the library, which the ranks read of the same file.
  std::vector<std::pair<std::string, PlannedSetting>> of_library() const;

  void set(const std::string& name, PlannedSetting setting) { settings_[name] = std::move(setting); }
  void set_default(const std::string& name, const std::string& value);
  void forget(const std::string& name) { settings_.erase(name); }

 private:
  void add_of_file(std::string_view section, const LaunchConfiguration::Value& value);
  void resolve(const LaunchOption& option);
  // All values that there are, the first of which holds.
  std::vector<PlannedSetting> values_of(const LaunchOption& option) const;

  const GivenOptions& given_;
  std::optional<LaunchConfiguration> file_;
  std::map<std::string, PlannedSetting> of_cluster_, of_file_;
  std::map<std::string, PlannedSetting> settings_;
};

}  // namespace accel::launch
