// SPDX-License-Identifier: Apache-2.0
#include "cli/command_description.hpp"

#include "json/json.hpp"

namespace accel::program {

std::string describe_command(const CLI::App& app) {
  const std::string help = app.help();
  Json::Items options;
  for (const std::string& group : app.get_groups())
    for (const CLI::Option* const option :
         app.get_options([&group](const CLI::Option* one) { return one->get_group() == group; })) {
      Json::Items names;
      for (const std::string& name : option->get_snames()) names.emplace_back("-" + name);
      names.emplace_back("--" + option->get_lnames().front());
      options.push_back(Json(Json::Members{{"names", Json(std::move(names))},
                                           {"value", Json(option->get_type_name())},
                                           {"takes_value", Json(option->get_items_expected_max() > 0)},
                                           {"help", Json(option->get_description())},
                                           {"group", Json(group)}}));
    }
  return print_json(Json(Json::Members{{"usage", Json(help.substr(0, help.find('\n')))},
                                       {"description", Json(app.get_description())},
                                       {"options", Json(std::move(options))}})) +
         "\n";
}

}  // namespace accel::program
