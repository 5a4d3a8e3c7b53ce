// SPDX-License-Identifier: Apache-2.0
#include "config/launch_configuration.hpp"

#include <strings.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/split_text.hpp"
#include "config/configuration_file.hpp"
#include "config/reference_names.hpp"
#include "config/yaml_document.hpp"

namespace accel {
namespace {

using LaunchValue = LaunchConfiguration::Value;
using LaunchSection = LaunchConfiguration::Section;

// A choice is any of "no|fp16", in any case; the result is the choice as it is listed.
std::optional<std::string> find_listed(const char* choices, const std::string& written) {
  for (const std::string& choice : split_text(choices, '|'))
    if (strcasecmp(choice.c_str(), written.c_str()) == 0) return choice;
  return {};
}

std::string with_separators(const char* choices) {
  std::string list;
  for (const std::string& choice : split_text(choices, '|')) list += (list.empty() ? "" : ", ") + choice;
  return list;
}

// One file: the tree becomes values of the kinds that their names have.
class LaunchFile {
 public:
  LaunchFile(const std::string& path, const YamlNode& root) : path_(path), root_(root) { result_.path = path; }

  LaunchConfiguration read() {
    require(root_.is_map(), Status::kInvalidArgument, path_,
            root_.is_null() ? " is empty" : " has no names with values",
            "; expected a configuration, as in 'distributed_type: MULTI_GPU'");
    const YamlNode* const where = root_.find("compute_environment");
    result_.is_sagemaker = where != nullptr && strcasecmp(where->text.c_str(), "AMAZON_SAGEMAKER") == 0;
    file_ = result_.is_sagemaker ? ReferenceFile::kSageMaker : ReferenceFile::kCluster;
    require_type();
    refuse_unknown_names();
    for (const ReferenceName& name : all_reference_names())
      if (name.section.empty() && (name.file == ReferenceFile::kAny || name.file == file_)) read_name(name);
    convert_old_names();
    for (const YamlNode::Entry& entry : root_.entries)
      if (!is_of_launchers("", entry.name)) read_own(entry);
    return std::move(result_);
  }

 private:
  std::string location(size_t line) const { return text(path_, ":", line); }

  void require_type() const {
    const YamlNode* const type = root_.find("distributed_type");
    require(type != nullptr && !type->is_null(), Status::kInvalidArgument, path_,
            " has no distributed_type; expected one, as in 'distributed_type: MULTI_GPU', or 'NO' for one process");
  }

  bool is_of_launchers(std::string_view section, std::string_view name) const {
    std::vector<std::string_view> known;
    return find_reference_name(section, name, known, file_) != nullptr;
  }

  void refuse_unknown_names() const {
    std::vector<std::string> unknown;
    size_t line = 0;
    const auto check = [&](std::string_view section, const YamlNode::Entry& entry) {
      std::vector<std::string_view> known;
      if (find_reference_name(section, entry.name, known, file_) != nullptr) return;
      if (section.empty() && is_name_of_configuration_file(entry.name, entry.value.is_map())) return;
      if (unknown.empty()) line = entry.line;
      unknown.push_back(
          text(entry.name, "' (line ", entry.line, ", the nearest is '", nearest_name(entry.name, known), "')"));
    };
    for (const YamlNode::Entry& entry : root_.entries) {
      check("", entry);
      if (!entry.value.is_map() || !is_reference_section(entry.name)) continue;
      for (const YamlNode::Entry& inner : entry.value.entries) check(entry.name, inner);
    }
    if (unknown.empty()) return;
    std::string list;
    for (const std::string& one : unknown) list += (list.empty() ? "'" : ", '") + one;
    fail(Status::kInvalidArgument, location(line), ": unknown names: ", list, "; expected names that there are");
  }

  [[noreturn]] void refuse_value(const ReferenceName& name, const YamlNode& value, const char* expected) const {
    fail(Status::kInvalidArgument, location(value.line), ": ", name.name, " is ",
         value.is_scalar() ? "'" + value.text + "'"
         : value.is_map()  ? "a map"
                           : "a list",
         "; expected ", expected);
  }

  // Converts the value to the kind of the name. Text stays as it is written: a plain "no" is not a flag where a text is
  // expected.
  Json convert(const ReferenceName& name, const YamlNode& value) const {
    if (value.is_null()) return {};
    if (name.kind == ReferenceKind::kAny) return json_of(value);
    if (name.kind == ReferenceKind::kList) {
      if (value.kind != YamlNode::Kind::kList) refuse_value(name, value, "a list");
      return json_of(value);
    }
    if (!value.is_scalar()) refuse_value(name, value, "one value");
    if (name.choices != nullptr) {
      const auto choice = find_listed(name.choices, value.text);
      if (!choice) refuse_value(name, value, ("one of " + with_separators(name.choices)).c_str());
      if (name.kind == ReferenceKind::kText) return Json(*choice);
    }
    if (name.kind == ReferenceKind::kText) return Json(value.text);
    if (name.kind == ReferenceKind::kFlag) {
      const auto flag = parse_flag(value.text);
      if (!flag) refuse_value(name, value, "true or false");
      return Json(*flag);
    }
    YamlNode number = value;
    number.is_plain = true;  // "4" is one as well
    Json result = json_of(number);
    if (name.kind == ReferenceKind::kInteger && !result.integer()) refuse_value(name, value, "an integer");
    if (!result.number()) refuse_value(name, value, "a number");
    return result;
  }

  const YamlNode::Entry* find_entry(std::string_view name) const {
    const auto found = std::find_if(root_.entries.begin(), root_.entries.end(),
                                    [name](const YamlNode::Entry& entry) { return entry.name == name; });
    return found == root_.entries.end() ? nullptr : &*found;
  }

  void read_name(const ReferenceName& name) {
    const YamlNode::Entry* const entry = find_entry(name.name);
    if (name.kind == ReferenceKind::kSection) return read_section(name, entry);
    if (entry != nullptr && !entry->value.is_null()) {
      result_.values.push_back({entry->name, convert(name, entry->value), location(entry->line)});
    } else if (name.default_value != nullptr) {
      result_.values.push_back({std::string(name.name), parse_json(name.default_value, "default"), "default"});
    } else {
      require(name.file == ReferenceFile::kAny, Status::kInvalidArgument, path_, " has no ", name.name,
              "; expected it, as files for SageMaker have it");
    }
  }

  void read_section(const ReferenceName& name, const YamlNode::Entry* entry) {
    LaunchSection section{std::string(name.name), {}};
    if (entry != nullptr && !entry->value.is_null()) {
      if (!entry->value.is_map()) refuse_value(name, entry->value, "a section with names and values");
      for (const YamlNode::Entry& inner : entry->value.entries) {
        std::vector<std::string_view> known;
        const ReferenceName* const found = find_reference_name(name.name, inner.name, known);
        section.values.push_back({inner.name, convert(*found, inner.value), location(inner.line)});
      }
    }
    result_.sections.push_back(std::move(section));
  }

  // Takes a value out; none: it is not written.
  std::optional<LaunchValue> take(std::string_view name) {
    std::vector<LaunchValue>& values = result_.values;
    const auto found =
        std::find_if(values.begin(), values.end(), [name](const LaunchValue& value) { return value.name == name; });
    if (found == values.end()) return {};
    LaunchValue taken = std::move(*found);
    values.erase(found);
    return taken;
  }

  LaunchValue* find_value(std::string_view name) {
    return const_cast<LaunchValue*>(std::as_const(result_).find("", name));
  }

  void convert_old_names() {
    const auto fp16 = take("fp16");
    LaunchValue* const precision = find_value("mixed_precision");
    if (fp16 && precision->is_default() && fp16->value.flag() != nullptr && *fp16->value.flag())
      *precision = {"mixed_precision", Json("fp16"), fp16->place};
    LaunchValue* const processes = find_value("num_processes");
    const std::string& type = *result_.find("", "distributed_type")->value.text();
    if (processes != nullptr && processes->is_default() && type == "NO") processes->value = Json::number(int64_t{1});
    take("ipex_config");  // of processors; nothing reads it any more
    const auto backend = take("dynamo_backend");
    if (!backend) return;
    for (LaunchSection& section : result_.sections) {
      if (section.name != "dynamo_config") continue;
      section.values.clear();
      if (backend->value.text() != nullptr && *backend->value.text() != "NO") section.values.push_back(*backend);
    }
  }

  void read_own(const YamlNode::Entry& entry) {
    if (entry.value.is_map()) {
      LaunchSection section{entry.name, {}};
      for (const YamlNode::Entry& inner : entry.value.entries)
        section.values.push_back({inner.name, json_of(inner.value), location(inner.line)});
      result_.own.push_back(std::move(section));
      return;
    }
    if (result_.own.empty() || !result_.own.front().name.empty())
      result_.own.insert(result_.own.begin(), LaunchSection{});
    result_.own.front().values.push_back({entry.name, json_of(entry.value), location(entry.line)});
  }

  const std::string& path_;
  const YamlNode& root_;
  ReferenceFile file_ = ReferenceFile::kCluster;
  LaunchConfiguration result_;
};

Json::Members members_of(const std::vector<LaunchValue>& values) {
  Json::Members members;
  for (const LaunchValue& value : values) members.emplace_back(value.name, value.value);
  return members;
}

}  // namespace

const LaunchConfiguration::Value* LaunchConfiguration::find(std::string_view section, std::string_view name) const {
  std::vector<std::string_view> known;
  const ReferenceName* const wanted = find_reference_name(section, name, known);
  const auto is_wanted = [&](const Value& value) {
    return value.name == name || (wanted != nullptr && find_reference_name(section, value.name, known) == wanted);
  };
  const std::vector<Value>* in = section.empty() ? &values : nullptr;
  for (const Section& one : sections)
    if (!section.empty() && one.name == section) in = &one.values;
  if (in == nullptr) return nullptr;
  const auto found = std::find_if(in->begin(), in->end(), is_wanted);
  return found == in->end() ? nullptr : &*found;
}

std::string default_configuration_path() {
  constexpr const char* kFile = "/accelerate/default_config.yaml";
  const std::string home = environment_text("HOME").value_or("");
  std::string folder;
  if (const auto named = environment_text("HF_HOME"))
    folder = *named;
  else
    folder = environment_text("XDG_CACHE_HOME").value_or("~/.cache") + "/huggingface";
  if (folder == "~" || folder.compare(0, 2, "~/") == 0) folder.replace(0, 1, home);
  return folder + kFile;
}

LaunchConfiguration parse_launch_configuration(const std::string& document, const std::string& path) {
  const YamlNode root = parse_yaml(document, path);
  return LaunchFile(path, root).read();
}

LaunchConfiguration read_launch_configuration(const std::string& path) {
  const YamlNode root = read_yaml(path);
  return LaunchFile(path, root).read();
}

Json json_of(const LaunchConfiguration& configuration) {
  Json::Members members = members_of(configuration.values);
  for (const auto* const sections : {&configuration.sections, &configuration.own})
    for (const LaunchSection& section : *sections) {
      Json::Members inner = members_of(section.values);
      if (section.name.empty())
        members.insert(members.end(), inner.begin(), inner.end());
      else
        members.emplace_back(section.name, Json(std::move(inner)));
    }
  return Json(std::move(members));
}

}  // namespace accel
