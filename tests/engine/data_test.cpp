// SPDX-License-Identifier: Apache-2.0
// Datasets, samplers and loaders.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <type_traits>

#include "base/error.hpp"
#include "data/dataloader.hpp"
#include "data/datasets/subset_dataset.hpp"
#include "data/datasets/tensor_dataset.hpp"
#include "data/prepared_dataloader.hpp"
#include "expect_error.hpp"
#include "numbers.hpp"
#include "tensor/tree.hpp"

namespace accel::data {
namespace data_test {

using tests::expect_error;

using Numbers = std::vector<int64_t>;

Numbers numbers_of(const at::Tensor& tensor) {
  const auto flat = tensor.to(at::kLong).contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

Numbers column(const c10::IValue& batch, size_t index = 0) { return numbers_of(batch.toListRef()[index].toTensor()); }

std::shared_ptr<Dataset> counting(int64_t length) {
  return std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(length, at::kLong)});
}

std::shared_ptr<DataLoader> counting_loader(int64_t length, int64_t batch_size, bool drop_last = false) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.drop_last = drop_last;
  return std::make_shared<DataLoader>(counting(length), std::make_shared<SequentialSampler>(length), options);
}

std::vector<Numbers> epoch_of(Loader& loader) {
  std::vector<Numbers> batches;
  while (const auto batch = loader.next()) batches.push_back(column(*batch));
  return batches;
}

// Numbers that take their time, so that the loader gives the work to its thread; one of them may be broken.
class SlowDataset final : public Dataset {
 public:
  explicit SlowDataset(int64_t length) : length_(length) {}
  int64_t length() const override { return length_; }
  void break_item(int64_t index) { broken_ = index; }
  int64_t batches_read() const { return batches_read_; }
  bool was_read_by_another_thread() const { return other_thread_; }

 protected:
  c10::IValue read_item(int64_t index) const override { return read_batch({&index, 1}, {}); }
  c10::IValue read_batch(c10::IntArrayRef indices, const Collation&) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (std::this_thread::get_id() != creator_) other_thread_ = true;
    for (const int64_t index : indices) require(index != broken_, Status::kIo, "item ", index, " is broken");
    ++batches_read_;
    auto batch = tree::new_list();
    batch.push_back(at::tensor(indices, at::kLong));
    return batch;
  }

 private:
  int64_t length_;
  std::thread::id creator_ = std::this_thread::get_id();
  std::atomic<int64_t> broken_{-1};
  mutable std::atomic<int64_t> batches_read_{0};
  mutable std::atomic<bool> other_thread_{false};
};

TEST(DataTensorDataset, RowsOfEachTensor) {
  const auto rows = at::arange(12, at::kFloat).reshape({4, 3});
  const TensorDataset dataset({rows, at::arange(4, at::kLong)});
  EXPECT_EQ(dataset.length(), 4);
  const auto item = dataset.item(2);
  EXPECT_EQ(item.toListRef()[0].toTensor().sizes(), (std::vector<int64_t>{3}));
  EXPECT_EQ(column(item, 0), (Numbers{6, 7, 8}));
  EXPECT_EQ(column(item, 1), (Numbers{2}));
  const Numbers indices{3, 0, 1, 2, 2};
  const auto batch = dataset.batch(indices);
  EXPECT_TRUE(at::equal(batch.toListRef()[0].toTensor(), rows.index_select(0, at::tensor(indices))));
  EXPECT_EQ(column(batch, 1), indices);
  expect_error(Status::kNotFound, "index 4", [&] { dataset.item(4); });
  expect_error(Status::kNotFound, "index -1", [&] { dataset.batch({0, -1}); });
}

TEST(DataTensorDataset, AnyLayoutAndAnyRow) {
  const auto transposed = at::arange(6, at::kDouble).reshape({2, 3}).t();
  const TensorDataset dataset({transposed, at::empty({3, 0}), at::ones({3}, at::kBool)});
  const Numbers indices{2, 0};
  const auto batch = dataset.batch(indices);
  EXPECT_TRUE(at::equal(batch.toListRef()[0].toTensor(), transposed.index_select(0, at::tensor(indices))));
  EXPECT_EQ(batch.toListRef()[1].toTensor().sizes(), (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(batch.toListRef()[2].toTensor().scalar_type(), at::kBool);
}

TEST(DataTensorDataset, BatchesAreCopies) {
  const auto rows = at::zeros({4});
  const TensorDataset dataset({rows});
  dataset.batch({0, 1, 2, 3}).toListRef()[0].toTensor().fill_(1);
  EXPECT_EQ(rows.sum().item<float>(), 0);
}

TEST(DataTensorDataset, RefusesUnequalRows) {
  expect_error(Status::kInvalidArgument, "0 tensors", [] { TensorDataset({}); });
  expect_error(Status::kShapeMismatch, "tensor 1 of the dataset has 3 rows; expected 4", [] {
    TensorDataset({at::zeros({4}), at::zeros({3})});
  });
  expect_error(Status::kShapeMismatch, "no dimension", [] { TensorDataset({at::zeros({})}); });
}

TEST(DataSubset, IsARange) {
  const SubsetDataset subset(counting(10), 4, 7);
  EXPECT_EQ(subset.length(), 3);
  EXPECT_EQ(column(subset.item(0)), (Numbers{4}));
  EXPECT_EQ(column(subset.batch({2, 1})), (Numbers{6, 5}));
  expect_error(Status::kNotFound, "index 3", [&] { subset.item(3); });
  expect_error(Status::kInvalidArgument, "[4, 11)", [] { SubsetDataset(counting(10), 4, 11); });
  expect_error(Status::kInvalidArgument, "[5, 4)", [] { SubsetDataset(counting(10), 5, 4); });
}

TEST(DataSampler, OrdersAreRepeatable) {
  EXPECT_EQ(numbers_of(SequentialSampler(3).indices(7)), (Numbers{0, 1, 2}));
  const SeedableRandomSampler sampler(50, 11);
  EXPECT_TRUE(at::equal(sampler.indices(3), SeedableRandomSampler(50, 14).indices(0)));
  EXPECT_FALSE(at::equal(sampler.indices(0), sampler.indices(1)));
  expect_error(Status::kInvalidArgument, "length is -1", [] { SequentialSampler(-1); });
  expect_error(Status::kInvalidArgument, "0 items", [] { SeedableRandomSampler(0, 1); });
}

TEST(DataSampler, LeavesTheDefaultGeneratorAlone) {
  at::manual_seed(5);
  const auto expected = at::rand({4});
  at::manual_seed(5);
  SeedableRandomSampler(100, 3).indices(0);
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
}

TEST(DataLoader, GivesEveryEpochAndItsEnd) {
  const auto loader = counting_loader(7, 3);
  EXPECT_EQ(loader->length(), 3);
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(loader->epoch(), epoch);
    EXPECT_EQ(epoch_of(*loader), (std::vector<Numbers>{{0, 1, 2}, {3, 4, 5}, {6}}));
  }
  const auto dropping = counting_loader(7, 3, true);
  EXPECT_EQ(dropping->length(), 2);
  EXPECT_EQ(epoch_of(*dropping).size(), 2);
  EXPECT_FALSE(counting_loader(0, 3)->next().has_value());
}

TEST(DataLoader, ShufflesAnewInEachEpoch) {
  DataLoader loader(counting(20), std::make_shared<SeedableRandomSampler>(20, 4), {});
  const auto first = epoch_of(loader);
  const auto second = epoch_of(loader);
  EXPECT_NE(first, second);
  loader.set_epoch(0);
  EXPECT_EQ(epoch_of(loader), first);
}

TEST(DataLoader, PrefetchThreadGivesTheSameBatches) {
  const auto dataset = std::make_shared<SlowDataset>(10);
  LoaderOptions options;
  options.batch_size = 2;
  DataLoader loader(dataset, std::make_shared<SequentialSampler>(10), options);
  for (int epoch = 0; epoch < 2; ++epoch)
    EXPECT_EQ(epoch_of(loader), (std::vector<Numbers>{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}}));
  EXPECT_TRUE(dataset->was_read_by_another_thread());
}

TEST(DataLoader, PrefetchIsBoundedAndCanBeLeft) {
  const auto dataset = std::make_shared<SlowDataset>(100);
  LoaderOptions options;
  options.prefetch = 3;
  DataLoader loader(dataset, std::make_shared<SequentialSampler>(100), options);
  loader.next();
  loader.next();
  for (int tries = 0; dataset->batches_read() < 2 + 3 && tries < 5000; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(dataset->batches_read(), 2 + 3);
  loader.set_epoch(5);
  EXPECT_EQ(column(*loader.next()), (Numbers{0}));
}

TEST(DataLoader, WithoutPrefetchNoOtherThreadReads) {
  const auto dataset = std::make_shared<SlowDataset>(5);
  LoaderOptions options;
  options.prefetch = 0;
  DataLoader loader(dataset, std::make_shared<SequentialSampler>(5), options);
  EXPECT_EQ(epoch_of(loader).size(), 5);
  EXPECT_FALSE(dataset->was_read_by_another_thread());
}

TEST(DataLoader, BatchThatFailsIsTriedAgain) {
  const auto dataset = std::make_shared<SlowDataset>(6);
  DataLoader loader(dataset, std::make_shared<SequentialSampler>(6), {});
  dataset->break_item(3);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(column(*loader.next()), (Numbers{i}));
  expect_error(Status::kIo, "item 3 is broken", [&] { loader.next(); });
  expect_error(Status::kIo, "item 3 is broken", [&] { loader.next(); });
  dataset->break_item(-1);
  EXPECT_EQ(epoch_of(loader), (std::vector<Numbers>{{3}, {4}, {5}}));
}

TEST(DataLoader, StateIsWhatWasHandedOut) {
  const auto dataset = std::make_shared<SlowDataset>(12);
  const auto sampler = std::make_shared<SeedableRandomSampler>(12, 9);
  LoaderOptions options;
  options.batch_size = 2;
  DataLoader loader(dataset, sampler, options);
  epoch_of(loader);
  loader.next();
  loader.next();
  const auto state = loader.state_dict();
  EXPECT_EQ(state.toGenericDict().at("epoch").toInt(), 1);
  EXPECT_EQ(state.toGenericDict().at("batches").toInt(), 2);
  DataLoader resumed(dataset, sampler, options);
  resumed.next();
  resumed.load_state_dict(state);
  EXPECT_EQ(epoch_of(resumed), epoch_of(loader));
  EXPECT_EQ(epoch_of(resumed), epoch_of(loader));
}

TEST(DataLoader, StateBetweenTheLastBatchAndTheEnd) {
  const auto loader = counting_loader(4, 2);
  loader->next();
  loader->next();
  const auto resumed = counting_loader(4, 2);
  resumed->load_state_dict(loader->state_dict());
  EXPECT_FALSE(resumed->next().has_value());
  EXPECT_EQ(resumed->epoch(), 1);
  EXPECT_EQ(epoch_of(*resumed).size(), 2);
}

TEST(DataLoader, RefusesStatesOfOtherLoaders) {
  const auto loader = counting_loader(4, 2);
  loader->next();
  const auto state = [](c10::IValue epoch, c10::IValue samples) {
    auto map = tree::new_map();
    map.insert("epoch", epoch);
    map.insert("batches", 1);
    map.insert("samples", samples);
    return map;
  };
  expect_error(Status::kInvalidArgument, "at item 5", [&] { loader->load_state_dict(state(0, 5)); });
  expect_error(Status::kInvalidArgument, "\"epoch\"", [&] { loader->load_state_dict(state(-1, 0)); });
  expect_error(Status::kInvalidArgument, "\"samples\"", [&] { loader->load_state_dict(state(0, "two")); });
  expect_error(Status::kInvalidArgument, "expected a map", [&] { loader->load_state_dict(1); });
  EXPECT_EQ(column(*loader->next()), (Numbers{2, 3}));
}

TEST(DataLoader, SkipsOnlyInTheFirstEpoch) {
  const auto loader = counting_loader(5, 2);
  loader->next();
  const auto skipping = loader->skip_first(2);
  EXPECT_EQ(skipping->length(), 1);
  EXPECT_EQ(epoch_of(*skipping), (std::vector<Numbers>{{4}}));
  EXPECT_EQ(skipping->length(), 3);
  EXPECT_EQ(epoch_of(*skipping).size(), 3);
  EXPECT_EQ(column(*loader->next()), (Numbers{2, 3}));
  EXPECT_FALSE(loader->skip_first(9)->next().has_value());
  expect_error(Status::kInvalidArgument, "num_batches is -1", [&] { loader->skip_first(-1); });
}

// As scripts resume that count batches themselves: the rest of the epoch, and then whole ones.
TEST(DataLoader, SkippingTakesTheRestOfAnEpochOverFromALoaderThatWasRestored) {
  LoaderOptions options;
  options.batch_size = 1;
  options.shuffle = true;
  options.seed = 3;
  const auto make = [&] { return std::make_shared<DataLoader>(counting(6), nullptr, options); };
  const auto whole = make();
  const auto first = epoch_of(*whole), second = epoch_of(*whole);
  const auto stopped = make();
  stopped->next();
  stopped->next();
  const auto restored = make();
  restored->load_state_dict(stopped->state_dict());
  EXPECT_EQ(epoch_of(*restored->skip_first(2)), std::vector<Numbers>(first.begin() + 2, first.end()));
  EXPECT_EQ(epoch_of(*restored), second);
}

TEST(DataLoader, RefusesBadOptions) {
  const auto make = [](int64_t batch_size, int64_t prefetch) {
    LoaderOptions options;
    options.batch_size = batch_size;
    options.prefetch = prefetch;
    DataLoader(counting(4), std::make_shared<SequentialSampler>(4), options);
  };
  expect_error(Status::kInvalidArgument, "batch_size is 0", [&] { make(0, 0); });
  expect_error(Status::kInvalidArgument, "prefetch is -1", [&] { make(1, -1); });
  expect_error(Status::kInvalidArgument, "epoch is -1", [] { counting_loader(4, 2)->set_epoch(-1); });
  DataLoader too_far(counting(2), std::make_shared<SequentialSampler>(3), {});
  too_far.next();
  too_far.next();
  expect_error(Status::kNotFound, "index 2", [&] { too_far.next(); });
}

ShardOptions share(int64_t ranks, int64_t rank, bool even = true, bool split = false) {
  ShardOptions sharding;
  sharding.num_processes = ranks;
  sharding.process_index = rank;
  sharding.even_batches = even;
  sharding.split_batches = split;
  return sharding;
}

TEST(DataSharded, RanksShareTheBatches) {
  const auto loader = counting_loader(7, 2);
  EXPECT_EQ(epoch_of(*tests::prepared(*loader, share(2, 0))), (std::vector<Numbers>{{0, 1}, {4, 5}}));
  EXPECT_EQ(epoch_of(*tests::prepared(*loader, share(2, 1))), (std::vector<Numbers>{{2, 3}, {6, 0}}));
  EXPECT_EQ(epoch_of(*tests::prepared(*loader, share(2, 1, false))), (std::vector<Numbers>{{2, 3}, {6}}));
  EXPECT_EQ(epoch_of(*tests::prepared(*loader, share(2, 1, true, true))), (std::vector<Numbers>{{1}, {3}, {5}, {0}}));
  EXPECT_EQ(tests::prepared(*loader, share(2, 1, false, true))->length(), 3);
  EXPECT_EQ(epoch_of(*tests::prepared(*loader, share(1, 0))).back(), (Numbers{6}));
}

TEST(DataSharded, TellsTheGradientStateHowFarItIs) {
  const auto gradients = std::make_shared<state::GradientState>(state::AccumulationSettings{});
  auto sharding = share(2, 0);
  sharding.gradient_state = gradients;
  const auto loader = tests::prepared(*counting_loader(7, 2), sharding);
  EXPECT_EQ(loader->total_batch_size(), 4);
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_FALSE(gradients->in_dataloader());
    loader->next();
    EXPECT_TRUE(gradients->in_dataloader());
    EXPECT_FALSE(gradients->end_of_dataloader());
    EXPECT_EQ(gradients->remainder(), 3);
    loader->next();
    EXPECT_TRUE(gradients->end_of_dataloader());
    EXPECT_FALSE(loader->next().has_value());
  }
  loader->next();
  loader->set_epoch(0);
  EXPECT_FALSE(gradients->in_dataloader());

  const auto dropping = tests::prepared(*counting_loader(7, 2, true), sharding);
  dropping->next();
  EXPECT_EQ(gradients->remainder(), -1);
  EXPECT_TRUE(gradients->end_of_dataloader());
}

TEST(DataSharded, ResumedAtTheLastBatchItSaysSo) {
  const auto gradients = std::make_shared<state::GradientState>(state::AccumulationSettings{});
  auto sharding = share(2, 1);
  sharding.gradient_state = gradients;
  const auto skipping = tests::prepared(*counting_loader(8, 2), sharding)->skip_first(1);
  EXPECT_EQ(column(*skipping->next()), (Numbers{6, 7}));
  EXPECT_TRUE(gradients->end_of_dataloader());
}

TEST(DataSharded, MovesBatchesToTheDevice) {
  auto sharding = share(2, 0);
  sharding.device = c10::Device(c10::kMeta);
  const auto batch = *tests::prepared(*counting_loader(8, 2), sharding)->next();
  EXPECT_TRUE(batch.toListRef()[0].toTensor().is_meta());
}

TEST(DataSharded, RefusesWhatCannotBeShared) {
  const auto loader = counting_loader(8, 3);
  expect_error(Status::kInvalidArgument, "multiple of the 2",
               [&] { tests::prepared(*loader, share(2, 0, true, true)); });
  expect_error(Status::kInvalidArgument, "process 2 of 2", [&] { tests::prepared(*loader, share(2, 2)); });
  static_assert(!std::is_constructible_v<PreparedDataLoader, const PreparedDataLoader&, const ShardOptions&>,
                "a loader is prepared once");
}

}  // namespace data_test
}  // namespace accel::data
