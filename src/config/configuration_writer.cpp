// SPDX-License-Identifier: Apache-2.0
#include "config/configuration_writer.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "config/yaml_document.hpp"
#include "os/replaced_file.hpp"

namespace accel {
namespace {

// Two spaces a level, as Accelerate has it.
void print_indented(const Json& value, const std::string& indent, std::string& out) {
  const std::string inner = indent + "  ";
  const char* separator = "";
  const auto next = [&] {
    out.append(separator).append("\n").append(inner);
    separator = ",";
  };
  if (value.members() != nullptr && !value.members()->empty()) {
    out += '{';
    for (const auto& [name, member] : *value.members()) {
      next();
      out += print_json(Json(name)) + ": ";
      print_indented(member, inner, out);
    }
    out += "\n" + indent + "}";
  } else if (value.items() != nullptr && !value.items()->empty()) {
    out += '[';
    for (const Json& item : *value.items()) {
      next();
      print_indented(item, inner, out);
    }
    out += "\n" + indent + "]";
  } else {
    out += print_json(value);
  }
}

}  // namespace

Json file_form(const Json& configuration) {
  Json::Members kept;
  for (const auto& [name, value] : *configuration.members()) {
    Json member = value.members() == nullptr ? value : file_form(value);
    const bool is_empty = member.members() != nullptr && member.members()->empty();
    if (!member.is_null() && !is_empty) kept.emplace_back(name, std::move(member));
  }
  std::sort(kept.begin(), kept.end(), [](const auto& one, const auto& other) { return one.first < other.first; });
  return Json(std::move(kept));
}

Json file_form(const LaunchConfiguration& configuration) { return file_form(json_of(configuration)); }

void write_configuration(const std::string& path, const Json& configuration) {
  if (!has_extension(path, ".json")) return replace_file(path, print_yaml(configuration));
  std::string document;
  print_indented(configuration, "", document);
  replace_file(path, document + "\n");
}

bool write_basic_configuration(const std::string& mixed_precision, const std::string& path, size_t num_gpus) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) return false;
  std::string precision = mixed_precision;
  std::transform(precision.begin(), precision.end(), precision.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  require(precision == "no" || precision == "fp16" || precision == "bf16" || precision == "fp8",
          Status::kInvalidArgument, "mixed_precision is '", mixed_precision, "'; expected one of no, fp16, bf16, fp8");
  const LaunchConfiguration configuration = parse_launch_configuration(
      text("compute_environment: LOCAL_MACHINE\ndistributed_type: ", num_gpus > 1 ? "MULTI_GPU" : "NO",
           "\nmixed_precision: '", precision, "'\nnum_processes: ", std::max<size_t>(num_gpus, 1),
           "\nuse_cpu: ", num_gpus == 0 ? "true" : "false", "\n"),
      path);
  // JSON, whatever the name: it is YAML as well.
  std::string document;
  print_indented(file_form(configuration), "", document);
  replace_file(path, document + "\n");
  return true;
}

}  // namespace accel
