#include "config/configuration_file.hpp"

#include <yaml.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/edit_distance.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/regular_file.hpp"
#include "config/generated/option_tables.hpp"
#include "config/reference_configuration.hpp"

namespace accel {
namespace {

constexpr const char* kVariable = "ACCELERATE_CONFIG_FILE";

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

[[noreturn]] void refuse_name(const std::string& name, const std::string& place, const char* kind,
                              const std::vector<std::string_view>& known) {
  const auto farther = [&name](std::string_view one, std::string_view other) {
    return edit_distance(name, one) < edit_distance(name, other);
  };
  fail(Status::kInvalidArgument, place, ": there is no ", kind, " '", name, "'; the nearest name is ",
       *std::min_element(known.begin(), known.end(), farther));
}

const OptionTable* find_section(std::string_view name) {
  for (const OptionTable* const table : all_option_tables())
    if (section_of(*table) == name) return table;
  return nullptr;
}

const OptionField* find_field(const OptionTable& table, std::string_view name) {
  for (const OptionField& field : table)
    if (can_stand_in_a_file(field) && name == field.name) return &field;
  return nullptr;
}

}  // namespace

// libyaml's parser of one text, event by event.
class YamlParser {
 public:
  YamlParser(const std::string& path, const std::string& text) : path_(path) {
    require(yaml_parser_initialize(&parser_) == 1, Status::kOutOfMemory, path, ": memory is missing to read it");
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  YamlParser(const YamlParser&) = delete;
  YamlParser& operator=(const YamlParser&) = delete;
  ~YamlParser() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }

  yaml_event_type_t next() {
    yaml_event_delete(&event_);
    event_ = {};
    if (yaml_parser_parse(&parser_, &event_) != 1) {
      require(parser_.error != YAML_MEMORY_ERROR, Status::kOutOfMemory, path_, ": memory is missing to read it");
      fail(Status::kInvalidArgument, path_, ":", parser_.problem_mark.line + 1, ": ",
           parser_.problem == nullptr ? "not readable" : parser_.problem, "; expected YAML or JSON");
    }
    return event_.type;
  }
  bool is_scalar() const { return event_.type == YAML_SCALAR_EVENT; }
  std::string place() const { return text(path_, ":", event_.start_mark.line + 1); }
  std::string scalar() const {
    const auto& scalar = event_.data.scalar;
    return {reinterpret_cast<const char*>(scalar.value), scalar.length};
  }
  // A plain "null", "~" or nothing: the field is unset.
  bool is_null() const {
    const std::string written = scalar();
    return event_.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (written.empty() || written == "~" || written == "null");
  }

 private:
  const std::string& path_;
  yaml_parser_t parser_{};
  yaml_event_t event_{};
};

// Reads one document into entries.
class ConfigurationFile::Reader {
 public:
  Reader(const std::string& path, const std::string& content, Sections& sections)
      : parser_(path, content), sections_(sections) {}

  void read() {
    parser_.next();  // the stream
    if (parser_.next() == YAML_STREAM_END_EVENT) return;
    expect(parser_.next() == YAML_MAPPING_START_EVENT, "names with values, as in 'mixed_precision: bf16'");
    while (read_name()) read_entry();
    parser_.next();  // the document's end
    expect(parser_.next() == YAML_STREAM_END_EVENT, "one document");
    if (!is_of_reference_) return;
    for (const std::string_view name : kOfTheLauncher)
      if (const auto found = sections_[""].find(name); found != sections_[""].end()) sections_[""].erase(found);
  }

 private:
  void expect(bool is_expected, const char* expected) const {
    require(is_expected, Status::kInvalidArgument, parser_.place(), ": expected ", expected);
  }

  // False at the end of a mapping; else the value's first event is next.
  bool read_name() {
    const yaml_event_type_t type = parser_.next();
    if (type == YAML_MAPPING_END_EVENT) return false;
    expect(type == YAML_SCALAR_EVENT, "the name of an option or of a section");
    name_ = parser_.scalar();
    place_ = parser_.place();
    value_ = parser_.next();
    return true;
  }

  void read_entry() {
    is_of_reference_ = is_of_reference_ || is_name_of_reference_files(name_);
    if (value_ == YAML_MAPPING_START_EVENT && is_reference_section(name_)) return read_reference_section();
    const bool may_be_section = value_ == YAML_MAPPING_START_EVENT && !name_.empty();
    if (const OptionTable* const section = find_section(name_); section != nullptr && may_be_section)
      return read_section(*section);
    if (find_field(option_tables::state_options, name_) == nullptr) {
      std::vector<std::string_view> known;
      if (const ReferenceName* const found = find_reference_name("", name_, known)) return read_reference(*found);
    }
    const OptionField& field = require_field(option_tables::state_options);
    require(value_ != YAML_MAPPING_START_EVENT, Status::kInvalidArgument, place_, ": '", name_,
            "' is an option; expected one value");
    read_value(option_tables::state_options, field);
  }

  void begin_section() {
    require(read_sections_.insert(name_).second, Status::kInvalidArgument, place_, ": the section '", name_,
            "' stands twice; expected it once");
  }

  void read_section(const OptionTable& table) {
    begin_section();
    while (read_name()) read_value(table, require_field(table));
  }

  void read_reference_section() {
    const std::string section = name_;
    begin_section();
    while (read_name()) {
      std::vector<std::string_view> known;
      const ReferenceName* const found = find_reference_name(section, name_, known);
      if (found == nullptr) refuse_name(name_, place_, "option", known);
      read_reference(*found);
    }
  }

  void read_reference(const ReferenceName& found) {
    if (found.table != nullptr) return read_value(*found.table, *find_field(*found.table, found.field));
    if (value_ != YAML_SCALAR_EVENT) return skip();
    if (parser_.is_null()) return;
    const std::string written = parser_.scalar();
    refuse_reference_value(name_, written, place_);
    const ReferenceMeaning meaning = reference_meaning(name_, written);
    if (meaning.table != nullptr) add(*meaning.table, meaning.field, meaning.value);
  }

  const OptionField& require_field(const OptionTable& table) const {
    const OptionField* const field = find_field(table, name_);
    if (field != nullptr) return *field;
    std::vector<std::string_view> known;
    for (const OptionField& one : table)
      if (can_stand_in_a_file(one)) known.emplace_back(one.name);
    if (section_of(table).empty())
      for (const OptionTable* const section : all_option_tables())
        if (section != &table) known.push_back(section_of(*section));
    refuse_name(name_, place_, "option", known);
  }

  // One value; a list of texts is one with commas.
  void read_value(const OptionTable& table, const OptionField& field) {
    if (value_ == YAML_SEQUENCE_START_EVENT && field.kind == OptionKind::kText) {
      std::string joined;
      while (parser_.next() != YAML_SEQUENCE_END_EVENT) {
        expect(parser_.is_scalar(), "one value");
        joined += (joined.empty() ? "" : ",") + parser_.scalar();
      }
      if (!joined.empty()) add(table, field.name, joined);
      return;
    }
    expect(value_ == YAML_SCALAR_EVENT, "one value");
    if (!parser_.is_null()) add(table, field.name, parser_.scalar());
  }

  void add(const OptionTable& table, std::string_view field, const std::string& value) {
    const auto [entry, is_new] = sections_[std::string(section_of(table))].try_emplace(std::string(field));
    require(is_new, Status::kInvalidArgument, place_, ": '", name_, "' stands twice, before at ", entry->second.place,
            "; expected it once");
    entry->second = {value, parser_.place()};
  }

  // The rest of a value that is no scalar.
  void skip() {
    int depth = 0;
    for (yaml_event_type_t type = value_;; type = parser_.next()) {
      if (type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT) depth++;
      if (type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT) depth--;
      if (depth == 0) return;
    }
  }

  YamlParser parser_;
  Sections& sections_;
  std::string name_, place_;
  yaml_event_type_t value_{};
  std::set<std::string> read_sections_;
  bool is_of_reference_ = false;
};

ConfigurationFile::ConfigurationFile(const std::string& path) {
  const std::string content = RegularFile(path).read();
  Reader(path, content, sections_).read();
}

const ConfigurationFile::Entry* ConfigurationFile::find(const OptionTable& table, std::string_view field) const {
  const auto section = sections_.find(section_of(table));
  if (section == sections_.end()) return nullptr;
  const auto entry = section->second.find(field);
  return entry == section->second.end() ? nullptr : &entry->second;
}

const ConfigurationFile* ConfigurationFile::of_environment() {
  const auto path = environment_text(kVariable);
  if (!path) return nullptr;
  struct Files {
    std::mutex mutex;
    std::map<std::string, const ConfigurationFile> files;  // its nodes stay where they are
  };
  static Files& read = *std::make_unique<Files>().release();  // texts are lent to structs of options
  const std::lock_guard<std::mutex> lock(read.mutex);
  return &read.files.try_emplace(*path, *path).first->second;
}

}  // namespace accel
