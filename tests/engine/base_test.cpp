// SPDX-License-Identifier: Apache-2.0
// The ground: environment variables, JSON members, deadlines, the log, the names of statuses.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <clocale>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <istream>
#include <locale>
#include <memory>
#include <new>
#include <sstream>
#include <streambuf>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/number_text.hpp"
#include "base/text_check.hpp"
#include "expect_error.hpp"
#include "json/json.hpp"
#include "machine/processors.hpp"
#include "os/interruption.hpp"
#include "os/linker_error.hpp"
#include "os/read_line.hpp"

namespace accel {
namespace base_test {

using tests::message_of;

constexpr const char* kVariable = "ACCEL_TEST_VARIABLE";

class BaseEnvironment : public testing::Test {
 protected:
  void TearDown() override { unsetenv(kVariable); }
  static void set(const std::string& value) { setenv(kVariable, value.c_str(), 1); }
};

// How numbers are written where there is no memory for it.
class NoRoomForNumbers final : public std::num_put<char> {
 public:
  NoRoomForNumbers() : std::num_put<char>(1) {}  // it belongs to this program, not to a locale

 protected:
  iter_type do_put(iter_type, std::ios_base&, char, long) const override { throw std::bad_alloc(); }
};

// Some text, behind which a stream has no memory, or a file cannot be read.
template <typename Reason>
class Ending final : public std::streambuf {
 public:
  explicit Ending(Reason reason) : reason_(reason) { setg(text_, text_, text_ + std::strlen(text_)); }

 protected:
  int_type underflow() override { throw reason_; }

 private:
  char text_[9] = "one\ntwo:";
  Reason reason_;
};

// Regression: a lack of memory while the library wrote a text cut it short in silence: keys of the store, addresses,
// paths, PowerSGD's random numbers in a checkpoint.
TEST(BaseText, ALackOfMemoryDoesNotCutIt) {
  const NoRoomForNumbers no_room;
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), &no_room));
  EXPECT_THROW(text("rank ", 1L, " of ", 2L), std::bad_alloc);
  EXPECT_THROW(fail(Status::kUnsupported, "version ", 2L), std::bad_alloc);
  std::locale::global(before);
  EXPECT_EQ(text("rank ", 1L, " of ", 2L), "rank 1 of 2");
}

// Regression: a lack of memory while it read lines was taken for their end.
TEST(BaseReadLine, ALackOfMemoryIsNotTheEnd) {
  Ending<std::bad_alloc> buffer{std::bad_alloc()};
  std::istream stream(&buffer);
  std::string line;
  EXPECT_TRUE(read_line(stream, line));
  EXPECT_EQ(line, "one");
  EXPECT_THROW(read_line(stream, line), std::bad_alloc);
}

TEST(BaseReadLine, WhatCannotBeReadIsTheEnd) {
  Ending<std::ios_base::failure> buffer{std::ios_base::failure("input/output error")};
  std::istream stream(&buffer);
  std::string line;
  EXPECT_TRUE(read_line(stream, line));
  EXPECT_FALSE(read_line(stream, line));
  EXPECT_FALSE(read_line(stream, line));
}

TEST(BaseReadLine, TheLastLineNeedsNoEnd) {
  std::istringstream stream("cpu:ucx,cuda");
  std::string line;
  EXPECT_TRUE(read_line(stream, line, ','));
  EXPECT_EQ(line, "cpu:ucx");
  EXPECT_TRUE(read_line(stream, line, ','));
  EXPECT_EQ(line, "cuda");
  EXPECT_FALSE(read_line(stream, line, ','));
}

// Regression: a lack of memory in the dynamic linker was reported as a LibTorch of an unknown version, or as a plugin
// that cannot be loaded.
TEST(BaseLinkerError, ALackOfMemoryIsKnown) {
  EXPECT_TRUE(is_lack_of_memory(
      ("libone.so: cannot create shared object descriptor: " + std::string(std::strerror(ENOMEM))).c_str()));
  EXPECT_TRUE(is_lack_of_memory("out of memory"));
  EXPECT_TRUE(is_lack_of_memory("libone.so: cannot create shared object descriptor"));
  EXPECT_FALSE(is_lack_of_memory("libone.so: cannot open shared object file: No such file or directory"));
  EXPECT_FALSE(is_lack_of_memory(nullptr));
}

TEST_F(BaseEnvironment, UnsetAndEmptyAreNothing) {
  EXPECT_FALSE(environment_text(kVariable));
  EXPECT_FALSE(environment_flag(kVariable));
  EXPECT_FALSE(environment_integer(kVariable));
  set("");
  EXPECT_FALSE(environment_text(kVariable));
  EXPECT_FALSE(environment_flag(kVariable));
  EXPECT_FALSE(environment_integer(kVariable));
}

using Variables = std::vector<EnvironmentDefaults::Variable>;

TEST_F(BaseEnvironment, DefaultsComeAndGoBesideReaders) {
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): that is what is tested
    while (!stop) EXPECT_EQ(std::getenv("ACCEL_TEST_NO_SUCH_VARIABLE"), nullptr);
  });
  char** const before = environ;
  for (int i = 0; i < 2000; i++) {
    const EnvironmentDefaults outer(Variables{{kVariable, "outer"}, {"ACCEL_TEST_OTHER", "1"}});
    const EnvironmentDefaults inner(Variables{{kVariable, "inner"}, {"ACCEL_TEST_THIRD", "3"}});
    EXPECT_EQ(environment_text(kVariable), "outer");
    EXPECT_EQ(environment_text("ACCEL_TEST_THIRD"), "3");
  }
  stop = true;
  reader.join();
  EXPECT_EQ(environ, before);
  EXPECT_FALSE(environment_text(kVariable));
}

TEST_F(BaseEnvironment, DefaultsLeaveWhatTheUserHasSet) {
  set("user");
  const EnvironmentDefaults defaults(Variables{{kVariable, "default"}});
  EXPECT_EQ(environment_text(kVariable), "user");
}

TEST_F(BaseEnvironment, WhatTheProgramChangesBesideDefaultsStays) {
  constexpr const char* kSet = "ACCEL_TEST_SET";
  constexpr const char* kRemoved = "ACCEL_TEST_REMOVED";
  for (int nested = 0; nested < 2; nested++) {
    setenv(kRemoved, "1", 1);
    {
      const EnvironmentDefaults outer(Variables{{kVariable, "default"}});
      setenv(kSet, "2", 1);
      unsetenv(kRemoved);
      if (nested != 0) const EnvironmentDefaults inner(Variables{{"ACCEL_TEST_OTHER", "1"}});
      EXPECT_EQ(environment_text(kVariable), "default");
    }
    EXPECT_FALSE(environment_text(kVariable));
    EXPECT_FALSE(environment_text("ACCEL_TEST_OTHER"));
    EXPECT_FALSE(environment_text(kRemoved));
    EXPECT_EQ(environment_text(kSet), "2");
    unsetenv(kSet);
  }
}

TEST_F(BaseEnvironment, Flags) {
  for (const char* word : {"1", "y", "Yes", "t", "TRUE", "on"}) {
    set(word);
    EXPECT_EQ(environment_flag(kVariable), true) << word;
  }
  for (const char* word : {"0", "n", "No", "f", "FALSE", "off"}) {
    set(word);
    EXPECT_EQ(environment_flag(kVariable), false) << word;
  }
  set("2");
  EXPECT_NE(message_of([] { environment_flag(kVariable); }).find("ACCEL_TEST_VARIABLE is '2'; expected yes"),
            std::string::npos);
}

TEST_F(BaseEnvironment, Integers) {
  set("-12");
  EXPECT_EQ(environment_integer(kVariable), -12);
  EXPECT_EQ(environment_integer({"ACCEL_TEST_NO_SUCH_VARIABLE", kVariable}), -12);
  for (const char* word : {"12x", "1.5", "99999999999999999999", "x"}) {
    set(word);
    EXPECT_NE(message_of([] { environment_integer(kVariable); }).find("expected an integer"), std::string::npos)
        << word;
  }
}

TEST(BaseJson, Members) {
  const Json document =
      parse_json(R"({"integer": 3, "number": 0.5, "flag": true, "text": "a", "none": null})", "test.json");
  EXPECT_EQ(json_integer(document, "integer", 0), 3);
  EXPECT_EQ(json_number(document, "number", 0), 0.5);
  EXPECT_TRUE(json_flag(document, "flag", false));
  EXPECT_EQ(json_text(document, "text", ""), "a");
  EXPECT_EQ(json_integer(document, "none", 7), 7);
  EXPECT_EQ(json_text(document, "missing", "b"), "b");
  EXPECT_EQ(message_of([&] { json_integer(document, "number", 0); }),
            "JSON member 'number' is 0.5; expected an integer");
  EXPECT_EQ(message_of([&] { json_flag(document, "text", false); }),
            "JSON member 'text' is \"a\"; expected true or false");
}

TEST(BaseJson, MistakesNameSourceAndPlace) {
  EXPECT_EQ(message_of([] { parse_json("{\"a\" 1}", "test.json"); }),
            "test.json is not valid JSON at byte 5 of 7: expected ':'");
  EXPECT_EQ(message_of([] { parse_json("{} {}", "test.json"); }),
            "test.json has text after its JSON document, at byte 3");
  EXPECT_NE(message_of([] { parse_json(std::string(5000, '['), "test.json"); }).find("not valid"), std::string::npos);
  EXPECT_EQ(print_json(parse_json(" { \"b\" : [ ] , \"a\" : 1 } ", "test.json")), R"({"b":[],"a":1})");
}

TEST(BaseJson, OnlyWhatTheStandardSays) {
  for (const char* document : {"",
                               "tru",
                               "nul",
                               "02",
                               "-",
                               "1.",
                               ".5",
                               "1e",
                               "1e+",
                               "+1",
                               "NaN",
                               "[1,]",
                               "[1 2]",
                               "{1:2}",
                               "{\"a\"}",
                               "\"a",
                               "\"\n\"",
                               "\"\t\"",
                               "\"\x01\"",
                               "\"\xff\"",
                               "\"\\x\"",
                               "\"\\u12\"",
                               "\"\\ud800\"",
                               "\"\\udc00\\ud800\"",
                               "[",
                               "\xef\xbb\xbf{}"})
    EXPECT_NE(message_of([&] { parse_json(document, "it"); }).find("it is not valid JSON at byte"), std::string::npos)
        << document;
  for (const std::string_view document : {std::string_view("0x1"), std::string_view("1\0", 2), std::string_view("{},")})
    EXPECT_NE(message_of([&] { parse_json(document, "it"); }).find("text after"), std::string::npos) << document;
}

TEST(BaseJson, KeepsWhatItReads) {
  const char* const document =
      R"({"a":[1,-0,1.50,1E5,123456789012345678901234567890],"a":{"":null},"b":"\u0000\u001f\"\\\b\f\n\r\t/é😀"})";
  const Json json = parse_json(document, "it");
  EXPECT_EQ(print_json(json), document);
  EXPECT_EQ(json_member(json, "b")->text()->size(), 16U);
  EXPECT_EQ(*parse_json(R"("\u00e9\u6f22\ud83d\ude00\/")", "it").text(), "é漢😀/");
  const Json::Items& numbers = *(*json.members())[0].second.items();
  EXPECT_EQ(numbers[0].integer(), 1);
  EXPECT_EQ(numbers[2].number(), 1.5);
  EXPECT_EQ(numbers[3].integer(), std::nullopt);
  EXPECT_EQ(numbers[3].number(), 100000);
  EXPECT_EQ(numbers[4].integer(), std::nullopt);
  EXPECT_EQ(Json::number(9007199254740993).integer(), 9007199254740993);
  EXPECT_EQ(print_json(Json::number(1.0)), "1.0");
}

TEST(BaseJson, RefusesNestingThatTheStackMayNotHold) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(print_json(parse_json(nested(kDeepestJson), "it")), nested(kDeepestJson));
  EXPECT_NE(message_of([&] { parse_json(nested(kDeepestJson + 1), "it"); }).find("nested"), std::string::npos);
}

double number_of(const std::string& text) {
  double number = -7;
  const auto parsed = number_from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() ? number : -7;
}

TEST(BaseNumberText, TheShortestThatReadsBack) {
  EXPECT_EQ(text_of_number(0.1), "0.1");
  EXPECT_EQ(text_of_number(-0.0), "-0");
  EXPECT_EQ(text_of_number(100000.0), "1e+05");
  EXPECT_EQ(text_of_number(123456.0), "123456");
  EXPECT_EQ(text_of_number(0.00012), "0.00012");
  EXPECT_EQ(text_of_number(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(text_of_number(5e-324), "5e-324");
  EXPECT_EQ(text_of_number(int64_t{-7}), "-7");
}

TEST(BaseNumberText, ReadsBackInAnyLocale) {
  const std::string before = setlocale(LC_NUMERIC, nullptr);
  for (const char* locale : {"C", "de_DE.UTF-8", "fr_FR.UTF-8"}) {
    if (setlocale(LC_NUMERIC, locale) == nullptr) continue;
    uint64_t bits = 1;
    for (int i = 0; i < 10000; i++) {
      bits = bits * 6364136223846793005U + 1442695040888963407U;
      double number = 0;
      std::memcpy(&number, &bits, sizeof(number));
      if (std::isnan(number)) continue;
      EXPECT_EQ(number_of(text_of_number(number)), number) << locale;
    }
  }
  setlocale(LC_NUMERIC, before.c_str());
}

TEST(BaseNumberText, RefusesWhatIsNotANumber) {
  for (const char* text : {"", "-", "+1", " 1", "1,5", "0x10", "1e400", "1e-400", "--1", "e5", "1e+"})
    EXPECT_EQ(number_of(text), -7) << text;
  EXPECT_EQ(number_of("-.5e1"), -5);
}

TEST(BaseText, TheFirstBadByteIsFoundAtEachPlace) {
  for (size_t size = 0; size < 40; size++) {
    EXPECT_EQ(first_bad_byte(std::string(size, 'a')), size);
    for (size_t place = 0; place < size; place++)
      for (const char bad : {'\0', '\x80', '\xc0', '\xff'}) {
        std::string text(size, 'a');
        text[place] = bad;
        EXPECT_EQ(first_bad_byte(text), place) << size;
      }
  }
  for (size_t before = 0; before < 20; before++) {
    const std::string ascii(before, '\x7f');
    for (const char* const good : {"\u00e9", "\u20ac", "\U0001f600"}) {
      const std::string text = ascii + good + ascii;
      EXPECT_EQ(first_bad_byte(text), text.size());
      EXPECT_EQ(first_bad_byte(ascii + std::string(good).substr(0, 1)), before);  // cut
    }
    for (const char* const bad : {"\xc1\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe0\x9f\xbf"})
      EXPECT_EQ(first_bad_byte(ascii + bad + ascii), before);
  }
}

TEST(BaseDeadline, PassesOnce) {
  const Deadline passed(std::chrono::milliseconds(0)), far(std::chrono::hours(1));
  EXPECT_TRUE(passed.passed());
  EXPECT_EQ(passed.left().count(), 0);
  EXPECT_FALSE(far.passed());
  EXPECT_GT(far.left(), std::chrono::minutes(59));
  EXPECT_EQ(far.total(), std::chrono::hours(1));
}

struct Record {
  std::vector<std::pair<int32_t, std::string>> messages;
  int destroyed = 0;
};

void record_message(int32_t level, const char* message, void* user_data) {
  static_cast<Record*>(user_data)->messages.emplace_back(level, message);
}

void record_destroyed(void* user_data) { static_cast<Record*>(user_data)->destroyed++; }

TEST(BaseLog, LevelsAndCallbacks) {
  Record record;
  log(LogLevel::kError, "goes nowhere");
  set_log_callback(record_message, &record, record_destroyed);
  log(LogLevel::kInfo, "too low");
  log(LogLevel::kWarning, "one ", 1);
  set_log_level(LogLevel::kDebug);
  log(LogLevel::kDebug, "two");
  set_log_level(LogLevel::kOff);
  log(LogLevel::kError, "off");
  set_log_level(LogLevel::kWarning);
  set_log_callback(nullptr, nullptr, nullptr);
  log(LogLevel::kError, "goes nowhere");
  const std::vector<std::pair<int32_t, std::string>> expected = {{30, "one 1"}, {10, "two"}};
  EXPECT_EQ(record.messages, expected);
  EXPECT_EQ(record.destroyed, 1);
}

TEST(BaseLog, ThreadsMayLogWhileTheCallbackChanges) {
  Record first, second;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++)
    threads.emplace_back([] {
      for (int j = 0; j < 200; j++) log(LogLevel::kDebug, j);  // below the level: only the switch is under test
    });
  for (int i = 0; i < 50; i++) {
    set_log_callback(record_message, &first, record_destroyed);
    set_log_callback(record_message, &second, record_destroyed);
  }
  set_log_callback(nullptr, nullptr, nullptr);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first.destroyed, 50);
  EXPECT_EQ(second.destroyed, 50);
}

TEST(BaseInterruption, EndsTheOpenWaitsLatestFirst) {
  std::vector<int> ended;
  const Interruptible first([&] { ended.push_back(1); });
  {
    const Interruptible second([&] {
      ended.push_back(2);
      const Interruptible inner([&] { ended.push_back(3); });  // an end may wait itself
    });
    interrupt();
  }
  EXPECT_EQ(ended, (std::vector<int>{2, 1}));
  interrupt();
  EXPECT_EQ(ended, (std::vector<int>{2, 1, 1}));
}

TEST(BaseInterruption, WaitsComeAndGoMeanwhile) {
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; i++)
    threads.emplace_back([&over] {
      while (!over.load()) {
        auto lives = std::make_unique<std::atomic<int>>(0);
        const Interruptible wait([&lives] { lives->fetch_add(1); });
      }
    });
  for (int i = 0; i < 2000; i++) interrupt();
  over.store(true);
  for (std::thread& thread : threads) thread.join();
}

TEST(BaseStatus, Names) {
  EXPECT_STREQ(status_name(Status::kOk), "ACCEL_OK");
  EXPECT_STREQ(status_name(Status::kPeerLost), "ACCEL_ERROR_PEER_LOST");
  EXPECT_EQ(status_name(static_cast<Status>(-999)), nullptr);
}

}  // namespace base_test
}  // namespace accel
