// SPDX-License-Identifier: Apache-2.0
#include "launch/hosts/exec_program.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/split_text.hpp"
#include "launch/plan/shell_words.hpp"

namespace accel::launch {
namespace {

constexpr int kDefaultMeetingPort = 29500;

std::string find_in_path(const std::string& name) {
  for (const std::string& folder : split_text(environment_text("PATH").value_or(""), ':'))
    if (const std::string path = folder + '/' + name; access(path.c_str(), X_OK) == 0) return path;
  return "";
}

struct CloseProcess {
  void operator()(FILE* output) const { pclose(output); }
};

bool is_open_mpi(const std::string& program) {
  const std::string command = shell_quoted(program) + " --version 2>&1";
  const std::unique_ptr<FILE, CloseProcess> output(popen(command.c_str(), "re"));
  require(output != nullptr, Status::kIo, "'", program, "' cannot be started: ", std::strerror(errno));
  std::array<char, 4096> block{};
  std::string said;
  while (const size_t count = std::fread(block.data(), 1, block.size(), output.get())) said.append(block.data(), count);
  return said.find("Open MPI") != std::string::npos;
}

}  // namespace

Variables mpirun_variables(const LaunchOptions& options) {
  Variables variables = options.variables;
  const auto has = [&variables](const char* name) {
    return std::any_of(variables.begin(), variables.end(), [name](const auto& one) { return one.first == name; });
  };
  if (!has("MASTER_ADDR")) variables.emplace_back("MASTER_ADDR", environment_text("MASTER_ADDR").value_or("127.0.0.1"));
  if (!has("MASTER_PORT"))
    variables.emplace_back("MASTER_PORT", std::to_string(options.main_process_port.value_or(kDefaultMeetingPort)));
  return variables;
}

std::vector<std::string> mpirun_command(const LaunchOptions& options) {
  std::string name = "mpirun";
  std::string path = find_in_path(name);
  if (path.empty()) path = find_in_path(name = "mpiexec");
  require(!path.empty(), Status::kNotFound, "--mpirun-hostfile is given, and neither mpirun nor mpiexec is in PATH");
  const std::string ranks = std::to_string(options.num_processes), of_host = std::to_string(options.local_processes());
  std::vector<std::string> command;
  if (is_open_mpi(path)) {
    command = {name, "--hostfile", options.mpirun_hostfile, "--npernode", of_host, "-n", ranks, "--bind-to", "socket"};
    // The ranks of other hosts have nothing else of this environment.
    for (const auto& variable : mpirun_variables(options)) command.insert(command.end(), {"-x", variable.first});
  } else {
    command = {name, "-f", options.mpirun_hostfile, "-ppn", of_host, "-n", ranks};
  }
  command.insert(command.end(), options.program.begin(), options.program.end());
  return command;
}

void exec_program(const std::vector<std::string>& command, const Variables& variables) {
  std::vector<std::string> entries;
  for (char** inherited = environ; *inherited != nullptr; ++inherited) {
    const std::string entry = *inherited;
    const std::string name = entry.substr(0, entry.find('='));
    if (std::none_of(variables.begin(), variables.end(), [&](const auto& variable) { return variable.first == name; }))
      entries.push_back(entry);
  }
  for (const auto& [name, value] : variables) entries.push_back(name + '=' + value);
  std::vector<char*> words, environment;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  for (const std::string& entry : entries) environment.push_back(const_cast<char*>(entry.c_str()));
  words.push_back(nullptr);
  environment.push_back(nullptr);
  execvpe(words[0], words.data(), environment.data());
  require(errno != ENOENT, Status::kNotFound, "'", command.front(),
          "' was not found; expected the path of a program, or a name that is in PATH");
  fail(Status::kIo, "'", command.front(), "' cannot be started: ", std::strerror(errno));
}

}  // namespace accel::launch
