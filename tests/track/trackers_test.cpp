// SPDX-License-Identifier: Apache-2.0
#include "track/trackers.hpp"

#include "expect_error.hpp"
#include "run_fixture.hpp"

namespace accel::track {
namespace {

using tests::expect_error;

class TrackersOfARun : public RunFixture {
 protected:
  TrackingStart start(const std::string& log_with) const {
    TrackingStart start;
    start.project = "run";
    start.settings.log_with = log_with;
    start.settings.logging_dir = folder_;
    start.version = "1.2.3";
    return start;
  }
  static void log(Trackers& trackers, int64_t step, double loss) {
    trackers.log(step, [&](Record& record) { record.add_number("loss", loss); });
  }
};

class NotedTracker final : public ApplicationTracker {
 public:
  NotedTracker(std::string name, bool main_process_only)
      : ApplicationTracker(std::move(name)), main_(main_process_only) {}
  bool main_process_only() const override { return main_; }
  bool requires_logging_directory() const override { return needs_folder; }
  void receive(TrackerEvent event, const c10::IValue* /*content*/, int64_t step) override {
    require(!fails, Status::kUser, "tracker '", name(), "' failed: by purpose");
    events.emplace_back(event, step);
  }

  std::vector<std::pair<TrackerEvent, int64_t>> events;
  bool fails = false;
  bool needs_folder = false;

 private:
  bool main_;
};

TEST_F(TrackersOfARun, UnknownNamesListTheKnown) {
  Trackers trackers;
  expect_error(Status::kInvalidArgument, "unknown tracker 'neptune'; expected 'jsonl', 'csv', 'tensorboard'",
               [&] { trackers.start(start("jsonl,neptune")); });
  TrackingStart with_options = start("jsonl");
  with_options.options = parse_json(R"({"jsonl":{"speed":1}})", "test");
  expect_error(Status::kInvalidArgument, "'speed' for tracker 'jsonl'; expected no options",
               [&] { trackers.start(with_options); });
  with_options.options = parse_json(R"({"neptune":{}})", "test");
  expect_error(Status::kInvalidArgument, "unknown tracker 'neptune'", [&] { trackers.start(with_options); });
  TrackingStart without_folder = start("csv");
  without_folder.settings.logging_dir = std::string();
  expect_error(Status::kInvalidArgument, "tracker 'csv' needs logging_dir", [&] { trackers.start(without_folder); });
  TrackingStart without_name = start("csv");
  without_name.project.clear();
  expect_error(Status::kInvalidArgument, "project_name is empty", [&] { trackers.start(without_name); });
  EXPECT_FALSE(trackers.is_running());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(TrackersOfARun, PackagesOfPythonAreLeftOut) {
  Trackers trackers;
  TrackingStart several = start("wandb, jsonl, comet_ml");
  several.options = parse_json(R"({"wandb":{"entity":"lab"}})", "test");
  trackers.start(several);
  EXPECT_EQ(trackers.names(), std::vector<std::string>{"jsonl"});
  expect_error(Status::kNotFound, "no tracker 'wandb'; running are 'jsonl'", [&] { trackers.find("wandb"); });
  trackers.finish();
  trackers.add(std::make_shared<NotedTracker>("aim", true));  // the program's own
  trackers.start(start("aim,clearml,dvclive,swanlab,trackio"));
  EXPECT_EQ(trackers.names(), std::vector<std::string>{"aim"});
  trackers.finish();
}

TEST_F(TrackersOfARun, EachIsStartedOnceAndFound) {
  Trackers trackers;
  trackers.start(start("csv, jsonl ,csv,"));
  EXPECT_EQ(trackers.names(), (std::vector<std::string>{"csv", "jsonl"}));
  EXPECT_EQ(trackers.find("jsonl")->location(), run_.folder + "/metrics.jsonl");
  expect_error(Status::kNotFound, "no tracker 'mlflow'; running are 'csv', 'jsonl'", [&] { trackers.find("mlflow"); });
  log(trackers, 1, 0.5);
  Record alone = values(2);
  alone.add_number("alone", 1);
  trackers.find("jsonl")->log(alone);
  const std::shared_ptr<Tracker> held = trackers.find("csv");
  trackers.finish();
  EXPECT_TRUE(trackers.names().empty());
  expect_error(Status::kInvalidState, "have ended", [&] { held->log(alone); });
  EXPECT_EQ(trackers.find("anything")->location(), "");
  EXPECT_EQ(lines().size(), 4U);
  EXPECT_EQ(read(run_.folder + "/metrics.csv").find("alone"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(run_.folder + "/.run.lock"));
}

TEST_F(TrackersOfARun, ARunGoesOnUnlessToldOtherwise) {
  Trackers trackers;
  trackers.start(start("jsonl"));
  log(trackers, 1, 0.5);
  trackers.start(start("jsonl"));
  log(trackers, 2, 0.25);
  trackers.finish();
  const std::vector<Json> all = lines();
  ASSERT_EQ(all.size(), 6U);
  EXPECT_EQ(type_of(all[2]), "end");
  EXPECT_TRUE(json_flag(all[3], "resumed", false));
  TrackingStart anew = start("jsonl");
  anew.settings.resume = false;
  expect_error(Status::kAlreadyExists, "resume is 0", [&] { trackers.start(anew); });
  EXPECT_FALSE(trackers.is_running());
  anew.settings.run_name = std::string("another/one");
  trackers.start(anew);
  EXPECT_EQ(trackers.find("jsonl")->location(), folder_ + "/another_one/metrics.jsonl");
}

TEST_F(TrackersOfARun, AnotherRunInTheSameFolderIsRefused) {
  Trackers trackers, others;
  trackers.start(start("jsonl"));
  expect_error(Status::kIo, "process " + std::to_string(::getpid()) + " writes to the run",
               [&] { others.start(start("csv")); });
  EXPECT_FALSE(others.is_running());
  trackers.finish();
  others.start(start("csv"));
}

TEST_F(TrackersOfARun, OtherRanksHaveTrackersThatDoNothing) {
  Trackers trackers;
  const auto everywhere = std::make_shared<NotedTracker>("everywhere", false);
  const auto on_main = std::make_shared<NotedTracker>("on main", true);
  trackers.add(everywhere);
  trackers.add(on_main);
  TrackingStart of_rank = start("jsonl,everywhere");
  of_rank.rank = 1;
  of_rank.world_size = 2;
  trackers.start(of_rank);
  EXPECT_EQ(trackers.names(), std::vector<std::string>{"everywhere"});
  Record record = values(1);
  trackers.find("jsonl")->log(record);
  EXPECT_EQ(trackers.find("on main")->location(), "");
  expect_error(Status::kNotFound, "no tracker 'csv'", [&] { trackers.find("csv"); });
  expect_error(Status::kInvalidState, "run already", [&] { trackers.add(on_main); });
  log(trackers, 3, 0.5);
  EXPECT_EQ(trackers.latest_scalars().at("loss"), 0.5);
  trackers.notify(TrackerEvent::kFlush, 7, nullptr);
  trackers.finish();
  const std::vector<std::pair<TrackerEvent, int64_t>> expected = {{TrackerEvent::kFlush, 7},
                                                                  {TrackerEvent::kFinish, kNoStep}};
  EXPECT_EQ(everywhere->events, expected);
  EXPECT_TRUE(on_main->events.empty());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(TrackersOfARun, ATrackerThatFailsIsLeftOutOrStops) {
  for (const TrackerFailure on_failure : {TrackerFailure::kWarn, TrackerFailure::kStop}) {
    Trackers trackers;
    const auto failing = std::make_shared<NotedTracker>("failing", true);
    const auto other = std::make_shared<NotedTracker>("other", true);
    trackers.add(failing);
    trackers.add(other);
    TrackingStart given = start("");
    given.settings.on_failure = on_failure;
    trackers.start(given);
    failing->fails = true;
    const auto flush = [&] { trackers.flush(); };
    if (on_failure == TrackerFailure::kStop)
      expect_error(Status::kUser, "tracker 'failing' failed: by purpose", flush);
    else
      flush();
    EXPECT_EQ(trackers.names().size(), on_failure == TrackerFailure::kStop ? 2U : 1U);
    EXPECT_EQ(other->events.size(), 1U);
    failing->fails = false;
    trackers.finish();
    EXPECT_EQ(other->events.size(), 2U);
    EXPECT_EQ(failing->events.size(), on_failure == TrackerFailure::kStop ? 1U : 0U);
    EXPECT_FALSE(failing->is_running());
  }
}

TEST_F(TrackersOfARun, ATrackerMayNeedAFolder) {
  Trackers trackers;
  const auto tracker = std::make_shared<NotedTracker>("mine", true);
  tracker->needs_folder = true;
  trackers.add(tracker);
  TrackingStart given = start("");
  given.settings.logging_dir = std::string();
  expect_error(Status::kInvalidArgument, "tracker 'mine' needs logging_dir", [&] { trackers.start(given); });
}

TEST_F(TrackersOfARun, StepReportsAreLines) {
  Trackers trackers;
  TrackingStart given = start("all");
  given.settings.step_report_interval = int64_t{10};
  EXPECT_EQ(trackers.step_report_interval(), 0);
  trackers.start(given);
  EXPECT_EQ(trackers.step_report_interval(), 10);
  trackers.log(10, [](Record& record) { record.add_number("loss", 1.5); });
  trackers.log_step_report(parse_json(R"({"ranks":[{"rank":0}],"slowest_rank":0})", "test"));
  trackers.finish();
  const std::vector<Json> all = lines();
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(type_of(all[2]), "step_report");
  EXPECT_EQ(json_integer(all[2], "step", 0), 10);
  EXPECT_EQ(print_json(*json_member(all[2], "ranks")), R"([{"rank":0}])");
}

TEST_F(TrackersOfARun, TheLatestOfTooManyNamesIsNotKept) {
  Trackers trackers;
  for (int i = 0; i < 10000; i++)
    trackers.log(i, [&](Record& record) { record.add_integer("name " + std::to_string(i), i); });
  EXPECT_EQ(trackers.latest_scalars().size(), 4096U);
}

}  // namespace
}  // namespace accel::track
