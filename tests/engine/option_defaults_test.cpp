// SPDX-License-Identifier: Apache-2.0
// Where the engine has a struct of its own beside the settings that the header describes, both begin with the same.
#include <gtest/gtest.h>

#include "config/generated/choices/padding_side.hpp"
#include "config/generated/settings/dataloader/dataloader.hpp"
#include "data/collate.hpp"
#include "data/loader_input.hpp"

namespace accel {
namespace option_defaults_test {

TEST(OptionDefaults, OfCollation) {
  const DataloaderSettings described;
  for (const data::Collation& own : {data::Collation(), data::LoaderOptions().collation()}) {
    EXPECT_EQ(static_cast<int>(described.collate.value), static_cast<int>(own.kind));
    EXPECT_EQ(described.padding_value.value, own.padding.value);
    EXPECT_EQ(described.pad_to_multiple_of.value, own.padding.multiple_of);
    EXPECT_EQ(described.padding_side.value == PaddingSide::kLeft, own.padding.at_start);
    EXPECT_EQ(described.padding_masks.value, own.padding.masks);
  }
}

}  // namespace option_defaults_test
}  // namespace accel
