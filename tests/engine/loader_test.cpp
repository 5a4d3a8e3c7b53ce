// SPDX-License-Identifier: Apache-2.0
// Loaders of several ranks: every sample once, the same ones after a resume, whatever reads them.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "accelerator/metrics.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "accelerator_ranks.hpp"
#include "config/generated/settings/prepare/dataloader_config.hpp"
#include "config/generated/settings/state/state.hpp"
#include "data/prepared_dataloader.hpp"
#include "expect_error.hpp"
#include "numbers.hpp"

namespace accel::data {
namespace loader_test {

using tests::Batches;
using tests::epoch_of;
using tests::expect_error;
using tests::Numbers;
using tests::numbers_of;
using LoaderPtr = std::shared_ptr<Loader>;

// Items that take their time, more or less, and may fail.
class SlowNumbers final : public Dataset {
 public:
  explicit SlowNumbers(int64_t length, bool calls_back = false) : length_(length), calls_back_(calls_back) {}
  int64_t length() const override { return length_; }
  bool calls_back() const override { return calls_back_; }
  void set_length(int64_t length) { length_ = length; }
  void break_item(int64_t index) { broken_ = index; }
  int64_t threads() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(threads_.size());
  }
  int64_t most_at_once() const { return most_; }

 protected:
  c10::IValue read_item(int64_t index) const override {
    {
      const std::lock_guard lock(mutex_);
      const auto own = std::this_thread::get_id();
      if (std::find(threads_.begin(), threads_.end(), own) == threads_.end()) threads_.push_back(own);
    }
    const int64_t now = ++reading_;
    for (int64_t most = most_; most < now && !most_.compare_exchange_weak(most, now);) continue;
    std::this_thread::sleep_for(std::chrono::microseconds(200 + index * 37 % 5 * 100));
    --reading_;
    require(index != broken_, Status::kIo, "item ", index, " is broken");
    return at::scalar_tensor(index, at::kLong);
  }

 private:
  std::atomic<int64_t> length_;
  bool calls_back_;
  std::atomic<int64_t> broken_{-1};
  mutable std::mutex mutex_;
  mutable std::vector<std::thread::id> threads_;
  mutable std::atomic<int64_t> reading_{0}, most_{0};
};

struct Setting {
  std::string kind = "map";
  int64_t size = 0, batch_size = 1, ranks = 1;
  bool drop_last = false, split = false, even = true, shuffle = false;
  std::vector<Numbers> dynamic;  // batches of any size
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << setting.kind << " of " << setting.size << " in " << setting.batch_size << ", ranks " << setting.ranks
             << ", drop_last " << setting.drop_last << ", split " << setting.split << ", even " << setting.even
             << ", shuffle " << setting.shuffle << ", dynamic " << setting.dynamic.size();
}

LoaderPtr make_loader(const Setting& setting, int64_t rank) {
  LoaderData data = tests::numbers(setting.kind, setting.size);
  if (!setting.dynamic.empty())
    data.batch_sampler = std::make_shared<CallbackBatchSampler>(
        [batches = setting.dynamic](int64_t) { return batches; }, std::nullopt, setting.drop_last);
  LoaderOptions options;
  options.batch_size = setting.batch_size;
  options.drop_last = setting.drop_last;
  options.shuffle = setting.shuffle;
  options.seed = 3;
  ShardOptions sharding;
  sharding.num_processes = setting.ranks;
  sharding.process_index = rank;
  sharding.split_batches = setting.split;
  sharding.even_batches = setting.even;
  return tests::prepared(DataLoader(data, options), sharding);
}

Setting random_setting(std::mt19937& draw) {
  const auto number = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(draw);
  };
  Setting setting;
  setting.kind = number(0, 2) ? "map" : number(0, 1) ? "stream" : "sized_stream";
  setting.size = number(0, 40);
  setting.batch_size = number(1, 7);
  setting.ranks = number(1, 5);
  setting.drop_last = number(0, 3) == 0;
  setting.split = number(0, 2) == 0;
  if (setting.split) setting.batch_size = setting.ranks * number(1, 3);
  if (setting.kind != "map") return setting;
  setting.even = number(0, 2) > 0;
  setting.shuffle = number(0, 1) && setting.size > 0;
  if (!setting.split && !setting.shuffle && number(0, 3) == 0) {
    for (int64_t first = 0; first < setting.size;) {
      const int64_t rows = std::min(number(1, 5), setting.size - first);
      setting.dynamic.emplace_back(static_cast<size_t>(rows));
      std::iota(setting.dynamic.back().begin(), setting.dynamic.back().end(), first);
      first += rows;
    }
  }
  return setting;
}

// The rows that count, of `steps` batches or of all that are left.
Numbers valid_rows(Loader& loader, int64_t steps = -1) {
  Numbers rows;
  for (; steps != 0; --steps) {
    const auto batch = loader.next();
    if (!batch) break;
    const Numbers numbers = numbers_of(*batch);
    rows.insert(rows.end(), numbers.begin(), numbers.begin() + loader.valid_rows());
  }
  return rows;
}

Numbers valid_rows_of_ranks(const Setting& setting) {
  Numbers rows;
  for (int64_t rank = 0; rank < setting.ranks; ++rank) {
    const Numbers own = valid_rows(*make_loader(setting, rank));
    rows.insert(rows.end(), own.begin(), own.end());
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

int64_t group_of(const Setting& setting) { return setting.batch_size * (setting.split ? 1 : setting.ranks); }

TEST(LoaderProperty, TheRanksTogetherGiveTheDatasetOnceAndTheDocumentedPadding) {
  std::mt19937 draw(11);
  for (int tries = 0; tries < 2000; ++tries) {
    const Setting setting = random_setting(draw);
    SCOPED_TRACE(::testing::PrintToString(tries));
    const Numbers rows = valid_rows_of_ranks(setting);
    Numbers all(static_cast<size_t>(setting.size));
    std::iota(all.begin(), all.end(), 0);
    if (!setting.drop_last) {
      ASSERT_EQ(rows, all) << setting;
    } else if (setting.dynamic.empty()) {
      ASSERT_EQ(static_cast<int64_t>(rows.size()), setting.size / group_of(setting) * group_of(setting)) << setting;
      ASSERT_EQ(std::adjacent_find(rows.begin(), rows.end()), rows.end()) << setting;
    }
    if (!setting.even || setting.ranks == 1 || !setting.dynamic.empty()) continue;
    // Even batches: equally many full ones on every rank, filled from the start of the order again.
    const int64_t group = group_of(setting), rows_of_rank = group / setting.ranks;
    const int64_t steps = (setting.size + (setting.drop_last ? 0 : group - 1)) / group;
    Batches of_ranks;
    for (int64_t rank = 0; rank < setting.ranks; ++rank) {
      const Batches batches = epoch_of(*make_loader(setting, rank));
      ASSERT_EQ(static_cast<int64_t>(batches.size()), steps) << setting;
      for (const Numbers& batch : batches) ASSERT_EQ(static_cast<int64_t>(batch.size()), rows_of_rank) << setting;
      if (steps > 0) of_ranks.push_back(batches.back());
    }
    if (steps == 0 || setting.drop_last || setting.shuffle) continue;
    Numbers last;
    for (const Numbers& batch : of_ranks) last.insert(last.end(), batch.begin(), batch.end());
    for (int64_t i = 0; i < group; ++i) {
      const int64_t position = (steps - 1) * group + i;
      const int64_t again =
          setting.kind == "map" ? position - setting.size : (position - setting.size) % std::min(group, setting.size);
      ASSERT_EQ(last[static_cast<size_t>(i)], position < setting.size ? position : again % setting.size) << setting;
    }
  }
}

TEST(LoaderProperty, AResumedEpochIsTheRestOfTheUninterruptedOne) {
  std::mt19937 draw(12);
  for (int tries = 0; tries < 2000; ++tries) {
    const Setting setting = random_setting(draw);
    const int64_t rank = static_cast<int64_t>(draw() % static_cast<uint32_t>(setting.ranks));
    const auto whole = make_loader(setting, rank), interrupted = make_loader(setting, rank);
    const auto resumed = make_loader(setting, rank);
    const int64_t stop = static_cast<int64_t>(draw() % 4);
    Batches expected = epoch_of(*whole);
    const Batches following = epoch_of(*whole);
    for (int64_t i = 0; i < stop && i < static_cast<int64_t>(expected.size()); ++i) interrupted->next();
    resumed->load_state_dict(interrupted->state_dict());
    expected.erase(expected.begin(), expected.begin() + std::min<int64_t>(stop, expected.size()));
    ASSERT_EQ(epoch_of(*resumed), expected) << setting << ", stopped after " << stop << ", rank " << rank;
    ASSERT_EQ(epoch_of(*resumed), following) << setting;
  }
}

TEST(LoaderProperty, AnotherNumberOfRanksGoesOnWithTheNextSample) {
  std::mt19937 draw(13);
  for (int tries = 0; tries < 2000; ++tries) {
    Setting setting = random_setting(draw);
    setting.drop_last = false;
    const int64_t steps = static_cast<int64_t>(draw() % 4);
    Numbers rows;
    c10::IValue state;
    for (int64_t rank = setting.ranks; rank-- > 0;) {
      const auto loader = make_loader(setting, rank);
      const Numbers own = valid_rows(*loader, std::min(steps, loader->length().value_or(steps)));
      rows.insert(rows.end(), own.begin(), own.end());
      if (rank == 0 && loader->epoch() == 1) rows.clear();
      if (rank == 0) state = loader->state_dict();  // of the rank that is furthest
    }
    if (state.toGenericDict().at("epoch").toInt() == 1) continue;  // a stream that was read to its end
    Setting other = setting;
    other.ranks = static_cast<int64_t>(1 + draw() % 5);
    if (setting.split) other.batch_size = other.ranks * (1 + static_cast<int64_t>(draw() % 3));
    for (int64_t rank = 0; rank < other.ranks; ++rank) {
      const auto loader = make_loader(other, rank);
      loader->load_state_dict(state);
      const Numbers own = valid_rows(*loader);
      rows.insert(rows.end(), own.begin(), own.end());
    }
    std::sort(rows.begin(), rows.end());
    Numbers all(static_cast<size_t>(setting.size));
    std::iota(all.begin(), all.end(), 0);
    ASSERT_EQ(rows, all) << setting << ", " << steps << " steps, then " << other.ranks << " ranks";
  }
}

TEST(LoaderWorkers, DeliverInOrderAndStayBounded) {
  const auto dataset = std::make_shared<SlowNumbers>(60);
  LoaderOptions options;
  options.batch_size = 2;
  options.num_workers = 3;
  DataLoader loader(dataset, nullptr, options);
  for (int epoch = 0; epoch < 2; ++epoch) {
    const Batches batches = epoch_of(loader);
    ASSERT_EQ(batches.size(), 30);
    for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(batches[static_cast<size_t>(i)], (Numbers{2 * i, 2 * i + 1}));
  }
  EXPECT_GT(dataset->threads(), 1);
  EXPECT_LE(dataset->most_at_once(), 3);
}

TEST(LoaderWorkers, CallTheProgramOnlyWhereItAskedForThem) {
  const auto dataset = std::make_shared<SlowNumbers>(12, /*calls_back=*/true);
  LoaderOptions options;
  DataLoader alone(dataset, nullptr, options);
  epoch_of(alone);
  EXPECT_EQ(dataset->threads(), 1);
  options.num_workers = 2;
  DataLoader helped(dataset, nullptr, options);
  EXPECT_EQ(epoch_of(helped).size(), 12);
  EXPECT_GT(dataset->threads(), 1);  // one worker may have read all on a busy machine
  EXPECT_LE(dataset->threads(), 3);
}

TEST(LoaderWorkers, AFailureComesAtItsPlaceAndIsTriedAgain) {
  const auto dataset = std::make_shared<SlowNumbers>(10);
  dataset->break_item(6);
  LoaderOptions options;
  options.num_workers = 3;
  DataLoader loader(dataset, nullptr, options);
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(numbers_of(*loader.next()), (Numbers{i}));
  expect_error(Status::kIo, "item 6", [&] { loader.next(); });
  expect_error(Status::kIo, "item 6", [&] { loader.next(); });
  dataset->break_item(-1);
  EXPECT_EQ(epoch_of(loader), (Batches{{6}, {7}, {8}, {9}}));
}

TEST(LoaderWorkers, CanBeLeftAtAnyTime) {
  for (int batches = 0; batches < 5; ++batches) {
    LoaderOptions options;
    options.num_workers = 2;
    DataLoader loader(std::make_shared<SlowNumbers>(100), nullptr, options);
    for (int i = 0; i < batches; ++i) loader.next();
  }
  LoaderOptions options;
  options.num_workers = 2;
  DataLoader loader(std::make_shared<SlowNumbers>(100), nullptr, options);
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    loader.next();
    loader.next();
    loader.set_epoch(epoch);
  }
  EXPECT_EQ(numbers_of(*loader.next()), (Numbers{0}));
}

TEST(LoaderInput, OfAllBadSorts) {
  LoaderOptions options;
  options.batch_size = 2;
  DataLoader empty(tests::numbers("map", 0), options);
  EXPECT_EQ(empty.length(), 0);
  EXPECT_FALSE(empty.next().has_value());
  EXPECT_FALSE(empty.next().has_value());
  DataLoader ended(tests::numbers("stream", 0), options);
  EXPECT_FALSE(ended.next().has_value());
  options.shuffle = true;
  expect_error(Status::kInvalidArgument, "0 items", [&] { DataLoader(tests::numbers("map", 0), options); });
  expect_error(Status::kInvalidArgument, "a stream", [&] { DataLoader(tests::numbers("stream", 4), options); });
  options.shuffle = false;
  options.num_workers = -1;
  expect_error(Status::kInvalidArgument, "num_workers is -1", [&] { DataLoader(tests::numbers("map", 4), options); });
  options.num_workers = 1;
  options.prefetch = 0;
  expect_error(Status::kInvalidArgument, "prefetch is 0", [&] { DataLoader(tests::numbers("map", 4), options); });
  expect_error(Status::kInvalidArgument, "a dataset or a stream", [&] { DataLoader(LoaderData(), LoaderOptions()); });
}

TEST(LoaderInput, FewerItemsThanRanks) {
  Setting setting;
  setting.size = 2;
  setting.ranks = 5;
  for (const char* kind : {"map", "stream"}) {
    setting.kind = kind;
    for (int64_t rank = 0; rank < 5; ++rank)
      EXPECT_EQ(epoch_of(*make_loader(setting, rank)), (Batches{{rank % 2}})) << kind;
    EXPECT_EQ(valid_rows_of_ranks(setting), (Numbers{0, 1}));
  }
}

TEST(LoaderInput, ADatasetThatChangesItsLength) {
  const auto dataset = std::make_shared<SlowNumbers>(4);
  LoaderOptions options;
  options.batch_size = 2;
  options.prefetch = 0;
  DataLoader loader(dataset, nullptr, options);
  loader.next();
  dataset->set_length(3);
  expect_error(Status::kNotFound, "index 3", [&] { loader.next(); });
  loader.set_epoch(0);
  EXPECT_EQ(epoch_of(loader), (Batches{{0, 1}, {2}}));
  dataset->set_length(5);
  EXPECT_EQ(epoch_of(loader).size(), 3);
}

TEST(LoaderInput, TwoLoopsOverOneLoaderShareItsPlace) {
  DataLoader loader(tests::numbers("map", 4), LoaderOptions());
  loader.next();
  EXPECT_EQ(epoch_of(loader), (Batches{{1}, {2}, {3}}));
}

TEST(LoaderBatchSampler, RefusesWhatItCannotUse) {
  const auto with = [](std::vector<Numbers> batches, std::optional<int64_t> size) {
    LoaderData data = tests::numbers("map", 4);
    data.batch_sampler = std::make_shared<CallbackBatchSampler>([batches](int64_t) { return batches; }, size, false);
    return std::make_shared<DataLoader>(data, LoaderOptions());
  };
  EXPECT_EQ(epoch_of(*with({{3, 1}, {0}}, std::nullopt)), (Batches{{3, 1}, {0}}));
  EXPECT_EQ(epoch_of(*with({{3, 1}, {0}}, 2)), (Batches{{3, 1}, {0}}));
  expect_error(Status::kInvalidArgument, "is empty", [&] { with({{1}, {}}, std::nullopt)->next(); });
  expect_error(Status::kInvalidArgument, "batch 0 of the batch sampler has 1", [&] { with({{1}, {2}}, 2)->next(); });
  expect_error(Status::kNotFound, "index 4", [&] { with({{4}}, std::nullopt)->next(); });
  ShardOptions sharding;
  sharding.num_processes = 2;
  sharding.split_batches = true;
  expect_error(Status::kInvalidArgument, "needs a batch size",
               [&] { tests::prepared(*with({{1}}, std::nullopt), sharding); });
}

// Ranks that talk.

ShardOptions together(const std::shared_ptr<comm::Communicator>& communicator, bool dispatch) {
  ShardOptions sharding;
  sharding.num_processes = communicator->size();
  sharding.process_index = communicator->rank();
  sharding.communicator = communicator;
  sharding.dispatch_batches = dispatch;
  sharding.device = c10::Device(c10::kCPU);
  sharding.gradient_state = std::make_shared<state::GradientState>(state::AccumulationSettings{});
  return sharding;
}

// What is gathered for a metric over an epoch, or over `steps` batches.
Numbers metric(Loader& loader, const ShardOptions& sharding, int64_t steps = -1) {
  Numbers rows;
  for (; steps != 0; --steps) {
    const auto batch = loader.next();
    if (!batch) break;
    const Numbers gathered =
        numbers_of(accelerator::gather_for_metrics(*sharding.communicator, *batch, *sharding.gradient_state->active()));
    rows.insert(rows.end(), gathered.begin(), gathered.end());
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

void run(int ranks, const std::function<void(const std::shared_ptr<comm::Communicator>&)>& body) {
  tests::run_ranks(ranks, body);
}

Numbers range(int64_t end) {
  Numbers numbers(static_cast<size_t>(end));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(LoaderMetrics, EverySampleOnceInEveryMode) {
  for (const int ranks : {1, 2, 3})
    run(ranks, [&](const std::shared_ptr<comm::Communicator>& communicator) {
      for (const char* kind : {"map", "stream", "sized_stream"})
        for (const bool dispatch : {false, true})
          for (const bool split : {false, true})
            for (const int64_t size : {1, 5, 12, 13, 17, 23, 24}) {
              auto sharding = together(communicator, dispatch);
              sharding.split_batches = split;
              LoaderOptions options;
              options.batch_size = split ? 2 * ranks : 4;
              const auto loader = tests::prepared(DataLoader(tests::numbers(kind, size), options), sharding);
              for (int epoch = 0; epoch < 2; ++epoch)
                require(metric(*loader, sharding) == range(size), Status::kInternal, kind, " dispatch ", dispatch,
                        " split ", split, " size ", size, " ranks ", ranks);
            }
    });
}

TEST(LoaderMetrics, BatchesOfAnySize) {
  run(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    for (const bool dispatch : {false, true}) {
      LoaderData data = tests::numbers("map", 9);
      data.batch_sampler = std::make_shared<CallbackBatchSampler>(
          [](int64_t) {
            return std::vector<Numbers>{{0, 1, 2}, {3}, {4, 5, 6, 7}, {8}, {2, 1}};
          },
          std::nullopt, false);
      const auto sharding = together(communicator, dispatch);
      const auto loader = tests::prepared(DataLoader(data, LoaderOptions()), sharding);
      require(metric(*loader, sharding) == Numbers{0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8}, Status::kInternal, "rows");
    }
  });
}

TEST(LoaderMetrics, ARankWithoutABatchIsAnErrorInsteadOfAWait) {
  run(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    auto sharding = together(communicator, false);
    sharding.even_batches = false;
    const auto loader = tests::prepared(DataLoader(tests::numbers("map", 3), LoaderOptions()), sharding);
    require(metric(*loader, sharding, 1) == Numbers{0, 1}, Status::kInternal, "rows");
    const auto batch = loader->next();
    require(batch.has_value() == (communicator->rank() == 0), Status::kInternal, "batches");
    if (batch)
      expect_error(Status::kInvalidState, "rank 1 has no batch now",
                   [&] { accelerator::gather_for_metrics(*communicator, *batch, *sharding.gradient_state->active()); });
  });
}

TEST(LoaderShardedStream, EachRankReadsItsShardsAndAllEndTogether) {
  for (const int ranks : {2, 3})
    run(ranks, [&](const std::shared_ptr<comm::Communicator>& communicator) {
      for (const Numbers& shards : {Numbers{7, 3, 1}, Numbers{4, 4, 4}, Numbers{1, 9, 2, 6, 5}, Numbers{2, 1, 1}}) {
        const int64_t size = std::accumulate(shards.begin(), shards.end(), int64_t{0});
        LoaderData data;
        data.iterable = std::make_shared<tests::NumberIterable>(shards, false);
        LoaderOptions options;
        options.batch_size = 2;
        const auto sharding = together(communicator, false);
        const auto loader = tests::prepared(DataLoader(data, options), sharding);
        require(metric(*loader, sharding) == range(size), Status::kInternal, "first epoch");
        for (int64_t steps = 0; steps < 3; ++steps) {
          loader->set_epoch(1);
          Numbers rows = metric(*loader, sharding, steps);
          if (loader->epoch() == 2) continue;  // it had fewer batches
          const auto state = loader->state_dict();
          // The same number of ranks goes on with the same batches.
          const auto resumed = tests::prepared(DataLoader(data, options), together(communicator, false));
          resumed->load_state_dict(state);
          require(epoch_of(*resumed) == epoch_of(*loader), Status::kInternal, "resumed");
          // One rank alone goes on with what all of them had left.
          DataLoader alone(data, options);
          alone.load_state_dict(state);
          const Numbers rest = valid_rows(alone);
          rows.insert(rows.end(), rest.begin(), rest.end());
          std::sort(rows.begin(), rows.end());
          require(rows == range(size), Status::kInternal, "alone, after ", steps);
        }
      }
    });
}

TEST(LoaderShardedStream, ShardsWithoutItemsAreAnError) {
  run(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    LoaderData data;
    data.iterable = std::make_shared<tests::NumberIterable>(Numbers{3, 0}, false);
    const auto loader = tests::prepared(DataLoader(data, LoaderOptions()), together(communicator, false));
    expect_error(Status::kInvalidState, "rank 1 has no item", [&] { loader->next(); });
  });
}

// Rows of different lengths, with a text beside each.
class Sentences final : public Dataset {
 public:
  int64_t length() const override { return 7; }
  void break_item(int64_t index) { broken_ = index; }

 protected:
  c10::IValue read_item(int64_t index) const override {
    require(index != broken_, Status::kIo, "item ", index, " is broken");
    auto item = tree::new_map();
    item.insert("tokens", at::full({index + 1}, index, at::kLong));
    item.insert("text", std::string(static_cast<size_t>(index), 'x'));
    return item;
  }

 private:
  std::atomic<int64_t> broken_{-1};
};

TEST(LoaderDispatch, RaggedRowsAndLeavesThatAreNoTensors) {
  run(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    LoaderData data;
    data.dataset = std::make_shared<Sentences>();
    LoaderOptions options;
    options.batch_size = 2;
    options.collate = Collate::kPad;
    const auto loader = tests::prepared(DataLoader(data, options), together(communicator, true));
    const auto batch = loader->next()->toGenericDict();
    const int64_t rank = communicator->rank();
    require(batch.at("tokens").toTensor().sizes() == at::IntArrayRef({2, 2 + 2 * rank}), Status::kInternal, "shape");
    require(batch.at("text").toListRef()[1].toStringRef().size() == static_cast<size_t>(1 + 2 * rank),
            Status::kInternal, "text");
    const auto last = loader->next()->toGenericDict();  // items 4, 5 and 6, 0
    require(last.at("tokens").toTensor().size(1) == 6 + rank, Status::kInternal, "last shape");
    require(loader->valid_rows() == 2 - rank, Status::kInternal, "valid");
    require(!loader->next(), Status::kInternal, "end");
  });
}

TEST(LoaderDispatch, AFailureOfRank0IsOneOfAllRanks) {
  const auto dataset = std::make_shared<Sentences>();
  run(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    LoaderData data;
    data.dataset = dataset;
    LoaderOptions options;
    options.batch_size = 2;
    options.collate = Collate::kPad;
    const auto loader = tests::prepared(DataLoader(data, options), together(communicator, true));
    loader->next();
    communicator->barrier();
    dataset->break_item(5);
    communicator->barrier();
    const Status status = communicator->rank() == 0 ? Status::kIo : Status::kCancelled;
    expect_error(status, "item 5 is broken", [&] { loader->next(); });
    communicator->barrier();
    dataset->break_item(-1);
    communicator->barrier();
    require(loader->next().has_value() && !loader->next(), Status::kInternal, "the batch is read again");
  });
}

// Rows would be lost, as in Accelerate.
// Regression: batches of one row that are split and dispatched are refused: Accelerate loses rows here.
TEST(LoaderDispatch, RefusesToSplitBatchesOfOneRow) {
  run(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    auto sharding = together(communicator, true);
    sharding.split_batches = true;
    for (const char* kind : {"map", "stream"})
      expect_error(Status::kInvalidArgument, "expected a multiple of the 2 processes",
                   [&] { tests::prepared(DataLoader(tests::numbers(kind, 4), LoaderOptions()), sharding); });
  });
}

TEST(LoaderDispatch, SlicesByAFunctionAndResumes) {
  run(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    LoaderOptions options;
    options.batch_size = 2;
    options.slice = [](const c10::IValue& rows, int64_t, int64_t, int64_t rank, int64_t ranks) {
      return tree::map_tensors(rows,
                               [&](const at::Tensor& tensor) { return tensor.slice(0, rank, std::nullopt, ranks); });
    };
    const auto make = [&] {
      return tests::prepared(DataLoader(tests::numbers("map", 8), options), together(communicator, true));
    };
    const auto loader = make(), resumed = make();
    const int64_t rank = communicator->rank();
    require(numbers_of(*loader->next()) == Numbers{rank, rank + 2}, Status::kInternal, "first");
    resumed->load_state_dict(loader->state_dict());
    require(epoch_of(*resumed) == Batches{{rank + 4, rank + 6}}, Status::kInternal, "rest");
  });
}

TEST(LoaderSeed, IsDrawnOnceByRank0AndKept) {
  run(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    LoaderOptions options;
    options.shuffle = true;
    auto sharding = together(communicator, false);
    sharding.use_seedable_sampler = false;
    const auto make = [&] { return tests::prepared(DataLoader(tests::numbers("map", 20), options), sharding); };
    const auto loader = make(), resumed = make();
    require(metric(*loader, sharding) == range(20), Status::kInternal, "rows");
    loader->next();
    resumed->load_state_dict(loader->state_dict());
    require(epoch_of(*resumed) == epoch_of(*loader), Status::kInternal, "resumed");
  });
}

// A program that seeds by rank would lose items and repeat others, were each rank's order its own.
// Regression: ranks that seeded a shuffled loader by rank lost items and repeated others.
TEST(LoaderSeed, OfRank0CountsForAllRanks) {
  run(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    const auto sharding = together(communicator, false);
    const auto rows = [&](int64_t seed) {
      LoaderOptions options;
      options.shuffle = true;
      options.seed = seed;
      return metric(*tests::prepared(DataLoader(tests::numbers("map", 20), options), sharding), sharding);
    };
    require(rows(communicator->rank()) == range(20), Status::kInternal, "rows");
  });
}

// A folder for the checkpoints of a test.
class LoaderCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "accel-loader-XXXXXX").native();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(LoaderCheckpoint, InTheMiddleOfAGroupWithBatchesReadAhead) {
  static constexpr int64_t kItems = 29;
  StateSettings options;
  options.gradient_accumulation_steps = 4;
  const auto prepare = [](const tests::AcceleratorPtr& accelerator) {
    LoaderData data;
    data.dataset = std::make_shared<SlowNumbers>(kItems);
    LoaderOptions loader;
    loader.batch_size = 2;
    loader.shuffle = true;
    loader.seed = 5;
    loader.num_workers = 2;
    return accelerator->preparation().prepare_data_loader(DataLoader(data, loader), {});
  };
  std::mutex mutex;
  Numbers seen, rest;
  tests::run_accelerators(2, options, [&](const tests::AcceleratorPtr& accelerator) {
    const auto loader = prepare(accelerator);
    for (int step = 0; step < 3; ++step) {
      accelerator::MicroBatch micro_batch(accelerator, {});
      const Numbers rows = numbers_of(*loader->next());
      const std::lock_guard lock(mutex);
      seen.insert(seen.end(), rows.begin(), rows.end());
    }
    accelerator->checkpoints().save_state(folder_ / "state");
    const Numbers own = valid_rows(*loader);
    const std::lock_guard lock(mutex);
    rest.insert(rest.end(), own.begin(), own.end());
  });
  std::sort(rest.begin(), rest.end());
  EXPECT_EQ(seen.size(), 12);
  EXPECT_EQ(rest.size(), static_cast<size_t>(kItems) - 12);
  for (const int ranks : {1, 2, 3}) {
    Numbers resumed;
    tests::run_accelerators(ranks, options, [&](const tests::AcceleratorPtr& accelerator) {
      const auto loader = prepare(accelerator);
      accelerator->checkpoints().load_state(folder_ / "state");
      {
        accelerator::MicroBatch micro_batch(accelerator, {});
        require(accelerator->state().gradient_state()->sync_gradients(), Status::kInternal,
                "the fourth micro-batch ends the group");
      }
      const Numbers own = valid_rows(*loader);
      const std::lock_guard lock(mutex);
      resumed.insert(resumed.end(), own.begin(), own.end());
    });
    std::sort(resumed.begin(), resumed.end());
    EXPECT_EQ(resumed, rest) << ranks << " ranks";
  }
}

}  // namespace loader_test
}  // namespace accel::data
