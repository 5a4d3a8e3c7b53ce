// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/launch_explanation.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/split_text.hpp"
#include "launch/plan/launch_plan.hpp"

namespace accel::launch {
namespace {

constexpr const char* kOfDefault = "default";
constexpr const char* kHidden = "(hidden)";

// By its name; also where a value is a list of variables for other programs.
std::string without_secrets(std::string_view name, const std::string& value) {
  constexpr std::string_view kSecret[] = {"secret", "token", "password", "access_key", "api_key"};
  const auto is_in_name = [name](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (std::any_of(std::begin(kSecret), std::end(kSecret), is_in_name)) return kHidden;
  if (name != "env") return value;
  std::string shown;
  for (const std::string& variable : split_text(value)) {
    const size_t equals = variable.find('=');
    shown += (shown.empty() ? "" : ",") + variable.substr(0, equals);
    if (equals != std::string::npos) shown += text('=', kHidden);
  }
  return shown;
}

Json shown_setting(const ExplainedSetting& explained) {
  const auto& [name, setting, others] = explained;
  Json::Items overruled;
  for (const auto& [value, source] : others)
    overruled.emplace_back(Json::Members{{"value", Json(without_secrets(name, value))}, {"source", Json(source)}});
  return Json(Json::Members{{"name", Json(name)},
                            {"value", Json(without_secrets(name, setting.value))},
                            {"source", Json(setting.source)},
                            {"overruled", Json(std::move(overruled))}});
}

}  // namespace

Json explain_launch(const std::string& path) {
  GivenOptions given;
  if (!path.empty()) given["config_file"] = path;
  ExplainedSettings found = explain_settings(given);
  Json::Items notes, settings;
  Json problem;
  try {
    const LaunchPlan plan = plan_launch(given, {});
    for (const std::string& note : plan.notes) notes.emplace_back(note);
    // Settings that the plan counts or decides are shown, but not defaults of features that are turned off.
    for (const auto& [name, setting] : plan.settings) {
      const auto is_known = [&name = name](const auto& one) { return one.name == name; };
      if (std::any_of(found.settings.begin(), found.settings.end(), is_known)) continue;
      if (setting.source != kOfDefault || name == "num_processes" || name == "mixed_precision")
        found.settings.push_back({name, setting, {}});
    }
  } catch (const Error& error) {
    problem = Json(error.message());
  }
  for (const ExplainedSetting& setting : found.settings)
    if (setting.name != "config_file") settings.push_back(shown_setting(setting));
  return Json(Json::Members{{"file", found.file.empty() ? Json() : Json(found.file)},
                            {"settings", Json(std::move(settings))},
                            {"notes", Json(std::move(notes))},
                            {"problem", std::move(problem)}});
}

std::string describe_explanation(const Json& explanation) {
  std::string lines = "configuration: " + json_text(explanation, "file", "none") + '\n';
  for (const Json& setting : *json_member(explanation, "settings")->items()) {
    lines += text(json_text(setting, "name", ""), " = ", json_text(setting, "value", ""), " (",
                  json_text(setting, "source", ""), ")");
    const char* separator = ", over ";
    for (const Json& other : *json_member(setting, "overruled")->items()) {
      const bool is_same = json_text(other, "value", "") == json_text(setting, "value", "");
      if (is_same && json_text(other, "source", "") == kOfDefault) continue;
      lines += text(separator, json_text(other, "value", ""), " (", json_text(other, "source", ""), ")");
      separator = ", ";
    }
    lines += '\n';
  }
  for (const Json& note : *json_member(explanation, "notes")->items()) lines += text("note: ", *note.text(), '\n');
  if (const Json* const problem = json_member(explanation, "problem"))
    lines += text("a launch would fail: ", *problem->text(), '\n');
  return lines;
}

}  // namespace accel::launch
