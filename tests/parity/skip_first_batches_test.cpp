// SPDX-License-Identifier: Apache-2.0
// Leaving out the first batches, against Accelerate's skip_first_batches.
#include <gtest/gtest.h>

#include <algorithm>

#include "loader_input.hpp"

namespace accel::parity {
namespace skip_first_batches_test {

TEST(SkipFirstBatchesParity, SameBatchesAsTheReference) {
  for (const auto& [name, input, expected] : read_cases("skip_first_batches")) {
    SCOPED_TRACE(name);
    const auto plain = plain_loader(input);
    std::shared_ptr<data::Loader> loader = plain;
    const auto gradients = std::make_shared<state::GradientState>(state::AccumulationSettings{});
    const bool prepared = member(input, "loader").toStringRef() == "shard";
    if (prepared) {
      data::ShardOptions sharding;
      sharding.num_processes = member(input, "processes").toInt();
      sharding.process_index = member(input, "process_index").toInt();
      sharding.gradient_state = gradients;
      loader = tests::prepared(*plain, sharding);
    }
    const auto skipping = loader->skip_first(member(input, "skip").toInt());
    const auto length = skipping->length();
    tests::Batches first;
    std::vector<bool> ends;
    while (const auto batch = skipping->next()) {
      first.push_back(tests::numbers_of(*batch));
      if (prepared) ends.push_back(gradients->end_of_dataloader());
    }
    EXPECT_EQ(first, list_of_lists(member(expected, "first_pass")));
    if (prepared) {
      EXPECT_EQ(ends, flags(member(expected, "end_flags")));
    }
    // Accelerate's loader skips in every epoch; here the epochs behind the first one are whole (P21).
    const auto whole = list_of_lists(member(expected, "original_batches"));
    EXPECT_EQ(tests::epoch_of(*skipping), whole);
    EXPECT_EQ(loader->length().has_value(), expected_length(member(expected, "original_length")).has_value());
    // More batches than there are: an error when Accelerate is asked for the length, 0 here.
    EXPECT_EQ(length.value_or(0), expected_length(member(expected, "length")).value_or(0));
    EXPECT_EQ(tests::epoch_of(*loader), whole);
  }
}

}  // namespace skip_first_batches_test
}  // namespace accel::parity
