// SPDX-License-Identifier: Apache-2.0
// The program `accel-models`: the commands `accel run`, `accel embed` and `accel serve`.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cli/exit_status.hpp"
#include "cli/models/model_commands.hpp"

namespace accel::program {
namespace {

int run_command(const std::vector<std::string>& arguments) {
  require(!arguments.empty(), Status::kInvalidArgument, "no command is given; expected run, embed or serve");
  const std::vector<std::string> others(arguments.begin() + 1, arguments.end());
  if (arguments.front() == "run") return run_text(others);
  if (arguments.front() == "embed") return run_embed(others);
  if (arguments.front() == "serve") return run_serve(others);
  fail(Status::kInvalidArgument, "'", arguments.front(), "' is not a command; expected run, embed or serve");
}

}  // namespace
}  // namespace accel::program

int main(int count, char** arguments) {
  try {
    return accel::program::run_command({arguments + 1, arguments + count});
  } catch (const accel::Error& error) {  // of the command line
    std::fprintf(stderr, "accel: %s\n", error.what());
    return error.status() == accel::Status::kInvalidArgument ? accel::program::kWrongUsage : accel::program::kFailed;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "accel: %s\n", error.what());
    return accel::program::kFailed;
  }
}
