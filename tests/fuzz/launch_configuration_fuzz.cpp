// SPDX-License-Identifier: Apache-2.0
// Any bytes as the configuration of a launch: an error of one line that names the file, or values that come back the
// same when they are written as YAML and as JSON and read again. The same for the document alone, whatever its names.
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "config/configuration_writer.hpp"
#include "config/launch_configuration.hpp"
#include "config/yaml_document.hpp"
#include "fuzz_target.hpp"
#include "json/json.hpp"

namespace launch_configuration_fuzz {

using namespace accel;

namespace {

template <typename Read>
void read_or_refuse(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    check(error.status() == Status::kInvalidArgument);
    check(error.message().compare(0, 5, "input") == 0);
  }
}

void check_document(const std::string& document) {
  const Json value = json_of(parse_yaml(document, "input"));
  const std::string printed = print_json(value);
  check(print_json(json_of(parse_yaml(print_yaml(value), "written"))) == printed);
}

void check_configuration(const std::string& document) {
  const Json form = file_form(parse_launch_configuration(document, "input"));
  const std::string printed = print_json(form);
  check(print_json(file_form(parse_launch_configuration(print_yaml(form), "written"))) == printed);
}

}  // namespace

FUZZ_TARGET(launch_configuration) {
  const std::string document(reinterpret_cast<const char*>(data), size);
  read_or_refuse([&document] { check_document(document); });
  read_or_refuse([&document] { check_configuration(document); });
  return 0;
}

}  // namespace launch_configuration_fuzz
