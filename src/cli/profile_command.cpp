// SPDX-License-Identifier: Apache-2.0
#include "cli/profile_command.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "cli/command_arguments.hpp"
#include "json/json.hpp"
#include "os/list_folder.hpp"
#include "os/mapped_file.hpp"
#include "trace/averages_table.hpp"
#include "trace/trace_merge.hpp"
#include "trace/trace_text.hpp"

namespace accel::program {
namespace {

constexpr char kProfileHelp[] =
    R"(Runs a program and records what each of its ranks does when: operators, collectives, waits, data loading. The program
is not changed: its first accel_state_create(), or Accelerator(), begins to record; a step is what lies between two updates of an
optimizer. The first steps are dropped, because they are slower than the others; a program that ends before is recorded from its
beginning. Works around `accel launch`, too: accel profile -- accel launch --num-processes 2 -- ./train
)";

// Exit statuses follow the shells.
constexpr int kProgramCannotStart = 126, kProgramIsMissing = 127, kBySignal = 128;
constexpr size_t kShownRows = 12;

struct ProfileCommandOptions {
  std::string output = "accel-profile";
  int64_t steps = 5, skip = 3;
  bool has_memory = false, has_shapes = false, has_modules = false, is_json = false;
};

void declare_profile(CLI::App& app, ProfileCommandOptions& options) {
  const auto add = [&app](const char* name, auto& value, const char* type, const char* description) {
    return app.add_option(name, value, description)->type_name(type)->group("Options");
  };
  const auto add_switch = [&app](const char* name, bool& value, const char* description) {
    app.add_flag(name, value, description)->group("Options");
  };
  add("--output", options.output, "DIR", "Folder for the traces; older ones there are removed. Default accel-profile");
  add("--steps", options.steps, "N", "Number of steps that are recorded. Default 5")->check(CLI::PositiveNumber);
  add("--skip", options.skip, "N", "Number of steps before them that are dropped. Default 3")
      ->check(CLI::NonNegativeNumber);
  add_switch("--memory", options.has_memory, "Records allocations of tensors.");
  add_switch("--shapes", options.has_shapes, "Records the shapes of the inputs of operators.");
  add_switch("--modules", options.has_modules, "Records the calls of modules.");
  add_switch("--json", options.is_json, "Prints the report as JSON.");
}

bool is_trace(const std::string& name) { return starts_with(name, "profile_") && has_extension(name, ".json"); }

void clear_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(!error, Status::kIo, "--output: cannot make the folder '", folder, "': ", error.message());
  require(::access(folder.c_str(), W_OK | X_OK) == 0, Status::kIo, "--output: '", folder,
          "' is not writable: ", std::strerror(errno));
  for (const std::string& name : list_folder(folder))
    if (is_trace(name)) std::filesystem::remove(std::filesystem::path(folder) / name, error);
}

std::vector<std::string> environment_of(const ProfileCommandOptions& options, const std::string& folder) {
  const std::vector<std::pair<std::string, std::string>> variables = {
      {"ACCEL_PROFILE_PROGRAM", "1"},
      {"ACCEL_PROFILE_DIR", folder},
      {"ACCEL_PROFILE_ACTIVE", std::to_string(options.steps)},
      {"ACCEL_PROFILE_SKIP_FIRST", std::to_string(options.skip)},
      {"ACCEL_PROFILE_MEMORY", options.has_memory ? "1" : "0"},
      {"ACCEL_PROFILE_RECORD_SHAPES", options.has_shapes ? "1" : "0"},
      {"ACCEL_PROFILE_WITH_MODULES", options.has_modules ? "1" : "0"}};
  std::vector<std::string> entries;
  for (char** inherited = environ; *inherited != nullptr; ++inherited) {
    const std::string entry = *inherited, name = entry.substr(0, entry.find('='));
    if (std::none_of(variables.begin(), variables.end(), [&](const auto& variable) { return variable.first == name; }))
      entries.push_back(entry);
  }
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

volatile sig_atomic_t profiled_process = 0;

void pass_on(int signal) {
  if (profiled_process != 0) ::kill(profiled_process, signal);
}

// posix_spawnp(); a signal to this program waits until there is somebody to pass it on to.
int spawn(const std::vector<char*>& arguments, const std::vector<char*>& variables) {
  sigset_t passed, before;
  sigemptyset(&passed);
  sigaddset(&passed, SIGTERM);
  sigaddset(&passed, SIGHUP);
  sigprocmask(SIG_BLOCK, &passed, &before);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &before);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t process = 0;
  const int error = posix_spawnp(&process, arguments[0], nullptr, &attributes, arguments.data(), variables.data());
  posix_spawnattr_destroy(&attributes);
  if (error == 0) profiled_process = process;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return error;
}

// Its exit status. Signals to this program are for that one; what a terminal sends reaches both.
int run_profiled(std::vector<std::string> command, std::vector<std::string> environment) {
  struct sigaction passing {};
  passing.sa_handler = pass_on;
  passing.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &passing, nullptr);
  sigaction(SIGHUP, &passing, nullptr);
  passing.sa_handler = [](int) {};  // not ignored, which the program would inherit
  sigaction(SIGINT, &passing, nullptr);
  sigaction(SIGQUIT, &passing, nullptr);
  const std::vector<char*> arguments = pointers_to(command), variables = pointers_to(environment);
  const int error = spawn(arguments, variables);
  if (error != 0) {
    std::fprintf(stderr, "accel: cannot run '%s': %s\n", arguments[0], std::strerror(error));
    return error == ENOENT ? kProgramIsMissing : kProgramCannotStart;
  }
  const pid_t process = profiled_process;
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  profiled_process = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : kBySignal + WTERMSIG(status);
}

// The description of the rank in its trace.
Json header_of(const std::string& path) {
  const MappedFile file(path);
  return track::TraceText(file.text(), path).member("accel");
}

Json rows_of_kind(const Json& averages, bool are_operators) {
  Json::Items rows;
  if (averages.items() != nullptr)
    for (const Json& row : *averages.items())
      if ((json_text(row, "kind", "") == "operator") == are_operators) rows.push_back(row);
  return Json(std::move(rows));
}

void show(const std::vector<std::string>& traces, const std::string& merged) {
  const Json header = header_of(traces[0]);
  const Json* const averages = json_member(header, "averages");
  if (averages != nullptr) {
    std::printf("\nThe operators of rank %lld with the most time of their own:\n%s",
                static_cast<long long>(json_integer(header, "rank", 0)),
                track::averages_table(rows_of_kind(*averages, true), "self_cpu_us", kShownRows).c_str());
    std::printf("\nIts spans:\n%s",
                track::averages_table(rows_of_kind(*averages, false), "cpu_us", kShownRows).c_str());
  }
  std::printf(
      "\n%zu trace%s in %s\nOpen %s at https://ui.perfetto.dev or chrome://tracing; the file stays on this machine.\n",
      traces.size(), traces.size() == 1 ? "" : "s", std::filesystem::path(traces[0]).parent_path().string().c_str(),
      merged.c_str());
}

Json report_of(const std::vector<std::string>& traces, const std::string& merged, const std::string& folder,
               int status) {
  Json::Items paths, ranks;
  for (const std::string& trace : traces) {
    paths.emplace_back(trace);
    const Json header = header_of(trace);
    Json::Members rank;
    for (const char* const name : {"rank", "host", "steps", "step_report", "dropped_spans", "averages"})
      if (const Json* const value = json_member(header, name)) rank.emplace_back(name, *value);
    ranks.emplace_back(std::move(rank));
  }
  Json::Members report;
  report.emplace_back("status", Json::number(int64_t{status}));
  report.emplace_back("folder", Json(folder));
  report.emplace_back("traces", Json(std::move(paths)));
  report.emplace_back("merged", Json(merged));
  report.emplace_back("ranks", Json(std::move(ranks)));
  return Json(std::move(report));
}

}  // namespace

int run_profile(const std::vector<std::string>& arguments) {
  CLI::App app(kProfileHelp, "accel profile");
  ProfileCommandOptions options;
  declare_profile(app, options);
  add_help(app, " [OPTION ...] [--] PROGRAM [ARGUMENT ...]");
  const ParsedArguments parsed = parse(app, arguments);
  if (is_shown(parsed)) return 0;
  require(!parsed.rest.empty(), Status::kInvalidArgument, "there is no program; expected accel profile -- PROGRAM");
  const std::string folder = std::filesystem::absolute(options.output).lexically_normal().string();
  clear_folder(folder);
  std::vector<std::string> command = parsed.rest;
  if (std::filesystem::path(command[0]).extension() == ".py") command.insert(command.begin(), "python3");
  const int status = run_profiled(command, environment_of(options, folder));
  if (status == kProgramIsMissing || status == kProgramCannotStart) return status;
  std::vector<std::string> traces;
  try {
    traces = track::traces_in(folder);
  } catch (const Error& error) {
    if (error.status() != Status::kNotFound) throw;
    std::fprintf(stderr,
                 "accel: nothing was recorded: the program made no state (accel_state_create(), Accelerator()), or "
                 "was ended by a signal\n");
    return status != 0 ? status : 1;
  }
  std::string merged = traces[0];
  if (traces.size() > 1) {
    merged = (std::filesystem::path(folder) / "profile_merged.json").string();
    track::merge_traces(traces, merged);
  }
  if (options.is_json)
    std::printf("%s\n", print_json(report_of(traces, merged, folder, status)).c_str());
  else
    show(traces, merged);
  return status;
}

}  // namespace accel::program
