// SPDX-License-Identifier: Apache-2.0
// Lines of files that grow, are cut off, replaced, or hold no lines at all.
#include "report/line_file.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "base/error.hpp"
#include "temporary_folder.hpp"

namespace accel::report {
namespace {

struct Taken {
  std::vector<std::string> lines;
  std::vector<int64_t> numbers;
  int too_long = 0;

  LineFile::TakeLine take() {
    return [this](const std::string_view* line, int64_t number) {
      numbers.push_back(number);
      if (line == nullptr)
        ++too_long;
      else
        lines.emplace_back(*line);
    };
  }
};

TEST(LineFile, ReadsWhatIsAddedOnceItIsComplete) {
  const tests::TemporaryFolder folder;
  LineFile file(folder.write("lines", "one\ntwo\nthr"));
  Taken taken;
  EXPECT_EQ(file.read(taken.take()), LineFile::Progress::kRead);
  EXPECT_EQ(taken.lines, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(file.read(taken.take()), LineFile::Progress::kNone);
  folder.append("lines", "ee\nfour");
  EXPECT_EQ(file.read(taken.take()), LineFile::Progress::kRead);
  EXPECT_EQ(taken.lines.back(), "three");
  EXPECT_EQ(taken.numbers, (std::vector<int64_t>{1, 2, 3}));
  file.take_rest(taken.take());
  EXPECT_EQ(taken.lines.back(), "four");
  file.take_rest(taken.take());
  EXPECT_EQ(taken.lines.size(), 4U);
}

TEST(LineFile, BeginsAgainWhenTheFileIsAnotherOne) {
  const tests::TemporaryFolder folder;
  LineFile file(folder.write("lines", "one\ntwo\n"));
  Taken taken;
  file.read(taken.take());
  folder.write("lines", "new\n");  // shorter
  EXPECT_EQ(file.read(taken.take()), LineFile::Progress::kReplaced);
  EXPECT_EQ(file.read(taken.take()), LineFile::Progress::kRead);
  EXPECT_EQ(taken.lines.back(), "new");
  EXPECT_EQ(taken.numbers.back(), 1);
  folder.write("other", "longer than before\n");
  std::filesystem::rename(folder.path("other"), folder.path("lines"));
  EXPECT_EQ(file.read(taken.take()), LineFile::Progress::kReplaced);
}

TEST(LineFile, LeavesOutLinesThatAreTooLong) {
  const tests::TemporaryFolder folder;
  const std::string longest(LineFile::kLongestLine, 'x');
  LineFile file(folder.write("lines", longest + "\n" + longest + "y\nshort\n" + longest + "z"));
  Taken taken;
  file.read(taken.take());
  file.take_rest(taken.take());
  ASSERT_EQ(taken.lines.size(), 2U);
  EXPECT_EQ(taken.lines[0].size(), LineFile::kLongestLine);
  EXPECT_EQ(taken.lines[1], "short");
  EXPECT_EQ(taken.too_long, 2);
  EXPECT_EQ(taken.numbers.back(), 4);
}

TEST(LineFile, RefusesWhatIsNoFile) {
  const tests::TemporaryFolder folder;
  Taken taken;
  EXPECT_THROW(LineFile(folder.path("missing")).read(taken.take()), Error);
  EXPECT_THROW(LineFile(folder.path()).read(taken.take()), Error);
}

}  // namespace
}  // namespace accel::report
