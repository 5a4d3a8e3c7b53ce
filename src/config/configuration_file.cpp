// SPDX-License-Identifier: Apache-2.0
#include "config/configuration_file.hpp"

#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "config/generated/option_tables.hpp"
#include "config/megatron/megatron_settings.hpp"
#include "config/option_text.hpp"
#include "config/reference_configuration.hpp"
#include "config/reference_names.hpp"
#include "config/unsupported_environment.hpp"
#include "config/yaml_document.hpp"

namespace accel {
namespace {

constexpr const char* kFileVariable = "ACCELERATE_CONFIG_FILE";

// "accel_ddp_options_t" is "ddp"; fields of the state are at the top level.
std::string_view section_of(const OptionTable& table) {
  if (&table == &option_tables::state_options) return "";
  std::string_view name = table.name;
  for (const std::string_view end : {"_t", "_options"})
    if (name.size() > end.size() && name.substr(name.size() - end.size()) == end) name.remove_suffix(end.size());
  name.remove_prefix(std::string_view("accel_").size());
  return name;
}

bool can_stand_in_a_file(const OptionField& field) {
  return field.kind != OptionKind::kReserved && field.kind != OptionKind::kObject;
}

const OptionTable* find_section(std::string_view name) {
  for (const OptionTable* const table : all_option_tables())
    if (section_of(*table) == name) return table;
  return nullptr;
}

// Their unset fields stay as they are, so that there is nothing that a file could say.
bool changes_what_there_is(const OptionTable& table) {
  return &table == &option_tables::project_options || &table == &option_tables::gradient_accumulation_options;
}

const OptionField* find_field(const OptionTable& table, std::string_view name) {
  for (const OptionField& field : table)
    if (can_stand_in_a_file(field) && name == field.name) return &field;
  return nullptr;
}

}  // namespace

// Reads one document into entries.
class ConfigurationFile::Reader {
 public:
  Reader(const std::string& path, Sections& sections) : path_(path), sections_(sections) {}

  void read(const YamlNode& root) {
    if (root.is_null()) return;
    require(root.is_map(), Status::kInvalidArgument, location(root.line),
            ": expected names with values, as in 'mixed_precision: bf16'");
    bool is_of_reference = false;
    for (const YamlNode::Entry& entry : root.entries) {
      is_of_reference = is_of_reference || is_name_of_reference_files(entry.name);
      if (entry.name == "distributed_type" && entry.value.is_scalar()) is_megatron_ = is_megatron(entry.value.text);
      read_entry(entry);
    }
    // The variable goes before the file. Programs whose own settings of Megatron-LM count say no by it.
    if (is_megatron_ && environment_flag("ACCELERATE_USE_MEGATRON_LM").value_or(true)) add_megatron_settings();
    if (!is_of_reference) return;
    for (const std::string_view name : kOfTheLauncher)
      if (const auto found = sections_[""].find(name); found != sections_[""].end()) sections_[""].erase(found);
  }

 private:
  std::string location(size_t line) const { return text(path_, ":", line); }

  void read_entry(const YamlNode::Entry& entry) {
    if (entry.value.is_map() && is_reference_section(entry.name)) {
      for (const YamlNode::Entry& inner : entry.value.entries) {
        std::vector<std::string_view> known;
        const ReferenceName* const found = find_reference_name(entry.name, inner.name, known);
        require(found != nullptr, Status::kInvalidArgument, location(inner.line), ": ",
                found == nullptr ? unknown_name_text(inner.name, known) : "");
        read_reference(*found, inner);
      }
      return;
    }
    const bool may_be_section = entry.value.is_map() && !entry.name.empty();
    if (const OptionTable* const section = find_section(entry.name); section != nullptr && may_be_section) {
      require(!changes_what_there_is(*section), Status::kInvalidArgument, location(entry.line), ": the options '",
              entry.name, "' change a state that is there, and come from the call alone; remove this section");
      for (const YamlNode::Entry& inner : entry.value.entries)
        read_value(*section, require_field(*section, inner), inner);
      return;
    }
    if (find_field(option_tables::state_options, entry.name) == nullptr) {
      std::vector<std::string_view> known;
      if (const ReferenceName* const found = find_reference_name("", entry.name, known))
        return read_reference(*found, entry);
    }
    const OptionField& field = require_field(option_tables::state_options, entry);
    require(!entry.value.is_map(), Status::kInvalidArgument, location(entry.line), ": '", entry.name,
            "' is an option; expected one value");
    read_value(option_tables::state_options, field, entry);
  }

  void read_reference(const ReferenceName& found, const YamlNode::Entry& entry) {
    if (found.table != nullptr) return read_value(*found.table, *find_field(*found.table, found.field), entry);
    if (found.name == "override_linear_precision") return read_products(entry);
    if (!entry.value.is_scalar() || entry.value.is_null()) return;
    if (found.section == "megatron_lm_config") {
      const bool is_new = megatron_.try_emplace(std::string(found.name), &entry).second;
      require(is_new, Status::kInvalidArgument, location(entry.line), ": '", entry.name,
              "' stands twice; expected it once");
      return;
    }
    const std::string& written = entry.value.text;
    // Programs of Python follow the variable, which goes before the file.
    if (entry.name == "dynamo_backend" && !environment_text("ACCELERATE_DYNAMO_BACKEND"))
      refuse_compilation(text(location(entry.line), ": dynamo_backend"), written);
    refuse_reference_value(entry.name, written, location(entry.line));
    const ReferenceMeaning meaning = reference_meaning(entry.name, written);
    if (meaning.table != nullptr) add(*meaning.table, meaning.field, meaning.value, entry);
  }

  // Which products of linear layers are not computed in 8 bits.
  void read_products(const YamlNode::Entry& entry) {
    constexpr const char* kFields[] = {"override_forward", "override_input_gradient", "override_weight_gradient"};
    const std::vector<YamlNode>& items = entry.value.items;
    if (entry.value.is_null()) return;
    require(entry.value.kind == YamlNode::Kind::kList && items.size() == std::size(kFields), Status::kInvalidArgument,
            location(entry.line), ": '", entry.name, "' expects a list of three: [yes, no, no]");
    for (size_t i = 0; i < items.size(); ++i) {
      require(items[i].is_scalar(), Status::kInvalidArgument, location(items[i].line), ": expected one value");
      add(option_tables::fp8_options, kFields[i], items[i].text, entry);
    }
  }

  void add_megatron_settings() {
    std::map<std::string, std::string, std::less<>> members;
    for (const auto& [name, entry] : megatron_) members.emplace(name, entry->value.text);
    const auto location_of = [this](std::string_view name) { return location(megatron_.find(name)->second->line); };
    for (const MegatronSetting& one : megatron_settings(members, location_of)) {
      const YamlNode::Entry& entry = *megatron_.find(one.name)->second;
      for (const ReferenceMeaning& meaning : one.settings) add(*meaning.table, meaning.field, meaning.value, entry);
      if (one.without_effect != nullptr)
        log(LogLevel::kWarning, location(entry.line), ": ", one.name, " has no effect: ", one.without_effect);
    }
  }

  const OptionField& require_field(const OptionTable& table, const YamlNode::Entry& entry) const {
    const OptionField* const field = find_field(table, entry.name);
    if (field != nullptr) return *field;
    std::vector<std::string_view> known;
    for (const OptionField& one : table)
      if (can_stand_in_a_file(one)) known.emplace_back(one.name);
    if (section_of(table).empty())
      for (const OptionTable* const section : all_option_tables())
        if (section != &table) known.push_back(section_of(*section));
    fail(Status::kInvalidArgument, location(entry.line), ": ", unknown_name_text(entry.name, known));
  }

  // One value; a list of texts is one with commas.
  void read_value(const OptionTable& table, const OptionField& field, const YamlNode::Entry& entry) {
    const YamlNode& value = entry.value;
    const bool is_list = value.kind == YamlNode::Kind::kList && field.kind == OptionKind::kText;
    require(is_list || value.is_scalar(), Status::kInvalidArgument, location(value.line), ": expected one value");
    if (!is_list) {
      if (!value.is_null()) add(table, field.name, value.text, entry);
      return;
    }
    std::string joined;
    for (const YamlNode& item : value.items) {
      require(item.is_scalar(), Status::kInvalidArgument, location(item.line), ": expected one value");
      joined += (joined.empty() ? "" : ",") + item.text;
    }
    if (!joined.empty()) add(table, field.name, joined, entry);
  }

  void add(const OptionTable& table, std::string_view field, const std::string& value, const YamlNode::Entry& from) {
    const auto [entry, is_new] = sections_[std::string(section_of(table))].try_emplace(std::string(field));
    require(is_new, Status::kInvalidArgument, location(from.line), ": '", from.name,
            "' stands twice, or under two names, before at ", entry->second.place, "; expected it once");
    entry->second = {value, location(from.value.line), from.name};
  }

  const std::string& path_;
  Sections& sections_;
  bool is_megatron_ = false;
  std::map<std::string, const YamlNode::Entry*, std::less<>> megatron_;  // members of the section, by their names
};

ConfigurationFile::ConfigurationFile(const std::string& path) { Reader(path, sections_).read(read_yaml(path)); }

void ConfigurationFile::check_values() const {
  for (const auto& [name, entries] : sections_) {
    const OptionTable& table = name.empty() ? option_tables::state_options : *find_section(name);
    for (const auto& [field, entry] : entries)
      check_option_text(*find_field(table, field), entry.text, field, entry.place);
  }
}

bool is_name_of_configuration_file(std::string_view name, bool is_section) {
  if (is_section) return !name.empty() && find_section(name) != nullptr;
  return find_field(option_tables::state_options, name) != nullptr;
}

const ConfigurationFile::Entry* ConfigurationFile::find(const OptionTable& table, std::string_view field) const {
  const auto section = sections_.find(section_of(table));
  if (section == sections_.end()) return nullptr;
  const auto entry = section->second.find(field);
  return entry == section->second.end() ? nullptr : &entry->second;
}

const ConfigurationFile* ConfigurationFile::of_environment() {
  const auto path = environment_text(kFileVariable);
  if (!path) return nullptr;
  struct Files {
    std::mutex mutex;
    std::map<std::string, const ConfigurationFile> files;  // its nodes stay where they are
  };
  static Files& read = *std::make_unique<Files>().release();  // texts are lent to structs of options
  const std::lock_guard<std::mutex> lock(read.mutex);
  const auto [file, is_new] = read.files.try_emplace(*path, *path);
  if (is_new) log(LogLevel::kInfo, "settings are read from '", *path, "', which ", kFileVariable, " names");
  return &file->second;
}

}  // namespace accel
