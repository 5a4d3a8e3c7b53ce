// Nested values and training states of several ranks.
#include <ATen/ops/zeros.h>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>

#include "checkpoint/files/checksum.hpp"
#include "checkpoint/value_file.hpp"
#include "checkpoint_fixture.hpp"
#include "tensor/bytes.hpp"
#include "tensor/dtype_value.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace checkpoint_test {

using namespace checkpoint::tests;

c10::IValue random_tree(std::mt19937& random, int depth) {
  switch (random() % (depth > 0 ? 12 : 9)) {
    case 0:
      return {};
    case 1:
      return random() % 2 == 0;
    case 2:
      return static_cast<int64_t>((static_cast<uint64_t>(random()) << 32 | random()) >> (random() % 64));
    case 3:
      return static_cast<double>(random() % 7);
    case 4: {
      const uint64_t bits = static_cast<uint64_t>(random()) << 32 | random();
      double number = 0;
      std::memcpy(&number, &bits, sizeof number);
      return std::isnan(number) ? 0.5 : number;
    }
    case 5:
      return random_text(random);
    case 6:
      return random_tensor(random);
    case 7:
      if (random() % 2 == 0) return tree::dtype_value(at::kBFloat16);
      return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(random() % 8));
    case 8:
      return tree::bytes_value(random_text(random), random_text(random));
    case 9: {
      std::vector<c10::IValue> items;
      for (auto count = random() % 4; count > 0; count--) items.push_back(random_tree(random, depth - 1));
      return tree::new_tuple(std::move(items));
    }
    case 10: {
      std::vector<std::pair<c10::IValue, c10::IValue>> members;
      for (auto count = random() % 4; count > 0; count--) {
        const bool is_text = random() % 2 == 0;
        c10::IValue key =
            is_text ? c10::IValue(random_text(random)) : c10::IValue(static_cast<int64_t>(random() % 5) - 2);
        members.emplace_back(std::move(key), random_tree(random, depth - 1));
      }
      return tree::new_map(members);
    }
    case 11: {
      c10::impl::GenericList list(c10::AnyType::get());
      for (auto count = random() % 4; count > 0; count--) list.push_back(random_tree(random, depth - 1));
      return list;
    }
    default: {
      c10::impl::GenericDict map(c10::StringType::get(), c10::AnyType::get());
      for (auto count = random() % 4; count > 0; count--)
        map.insert_or_assign(random_text(random), random_tree(random, depth - 1));
      return map;
    }
  }
}

TEST(CheckpointChecksum, IsTheSameInPiecesAndInParallel) {
  EXPECT_EQ(checksum_of("123456789", 9), 0xcbf43926U);
  std::string data(9 << 20, '\0');
  std::mt19937 random(3);
  for (char& byte : data) byte = static_cast<char>(random());
  Checksum pieces;
  for (size_t i = 0; i < data.size(); i += 100000)
    pieces.add(data.data() + i, std::min<size_t>(100000, data.size() - i));
  EXPECT_EQ(pieces.value(), checksum_of(data.data(), data.size()));
}

c10::IValue round_trip(const Folder& folder, const c10::IValue& value, ValueContainer container) {
  const std::string path = folder / (std::string("value.") + value_extension(value, container));
  fs::remove(path);
  OutputFile output(path, quick_files());
  write_value(output, value);
  output.finish();
  return read_value(std::make_shared<const MappedFile>(path));
}

TEST(CheckpointValue, RandomTreesComeBack) {
  const Folder folder;
  std::mt19937 random(4);
  for (int round = 0; round < 400; round++) {
    const c10::IValue tree = random_tree(random, 4);
    EXPECT_TRUE(same(tree, round_trip(folder, tree, ValueContainer::kByContent))) << tree;
    EXPECT_TRUE(same(tree, round_trip(folder, tree, ValueContainer::kSafetensors))) << tree;
  }
}

TEST(CheckpointValue, NumbersKeepTheirKindAndEveryBit) {
  const Folder folder;
  for (const double number : {0.0, -0.0, 1.0, 1.5, 1e300, -2e-308, 5e-324, 0.1, 9007199254740993.0,
                              std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()})
    EXPECT_TRUE(same(c10::IValue(number), round_trip(folder, number, ValueContainer::kByContent))) << number;
  EXPECT_TRUE(std::isnan(round_trip(folder, std::nan(""), ValueContainer::kByContent).toDouble()));
  for (const int64_t number : {int64_t{0}, int64_t{-1}, int64_t{1} << 53, (int64_t{1} << 53) + 1,
                               std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()})
    EXPECT_EQ(round_trip(folder, number, ValueContainer::kByContent).toInt(), number);
}

TEST(CheckpointValue, WhatFilesCannotHoldIsRefused) {
  const Folder folder;
  expect_error(Status::kInvalidArgument, "NUL",
               [&] { round_trip(folder, std::string("a\0b", 3), ValueContainer::kByContent); });
  expect_error(Status::kInvalidArgument, "UTF-8",
               [&] { round_trip(folder, std::string("\x80"), ValueContainer::kByContent); });
  c10::IValue deep;
  for (int i = 0; i < 600; i++) {
    c10::impl::GenericList list(c10::AnyType::get());
    list.push_back(deep);
    deep = list;
  }
  expect_error(Status::kInvalidArgument, "deep", [&] { round_trip(folder, deep, ValueContainer::kByContent); });
}

TEST(CheckpointValue, DamagedJsonIsNamed) {
  const Folder folder;
  const auto load = [&](const std::string& json) {
    write_text(folder / "v.json", json);
    return read_value(std::make_shared<const MappedFile>(folder / "v.json"));
  };
  for (const char* json :
       {"", "{", "[1,]", R"({"$tensor":"x"})", R"({"$odd":"x"})", R"({"$int":"1x"})", R"({"$double":1})",
        R"({"$device":"no"})", R"({"$tuple":1})", R"({"$bytes":["a"]})", R"({"$items":[[1]]})",
        R"({"$items":[[1.5,2]]})", R"({"$items":[[1,2],[1,3]]})", R"({"a":1,"a":2})", "\"\\u0000\"", "1 2"})
    expect_error(Status::kCorrupt, "v.json", [&] { load(json); });
  EXPECT_EQ(load(R"({"a":1})").toGenericDict().at("a").toInt(), 1);
}

TEST(CheckpointTrainingState, ComesBackAndReplacesAnOlderOne) {
  const Folder folder;
  save_training_state(folder / "s", example(0, 1), Ranks());
  EXPECT_EQ(number_of(folder / "s"), 1);
  for (const char* name : {"model.safetensors", "model_1.safetensors", "optimizer.safetensors", "scheduler.json",
                           "custom_mine.json", "dataloader_0.json", "random_states_0.safetensors", "state.json"})
    EXPECT_TRUE(fs::exists(folder / (std::string("s/") + name))) << name;
  save_training_state(folder / "s/", example(0, 2), Ranks());  // with a slash at the end
  EXPECT_EQ(number_of(folder / "s"), 2);
  EXPECT_EQ(folder.entries(), 1U);
  fs::create_symlink(folder / "s", folder / "link");
  save_training_state(folder / "link", example(0, 3), Ranks());
  EXPECT_EQ(number_of(folder / "s"), 3);
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(folder.entries(), 2U);
}

TEST(CheckpointTrainingState, FoldersOfOthersAreNotReplaced) {
  const Folder folder;
  const auto save = [&] { save_training_state(folder / "s", example(0, 1), Ranks()); };
  expect_error(Status::kIo, "does not exist", [&] { save_training_state(folder / "no/s", example(0, 1), Ranks()); });
  write_text(folder / "s", "x");
  expect_error(Status::kAlreadyExists, "no folder", save);
  fs::remove(folder / "s");
  fs::create_directory(folder / "s");
  save();  // an empty one is
  write_text(folder / "s/notes.txt", "x");
  expect_error(Status::kAlreadyExists, "notes.txt", save);
  fs::remove(folder / "s/notes.txt");
  fs::remove(folder / "s/state.json");
  expect_error(Status::kAlreadyExists, "state.json", save);
  TrainingState named = example(0, 1);
  entry_of(named, StateKind::kCustom).name = "../x";
  expect_error(Status::kInvalidArgument, "../x", [&] { save_training_state(folder / "t", named, Ranks()); });
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(CheckpointTrainingState, DamageAndMisfitsAreFoundBeforeAnythingChanges) {
  const Folder folder;
  save_training_state(folder / "s", example(0, 1), Ranks());
  const auto load = [&](const TrainingState& like) { return load_training_state(folder / "s", like, Ranks()); };
  const auto first_model = [](TrainingState& like) { return entry_of(like, StateKind::kModel).state.toGenericDict(); };
  const auto with = [&](auto change) {
    TrainingState like = example(0, 0);
    change(like);
    return like;
  };
  expect_error(Status::kNotFound, "state.json", [&] { load_training_state(folder / "none", example(0, 0), Ranks()); });
  expect_error(Status::kShapeMismatch, "[2]",
               [&] { load(with([&](auto& like) { first_model(like).insert_or_assign("b", at::zeros({3})); })); });
  expect_error(Status::kNotFound, "'extra'",
               [&] { load(with([&](auto& like) { first_model(like).insert("extra", at::zeros({3})); })); });
  expect_error(Status::kInvalidState, "'head'",
               [&] { load(with([&](auto& like) { EXPECT_EQ(first_model(like).erase("head"), 1U); })); });
  expect_error(Status::kInvalidState, "models",
               [&] { load(with([](auto& like) { remove_entry(like, StateKind::kModel, 1); })); });
  expect_error(Status::kInvalidState, "optimizers",
               [&] { load(with([](auto& like) { remove_entry(like, StateKind::kOptimizer); })); });
  expect_error(Status::kInvalidState, "data loaders",
               [&] { load(with([](auto& like) { remove_entry(like, StateKind::kDataloader, 1); })); });
  expect_error(Status::kInvalidState, "'mine'",
               [&] { load(with([](auto& like) { remove_entry(like, StateKind::kCustom); })); });
  expect_error(Status::kNotFound, "custom_other", [&] {
    load(with([](auto& like) { like.push_back({StateKind::kCustom, "other", 1, {}}); }));
  });
  expect_error(Status::kCorrupt, "lack 'device'", [&] {
    load(with([](auto& like) { like.push_back({StateKind::kRankState, "device", {}, {}}); }));
  });
  Ranks two;
  two.size = 2;
  two.all_gather = [](const std::string& text) { return std::vector<std::string>{text, text}; };
  TrainingState of_one = load_training_state(folder / "s", example(0, 0), two);
  EXPECT_EQ(entry_of(of_one, StateKind::kRankState).of_ranks.size(), 1);

  for (const auto& entry : fs::directory_iterator(folder / "s")) {
    const std::string path = entry.path().string(), original = read_text(path);
    std::string flipped = original;
    flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 1);
    for (const std::string& damaged : {flipped, original.substr(0, original.size() - 2), original + "x"}) {
      write_text(path, damaged);
      expect_error(Status::kCorrupt, entry.path().filename().string(), [&] { load(example(0, 0)); });
    }
    fs::remove(path);
    expect_error(Status::kNotFound, entry.path().filename().string(), [&] { load(example(0, 0)); });
    write_text(path, original);
  }
  EXPECT_EQ(number_of(folder / "s"), 1);
}

// Ranks as threads.
class ThreadAllGather {
 public:
  explicit ThreadAllGather(int size) : texts_(static_cast<size_t>(size)) {}
  std::vector<std::string> all_gather(int rank, const std::string& text) {
    std::unique_lock<std::mutex> lock(mutex_);
    texts_[static_cast<size_t>(rank)] = text;
    const int round = round_;
    if (++arrived_ == static_cast<int>(texts_.size())) {
      result_ = texts_;
      arrived_ = 0;
      round_++;
      all_here_.notify_all();
    } else if (!all_here_.wait_for(lock, std::chrono::seconds(30), [&] { return round_ != round; })) {
      fail(Status::kTimeout, "a rank is missing");
    }
    return result_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::vector<std::string> texts_, result_;
  int arrived_ = 0, round_ = 0;
};

template <typename Body>
void on_ranks(int size, Body&& body) {
  ThreadAllGather gather(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; rank++)
    threads.emplace_back([&, rank] {
      Ranks ranks;
      ranks.rank = rank;
      ranks.size = size;
      ranks.all_gather = [&, rank](const std::string& text) { return gather.all_gather(rank, text); };
      body(ranks);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(CheckpointTrainingState, EveryRankGetsItsOwnBack) {
  const Folder folder;
  on_ranks(3, [&](const Ranks& ranks) {
    save_training_state(folder / "s", example(ranks.rank, 5), ranks);
    EXPECT_TRUE(same(load_training_state(folder / "s", example(ranks.rank, 0), ranks), example(ranks.rank, 5)));
  });
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(CheckpointTrainingState, FailureOfOneRankIsTheFailureOfAll) {
  const Folder folder;
  on_ranks(3, [&](const Ranks& ranks) {
    save_training_state(folder / "s", example(ranks.rank, 1), ranks);
    TrainingState bad = example(ranks.rank, 2);
    if (ranks.rank == 1) entry_of(bad, StateKind::kRankState).state = at::zeros({1}, at::kComplexDouble);
    expect_error(Status::kTypeMismatch, "rank 1: ", [&] { save_training_state(folder / "s", bad, ranks); });
    expect_error(Status::kUser, "rank 2: ", [&] {
      const auto collect = [&] {
        if (ranks.rank == 2) fail(Status::kUser, "no state today");
        return example(ranks.rank, 2);
      };
      save_training_state(folder / "s", collect, ranks);
    });
    if (ranks.rank == 2) entry_of(bad, StateKind::kModel, 1).state = model_state({{"c", at::zeros({7})}});
    expect_error(Status::kShapeMismatch, "rank 2: ", [&] { load_training_state(folder / "s", bad, ranks); });
    EXPECT_TRUE(same(load_training_state(folder / "s", example(ranks.rank, 0), ranks), example(ranks.rank, 1)));
  });
  EXPECT_EQ(folder.entries(), 1U);
}

}  // namespace checkpoint_test
}  // namespace accel::checkpoint
