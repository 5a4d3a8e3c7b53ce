// SPDX-License-Identifier: Apache-2.0
// The program `accel`: it starts and watches the processes of a job. It loads neither LibTorch nor libaccel, so that it
// costs a millisecond.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cli/command_line.hpp"
#include "cli/exit_status.hpp"
#include "cli/soak/soak.hpp"
#include "launch/hosts/exec_program.hpp"
#include "launch/hosts/host_agent.hpp"
#include "launch/plan/scheduler_job.hpp"
#include "os/system_error.hpp"
#include "os/temporary_folder.hpp"

namespace accel::program {
namespace {

// Exit statuses follow the shells.

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

// A program beside this one that loads libaccel.
std::string engine_program(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / name).string();
}

[[noreturn]] void become(const std::string& name, char** arguments) {
  const std::string program = engine_program(name);
  ::execv(program.c_str(), arguments);
  fail_system(errno == ENOENT ? Status::kNotFound : Status::kIo, "run", program);
}

int run_launch(const launch::LaunchPlan& plan) {
  const launch::LaunchOptions& options = plan.options;
  const auto say = [](const std::string& note) { std::fprintf(stderr, "accel launch: %s\n", note.c_str()); };
  if (!options.output.quiet) std::for_each(plan.notes.begin(), plan.notes.end(), say);
  if (!options.mpirun_hostfile.empty())
    launch::exec_program(launch::mpirun_command(options), launch::mpirun_variables(options));
  if (launch::is_rank_already(options.num_processes)) launch::exec_program(options.program, options.variables);
  if (const std::string unused = launch::unused_hosts(); options.num_machines == 1 && !unused.empty()) say(unused);
  return launch::HostAgent(options).run();
}

int run_test(const CommandLine& line) {
  if (line.soak_minutes > 0)
    return run_soak({std::chrono::duration<double>(line.soak_minutes * 60), std::nullopt, line.text == "json"});
  const TemporaryFolder folder("accel-test");
  launch::LaunchOptions options = line.plan.options;
  options.program = {engine_program("accel-checkpoint"), "self-test", folder.path(), options.program.front(),
                     line.text};
  const int status = launch::HostAgent(options).run();
  if (status != 0) return kFailure;
  if (line.text == "text") std::fputs("Test is a success!\n", stdout);
  return 0;
}

// A command that starts no program: what is missing is not the program.
int run_command(const CommandLine& line, int count, char** given) {
  try {
    return line.run({given + 2, given + count});
  } catch (const Error& error) {
    std::fprintf(stderr, "accel: %s\n", error.what());
    return exit_status(error) == kWrongUsage ? kWrongUsage : kFailure;
  }
}

int run(const CommandLine& line, int count, char** given) {
  if (line.command == Command::kBecome) become(line.text, given);
  if (line.command == Command::kRun) return run_command(line, count, given);
  if (line.command == Command::kLaunch) return run_launch(line.plan);
  if (line.command == Command::kTest) return run_test(line);
  if (line.command == Command::kBeRemote) return launch::HostAgent(remote_launch()).run();
  return std::fputs(line.text.c_str(), stdout) < 0 || std::fflush(stdout) != 0 ? kFailure : 0;
}

}  // namespace
}  // namespace accel::program

int main(int count, char** arguments) {
  using accel::program::CommandLine;
  std::optional<CommandLine> line;
  try {
    line = accel::program::parse_command_line({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    // Whatever it is, nothing has started yet.
    std::fprintf(stderr, "accel: %s\n", error.what());
    return accel::program::kWrongUsage;
  }
  try {
    return accel::program::run(*line, count, arguments);
  } catch (const accel::Error& error) {
    std::fprintf(stderr, "accel: %s\n", error.what());
    return accel::program::exit_status(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "accel: %s\n", error.what());
    return accel::program::kFailure;
  }
}
