// SPDX-License-Identifier: Apache-2.0
#include "logging/logger.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "expect_error.hpp"
#include "json/json.hpp"
#include "logging/log_sink.hpp"

namespace accel::track {
namespace {

using tests::expect_error;

constexpr int32_t kInfo = 20, kWarning = 30;

class LoggerTest : public testing::Test {
 protected:
  LoggerTest() {
    char pattern[] = "/tmp/accel-logger-XXXXXX";
    folder_ = mkdtemp(pattern);
    unsetenv("ACCELERATE_LOG_LEVEL");
  }
  ~LoggerTest() override {
    for (const int64_t sink : sinks_) remove_log_sink(sink);
    std::filesystem::remove_all(folder_);
  }

  int64_t add(LogSinkKind kind, const std::string& name, int rank = 0, int32_t level = 10, bool engine = false) {
    LogSinkSettings settings;
    settings.kind = kind;
    settings.path = folder_ + "/" + name;
    settings.level = static_cast<int64_t>(level);
    settings.engine = engine;
    sinks_.push_back(add_log_sink(settings, rank));
    return sinks_.back();
  }
  std::string content(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::vector<Json> objects(const std::string& name) const {
    std::vector<Json> found;
    std::istringstream lines(content(name));
    for (std::string line; std::getline(lines, line);) found.push_back(parse_json(line, name));
    return found;
  }

  std::string folder_;
  std::vector<int64_t> sinks_;
};

Logger logger_of(int rank, std::vector<std::string>& heard, std::optional<int32_t> level = kInfo) {
  return Logger("test", level, {rank, 2, [] {}},
                [&heard](int32_t, const char*, const char* message) { heard.emplace_back(message); });
}

TEST_F(LoggerTest, TheMainProcessLogsAloneUnlessAllDo) {
  std::vector<std::string> main, other;
  Logger first = logger_of(0, main), second = logger_of(1, other);
  for (Logger* logger : {&first, &second}) {
    logger->log(kInfo, "one", LogRanks::kMainProcess);
    logger->log(kInfo, "all", LogRanks::kAllProcesses);
    logger->log(10, "too low", LogRanks::kAllProcesses);
  }
  EXPECT_EQ(main, (std::vector<std::string>{"one", "[RANK 0] all"}));
  EXPECT_EQ(other, (std::vector<std::string>{"[RANK 1] all"}));
}

TEST_F(LoggerTest, RanksInOrderMeetAfterEachTurnWhateverTheirLevels) {
  std::vector<std::string> events;
  Logger quiet("test", 100, {1, 3, [&] { events.emplace_back("barrier"); }}, {});
  quiet.log(kInfo, "no", LogRanks::kInOrder);
  EXPECT_EQ(events, (std::vector<std::string>{"barrier", "barrier", "barrier"}));
  events.clear();
  Logger loud("test", kInfo, {1, 3, [&] { events.emplace_back("barrier"); }},
              [&](int32_t, const char*, const char* message) { events.emplace_back(message); });
  loud.log(kInfo, "here", LogRanks::kInOrder);
  EXPECT_EQ(events, (std::vector<std::string>{"barrier", "[RANK 1] here", "barrier", "barrier"}));
}

TEST_F(LoggerTest, AWarningOfTheSameTextComesOnce) {
  std::vector<std::string> heard;
  Logger logger = logger_of(0, heard), other = logger_of(0, heard);
  for (int i = 0; i < 3; i++) logger.warn_once("old", LogRanks::kMainProcess);
  logger.warn_once("new", LogRanks::kMainProcess);
  other.warn_once("old", LogRanks::kMainProcess);
  EXPECT_EQ(heard, (std::vector<std::string>{"old", "new", "old"}));
  expect_error(Status::kInvalidArgument, "ranks is IN_ORDER", [&] { logger.warn_once("x", LogRanks::kInOrder); });
}

TEST_F(LoggerTest, TheLevelComesFromTheEnvironment) {
  std::vector<std::string> heard;
  EXPECT_FALSE(logger_of(0, heard, std::nullopt).is_enabled(kInfo));
  EXPECT_TRUE(logger_of(0, heard, std::nullopt).is_enabled(kWarning));
  for (const auto& [name, level] : std::vector<std::pair<const char*, int32_t>>{
           {"debug", 10}, {"INFO", 20}, {"Warn", 30}, {"error", 40}, {"CRITICAL", 50}, {"fatal", 50}, {"notset", 0}}) {
    setenv("ACCELERATE_LOG_LEVEL", name, 1);
    EXPECT_TRUE(logger_of(0, heard, std::nullopt).is_enabled(level)) << name;
    EXPECT_FALSE(logger_of(0, heard, std::nullopt).is_enabled(level - 1)) << name;
  }
  setenv("ACCELERATE_LOG_LEVEL", "loud", 1);
  expect_error(Status::kInvalidArgument, "ACCELERATE_LOG_LEVEL is 'loud'; expected one of 'CRITICAL'",
               [&] { logger_of(0, heard, std::nullopt); });
  EXPECT_TRUE(logger_of(0, heard, kInfo).is_enabled(kInfo));  // the call wins
  unsetenv("ACCELERATE_LOG_LEVEL");
}

TEST_F(LoggerTest, FilesHaveALineOrAnObjectAMessage) {
  add(LogSinkKind::kFile, "rank{rank}.log", 1);
  add(LogSinkKind::kJsonLines, "rank{rank}.jsonl", 1);
  Logger logger("train", kInfo, {1, 2, [] {}}, {});
  logger.log(kWarning, "first\nsecond", LogRanks::kAllProcesses);
  logger.log(kInfo, "bad \xff\xc3 byte \"quoted\"\t", LogRanks::kAllProcesses);
  const std::string text = content("rank1.log");
  EXPECT_EQ(text.substr(23), "Z WARNING [rank 1] train: first\n    second\n" + text.substr(text.find("\n20") + 1))
      << text;
  EXPECT_NE(text.find(" INFO [rank 1] train: bad \xef\xbf\xbd\xef\xbf\xbd byte \"quoted\"\t\n"), std::string::npos)
      << text;
  const auto found = objects("rank1.jsonl");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(json_text(found[0], "message", ""), "first\nsecond");
  EXPECT_EQ(json_text(found[0], "level", ""), "WARNING");
  EXPECT_EQ(json_text(found[0], "logger", ""), "train");
  EXPECT_EQ(json_integer(found[0], "rank", -1), 1);
  EXPECT_GT(json_number(found[0], "time", 0), 1.7e9);
  EXPECT_EQ(json_text(found[1], "message", ""), "bad \xef\xbf\xbd\xef\xbf\xbd byte \"quoted\"\t");
}

TEST_F(LoggerTest, SinksHaveLevelsAndHearTheEngineIfTheyWant) {
  add(LogSinkKind::kJsonLines, "all", 3, 10, true);
  add(LogSinkKind::kJsonLines, "warnings", 0, kWarning, true);
  const int64_t own = add(LogSinkKind::kJsonLines, "own");
  Logger logger("train", 10, {0, 1, [] {}}, {});
  logger.log(kInfo, "info", LogRanks::kMainProcess);
  log(LogLevel::kWarning, "of the engine");
  log(LogLevel::kInfo, "below the level of the engine");
  EXPECT_EQ(objects("all").size(), 2U);
  EXPECT_EQ(json_text(objects("all")[1], "logger", ""), "accel");
  EXPECT_EQ(json_integer(objects("all")[1], "rank", -1), 3);
  EXPECT_EQ(objects("warnings").size(), 1U);
  EXPECT_EQ(objects("own").size(), 1U);
  EXPECT_TRUE(remove_log_sink(own));
  EXPECT_FALSE(remove_log_sink(own));
  logger.log(kInfo, "more", LogRanks::kMainProcess);
  EXPECT_EQ(objects("own").size(), 1U);
}

TEST_F(LoggerTest, ManyThreadsWriteWholeLines) {
  constexpr int kThreads = 8, kMessages = 200;
  add(LogSinkKind::kJsonLines, "lines");
  add(LogSinkKind::kJsonLines, "lines");  // the same file twice, as of two processes
  Logger logger("train", 10, {0, 1, [] {}}, {});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; thread++)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kMessages; i++)
        logger.log(kInfo, std::string(static_cast<size_t>(i), static_cast<char>('a' + thread)), LogRanks::kMainProcess);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(objects("lines").size(), 2U * kThreads * kMessages);
}

TEST_F(LoggerTest, AMessageMayBeLong) {
  add(LogSinkKind::kJsonLines, "long");
  const std::string text(1 << 20, 'x');
  Logger("train", 10, {0, 1, [] {}}, {}).log(kInfo, text, LogRanks::kMainProcess);
  ASSERT_EQ(objects("long").size(), 1U);
  EXPECT_EQ(json_text(objects("long")[0], "message", ""), text);
}

TEST_F(LoggerTest, AFullDiskIsAnErrorAndOtherSinksGoOn) {
  LogSinkSettings full;
  full.kind = LogSinkKind::kFile;
  full.path = "/dev/full";
  sinks_.push_back(add_log_sink(full, 0));
  add(LogSinkKind::kJsonLines, "good");
  std::vector<std::string> heard;
  Logger logger = logger_of(0, heard);
  expect_error(Status::kIo, "/dev/full", [&] { logger.log(kWarning, "one", LogRanks::kMainProcess); });
  log(LogLevel::kError, "the engine's own calls do not fail");
  EXPECT_EQ(objects("good").size(), 1U);
  EXPECT_EQ(heard.size(), 1U);
}

TEST_F(LoggerTest, AReaderThatIsGoneIsAnErrorAndNoSignal) {
  const std::string path = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  LogSinkSettings nobody;
  nobody.kind = LogSinkKind::kFile;
  nobody.path = path;
  expect_error(Status::kIo, "No such device", [&] { add_log_sink(nobody, 0); });
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  sinks_.push_back(add_log_sink(nobody, 0));
  std::vector<std::string> heard;
  Logger logger = logger_of(0, heard);
  logger.log(kInfo, "one", LogRanks::kMainProcess);
  close(reader);
  for (int i = 0; i < 2; i++)
    expect_error(Status::kIo, "Broken pipe", [&] { logger.log(kInfo, "two", LogRanks::kMainProcess); });
}

// A limit of the size of files cuts a line as a full disk does.
TEST_F(LoggerTest, ALineThatWasCutOffIsNotContinued) {
  add(LogSinkKind::kFile, "cut");
  std::vector<std::string> heard;
  Logger logger = logger_of(0, heard);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 100;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error(Status::kIo, "File too large",
               [&] { logger.log(kInfo, std::string(200, 'x'), LogRanks::kMainProcess); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(content("cut").size(), 100U);
  logger.log(kInfo, "whole", LogRanks::kMainProcess);
  logger.log(kInfo, "also whole", LogRanks::kMainProcess);
  const std::string text = content("cut");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_EQ(text[100], '\n');
  EXPECT_NE(text.find("test: whole\n2"), std::string::npos) << text;
}

TEST_F(LoggerTest, RefusesFilesThatCannotBe) {
  LogSinkSettings settings;
  settings.kind = LogSinkKind::kFile;
  expect_error(Status::kInvalidArgument, "has no path", [&] { add_log_sink(settings, 0); });
  settings.path = folder_ + "/missing/file";
  expect_error(Status::kIo, "missing/file", [&] { add_log_sink(settings, 0); });
}

}  // namespace
}  // namespace accel::track
