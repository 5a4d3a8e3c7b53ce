// SPDX-License-Identifier: Apache-2.0
#include "cli/to_fsdp2_command.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "cli/command_arguments.hpp"
#include "config/configuration_writer.hpp"
#include "config/yaml_document.hpp"

namespace accel::program {
namespace {

constexpr char kToFsdp2Help[] =
    R"(Turns a configuration file of FSDP 1 into one of FSDP 2: settings that FSDP 2 does not have are dropped, strategies
become fsdp_reshard_after_forward. A file without FSDP, or of FSDP 2 already, stays as it is.
)";

constexpr const char* kStrategy = "fsdp_sharding_strategy";
constexpr const char* kReshard = "fsdp_reshard_after_forward";

struct DroppedSetting {
  const char* name;
  const char* reason;
};
constexpr DroppedSetting kDropped[] = {
    {"fsdp_backward_prefetch", "FSDP 2 does not have it"},
    {"fsdp_sync_module_states", "FSDP 2 does not have it"},
    {"fsdp_use_orig_params", "FSDP 2 always does it"},
    {"fsdp_forward_prefetch", "FSDP 2 does not have it yet"},
};

struct ShardingStrategy {
  std::string_view name;
  bool reshards;
};
constexpr ShardingStrategy kShardingStrategies[] = {{"FULL_SHARD", true},
                                                    {"SHARD_GRAD_OP", false},
                                                    {"HYBRID_SHARD", true},
                                                    {"HYBRID_SHARD_ZERO2", false},
                                                    {"NO_SHARD", false}};

Json reshard_of(const Json& value) {
  if (value.text() == nullptr) return value;
  const auto* const found = std::find_if(std::begin(kShardingStrategies), std::end(kShardingStrategies),
                                         [&value](const ShardingStrategy& one) { return one.name == *value.text(); });
  return found == std::end(kShardingStrategies) ? value : Json(found->reshards);
}

void put(Json::Members& members, const std::string& name, Json value) {
  const auto found =
      std::find_if(members.begin(), members.end(), [&name](const auto& member) { return member.first == name; });
  if (found == members.end())
    members.emplace_back(name, std::move(value));
  else
    found->second = std::move(value);
}

Json::Members converted(const Json::Members& settings, std::vector<std::string>& notes) {
  Json::Members result;
  for (const auto& [name, value] : settings) {
    const auto* const dropped = std::find_if(std::begin(kDropped), std::end(kDropped),
                                             [&name = name](const DroppedSetting& one) { return name == one.name; });
    if (dropped != std::end(kDropped))
      notes.push_back(text(name, " is left out: ", dropped->reason));
    else if (name == kStrategy || name == kReshard)
      put(result, kReshard, reshard_of(value));
    else
      put(result, name, value);
  }
  put(result, "fsdp_version", Json::number(int64_t{2}));
  return result;
}

}  // namespace

Json to_fsdp2(const Json& configuration, std::vector<std::string>& notes) {
  const Json* const settings = json_member(configuration, "fsdp_config");
  if (settings == nullptr || settings->members() == nullptr || settings->members()->empty()) {
    notes.emplace_back("there is no fsdp_config: the configuration stays as it is");
    return configuration;
  }
  const Json* const version = json_member(*settings, "fsdp_version");
  if (version != nullptr && (version->integer() == 2 || (version->text() != nullptr && *version->text() == "2"))) {
    notes.emplace_back(
        "fsdp_version is 2: the configuration stays as it is; if its names are of version 1, write 1 and run this "
        "again");
    return configuration;
  }
  Json::Members members = *configuration.members();
  put(members, "fsdp_config", Json(converted(*settings->members(), notes)));
  return Json(std::move(members));
}

int run_to_fsdp2(const std::vector<std::string>& arguments) {
  CLI::App app(kToFsdp2Help, "accel to-fsdp2");
  std::string file, output;
  bool overwrites = false;
  app.add_option("--config-file,--config_file", file, "Configuration file to convert.")
      ->type_name("FILE")
      ->group("Options");
  app.add_flag("--overwrite", overwrites, "Replaces the file, or that of --output-file.")->group("Options");
  app.add_option("--output-file,--output_file", output, "File for the result.")->type_name("FILE")->group("Options");
  add_help(app, " --config-file FILE (--overwrite | --output-file FILE)");
  if (is_shown(parse_all(app, arguments))) return 0;
  require(!file.empty(), Status::kInvalidArgument, "--config-file is missing; expected the file to convert");
  std::error_code error;
  require(std::filesystem::exists(file, error), Status::kNotFound, "there is no file '", file,
          "'; expected a configuration to convert");
  require(overwrites || !output.empty(), Status::kInvalidArgument,
          "nothing says where the result goes; expected --output-file FILE, or --overwrite");
  require(overwrites || !std::filesystem::exists(output, error), Status::kAlreadyExists, "'", output,
          "' is there already; expected --overwrite, or another name");
  const Json configuration = json_of(read_yaml(file));
  require(configuration.members() != nullptr && !configuration.members()->empty(), Status::kInvalidArgument, "'", file,
          "' is empty; expected a configuration");
  std::vector<std::string> notes;
  Json::Members result = *to_fsdp2(configuration, notes).members();
  std::sort(result.begin(), result.end(), [](const auto& one, const auto& other) { return one.first < other.first; });
  for (const std::string& note : notes) std::fprintf(stderr, "accel: %s\n", note.c_str());
  write_configuration(output.empty() ? file : output, Json(std::move(result)));
  return 0;
}

}  // namespace accel::program
