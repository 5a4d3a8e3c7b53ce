// SPDX-License-Identifier: Apache-2.0
#include "launch/command_output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "launch/ranks/pipe.hpp"

namespace accel::launch {
namespace {

constexpr size_t kMostSaid = size_t{1} << 20;

class SpawnActions {
 public:
  SpawnActions() { posix_spawn_file_actions_init(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions_); }
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

// False: too much, or too late.
bool read_until_end(int descriptor, std::string& said, const Deadline& deadline) {
  char block[4096];
  for (;;) {
    pollfd polled = {descriptor, POLLIN, 0};
    const int ready = poll(&polled, 1, static_cast<int>(deadline.left().count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t count = read(descriptor, block, sizeof block);
    if (count == 0) return true;
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) said.append(block, static_cast<size_t>(count));
    if (said.size() > kMostSaid) return false;
  }
}

}  // namespace

std::optional<std::string> command_output(const std::vector<std::string>& command, const Deadline& deadline) {
  Pipe pipe = make_pipe();
  SpawnActions actions;
  posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(actions.get(), pipe.write_end.number(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(actions.get(), STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t process = 0;
  if (posix_spawnp(&process, arguments[0], actions.get(), nullptr, arguments.data(), environ) != 0) return std::nullopt;
  pipe.write_end.reset();
  std::string said;
  const bool has_ended = read_until_end(pipe.read_end.number(), said, deadline);
  // One that has closed its output and goes on would be waited for in vain.
  if (!has_ended || deadline.passed()) kill(process, SIGKILL);
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (!has_ended || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return said;
}

}  // namespace accel::launch
