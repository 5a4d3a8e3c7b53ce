// SPDX-License-Identifier: Apache-2.0
// Items that come one after another.
#include <ATen/ops/arange.h>
#include <ATen/ops/scalar_tensor.h>
#include <map>

#include "data/datasets/tensor_dataset.hpp"
#include "data/iterable_datasets/callback_iterable_dataset.hpp"
#include "data/iterable_datasets/dataset_as_iterable.hpp"
#include "data/iterable_datasets/interleaved_datasets.hpp"
#include "data/iterable_datasets/no_items.hpp"
#include "data/sampler.hpp"
#include "data_fixture.hpp"

namespace accel::data {
namespace streams_test {

std::shared_ptr<const IterableDataset> numbers(int64_t begin, int64_t end, std::optional<int64_t> seed = std::nullopt) {
  return std::make_shared<const DatasetAsIterable>(
      std::make_shared<const TensorDataset>(std::vector<at::Tensor>{at::arange(begin, end)}), seed);
}

Numbers rest_of(DatasetIterator& reader) {
  Numbers items;
  while (const auto item = reader.next()) items.push_back(item->toListRef()[0].toTensor().item<int64_t>());
  EXPECT_FALSE(reader.next().has_value());
  return items;
}

Numbers all_of(const IterableDataset& stream, int64_t epoch = 0, int64_t shard = 0, int64_t num_readers = 1) {
  return rest_of(*stream.read(epoch, shard, num_readers));
}

// After any number of skipped items the rest is what it was.
void expect_skips(const IterableDataset& stream, int64_t shard = 0, int64_t num_readers = 1) {
  const Numbers items = all_of(stream, 1, shard, num_readers);
  for (size_t count = 0; count <= items.size() + 2; ++count) {
    const auto reader = stream.read(1, shard, num_readers);
    EXPECT_EQ(reader->skip(static_cast<int64_t>(count)), static_cast<int64_t>(std::min(count, items.size())));
    EXPECT_EQ(rest_of(*reader),
              Numbers(items.begin() + static_cast<ptrdiff_t>(std::min(count, items.size())), items.end()));
  }
}

TEST(Streams, OfADataset) {
  EXPECT_EQ(all_of(*numbers(3, 7)), (Numbers{3, 4, 5, 6}));
  EXPECT_EQ(all_of(*numbers(0, 7), 0, 1, 3), (Numbers{1, 4}));
  EXPECT_EQ(numbers(3, 7)->length(), 4);
  EXPECT_EQ(numbers(3, 7)->num_shards(), 4);
  EXPECT_EQ(all_of(*numbers(3, 3)), Numbers{});
  EXPECT_EQ(numbers(3, 3)->num_shards(), 1);
  const at::Tensor order = SeedableRandomSampler(9, 5).indices(2);
  EXPECT_EQ(all_of(*numbers(0, 9, 5), 2),
            Numbers(order.const_data_ptr<int64_t>(), order.const_data_ptr<int64_t>() + 9));
  expect_skips(*numbers(0, 9, 5));
  expect_skips(*numbers(0, 9), 2, 4);
}

TEST(Streams, MergedByWeight) {
  const auto merged = [](InterleavedDatasets::End end, int64_t seed = 3) {
    return InterleavedDatasets({numbers(0, 300), numbers(1000, 1100)}, {3, 1}, seed, end);
  };
  const InterleavedDatasets all = merged(InterleavedDatasets::End::kAll);
  EXPECT_EQ(all.length(), 400);
  EXPECT_EQ(all.num_shards(), 100);
  Numbers items = all_of(all);
  EXPECT_EQ(items, all_of(merged(InterleavedDatasets::End::kAll)));  // the same in every run
  EXPECT_NE(items, all_of(all, 1));
  EXPECT_NE(items, all_of(merged(InterleavedDatasets::End::kAll, 4)));
  int64_t of_the_first = 0;
  for (size_t i = 0; i < 200; ++i) of_the_first += items[i] < 1000;
  EXPECT_NEAR(static_cast<double>(of_the_first), 150, 30);
  std::sort(items.begin(), items.end());
  Numbers expected = all_of(*numbers(0, 300)), more = all_of(*numbers(1000, 1100));
  expected.insert(expected.end(), more.begin(), more.end());
  EXPECT_EQ(items, expected);

  const InterleavedDatasets first = merged(InterleavedDatasets::End::kFirst);
  EXPECT_FALSE(first.length().has_value());
  const Numbers until_first = all_of(first);
  EXPECT_TRUE(std::count(until_first.begin(), until_first.end(), 299) == 1 ||
              std::count(until_first.begin(), until_first.end(), 1099) == 1);
  EXPECT_LT(until_first.size(), 400);
  const Numbers whole = all_of(all);
  EXPECT_TRUE(std::equal(until_first.begin(), until_first.end(), whole.begin()));
  expect_skips(InterleavedDatasets({numbers(0, 5), numbers(10, 12), numbers(20, 20)}, {1, 2, 0.5}, 1,
                                   InterleavedDatasets::End::kAll));
  expect_skips(InterleavedDatasets({numbers(0, 5), numbers(10, 12)}, {1, 2}, 1, InterleavedDatasets::End::kFirst));
  expect_skips(InterleavedDatasets({numbers(0, 8), numbers(10, 16)}, {1, 2}, 1, InterleavedDatasets::End::kAll), 1, 2);
}

TEST(Streams, MergedRefusesWrongWeights) {
  const auto refused = [](std::vector<double> weights, const std::string& part) {
    expect_error(Status::kInvalidArgument, part, [&] {
      InterleavedDatasets({numbers(0, 1), numbers(0, 1)}, std::move(weights), 0, InterleavedDatasets::End::kAll);
    });
  };
  refused({1}, "1 weights are given for 2 sources");
  refused({1, 0}, "source 1 is 0");
  refused({1, -1}, "source 1 is -1");
  refused({1, std::numeric_limits<double>::quiet_NaN()}, "source 1 is nan");
  refused({1e308, 1e308}, "add up to inf");
  expect_error(Status::kInvalidArgument, "0 sources",
               [] { InterleavedDatasets({}, {}, 0, InterleavedDatasets::End::kAll); });
}

TEST(Streams, OfCallbacks) {
  std::map<int64_t, int64_t> readers;
  int64_t asked = 0;
  IterableDatasetFunctions functions;
  functions.begin = [&](int64_t epoch, int64_t shard, int64_t num_readers) {
    const auto reader = static_cast<int64_t>(readers.size());
    readers[reader] = epoch * 100 + shard * 10 + num_readers;
    return reader;
  };
  functions.next = [&](int64_t reader) -> std::optional<c10::IValue> {
    ++asked;
    if (readers[reader] % 10 > 4) return std::nullopt;
    auto item = tree::new_list();
    item.push_back(at::scalar_tensor(readers[reader]++, at::kLong));
    return item;
  };
  {
    const CallbackIterableDataset stream(functions, 4, 3);
    EXPECT_TRUE(stream.calls_back());
    EXPECT_EQ(stream.length(), 4);
    EXPECT_EQ(stream.num_shards(), 3);
    EXPECT_EQ(all_of(stream, 2), (Numbers{201, 202, 203, 204}));
    EXPECT_EQ(asked, 5);  // at the end it is not asked again
    EXPECT_EQ(all_of(stream, 1, 2, 3), (Numbers{123, 124}));
    expect_skips(stream);
  }
  int64_t ended = 0;
  functions.end = [&](int64_t) { ++ended; };
  functions.skip = [&](int64_t reader, int64_t count) {
    const int64_t skipped = std::min(count, 5 - readers[reader] % 10);
    readers[reader] += skipped;
    return skipped;
  };
  std::unique_ptr<DatasetIterator> reader;
  {
    const CallbackIterableDataset stream(functions, std::nullopt, 1);
    EXPECT_FALSE(stream.length().has_value());
    expect_skips(stream);
    reader = stream.read(0, 0, 1);
  }
  EXPECT_EQ(rest_of(*reader), (Numbers{1, 2, 3, 4}));  // outlives the stream
  const int64_t before = ended;
  reader.reset();
  EXPECT_EQ(ended, before + 1);
  functions.skip = [](int64_t, int64_t count) { return count + 1; };
  expect_error(Status::kInvalidArgument, "skipped 3 items; expected at most the 2",
               [&] { CallbackIterableDataset(functions, std::nullopt, 1).read(0, 0, 1)->skip(2); });
  expect_error(Status::kInvalidArgument, "num_shards is 0",
               [&] { CallbackIterableDataset(functions, std::nullopt, 0); });
  expect_error(Status::kInvalidArgument, "length is -1", [&] { CallbackIterableDataset(functions, -1, 1); });
}

TEST(Streams, HaveNoNumbers) {
  expect_error(Status::kUnsupported, "is iterable", [] { NoItems().length(); });
  expect_error(Status::kUnsupported, "is iterable", [] { NoItems().batch({0}); });
}

}  // namespace streams_test
}  // namespace accel::data
