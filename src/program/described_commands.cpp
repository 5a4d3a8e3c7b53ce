#include "program/described_commands.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/split_text.hpp"
#include "base/system_error.hpp"
#include "launch/pipe.hpp"
#include "program/command_description.hpp"
#include "program/command_list.hpp"

namespace accel::program {
namespace {

// What to give posix_spawn() for a child that writes into a pipe and says no errors.
class SpawnActions {
 public:
  explicit SpawnActions(int output) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions_); }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

// What this program prints with these arguments; nothing if it fails.
std::string output_of_self(const std::vector<std::string>& words) {
  std::vector<std::string> texts = words;
  texts.insert(texts.begin(), "accel");
  texts.emplace_back(kDescribe);
  std::vector<char*> arguments;
  for (std::string& one : texts) arguments.push_back(one.data());
  arguments.push_back(nullptr);
  launch::Pipe pipe = launch::make_pipe();
  const SpawnActions actions(pipe.write_end.number());
  pid_t child = 0;
  errno = posix_spawn(&child, "/proc/self/exe", actions.get(), nullptr, arguments.data(), environ);
  if (errno != 0) fail_system(Status::kIo, "run", "/proc/self/exe");
  pipe.write_end.reset();
  std::string output;
  std::array<char, 4096> bytes{};
  for (;;) {
    const ssize_t got = ::read(pipe.read_end.number(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    output.append(bytes.data(), static_cast<size_t>(got));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? output : "";
}

std::vector<DescribedOption> options_of(const Json& described) {
  std::vector<DescribedOption> options;
  for (const Json& one : *json_member(described, "options")->items()) {
    DescribedOption option;
    for (const Json& name : *json_member(one, "names")->items()) option.names.push_back(*name.text());
    option.takes_value = json_flag(one, "takes_value", false);
    option.value = json_text(one, "value", "");
    option.help = json_text(one, "help", "");
    option.group = json_text(one, "group", "");
    if (option.takes_value && option.value.find('|') != std::string::npos)
      option.choices = split_text(option.value, '|');
    options.push_back(std::move(option));
  }
  return options;
}

DescribedCommand described(std::vector<std::string> words, const std::string& summary, const std::string& next_words) {
  DescribedCommand command;
  const std::string output = output_of_self(words);
  command.words = std::move(words);
  command.summary = summary;
  command.next_words = split_text(next_words, ' ');
  if (output.empty() || output.front() != '{') return command;
  const Json json = parse_json(output.substr(0, output.find('\n')), "the description of a command");
  command.usage = json_text(json, "usage", "");
  command.description = json_text(json, "description", "");
  command.options = options_of(json);
  return command;
}

}  // namespace

std::vector<DescribedCommand> describe_commands() {
  std::vector<DescribedCommand> commands = {described({}, "starts and watches the processes of a training", "")};
  for (const ProgramCommand& one : program_commands()) {
    if (one.is_hidden) continue;
    commands.front().next_words.emplace_back(one.name);
    commands.push_back(described({one.name}, one.summary, one.words));
    if (one.is_of_checkpoints) continue;  // its words have no options of their own
    for (const std::string& word : split_text(one.words, ' ')) {
      DescribedCommand inner = described({one.name, word}, "", "");
      if (!inner.options.empty()) commands.push_back(std::move(inner));
    }
  }
  return commands;
}

}  // namespace accel::program
