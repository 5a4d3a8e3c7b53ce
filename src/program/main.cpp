// The program `accel`: it starts and watches the processes of a job. It loads neither LibTorch nor libaccel, so that it
// costs a millisecond.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/system_error.hpp"
#include "launch/host_agent.hpp"
#include "program/command_line.hpp"

namespace accel::program {
namespace {

// As shells have them.
enum ExitStatus : int { kFailure = 1, kWrongUsage = 2, kCannotStart = 126, kProgramNotFound = 127 };

int exit_status(const Error& error) {
  switch (error.status()) {
    case Status::kInvalidArgument:
    case Status::kUnsupported:
      return kWrongUsage;
    case Status::kNotFound:
      return kProgramNotFound;
    case Status::kIo:
      return kCannotStart;
    default:
      return kFailure;
  }
}

// Becomes the program beside this one that loads libaccel.
[[noreturn]] void use_checkpoints(char** arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / "accel-checkpoint").string();
  ::execv(program.c_str(), arguments);
  fail_system(errno == ENOENT ? Status::kNotFound : Status::kIo, "run", program);
}

// A command that starts no program: what is missing is not the program.
int run_command(const CommandLine& line, const std::vector<std::string>& arguments) {
  try {
    return line.run({arguments.begin() + 1, arguments.end()});
  } catch (const Error& error) {
    std::fprintf(stderr, "accel: %s\n", error.what());
    return exit_status(error) == kWrongUsage ? kWrongUsage : kFailure;
  }
}

int run(const std::vector<std::string>& arguments, char** given) {
  const CommandLine line = parse_command_line(arguments);
  if (line.command == Command::kUseCheckpoints) use_checkpoints(given);
  if (line.command == Command::kRun) return run_command(line, arguments);
  if (line.command == Command::kLaunch) {
    if (!line.plan.options.quiet)
      for (const std::string& note : line.plan.notes) std::fprintf(stderr, "accel launch: %s\n", note.c_str());
    return launch::HostAgent(line.plan.options).run();
  }
  if (line.command == Command::kBeRemote) return launch::HostAgent(remote_launch()).run();
  return std::fputs(line.text.c_str(), stdout) < 0 || std::fflush(stdout) != 0 ? kFailure : 0;
}

}  // namespace
}  // namespace accel::program

int main(int count, char** arguments) {
  try {
    return accel::program::run({arguments + 1, arguments + count}, arguments);
  } catch (const accel::Error& error) {
    std::fprintf(stderr, "accel: %s\n", error.what());
    return accel::program::exit_status(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "accel: %s\n", error.what());
    return accel::program::kFailure;
  }
}
