// SPDX-License-Identifier: Apache-2.0
#include "cli/models/folder_argument.hpp"

#include "base/error.hpp"

namespace accel::program {

std::vector<std::string> take_folder(const CLI::App& app, const ParsedArguments& parsed, std::string& folder,
                                     size_t most) {
  require(!parsed.rest.empty(), Status::kInvalidArgument, "no folder is given; expected that of a model, see ",
          app.get_name(), " --help");
  folder = parsed.rest.front();
  std::vector<std::string> others(parsed.rest.begin() + 1, parsed.rest.end());
  require(others.size() <= most, Status::kInvalidArgument, "'", others.size() > most ? others[most] : "",
          "' is given to ", app.get_name(), "; expected no more arguments, see ", app.get_name(), " --help");
  return others;
}

}  // namespace accel::program
