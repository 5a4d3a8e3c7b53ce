// SPDX-License-Identifier: Apache-2.0
#include "launch/ranks/stray_processes.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <string_view>
#include <vector>

#include "base/authentication_code.hpp"
#include "os/file_descriptor.hpp"

namespace accel::launch {
namespace {

std::vector<pid_t> all_processes() {
  std::vector<pid_t> processes;
  DIR* const folder = opendir("/proc");
  if (folder == nullptr) return processes;
  while (const dirent* const entry = readdir(folder)) {
    const std::string_view name = entry->d_name;
    if (std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
      processes.push_back(static_cast<pid_t>(std::stol(entry->d_name)));
  }
  closedir(folder);
  return processes;
}

// Whether "ACCEL_LAUNCHER=mark" is in its environment; not for what belongs to somebody else or has ended.
bool has_mark(pid_t process, const std::string& entry) {
  const FileDescriptor file(open(("/proc/" + std::to_string(process) + "/environ").c_str(), O_RDONLY | O_CLOEXEC));
  std::string content(1, '\0');  // so that the entry begins behind a zero, also as the first one
  char block[16 * 1024];
  ssize_t count = 0;
  while (file.is_open() && (count = read(file.number(), block, sizeof block)) > 0)
    content.append(block, static_cast<size_t>(count));
  return content.find(entry) != std::string::npos;
}

}  // namespace

std::string new_mark() { return std::to_string(getpid()) + '.' + random_digits(16); }

void kill_strays(const std::string& mark) {
  const std::string entry = '\0' + (kMarkVariable + ('=' + mark)) + '\0';
  // One that is found while it forks has a child that the next round finds.
  for (int round = 0; round < 10; ++round) {
    bool found = false;
    for (const pid_t process : all_processes())
      if (process != getpid() && has_mark(process, entry)) found = kill(process, SIGKILL) == 0 || found;
    if (!found) return;
    usleep(1000);
  }
}

}  // namespace accel::launch
