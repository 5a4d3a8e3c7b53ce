// SPDX-License-Identifier: Apache-2.0
// The names in configuration files of Accelerate, as its questionnaire and its classes have them: which values they
// take, what holds without them, and which option of the library they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/option_table.hpp"

namespace accel {

enum class ReferenceKind : uint8_t { kAny, kFlag, kInteger, kNumber, kText, kList, kSection };
enum class ReferenceFile : uint8_t { kAny, kCluster, kSageMaker };

struct ReferenceName {
  std::string_view section, name;  // "" is the file outside of sections
  ReferenceKind kind;
  ReferenceFile file = ReferenceFile::kAny;
  const char* default_value = nullptr;  // as JSON; null: it has to be given, or stands in a section
  const char* choices = nullptr;        // "no|fp16"; null: any
  const OptionTable* table = nullptr;   // null: only launchers read it
  std::string_view field = "";
};

struct ReferenceNames {
  const ReferenceName* names;
  size_t size;

  const ReferenceName* begin() const { return names; }
  const ReferenceName* end() const { return names + size; }
};

// Outside of sections in the order of Accelerate's classes.
ReferenceNames all_reference_names();

// Whether it is a section whose names are those of Accelerate.
bool is_reference_section(std::string_view name);
// Null if there is none; then `known` has the names that there are. In some sections names may lack the prefix that
// they have as options ("sharding_strategy").
const ReferenceName* find_reference_name(std::string_view section, std::string_view name,
                                         std::vector<std::string_view>& known,
                                         ReferenceFile file = ReferenceFile::kAny);

// "there is no option 'num_machine'; the nearest name is num_machines", without a place.
std::string unknown_name_text(std::string_view name, const std::vector<std::string_view>& known);
std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace accel
