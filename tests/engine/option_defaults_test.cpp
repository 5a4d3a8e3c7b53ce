// Where the engine has a struct of its own beside the settings that the header describes, both begin with the same.
#include <gtest/gtest.h>

#include "bigmodel/device_map/infer_device_map.hpp"
#include "config/generated/settings/dataloader.hpp"
#include "config/generated/settings/dataset.hpp"
#include "config/generated/settings/device_map.hpp"
#include "config/generated/settings/tensor.hpp"
#include "data/datasets/csv_dataset.hpp"
#include "data/datasets/image_dataset.hpp"
#include "data/loader_input.hpp"
#include "tensor/autograd/backward.hpp"

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

TEST(OptionDefaults, OfFiles) {
  const CsvSettings described;
  const data::CsvOptions own;
  EXPECT_EQ(described.delimiter.value, int64_t{own.delimiter});
  EXPECT_EQ(described.has_header.value, own.has_header);
  EXPECT_EQ(described.skip_malformed.value, own.skips_malformed);
  EXPECT_EQ(described.missing.value, own.missing);
  EXPECT_EQ(ImageSettings().channels.value, data::ImageOptions().channels);
}

TEST(OptionDefaults, OfDeviceMaps) {
  const DeviceMapSettings described;
  const bigmodel::DeviceMapSettings own;
  EXPECT_EQ(described.dtype.value, own.dtype);
  EXPECT_EQ(described.offload_buffers.value, own.offload_buffers);
  EXPECT_EQ(described.fallback_allocation.value, own.fallback_allocation);
  EXPECT_EQ(described.clean_result.value, own.clean_result);
  EXPECT_EQ(described.verbose.value, own.verbose);
  EXPECT_EQ(described.optimal_packing.value, own.optimal_packing);
  EXPECT_EQ(described.allow_disk.value, !own.without_disk);
  EXPECT_EQ(described.low_zero.value, own.low_zero);
}

TEST(OptionDefaults, OfBackward) {
  const BackwardSettings described;
  const tensor::BackwardOptions own;
  EXPECT_EQ(described.retain_graph.value, own.retain_graph);
  EXPECT_EQ(described.create_graph.value, own.create_graph);
}

}  // namespace option_defaults_test
}  // namespace accel
