#include "config/configuration_file.hpp"

#include <yaml.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/edit_distance.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/regular_file.hpp"
#include "config/generated/option_tables.hpp"

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

// libyaml's parser of one text, event by event.
class Parser {
 public:
  Parser(const std::string& path, const std::string& text) : path_(path) {
    require(yaml_parser_initialize(&parser_) == 1, Status::kOutOfMemory, path, ": memory is missing to read it");
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;
  ~Parser() {
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

void check_field(const OptionTable& table, const std::string& name, const std::string& place) {
  std::vector<std::string_view> known;
  for (const OptionField& field : table) {
    if (!can_stand_in_a_file(field)) continue;
    if (name == field.name) return;
    known.emplace_back(field.name);
  }
  if (section_of(table).empty())
    for (const OptionTable* const section : all_option_tables())
      if (section != &table) known.push_back(section_of(*section));
  refuse_name(name, place, "option", known);
}

}  // namespace

ConfigurationFile::ConfigurationFile(const std::string& path) {
  const std::string content = RegularFile(path).read();
  Parser parser(path, content);
  parser.next();  // the stream
  if (parser.next() == YAML_STREAM_END_EVENT) return;
  const auto require_kind = [&parser](bool is_expected, const char* expected) {
    require(is_expected, Status::kInvalidArgument, parser.place(), ": expected ", expected);
  };
  require_kind(parser.next() == YAML_MAPPING_START_EVENT, "names with values, as in 'mixed_precision: bf16'");
  const OptionTable* table = &option_tables::state_options;
  bool is_in_section = false;
  while (true) {
    const yaml_event_type_t type = parser.next();
    if (type == YAML_MAPPING_END_EVENT) {
      if (!is_in_section) break;
      is_in_section = false;
      table = &option_tables::state_options;
      continue;
    }
    require_kind(type == YAML_SCALAR_EVENT, "the name of an option or of a section");
    const std::string name = parser.scalar(), place = parser.place();
    const yaml_event_type_t value = parser.next();
    if (value == YAML_MAPPING_START_EVENT && !is_in_section) {
      table = find_section(name);
      if (table == nullptr) check_field(option_tables::state_options, name, place);
      require(table != nullptr && !name.empty(), Status::kInvalidArgument, place, ": '", name,
              "' is an option; expected one value");
      require(sections_.try_emplace(name).second, Status::kInvalidArgument, place, ": the section '", name,
              "' stands twice; expected it once");
      is_in_section = true;
      continue;
    }
    check_field(*table, name, place);
    require_kind(value == YAML_SCALAR_EVENT, "one value");
    if (parser.is_null()) continue;
    const auto [entry, is_new] = sections_[std::string(section_of(*table))].try_emplace(name);
    require(is_new, Status::kInvalidArgument, place, ": '", name, "' stands twice, before at ", entry->second.place,
            "; expected it once");
    entry->second = {parser.scalar(), parser.place()};
  }
  parser.next();  // the document's end
  require_kind(parser.next() == YAML_STREAM_END_EVENT, "one document");
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
