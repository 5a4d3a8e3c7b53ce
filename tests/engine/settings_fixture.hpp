// SPDX-License-Identifier: Apache-2.0
// Where settings come from, for one test: variables of the environment, a configuration file; and what is logged.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.hpp"

namespace accel {

// Sets these variables, and takes all others away that settings are read from.
class SettingsEnvironment {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  explicit SettingsEnvironment(const Variables& variables = {}) : former_(take_all()) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  SettingsEnvironment(const SettingsEnvironment&) = delete;
  SettingsEnvironment& operator=(const SettingsEnvironment&) = delete;
  ~SettingsEnvironment() {
    take_all();
    for (const auto& [name, value] : former_) setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  static Variables take_all() {
    Variables found;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string_view written = *entry;
      for (const std::string_view prefix : {"ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "MEGATRON_LM_"})
        if (written.substr(0, prefix.size()) == prefix) {
          const size_t end = written.find('=');
          found.emplace_back(written.substr(0, end), written.substr(end + 1));
        }
    }
    for (const auto& [name, value] : found) unsetenv(name.c_str());
    return found;
  }

  Variables former_;
};

// A file with a name of its own.
class WrittenFile {
 public:
  explicit WrittenFile(const std::string& content, const char* end = ".json") {
    static int number = 0;
    const std::string name = "accel_settings_" + std::to_string(getpid()) + "_" + std::to_string(number++) + end;
    path_ = (std::filesystem::temp_directory_path() / name).string();
    std::ofstream(path_) << content;
  }
  WrittenFile(const WrittenFile&) = delete;
  WrittenFile& operator=(const WrittenFile&) = delete;
  ~WrittenFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }
  std::string line(int number) const { return path_ + ":" + std::to_string(number); }

 private:
  std::string path_;
};

// The configuration file of the environment. A file is read once, so that each has a name of its own.
class ConfigurationFileOfTest : public WrittenFile {
 public:
  explicit ConfigurationFileOfTest(const std::string& content) : WrittenFile(content, ".yaml") {
    setenv("ACCELERATE_CONFIG_FILE", path().c_str(), 1);
  }
  ~ConfigurationFileOfTest() { unsetenv("ACCELERATE_CONFIG_FILE"); }
};

// What is logged while it exists, one message a line.
class LoggedText {
 public:
  LoggedText() {
    set_log_callback(
        [](int32_t, const char* message, void* logged) {
          auto& all = *static_cast<LoggedText*>(logged);
          const std::lock_guard<std::mutex> lock(all.mutex_);
          all.lines_.append(message).append("\n");
        },
        this, nullptr);
  }
  LoggedText(const LoggedText&) = delete;
  LoggedText& operator=(const LoggedText&) = delete;
  ~LoggedText() { set_log_callback(nullptr, nullptr, nullptr); }
  // When no thread logs any more.
  const std::string& lines() const { return lines_; }

 private:
  std::mutex mutex_;
  std::string lines_;
};

}  // namespace accel
