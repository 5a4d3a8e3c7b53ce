#include "nn/architectures/architecture.hpp"

#include <array>
#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "base/json.hpp"
#include "nn/architectures/gpt2.hpp"

namespace accel::nn {
namespace {

struct Architecture {
  const char* model_type;
  ModulePtr (*build)(const cJSON* config);
};

// A new architecture is a line here.
constexpr std::array<Architecture, 1> kArchitectures = {{{"gpt2", build_gpt2}}};

bool is_document(const std::string& config) {
  const size_t start = config.find_first_not_of(" \t\r\n");
  return start != std::string::npos && config[start] == '{';
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.is_open(), Status::kNotFound, "configuration '", path,
          "' is not there; expected a config.json or its JSON text");
  std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  require(!file.bad(), Status::kIo, "configuration '", path, "' cannot be read");
  return content;
}

}  // namespace

ModulePtr module_from_config(const std::string& config) {
  const bool is_text = is_document(config);
  const Json json = parse_json(is_text ? config : read_file(config), is_text ? "the configuration" : config);
  require(cJSON_IsObject(json.get()), Status::kInvalidArgument, "the configuration is no JSON object; expected one");
  const std::string model_type = json_text(json.get(), "model_type", "");
  std::string names;
  for (const Architecture& architecture : kArchitectures) {
    if (model_type == architecture.model_type) return architecture.build(json.get());
    names += text(names.empty() ? "" : ", ", architecture.model_type);
  }
  fail(Status::kUnsupported, "model_type '", model_type, "' is not known; expected one of ", names);
}

}  // namespace accel::nn
