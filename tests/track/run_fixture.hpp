// SPDX-License-Identifier: Apache-2.0
// A run in a folder of its own, which is removed.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "track/record_sink.hpp"

namespace accel::track {

class RunFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "accel_track_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    run_.project = "project";
    run_.name = "run";
    run_.logging_dir = folder_;
    run_.folder = folder_ + "/run";
    run_.host = "host";
    run_.version = "1.2.3";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream content;
    content << file.rdbuf();
    return content.str();
  }
  std::vector<Json> lines() const {
    std::vector<Json> result;
    std::ifstream file(run_.folder + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) result.push_back(parse_json(line, "metrics.jsonl"));
    return result;
  }
  static std::string type_of(const Json& line) { return json_text(line, "type", ""); }
  static track::Record values(int64_t step) {
    Record record;
    record.step = step;
    record.time = 1000.5 + static_cast<double>(step);
    return record;
  }

  std::string folder_;
  track::Run run_;
};

}  // namespace accel::track
