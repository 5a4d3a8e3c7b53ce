// SPDX-License-Identifier: Apache-2.0
// The schedule of a streamed model, without a model: lists of actions from uses of blocks.
#include "parallel/schedule/streaming_schedule.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

namespace accel::parallel {
namespace streaming_schedule_test {

using Kind = StreamingAction::Kind;

// "load 1, show 1, start 2": the actions as a reader says them.
std::string text_of(const StreamingActions& actions) {
  static constexpr const char* kNames[] = {"start", "load", "show", "release", "unload"};
  std::string result;
  for (const StreamingAction& action : actions)
    result += (result.empty() ? "" : ", ") + std::string(kNames[static_cast<size_t>(action.kind)]) + " " +
              std::to_string(action.block);
  return result;
}

std::vector<StreamedBlock> blocks_of(const std::vector<int64_t>& bytes, bool in_place = false) {
  std::vector<StreamedBlock> blocks;
  for (const int64_t one : bytes) blocks.push_back({one, in_place});
  return blocks;
}

// Loads at once what the actions start to load or load, and says them.
class Executor {
 public:
  explicit Executor(StreamingSchedule& schedule) : schedule_(schedule) {}

  std::string execute(const StreamingActions& actions) {
    for (const StreamingAction& action : actions) {
      const bool loads = action.kind == Kind::kStartLoad || action.kind == Kind::kLoad;
      if (loads && loaded_.insert(action.block).second) schedule_.end_load(action.block);
      if (action.kind == Kind::kUnload) {
        EXPECT_EQ(loaded_.erase(action.block), 1U) << "it is not there";
      }
    }
    return text_of(actions);
  }
  // A use, with what is done while the block is used, and its end.
  std::string use(size_t block) {
    std::string said = execute(schedule_.begin_use(block));
    said += "; " + execute(schedule_.look_ahead());
    return said + "; " + execute(schedule_.end_use(block));
  }
  const std::set<size_t>& loaded() const { return loaded_; }

 private:
  StreamingSchedule& schedule_;
  std::set<size_t> loaded_;
};

TEST(StreamingSchedule, TheNextBlockIsLoadedWhileOneIsUsed) {
  StreamingSchedule schedule(blocks_of({10, 10, 10, 10}), /*prefetch_bytes=*/10);
  Executor stream(schedule);
  EXPECT_EQ(stream.use(0), "load 0, show 0; start 1; release 0, start 1, unload 0");
  EXPECT_EQ(stream.use(1), "load 1, show 1; start 2; release 1, start 2, unload 1");
  EXPECT_EQ(stream.use(2), "load 2, show 2; start 3; release 2, start 3, unload 2");
  EXPECT_EQ(stream.use(3), "load 3, show 3; start 0; release 3, start 0, unload 3") << "of the next pass";
  schedule.end_pass();
  EXPECT_EQ(stream.use(0), "load 0, show 0; start 1; release 0, start 1, unload 0");
}

TEST(StreamingSchedule, APassIsPredictedAsTheOneBefore) {
  StreamingSchedule schedule(blocks_of({10, 10, 10, 10}), 10);
  Executor stream(schedule);
  for (const size_t block : {2, 0, 2, 1}) stream.use(block);  // 3 is not used, 2 twice
  schedule.end_pass();
  EXPECT_EQ(stream.use(2), "load 2, show 2; start 0; release 2, start 0, unload 2");
  EXPECT_EQ(stream.use(0), "load 0, show 0; start 2; release 0, start 2, unload 0");
  EXPECT_EQ(stream.use(2), "load 2, show 2; start 1; release 2, start 1, unload 2");
  EXPECT_EQ(stream.use(3), "load 3, show 3; start 1; release 3, start 1, unload 3") << "nobody expected it";
  EXPECT_EQ(stream.use(1), "load 1, show 1; start 2; release 1, start 2, unload 1");
}

TEST(StreamingSchedule, TheBudgetSaysHowManyComeAhead) {
  StreamingSchedule none(blocks_of({10, 10, 10}), 0);
  Executor alone(none);
  EXPECT_EQ(alone.use(0), "load 0, show 0; ; release 0, unload 0");
  StreamingSchedule two(blocks_of({10, 10, 10, 10, 10}), 25);
  Executor ahead(two);
  EXPECT_EQ(ahead.use(0), "load 0, show 0; start 1, start 2; release 0, start 1, start 2, unload 0");
  StreamingSchedule large(blocks_of({10, 30, 10}), 25);
  Executor behind(large);
  EXPECT_EQ(behind.use(0), "load 0, show 0; ; release 0, unload 0") << "none behind one that is too large";
}

TEST(StreamingSchedule, BlocksInPlaceAreReadAheadAndNeverUnloaded) {
  const int64_t mebibyte = int64_t{1} << 20;
  StreamingSchedule schedule(blocks_of({200 * mebibyte, 200 * mebibyte, 56 * mebibyte, mebibyte}, /*in_place=*/true),
                             mebibyte);
  EXPECT_EQ(text_of(schedule.begin_use(0)), "show 0");
  EXPECT_EQ(text_of(schedule.look_ahead()), "start 1, start 2") << "256 MiB";
  EXPECT_EQ(text_of(schedule.end_use(0)), "release 0, start 1, start 2");
  EXPECT_EQ(text_of(schedule.begin_backward_use(0)), "") << "it is where it was";
}

TEST(StreamingSchedule, UsesOverlap) {
  StreamingSchedule schedule(blocks_of({10, 10}), 0);
  Executor stream(schedule);
  EXPECT_EQ(stream.execute(schedule.begin_use(0)), "load 0, show 0");
  EXPECT_EQ(stream.execute(schedule.begin_use(0)), "load 0, show 0") << "whoever comes first waits too";
  EXPECT_EQ(stream.use(1), "load 1, show 1; ; release 1, unload 1");
  EXPECT_EQ(stream.execute(schedule.end_use(0)), "");
  EXPECT_EQ(stream.execute(schedule.end_use(0)), "release 0, unload 0");
}

TEST(StreamingSchedule, AUseThatFailsEnds) {
  StreamingSchedule schedule(blocks_of({10, 10}), 0);
  schedule.begin_use(0);
  schedule.abandon_use(0);
  Executor stream(schedule);
  EXPECT_EQ(stream.use(0), "load 0, show 0; ; release 0, unload 0");
}

TEST(StreamingSchedule, ABackwardHasOneBlock) {
  StreamingSchedule schedule(blocks_of({10, 10, 10}), 0);
  Executor stream(schedule);
  for (const size_t block : {0, 1, 2}) stream.use(block);
  schedule.end_pass();
  EXPECT_EQ(stream.execute(schedule.begin_backward_use(2)), "load 2");
  EXPECT_EQ(stream.execute(schedule.look_ahead()), "") << "it stays until the next one";
  EXPECT_EQ(stream.execute(schedule.begin_backward_use(1)), "load 1");
  EXPECT_EQ(stream.execute(schedule.look_ahead()), "unload 2");
  EXPECT_EQ(stream.use(0), "load 0, show 0; ; release 0, unload 0") << "a forward within the backward";
  schedule.end_pass();
  EXPECT_EQ(stream.execute(schedule.look_ahead()), "unload 1");
}

// Whatever the order of uses: what is loaded and not in use keeps the budget, and a block is there while it is used.
TEST(StreamingSchedule, RandomProgramsKeepTheBudget) {
  for (unsigned seed = 0; seed < 50; seed++) {
    std::mt19937 random(seed);
    const auto below = [&random](size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random); };
    std::vector<int64_t> bytes(1 + below(8));
    for (int64_t& one : bytes) one = static_cast<int64_t>(below(20));
    const auto prefetch_bytes = static_cast<int64_t>(below(60));
    StreamingSchedule schedule(blocks_of(bytes), prefetch_bytes);
    Executor stream(schedule);
    std::multiset<size_t> in_use;
    for (int step = 0; step < 200; step++) {
      const size_t block = below(bytes.size());
      if (below(10) == 0) {
        schedule.end_pass();
      } else if (in_use.size() < 3 && below(2) == 0) {
        in_use.insert(block);
        stream.execute(schedule.begin_use(block));
        stream.execute(schedule.look_ahead());
      } else if (!in_use.empty()) {
        const size_t ending = *in_use.begin();
        in_use.erase(in_use.begin());
        stream.execute(schedule.end_use(ending));
      } else {
        continue;
      }
      int64_t waiting = 0;
      for (const size_t loaded : stream.loaded())
        if (in_use.count(loaded) == 0) waiting += bytes[loaded];
      ASSERT_LE(waiting, prefetch_bytes) << "seed " << seed << ", step " << step;
      for (const size_t used : in_use) ASSERT_EQ(stream.loaded().count(used), 1U) << "seed " << seed;
    }
  }
}

}  // namespace streaming_schedule_test
}  // namespace accel::parallel
