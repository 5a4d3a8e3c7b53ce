// Where the engine has a struct of its own beside the settings that the header describes, both begin with the same.
#include <gtest/gtest.h>

#include "config/generated/choices/padding_side.hpp"
#include "config/generated/settings/dataloader/dataloader.hpp"
#include "data/loader_input.hpp"

namespace accel {
namespace option_defaults_test {

TEST(OptionDefaults, OfLoaders) {
  const DataloaderSettings described;
  const data::LoaderOptions own;
  EXPECT_EQ(described.batch_size.value, own.batch_size);
  EXPECT_EQ(described.shuffle.value, own.shuffle);
  EXPECT_EQ(described.drop_last.value, own.drop_last);
  EXPECT_EQ(described.seed.value, own.seed);
  EXPECT_EQ(described.prefetch.value, own.prefetch);
  EXPECT_EQ(described.pin_memory.value, own.pin_memory);
  EXPECT_EQ(static_cast<int>(described.collate.value), static_cast<int>(own.collation.kind));
  EXPECT_EQ(described.padding_value.value, own.collation.padding.value);
  EXPECT_EQ(described.pad_to_multiple_of.value, own.collation.padding.multiple_of);
  EXPECT_EQ(described.padding_side.value == PaddingSide::kLeft, own.collation.padding.at_start);
  EXPECT_EQ(described.padding_masks.value, own.collation.padding.masks);
}

}  // namespace option_defaults_test
}  // namespace accel
