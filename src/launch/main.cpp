// The program `accel`: it starts and watches the processes of a job. It loads neither LibTorch nor libaccel, so that it
// costs a millisecond.
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "launch/command_line.hpp"
#include "launch/environment_report.hpp"
#include "launch/job.hpp"

namespace accel::launch {
namespace {

// As shells have them.
enum ExitStatus : int { kFailure = 1, kWrongUsage = 2, kCannotStart = 126, kProgramNotFound = 127 };

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

int run(const std::vector<std::string>& arguments) {
  const CommandLine line = parse_command_line(arguments);
  if (line.command == Command::kLaunch) return Job(line.launch).run();
  std::fputs(line.command == Command::kShow ? line.text.c_str() : environment_report().c_str(), stdout);
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
