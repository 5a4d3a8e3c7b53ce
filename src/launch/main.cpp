// The program `accel`: it starts and watches the processes of a job. It loads neither LibTorch nor libaccel, so that it
// costs a millisecond.
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "launch/environment_report.hpp"
#include "launch/job.hpp"
#include "launch/options.hpp"

namespace accel::launch {
namespace {

// As shells have them.
enum ExitStatus : int { kFailure = 1, kWrongUsage = 2, kCannotStart = 126, kProgramNotFound = 127 };

constexpr char kUsage[] =
    R"(usage: accel COMMAND

  launch   starts a program in several processes; see accel launch --help
  env      says what a bug report should know of this machine

  --version, --help
)";

int exit_status(const Error& error) {
  switch (error.status()) {
    case Status::kInvalidArgument:
      return kWrongUsage;
    case Status::kNotFound:
      return kProgramNotFound;
    case Status::kIo:
      return kCannotStart;
    default:
      return kFailure;
  }
}

int launch(const std::vector<std::string>& arguments) {
  const LaunchOptions options = parse_launch_options(arguments);
  if (options.help) {
    std::fputs(launch_help(), stdout);
    return 0;
  }
  return Job(options).run();
}

int run(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments.front();
  if (command == "launch") return launch({arguments.begin() + 1, arguments.end()});
  if (command == "env") {
    std::fputs(environment_report().c_str(), stdout);
  } else if (command == "--version") {
    std::puts("accel " ACCEL_VERSION);
  } else if (command == "--help" || command == "-h") {
    std::fputs(kUsage, stdout);
  } else {
    fail(Status::kInvalidArgument, "'", command, "' is not a command; expected launch, env, --version or --help");
  }
  return 0;
}

}  // namespace
}  // namespace accel::launch

int main(int count, char** arguments) {
  try {
    return accel::launch::run({arguments + 1, arguments + count});
  } catch (const accel::Error& error) {
    std::fprintf(stderr, "accel: %s\n", error.what());
    return accel::launch::exit_status(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "accel: %s\n", error.what());
    return accel::launch::kFailure;
  }
}
