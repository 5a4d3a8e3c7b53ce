// SPDX-License-Identifier: Apache-2.0
// Folders of runs, what is read of them over time, and the data of the page.
#include "report/report.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.hpp"
#include "http/server/http_server.hpp"
#include "json/json.hpp"
#include "report/embedded_picture.hpp"
#include "report/page.hpp"
#include "report/page_data.hpp"
#include "temporary_folder.hpp"

namespace accel::report {
namespace {

std::string values(int step, double loss) {
  return text(R"({"type":"values","time":)", 1000 + step, R"(,"step":)", step, R"(,"values":{"loss":)", loss, "}}\n");
}

Json data_of(const Report& report, uint32_t since = 0) { return parse_json(page_data(report, since), "data"); }

const Json& run_of(const Json& data, size_t i = 0) { return (*json_member(data, "runs")->items())[i]; }

TEST(Report, FindsRunsBelowAFolder) {
  const tests::TemporaryFolder folder;
  folder.write("a/metrics.jsonl", "");
  folder.write("a/traces/profile_0.json", "[]");
  folder.write("b/c/metrics.jsonl", "");
  folder.write("d/profile_0.json", "[]");
  folder.write("d/profile_1.json", "[]");
  folder.write("d/profile_x.json", "[]");
  folder.write("e/profile_merged.json", "[]");
  folder.write("e/profile_0.json", "[]");
  folder.write("f/other.txt", "");
  std::filesystem::create_directory_symlink(folder.path(), folder.path("f/loop"));
  const std::vector<RunFolder> found = find_run_folders(folder.path());
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].path, folder.path("a"));
  ASSERT_EQ(found[0].traces.size(), 1U);
  EXPECT_EQ(found[0].traces[0].name, "traces/profile_0.json");
  EXPECT_EQ(found[1].path, folder.path("b/c"));
  EXPECT_EQ(found[2].traces.size(), 2U);
  ASSERT_EQ(found[3].traces.size(), 1U);
  EXPECT_EQ(found[3].traces[0].rank, -1);
  EXPECT_THROW(find_run_folders(folder.path("missing")), Error);
}

TEST(Report, NamesOfRunsDiffer) {
  EXPECT_EQ(distinct_names({"/x/a/run", "/x/b/run", "/x/c"}), (std::vector<std::string>{"a/run", "b/run", "c"}));
  EXPECT_EQ(distinct_names({"/run", "/x/run"}), (std::vector<std::string>{"run", "x/run"}));
  EXPECT_EQ(distinct_names({"/"}), (std::vector<std::string>{"/"}));
}

TEST(Report, OneFolderGivenTwiceIsOneRun) {
  const tests::TemporaryFolder folder;
  folder.write("a/metrics.jsonl", values(0, 1));
  Report report({folder.path("a"), folder.path(), folder.path("a/../a")}, false);
  EXPECT_EQ(report.runs().size(), 1U);
}

TEST(Report, SendsOnlyWhatIsNew) {
  const tests::TemporaryFolder folder;
  folder.write("a/metrics.jsonl", values(0, 1) + values(1, 2));
  Report report({folder.path()}, true);
  report.update();
  const Json whole = data_of(report);
  const uint32_t version = report.version();
  EXPECT_EQ(json_member((*json_member(run_of(whole), "series")->items())[0], "y")->items()->size(), 2U);
  EXPECT_NE(json_member(run_of(whole), "facts"), nullptr);
  report.update();
  EXPECT_EQ(report.version(), version);
  folder.append("a/metrics.jsonl", values(2, 3) + values(3, 4).substr(0, 10));
  report.update();
  EXPECT_GT(report.version(), version);
  const Json news = data_of(report, version);
  const Json& series = (*json_member(run_of(news), "series")->items())[0];
  EXPECT_EQ(print_json(*json_member(series, "y")), "[3]");
  EXPECT_EQ(json_member(run_of(news), "facts"), nullptr);
  EXPECT_EQ(print_json(*json_member(run_of(news), "axes")), "[[[2],[1002000]]]");
  EXPECT_EQ(json_member(run_of(data_of(report, report.version())), "series"), nullptr);
}

TEST(Report, RunsThatBeginLaterAppear) {
  const tests::TemporaryFolder folder;
  Report report({folder.path()}, true);
  report.update();
  const uint32_t version = report.version();
  EXPECT_TRUE(report.runs().empty());
  folder.write("late/metrics.jsonl", values(0, 1));
  report.update();
  ASSERT_EQ(report.runs().size(), 1U);
  EXPECT_EQ(report.runs()[0]->name, "late");
  EXPECT_NE(json_member(run_of(data_of(report, version)), "facts"), nullptr);
}

TEST(Report, FileThatIsReplacedIsAnotherRun) {
  const tests::TemporaryFolder folder;
  folder.write("a/metrics.jsonl", values(0, 1) + values(1, 2));
  Report report({folder.path()}, true);
  report.update();
  const uint32_t id = report.runs()[0]->id;
  folder.write("a/metrics.jsonl", values(5, 9));
  report.update();
  ASSERT_EQ(report.runs().size(), 1U);
  EXPECT_NE(report.runs()[0]->id, id);
  EXPECT_EQ(report.runs()[0]->series.begin()->second.points()[0].step, 5);
}

TEST(Report, GrowingTraceIsReadWhenItIsComplete) {
  const tests::TemporaryFolder folder;
  folder.write("a/metrics.jsonl", values(0, 1));
  folder.write("a/profile_0.json", "[");
  Report report({folder.path()}, true);
  report.update();
  folder.write("a/profile_0.json", R"([{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":1}])");
  report.update();
  EXPECT_TRUE(report.runs()[0]->trace.files.empty());
  report.update();
  EXPECT_EQ(report.runs()[0]->trace.num_events, 1);
  EXPECT_EQ(report.runs()[0]->trace_problems.total(), 0);
}

TEST(Report, UnreadableFileIsAProblemOfItsRun) {
  const tests::TemporaryFolder folder;
  folder.write("good/metrics.jsonl", values(0, 1));
  std::filesystem::create_directories(folder.path("bad/metrics.jsonl"));
  Report report({folder.path()}, false);
  report.update();
  report.update();
  ASSERT_EQ(report.runs().size(), 2U);
  EXPECT_EQ(report.runs()[0]->problems.total(), 1);
  EXPECT_EQ(report.runs()[1]->problems.total(), 0);
}

TEST(Report, PointsOfAPageAreBounded) {
  const tests::TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 120000; ++i) lines += values(i, i == 70000 ? 1000 : i % 7);
  folder.write("a/metrics.jsonl", lines);
  Report report({folder.path()}, false);
  report.update();
  const Json data = data_of(report);
  const Json& series = (*json_member(run_of(data), "series")->items())[0];
  const Json::Items& shown = *json_member(series, "y")->items();
  EXPECT_LE(shown.size(), kMostPointsOfPage);
  EXPECT_GE(shown.size(), kMostPointsOfPage * 9 / 10);
  bool has_peak = false;
  for (const Json& value : shown) has_peak |= value.number() == 1000;
  EXPECT_TRUE(has_peak);
  EXPECT_TRUE(json_flag(series, "reduced", false));
  EXPECT_EQ(json_integer(data, "num_points", 0), 120000);
}

TEST(Report, DataCanStandInHtml) {
  const tests::TemporaryFolder folder;
  folder.write("<b>&/metrics.jsonl",
               R"({"type":"values","time":1,"step":1,"values":{"</script><img onerror=1>":1,"note":"<!--\u2028"}})"
               "\n");
  Report report({folder.path()}, false);
  report.update();
  const std::string data = page_data(report, 0);
  EXPECT_EQ(data.find_first_of("<>&"), std::string::npos);
  EXPECT_NE(print_json(parse_json(data, "data")).find("</script><img onerror=1>"), std::string::npos);
}

TEST(Report, PageAllowsItsOwnScriptAlone) {
  const std::string written = page("{}", 0);
  EXPECT_NE(written.find("default-src 'none'; img-src data:; style-src 'sha256-"), std::string::npos);
  EXPECT_NE(written.find("connect-src 'none'"), std::string::npos);
  EXPECT_EQ(written.find("unsafe"), std::string::npos);
  EXPECT_EQ(written.find('@' + std::string("DATA@")), std::string::npos);
  EXPECT_NE(page("@SCRIPT@", 1000).find("@SCRIPT@"), std::string::npos);
}

TEST(Report, PicturesOutsideOfTheFolderAreRefused) {
  const tests::TemporaryFolder folder;
  const std::string picture = "\x89PNG\r\n\x1a\n...";
  folder.write("secret.png", picture);
  folder.write("run/images/good.png", picture);
  folder.write("run/text.png", "secret");
  folder.write("run/drawing.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>");
  std::filesystem::create_symlink(folder.path("secret.png"), folder.path("run/link.png"));
  std::filesystem::create_directory_symlink(folder.path(), folder.path("run/out"));
  const std::string run = folder.path("run");
  EXPECT_EQ(embedded_picture(run, "images/good.png", 100), "data:image/png;base64,iVBORw0KGgouLi4=");
  EXPECT_EQ(embedded_picture(run, "./images//good.png", 100).substr(0, 22), "data:image/png;base64,");
  EXPECT_EQ(embedded_picture(run, "drawing.svg", 100).substr(0, 26), "data:image/svg+xml;base64,");
  const std::string with_nul("images/good.png\0x", 17);
  for (const std::string& bad :
       {std::string("link.png"), std::string("out/secret.png"), std::string("../secret.png"), folder.path("secret.png"),
        std::string("images"), std::string("text.png"), std::string("missing.png"), std::string(), with_nul})
    EXPECT_THROW(embedded_picture(run, bad, 100), Error) << bad;
  EXPECT_THROW(embedded_picture(run, "images/good.png", 10), Error);
}

TEST(Report, ServerAnswersToItsOwnNameAlone) {
  for (const char* const good : {"127.0.0.1", "127.0.0.1:80", "localhost:8000", "LOCALHOST", "[::1]:80",
                                 "192.168.0.7:80", "training.example:80"})
    EXPECT_TRUE(track::is_own_name(good, "training.example")) << good;
  for (const char* const bad : {"", ":80", "evil.example", "evil.example:80", "127.0.0.1.evil.example:80",
                                "localhost.evil.example", "[evil]", "[", "127.0.0.1@evil.example"})
    EXPECT_FALSE(track::is_own_name(bad, "127.0.0.1")) << bad;
}

}  // namespace
}  // namespace accel::report
