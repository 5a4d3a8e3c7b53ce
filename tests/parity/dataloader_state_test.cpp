// SPDX-License-Identifier: Apache-2.0
// Epochs, flags and breaking off, against a loader that Accelerate's Accelerator prepared.
#include <gtest/gtest.h>

#include "loader_input.hpp"

namespace accel::parity {
namespace dataloader_state_test {

TEST(DataloaderStateParity, SameEventsAsTheReference) {
  for (const auto& [name, input, expected] : read_cases("dataloader_state")) {
    SCOPED_TRACE(name);
    data::LoaderOptions options;
    options.batch_size = member(input, "batch_size").toInt();
    options.drop_last = member(input, "drop_last").toBool();
    options.shuffle = member(input, "shuffle").toBool();
    const auto gradients = std::make_shared<state::GradientState>(state::AccumulationSettings{});
    data::ShardOptions sharding;
    sharding.gradient_state = gradients;
    sharding.data_seed = member(input, "data_seed").toInt();
    const auto loader =
        tests::prepared(data::DataLoader(tests::numbers("map", member(input, "size").toInt()), options), sharding);
    EXPECT_EQ(loader->length(), member(expected, "length").toInt());
    EXPECT_EQ(loader->total_batch_size(), member(expected, "total_batch_size").toInt());
    const auto passes = member(input, "passes");
    for (size_t pass = 0; pass < passes.toListRef().size(); ++pass) {
      SCOPED_TRACE("pass " + std::to_string(pass));
      const auto stop = passes.toListRef()[pass];
      const auto of_pass = member(expected, "passes").toListRef()[pass];
      const auto events = member(of_pass, "events");
      size_t seen = 0;
      bool ended = true;
      while (const auto batch = loader->next()) {
        ASSERT_LT(seen, events.toListRef().size());
        const auto& event = events.toListRef()[seen++];
        EXPECT_EQ(tests::numbers_of(*batch), integers(member(event, "batch")));
        EXPECT_EQ(gradients->end_of_dataloader(), member(event, "end_of_dataloader").toBool());
        EXPECT_EQ(gradients->remainder(), member(event, "remainder").toInt());
        EXPECT_EQ(loader->epoch(), member(event, "iteration").toInt());
        EXPECT_EQ(gradients->in_dataloader(), member(event, "in_dataloader").toBool());
        if (stop.isInt() && static_cast<int64_t>(seen) == stop.toInt()) {
          ended = false;
          break;
        }
      }
      EXPECT_EQ(seen, events.toListRef().size());
      const auto after = member(of_pass, "after_pass");
      // An epoch that has no batch counts here; Accelerate's counter stands still then.
      const bool empty = member(expected, "length").toInt() == 0;
      EXPECT_EQ(loader->epoch(), empty ? static_cast<int64_t>(pass) + 1 : member(after, "iteration").toInt());
      EXPECT_EQ(gradients->in_dataloader(), member(after, "in_dataloader").toBool());
      if (!ended) loader->set_epoch(loader->epoch());  // a new iterator of Accelerate begins the epoch again
    }
  }
}

}  // namespace dataloader_state_test
}  // namespace accel::parity
