// SPDX-License-Identifier: Apache-2.0
#include "config/yaml_document.hpp"

#include <yaml.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "os/regular_file.hpp"

namespace accel {
namespace {

// libyaml's parser of one text, event by event.
class YamlEvents {
 public:
  YamlEvents(const std::string& path, const std::string& text) : path_(path) {
    require(yaml_parser_initialize(&parser_) == 1, Status::kOutOfMemory, path, ": memory is missing to read it");
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  YamlEvents(const YamlEvents&) = delete;
  YamlEvents& operator=(const YamlEvents&) = delete;
  ~YamlEvents() {
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
  const yaml_event_t& event() const { return event_; }
  size_t line() const { return event_.start_mark.line + 1; }
  void expect(bool is_expected, const char* expected) const {
    require(is_expected, Status::kInvalidArgument, path_, ":", line(), ": expected ", expected);
  }

 private:
  const std::string& path_;
  yaml_parser_t parser_{};
  yaml_event_t event_{};
};

size_t count_nodes(const YamlNode& node) {
  size_t count = 1;
  for (const YamlNode& item : node.items) count += count_nodes(item);
  for (const YamlNode::Entry& entry : node.entries) count += count_nodes(entry.value);
  return count;
}

std::string anchor_text(const yaml_char_t* anchor) {
  return anchor == nullptr ? std::string() : reinterpret_cast<const char*>(anchor);
}

class YamlTree {
 public:
  YamlTree(const std::string& path, const std::string& document) : path_(path), events_(path, document) {}

  YamlNode read() {
    events_.next();  // the stream
    if (events_.next() == YAML_STREAM_END_EVENT) return {};
    events_.next();
    YamlNode root = read_node();
    events_.next();  // the document's end
    events_.expect(events_.next() == YAML_STREAM_END_EVENT, "one document");
    return root;
  }

 private:
  // Counts before they are there: aliases of aliases multiply.
  void add_nodes(size_t count) {
    num_nodes_ += count;
    events_.expect(num_nodes_ <= kMostYamlNodes, "fewer values, those of aliases included");
  }

  // The node of the current event.
  YamlNode read_node() {
    const yaml_event_t& event = events_.event();
    if (event.type == YAML_ALIAS_EVENT) return aliased(anchor_text(event.data.alias.anchor));
    add_nodes(1);
    YamlNode node;
    node.line = events_.line();
    std::string anchor;
    if (event.type == YAML_SCALAR_EVENT) {
      const auto& scalar = event.data.scalar;
      anchor = anchor_text(scalar.anchor);
      node.text.assign(reinterpret_cast<const char*>(scalar.value), scalar.length);
      node.is_plain = scalar.style == YAML_PLAIN_SCALAR_STYLE && scalar.plain_implicit != 0;
    } else {
      require(++depth_ <= kDeepestYaml, Status::kInvalidArgument, path_, ":", node.line, ": more than ", kDeepestYaml,
              " lists or maps stand in each other; expected fewer");
      const bool is_map = event.type == YAML_MAPPING_START_EVENT;
      anchor = anchor_text(is_map ? event.data.mapping_start.anchor : event.data.sequence_start.anchor);
      node.kind = is_map ? YamlNode::Kind::kMap : YamlNode::Kind::kList;
      if (is_map)
        read_entries(node);
      else
        while (events_.next() != YAML_SEQUENCE_END_EVENT) node.items.push_back(read_node());
      --depth_;
    }
    if (!anchor.empty()) anchors_[anchor] = node;
    return node;
  }

  void read_entries(YamlNode& map) {
    std::map<std::string, size_t, std::less<>> lines;
    while (events_.next() != YAML_MAPPING_END_EVENT) {
      events_.expect(events_.event().type == YAML_SCALAR_EVENT, "the name of an option or of a section");
      const auto& scalar = events_.event().data.scalar;
      YamlNode::Entry entry{{reinterpret_cast<const char*>(scalar.value), scalar.length}, events_.line(), {}};
      const auto [before, is_new] = lines.try_emplace(entry.name, entry.line);
      require(is_new, Status::kInvalidArgument, path_, ":", entry.line, ": '", entry.name, "' stands twice, before at ",
              path_, ":", before->second, "; expected it once");
      events_.next();
      entry.value = read_node();
      map.entries.push_back(std::move(entry));
    }
  }

  YamlNode aliased(const std::string& anchor) {
    const auto found = anchors_.find(anchor);
    require(found != anchors_.end(), Status::kInvalidArgument, path_, ":", events_.line(), ": '*", anchor,
            "' stands for nothing; expected '&", anchor, "' before it and outside of it");
    add_nodes(count_nodes(found->second));
    return found->second;
  }

  const std::string& path_;
  YamlEvents events_;
  std::map<std::string, YamlNode> anchors_;
  size_t num_nodes_ = 0;
  int depth_ = 0;
};

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), text) != names.end();
}

// A number of JSON keeps its digits; others that YAML has ("+1", ".5", "1_000", "0x10") get JSON's.
std::optional<Json> yaml_number(const std::string& written) {
  std::string digits = written;
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  if (!digits.empty() && digits.front() == '+') digits.erase(0, 1);
  const char* const begin = digits.data();
  const char* const end = begin + digits.size();
  if (digits.find_first_not_of("0123456789abcdefABCDEFx.+-") != std::string::npos || digits.empty()) return {};
  int64_t integer = 0;
  const bool is_hex = digits.size() > 2 && digits.compare(0, 2, "0x") == 0;
  const auto whole = std::from_chars(is_hex ? begin + 2 : begin, end, integer, is_hex ? 16 : 10);
  if (whole.ec == std::errc() && whole.ptr == end) return Json::number(integer);
  double number = 0;
  const auto fraction = number_from_chars(begin, end, number);
  if (fraction.ec == std::errc() && fraction.ptr == end && digits.find_first_of("0123456789") != std::string::npos)
    return Json::number(number);
  return {};
}

Json plain_scalar(const YamlNode& node) {
  if (node.is_null()) return {};
  if (is_one_of(node.text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) return Json(true);
  if (is_one_of(node.text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})) return Json(false);
  const std::optional<Json> number = yaml_number(node.text);
  return number ? *number : Json(node.text);
}

}  // namespace

bool YamlNode::is_null() const { return is_scalar() && is_plain && is_one_of(text, {"", "~", "null", "Null", "NULL"}); }

const YamlNode* YamlNode::find(std::string_view name) const {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [name](const Entry& entry) { return entry.name == name; });
  return found == entries.end() ? nullptr : &found->value;
}

YamlNode parse_yaml(const std::string& document, const std::string& path) {
  require(document.size() <= kLargestYaml, Status::kInvalidArgument, path, " has ", document.size(),
          " bytes; expected a configuration of at most ", kLargestYaml);
  return YamlTree(path, document).read();
}

YamlNode read_yaml(const std::string& path) {
  const RegularFile file(path);
  require(file.size() <= kLargestYaml, Status::kInvalidArgument, path, " has ", file.size(),
          " bytes; expected a configuration of at most ", kLargestYaml);
  return parse_yaml(file.read(), path);
}

Json json_of(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kList) {
    Json::Items items;
    for (const YamlNode& item : node.items) items.push_back(json_of(item));
    return Json(std::move(items));
  }
  if (node.kind == YamlNode::Kind::kMap) {
    Json::Members members;
    for (const YamlNode::Entry& entry : node.entries) members.emplace_back(entry.name, json_of(entry.value));
    return Json(std::move(members));
  }
  return node.is_plain ? plain_scalar(node) : Json(node.text);
}

}  // namespace accel
