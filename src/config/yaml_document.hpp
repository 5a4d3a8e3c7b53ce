// SPDX-License-Identifier: Apache-2.0
// A YAML or JSON document as a tree, with the lines for messages. Files of strangers are read: size, depth and what
// aliases expand to are limited.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "json/json.hpp"

namespace accel {

struct YamlNode {
  enum class Kind { kScalar, kList, kMap };
  struct Entry;

  Kind kind = Kind::kScalar;
  bool is_plain = true;         // a scalar without quotes
  std::string text;             // of a scalar, as it is written
  std::vector<YamlNode> items;  // of a list
  std::vector<Entry> entries;   // of a map, in their order; no name stands twice
  size_t line = 1;

  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_map() const { return kind == Kind::kMap; }
  // A plain "null", "~" or nothing.
  bool is_null() const;
  const YamlNode* find(std::string_view name) const;
};

struct YamlNode::Entry {
  std::string name;
  size_t line;  // of the name
  YamlNode value;
};

inline constexpr size_t kLargestYaml = size_t{1} << 20;  // bytes
inline constexpr int kDeepestYaml = 64;
inline constexpr size_t kMostYamlNodes = 100000;

// Anything wrong is kInvalidArgument with "PATH:LINE: ". An empty document is a null.
YamlNode parse_yaml(const std::string& document, const std::string& path);
// kNotFound or kIo if the file cannot be read.
YamlNode read_yaml(const std::string& path);

// By the kinds of plain scalars: null, flags (also yes, no, on, off as YAML 1.1 has them), numbers; all others are
// text.
Json json_of(const YamlNode& node);
std::string print_yaml(const Json& value);

}  // namespace accel
