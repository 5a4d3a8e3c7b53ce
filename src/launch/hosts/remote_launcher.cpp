// SPDX-License-Identifier: Apache-2.0
#include "launch/hosts/remote_launcher.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/write_whole.hpp"
#include "json/json.hpp"
#include "launch/plan/shell_words.hpp"

namespace accel::launch {
namespace {

constexpr size_t kLongestMessage = 4 * 1024 * 1024;
constexpr size_t kLongestShownLine = 64 * 1024;

// These variables belong to this host, this login or this process alone.
constexpr std::string_view kOwnVariables[] = {"HOME",
                                              "USER",
                                              "LOGNAME",
                                              "SHELL",
                                              "PWD",
                                              "OLDPWD",
                                              "SHLVL",
                                              "HOSTNAME",
                                              "DISPLAY",
                                              "ACCEL_HOST_ID",
                                              "TERM",
                                              "TMPDIR",
                                              "MAIL",
                                              "XAUTHORITY",
                                              "SSH_",
                                              "XDG_",
                                              "_",
                                              "SLURM_",
                                              "DBUS_SESSION_BUS_ADDRESS"};

bool is_own(std::string_view entry) {
  const std::string_view name = entry.substr(0, entry.find('='));
  return std::any_of(std::begin(kOwnVariables), std::end(kOwnVariables), [name](std::string_view own) {
    return own.size() > 1 && own.back() == '_' ? name.substr(0, own.size()) == own : name == own;
  });
}

Json texts(const std::vector<std::string>& values) {
  Json::Items items;
  for (const std::string& value : values) items.emplace_back(value);
  return Json(std::move(items));
}

std::vector<std::string> texts_in(const Json& message, const char* key) {
  std::vector<std::string> result;
  const Json* const list = json_member(message, key);
  require(list != nullptr && list->items() != nullptr, Status::kInvalidArgument, "the start of this launcher has no '",
          key, "'");
  for (const Json& item : *list->items()) {
    require(item.text() != nullptr, Status::kInvalidArgument, "'", key, "' has what is not text");
    result.push_back(*item.text());
  }
  return result;
}

std::vector<std::string> command_for(const LaunchOptions& options, const std::string& host) {
  std::vector<std::string> words = shell_words(options.ssh_command);
  require(!words.empty(), Status::kInvalidArgument, "--ssh-command is empty; expected a program such as ssh");
  for (std::string& word : shell_words(options.ssh_options)) words.push_back(std::move(word));
  words.push_back(host);
  words.push_back("exec " + shell_quoted(std::filesystem::read_symlink("/proc/self/exe").string()) + " host");
  return words;
}

// The input becomes empty for what is started; the descriptor that was it is closed when the connection ends.
int take_input() {
  const int lifeline = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const FileDescriptor empty(open("/dev/null", O_RDONLY | O_CLOEXEC));
  require(lifeline >= 0 && empty.is_open() && dup2(empty.number(), STDIN_FILENO) == STDIN_FILENO, Status::kIo,
          "the input cannot be taken over: ", std::strerror(errno));
  return lifeline;
}

FileDescriptor nonblocking(FileDescriptor descriptor) {
  fcntl(descriptor.number(), F_SETFL, O_NONBLOCK);
  return descriptor;
}

}  // namespace

// "host" is not a word of its own for a user: it is what ssh runs.
std::string remote_message(const LaunchOptions& options, size_t number) {
  const HostOptions& hosts = options.hosts;
  const int slots = hosts.listed[number].slots;
  std::vector<std::string> arguments = options.given;
  const auto add = [&arguments](const char* name, const std::string& value) {
    arguments.insert(arguments.end(), {name, value});
  };
  add("--num-machines", std::to_string(hosts.max_hosts));
  add("--num-processes", std::to_string(hosts.max_hosts * slots));
  add("--machine-rank", std::to_string(number));
  add("--main-process-ip", hosts.coordinator);
  add("--main-process-port", std::to_string(hosts.coordinator_port));
  add("--hostfile", "none");
  add("--secret-file", "none");
  arguments.emplace_back("--no-python");  // the program has its interpreter in front already
  arguments.emplace_back("--module=no");
  arguments.emplace_back("--");
  arguments.insert(arguments.end(), options.program.begin(), options.program.end());
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!is_own(*entry)) environment.emplace_back(*entry);
  return print_json(Json(Json::Members{{"arguments", texts(arguments)},
                                       {"environment", texts(environment)},
                                       {"folder", Json(std::filesystem::current_path().string())},
                                       {"slots", Json::number(int64_t{slots})},
                                       {"num_processes", Json::number(int64_t{options.num_processes})},
                                       {"secret", Json(hosts.secret)}})) +
         '\n';
}

RemoteStart take_remote_start() {
  std::string line;
  std::array<char, 4096> block;
  while (line.empty() || line.back() != '\n') {
    const ssize_t count = ::read(STDIN_FILENO, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    require(count > 0 && line.size() < kLongestMessage, Status::kInvalidArgument,
            "accel host is started by accel launch through ssh, which tells it what to do; see --hostfile");
    line.append(block.data(), static_cast<size_t>(count));
  }
  const Json message = parse_json(line, "the message of the launcher");
  // Variables of this login stay where the other host has none.
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (is_own(*entry)) environment.emplace_back(*entry);
  for (std::string& entry : texts_in(message, "environment")) environment.push_back(std::move(entry));
  replace_environment(environment);
  const std::string folder = json_text(message, "folder", "/");
  require(chdir(folder.c_str()) == 0, Status::kNotFound, "the folder ", folder, " is not on ",
          "this host: ", std::strerror(errno));
  return {texts_in(message, "arguments"), static_cast<int>(json_integer(message, "slots", 1)),
          static_cast<int>(json_integer(message, "num_processes", 1)), json_text(message, "secret", ""), take_input()};
}

RemoteLauncher::RemoteLauncher(const LaunchOptions& options, size_t number, const Guardian& guardian,
                               const sigset_t& signal_mask)
    : title_(text("host ", number, " (", options.hosts.listed[number].name, ")")),
      message_(remote_message(options, number)) {
  std::vector<std::string> words = command_for(options, options.hosts.listed[number].name);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  Pipe input = make_pipe(), output = make_pipe(), errors = make_pipe();
  const pid_t launcher = getpid();
  process_ = fork();
  require(process_ >= 0, Status::kIo, "no process can be started: ", std::strerror(errno));
  if (process_ == 0) {
    setpgid(0, 0);
    guardian.protect_own_group();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);
    dup2(input.read_end.number(), STDIN_FILENO);
    dup2(output.write_end.number(), STDOUT_FILENO);
    dup2(errors.write_end.number(), STDERR_FILENO);
    pthread_sigmask(SIG_SETMASK, &signal_mask, nullptr);
    execvp(arguments[0], arguments.data());
    const std::string problem = std::string(arguments[0]) + ": " + std::strerror(errno) + '\n';
    write_whole(STDERR_FILENO, problem);
    _exit(127);
  }
  input_ = nonblocking(std::move(input.write_end));
  output_.descriptor = nonblocking(std::move(output.read_end));
  errors_.descriptor = nonblocking(std::move(errors.read_end));
}

RemoteLauncher::RemoteLauncher(RemoteLauncher&& other) noexcept
    : title_(std::move(other.title_)),
      process_(std::exchange(other.process_, 0)),
      message_(std::move(other.message_)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)),
      errors_(std::move(other.errors_)),
      end_(other.end_) {}

RemoteLauncher::~RemoteLauncher() {
  if (!is_running()) return;
  kill(process_, SIGKILL);
  kill(-process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

void RemoteLauncher::add_polled(std::vector<pollfd>& polled) const {
  polled.push_back({message_.empty() ? -1 : input_.number(), POLLOUT, 0});
  polled.push_back({output_.descriptor.number(), POLLIN, 0});
  polled.push_back({errors_.descriptor.number(), POLLIN, 0});
}

void RemoteLauncher::transfer(const pollfd* polled) {
  if (polled[0].revents != 0) write_message();
  if (polled[1].revents != 0) show(output_, STDOUT_FILENO);
  if (polled[2].revents != 0) show(errors_, STDERR_FILENO);
}

void RemoteLauncher::write_message() {
  const ssize_t count = write(input_.number(), message_.data(), message_.size());
  if (count > 0)
    message_.erase(0, static_cast<size_t>(count));
  else if (errno != EAGAIN && errno != EINTR)
    message_.clear();  // it has ended
}

bool RemoteLauncher::show(Stream& stream, int target) {
  std::array<char, 16 * 1024> block;
  const ssize_t count = read(stream.descriptor.number(), block.data(), block.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (count > 0)
    stream.begun.append(block.data(), static_cast<size_t>(count));
  else
    stream.descriptor.reset();
  const bool is_cut = !stream.descriptor.is_open() || stream.begun.size() > kLongestShownLine;
  const std::string start = '[' + title_ + "] ";
  size_t from = 0;
  for (size_t end = 0; (end = stream.begun.find('\n', from)) != std::string::npos; from = end + 1)
    write_whole(target, start + stream.begun.substr(from, end + 1 - from));
  stream.begun.erase(0, from);
  if (is_cut && !stream.begun.empty()) {
    write_whole(target, start + stream.begun + '\n');
    stream.begun.clear();
  }
  return count > 0;
}

void RemoteLauncher::collect() {
  siginfo_t info = {};
  if (!is_running() || waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return;
  end_ = process_end(info);
  kill(-process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  input_.reset();
  // Programs that it has started may hold the pipes open.
  while (output_.descriptor.is_open() && show(output_, STDOUT_FILENO)) {
  }
  while (errors_.descriptor.is_open() && show(errors_, STDERR_FILENO)) {
  }
}

}  // namespace accel::launch
