// SPDX-License-Identifier: Apache-2.0
// Nested values and training states of several ranks.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <sys/stat.h>

#include <cmath>
#include <condition_variable>
#include <functional>
#include <limits>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>

#include "checkpoint/chunk_file.hpp"
#include "checkpoint/files/content_hash.hpp"
#include "checkpoint/files/crc32.hpp"
#include "checkpoint/formats/value_file.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/run_on_all_ranks.hpp"
#include "checkpoint_fixture.hpp"
#include "tensor/bytes.hpp"
#include "tensor/dtype_value.hpp"
#include "tensor/tensor_chunk.hpp"
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

std::string bytes_of_a_pattern(size_t size) {
  std::string data(size, '\0');
  for (size_t i = 0; i < size; i++) data[i] = static_cast<char>(i * 7 + i / 256);
  return data;
}

template <typename Sum>
auto sum_in_chunks(const std::string& data, size_t chunk) {
  Sum sum;
  for (size_t i = 0; i < data.size(); i += chunk) sum.add(data.data() + i, std::min(chunk, data.size() - i));
  return sum.value();
}

// As `xxhsum -H3` prints them.
// A rank that is lost in the step fails it on the others, and then their report.
// Regression: a rank that was lost while a sharded model was gathered for a save was reported as
// `ACCEL_ERROR_CANCELLED`.
TEST(CheckpointRanks, TheFailureOfAStepIsThrownWhereNobodyCanBeAsked) {
  Ranks ranks;
  ranks.size = 2;
  ranks.all_gather = [](const std::string&) -> std::vector<std::string> {
    fail(Status::kCancelled, "the group has failed before");
  };
  expect_error(Status::kPeerLost, "rank 1 is lost",
               [&] { run_on_all_ranks(ranks, []() -> std::string { fail(Status::kPeerLost, "rank 1 is lost"); }); });
  expect_error(Status::kCancelled, "failed before", [&] { run_on_all_ranks(ranks, [] { return std::string(); }); });
}

// The status is that which the caller of the failing rank gets.
TEST(CheckpointRanks, OtherRanksThrowTheSameStatus) {
  Ranks ranks;
  ranks.size = 2;
  ranks.all_gather = [](const std::string& own) -> std::vector<std::string> { return {own, success_report("")}; };
  const auto expect = [&](Status status, const std::string& message, const std::function<void()>& failing) {
    expect_error(status, "rank 0: " + message, [&] {
      run_on_all_ranks(ranks, [&] {
        failing();
        return std::string();
      });
    });
  };
  expect(Status::kUnsupported, "no such kernel", [] { TORCH_CHECK_NOT_IMPLEMENTED(false, "no such kernel"); });
  expect(Status::kTypeMismatch, "a list", [] { TORCH_CHECK_TYPE(false, "a list"); });
  expect(Status::kInvalidArgument, "dimension 3", [] { TORCH_CHECK_INDEX(false, "dimension 3"); });
  expect(Status::kInvalidArgument, "too long", [] { throw std::length_error("too long"); });
  expect(Status::kTorch, "shapes", [] { TORCH_CHECK(false, "shapes"); });
  expect(Status::kOutOfMemory, "no memory", [] { throw std::bad_alloc(); });
  expect(Status::kCorrupt, "a hole", [] { fail(Status::kCorrupt, "a hole"); });
}

TEST(CheckpointHash, IsXxh3) {
  EXPECT_EQ(hash_of("", 0), 0x2d06800538d394c2U);
  EXPECT_EQ(hash_of("123456789", 9), 0x72dcb18b67a17dffU);
  const std::string data = bytes_of_a_pattern(1000000);
  EXPECT_EQ(hash_of(data.data(), data.size()), 0xc44da33b7368a321U);
  for (const size_t chunk : {1000U, 65536U, 999999U})
    EXPECT_EQ(sum_in_chunks<ContentHash>(data, chunk), 0xc44da33b7368a321U);
}

TEST(CheckpointCrc32, IsThatOfZip) {
  EXPECT_EQ(crc32_of("", 0), 0U);
  EXPECT_EQ(crc32_of("123456789", 9), 0xcbf43926U);
  const std::string data = bytes_of_a_pattern(1000000);
  EXPECT_EQ(sum_in_chunks<Crc32>(data, 1000), crc32_of(data.data(), data.size()));
}

c10::IValue round_trip(const Folder& folder, const c10::IValue& value) {
  const std::string path = folder / "value.bin";
  fs::remove(path);
  OutputFile output(path, quick_files());
  write_value(output, value);
  output.finish();
  EXPECT_TRUE(holds_value(path, value));
  return read_value(std::make_shared<const MappedFile>(path));
}

TEST(CheckpointValue, RandomTreesComeBack) {
  const Folder folder;
  std::mt19937 random(4);
  for (int round = 0; round < 400; round++) {
    const c10::IValue tree = random_tree(random, 4);
    EXPECT_TRUE(same(tree, round_trip(folder, tree))) << tree;
  }
}

TEST(CheckpointValue, NumbersKeepTheirKindAndEveryBit) {
  const Folder folder;
  for (const double number : {0.0, -0.0, 1.0, 1.5, 1e300, -2e-308, 5e-324, 0.1, 9007199254740993.0,
                              std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()})
    EXPECT_TRUE(same(c10::IValue(number), round_trip(folder, number))) << number;
  EXPECT_TRUE(std::isnan(round_trip(folder, std::nan("")).toDouble()));
  for (const int64_t number : {int64_t{0}, int64_t{-1}, int64_t{1} << 53, (int64_t{1} << 53) + 1,
                               std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()})
    EXPECT_EQ(round_trip(folder, number).toInt(), number);
}

TEST(CheckpointTrainingState, ComesBackAndReplacesAnOlderOne) {
  const Folder folder;
  save_training_state(folder / "s", example(0, 1), Ranks());
  EXPECT_EQ(number_of(folder / "s"), 1);
  for (const char* name : {"model.safetensors", "model_1.safetensors", "optimizer.bin", "scheduler.bin",
                           "custom_mine.bin", "random_states_0.pkl", "accel_rank_0.bin", "accel_manifest.json"})
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
  expect_error(Status::kAlreadyExists, "not a folder", save);
  fs::remove(folder / "s");
  fs::create_directory(folder / "s");
  save();  // an empty one is
  write_text(folder / "s/notes.txt", "x");
  expect_error(Status::kAlreadyExists, "notes.txt", save);
  fs::remove(folder / "s/notes.txt");
  fs::remove(folder / "s/accel_manifest.json");
  save();  // as a checkpoint of Accelerate, which has none
  fs::create_directories(folder / "s/added");
  write_text(folder / "s/added/by.hand", "x");
  expect_error(Status::kAlreadyExists, "added", save);
  fs::remove_all(folder / "s/added");
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
  expect_error(Status::kNotFound, "none", [&] { load_training_state(folder / "none", example(0, 0), Ranks()); });
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
  expect_error(Status::kInvalidState, "'custom_mine.bin'",
               [&] { load(with([](auto& like) { remove_entry(like, StateKind::kCustom); })); });
  expect_error(Status::kNotFound, "custom_other", [&] {
    load(with([](auto& like) { like.push_back({StateKind::kCustom, "other", 1, {}}); }));
  });
  expect_error(Status::kNotFound, "'device' of rank 0", [&] {
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
    if (ranks.rank == 1) entry_of(bad, StateKind::kRankState).state = at::zeros({1}, at::kMeta);
    expect_error(Status::kTypeMismatch, "rank 1: ", [&] { save_training_state(folder / "s", bad, ranks); });
    expect_error(Status::kUser, "rank 2: ", [&] {
      const auto collect = [&](const std::string&) {
        if (ranks.rank == 2) fail(Status::kUser, "no state today");
        return example(ranks.rank, 2);
      };
      checkpoint::save_training_state(folder / "s", collect, {}, ranks);
    });
    if (ranks.rank == 2) entry_of(bad, StateKind::kModel, 1).state = model_state({{"c", at::zeros({7})}});
    expect_error(Status::kShapeMismatch, "rank 2: ", [&] { load_training_state(folder / "s", bad, ranks); });
    EXPECT_TRUE(same(load_training_state(folder / "s", example(ranks.rank, 0), ranks), example(ranks.rank, 1)));
  });
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(CheckpointTrainingState, RanksShareTheWorkAndNothingIsWrittenTwice) {
  const Folder folder;
  const auto state = [](int rank) {
    TrainingState state = example(rank, 3);
    for (StateEntry& entry : state) entry.is_equal_on_all_ranks = !is_per_rank(entry.kind);
    return state;
  };
  struct Files final : QuickFiles {
    int created = 0;
    int create_file(const char* path) override {
      created++;
      return FileSystem::create_file(path);
    }
  };
  std::vector<Files> files(2);
  on_ranks(2, [&](const Ranks& ranks) {
    save_training_state(folder / "s", state(ranks.rank), ranks, files[static_cast<size_t>(ranks.rank)]);
    EXPECT_TRUE(same(load_training_state(folder / "s", example(ranks.rank, 0), ranks), example(ranks.rank, 3)));
  });
  EXPECT_EQ(files[0].created + files[1].created, 5 + 2 * 2 + 1);
  EXPECT_GT(files[1].created, 2);
}

// What one rank writes for all may have any size, and any ties, on the others.
// Regression: ranks with registered objects of other sizes planned a checkpoint differently, and it could not be saved.
TEST(CheckpointTrainingState, StatesMayHaveOtherSizesOnOtherRanks) {
  for (const int larger : {0, 1, 2}) {
    const Folder folder;
    on_ranks(3, [&](const Ranks& ranks) {
      TrainingState state = example(ranks.rank, 4);
      for (StateEntry& entry : state)
        entry.is_equal_on_all_ranks = entry.kind == StateKind::kModel || entry.kind == StateKind::kOptimizer;
      const auto own = [&](int rank) { return at::zeros({rank == larger ? 1000 : rank}); };
      entry_of(state, StateKind::kCustom).state = own(ranks.rank);
      save_training_state(folder / "s", state, ranks, quick_files());
      TrainingState expected = example(ranks.rank, 4);
      entry_of(expected, StateKind::kCustom).state = own(0);
      EXPECT_TRUE(same(load_training_state(folder / "s", example(ranks.rank, 0), ranks), expected)) << larger;
    });
  }
}

// Regression: a hook that left a model out on the main process alone had no effect where another rank wrote it.
TEST(CheckpointTrainingState, TheListOfTheFirstRankIsSaved) {
  for (const bool equal : {false, true})
    for (const int leaves_out : {0, 1}) {
      const Folder folder;
      on_ranks(2, [&](const Ranks& ranks) {
        TrainingState state = example(ranks.rank, 4);
        for (StateEntry& entry : state) entry.is_equal_on_all_ranks = equal && !is_per_rank(entry.kind);
        if (ranks.rank == 1) remove_entry(state, StateKind::kCustom);
        if (ranks.rank == leaves_out)
          for (const size_t index : {0, 1}) {
            entry_of(state, StateKind::kModel, index).is_left_out = true;
            entry_of(state, StateKind::kModel, index).state = {};
          }
        save_training_state(folder / "s", state, ranks, quick_files());
      });
      for (const char* const name : {"model.safetensors", "model_1.safetensors"})
        EXPECT_EQ(fs::exists(folder / "s/" + name), leaves_out == 1) << equal << leaves_out << name;
      EXPECT_TRUE(fs::exists(folder / "s/custom_mine.bin"));
      const Manifest manifest = load_manifest(folder / "s");
      EXPECT_EQ(manifest.find("model.safetensors") != nullptr, leaves_out == 1);
    }
  const Folder folder;
  on_ranks(2, [&](const Ranks& ranks) {
    TrainingState state = example(ranks.rank, 4);
    if (ranks.rank == 0) remove_entry(state, StateKind::kCustom);
    expect_error(Status::kInvalidState, "rank 1 has the state 'custom_mine'",
                 [&] { save_training_state(folder / "s", state, ranks, quick_files()); });
  });
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(CheckpointTrainingState, EachHostMayHaveItsOwnFolder) {
  const Folder folder;
  on_ranks(4, [&](const Ranks& given) {
    Ranks ranks = given;
    ranks.size_of_folder = 2;
    ranks.first_of_folder = ranks.rank / 2 * 2;
    const std::string path = folder / text("host_", ranks.rank / 2);
    save_training_state(path, example(ranks.rank, 2), ranks, quick_files());
    EXPECT_TRUE(same(load_training_state(path, example(ranks.rank, 0), ranks), example(ranks.rank, 2)));
    EXPECT_EQ(load_manifest(path).world_size, 4);
    EXPECT_TRUE(fs::exists(path + "/model.safetensors"));
    EXPECT_NE(fs::exists(path + "/random_states_0.pkl"), fs::exists(path + "/random_states_2.pkl"));
    TrainingState bad = example(ranks.rank, 3);
    if (ranks.rank == 3) entry_of(bad, StateKind::kRankState).state = at::zeros({1}, at::kMeta);
    expect_error(Status::kTypeMismatch, "rank 3: ", [&] { save_training_state(path, bad, ranks, quick_files()); });
  });
  EXPECT_EQ(folder.entries(), 2U);
}

TEST(CheckpointTrainingState, AddedFilesBelongToIt) {
  const Folder folder;
  const auto save = [&] {
    checkpoint::save_training_state(
        folder / "s",
        [&](const std::string& temporary) {
          fs::create_directories(temporary + "/adapter");
          write_text(temporary + "/adapter/weights.txt", "abc");
          return example(0, 1);
        },
        {}, Ranks());
  };
  save();
  EXPECT_EQ(read_text(folder / "s/adapter/weights.txt"), "abc");
  const Manifest manifest = load_manifest(folder / "s");
  ASSERT_NE(manifest.find("adapter/weights.txt"), nullptr);
  EXPECT_EQ(manifest.find("adapter/weights.txt")->hash, hash_of("abc", 3));
  save();  // such a folder can be replaced
  EXPECT_EQ(folder.entries(), 1U);
}

ino_t inode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_ino;
}

TEST(CheckpointTrainingState, WhatHasNotChangedIsSharedWithTheFormerOne) {
  const Folder folder;
  const auto state = [](double frozen, double other) {
    TrainingState state = example(0, other);
    StateEntry& model = entry_of(state, StateKind::kModel);
    model.state = model_state({{"base", at::full({300}, frozen)}, {"head", at::full({2}, other)}});
    model.frozen = {"base"};
    return state;
  };
  SaveOptions options;
  options.incremental = true;
  save_training_state(folder / "a", state(1, 1), Ranks(), quick_files(), options);
  options.previous = folder / "a";
  struct Files final : QuickFiles {
    std::vector<std::string> shared;
    int share_file(const char* existing, const char* path) override {
      shared.push_back(fs::path(path).filename());
      return FileSystem::share_file(existing, path);
    }
  };
  Files files;
  save_training_state(folder / "b", state(1, 2), Ranks(), files, options);
  EXPECT_EQ(files.shared, std::vector<std::string>{"model-00001-of-00002.safetensors"});
  const std::string shard = "/model-00001-of-00002.safetensors", other = "/model-00002-of-00002.safetensors";
  const std::string a = folder / "a", b = folder / "b";
  EXPECT_EQ(read_text(a + shard), read_text(b + shard));
  EXPECT_EQ(load_manifest(b).find(shard.substr(1))->hash, load_manifest(a).find(shard.substr(1))->hash);
  EXPECT_NE(inode_of(a + other), inode_of(b + other));
  for (const auto& [path, number] : {std::pair(a, 1.0), std::pair(b, 2.0)})
    EXPECT_TRUE(same(load_training_state(path, state(0, 0), Ranks()), state(1, number))) << path;
  // The former one goes; what it shared stays.
  fs::remove_all(a);
  EXPECT_TRUE(same(load_training_state(b, state(0, 0), Ranks()), state(1, 2)));
  options.previous = b;
  save_training_state(folder / "c", state(3, 3), Ranks(), quick_files(), options);
  EXPECT_TRUE(same(load_training_state(folder / "c", state(0, 0), Ranks()), state(3, 3)));
  EXPECT_TRUE(same(load_training_state(b, state(0, 0), Ranks()), state(1, 2)));
}

TEST(CheckpointTrainingState, TheIterationAndTheRanksAreInTheManifest) {
  const Folder folder;
  SaveOptions options;
  options.iteration = 7;
  options.library = "1.2.3";
  options.mesh = "replicate 1";
  save_training_state(folder / "s", example(0, 1), Ranks(), quick_files(), options);
  const Manifest manifest = load_manifest(folder / "s");
  EXPECT_EQ(manifest.iteration, 7);
  EXPECT_EQ(manifest.library, "1.2.3");
  EXPECT_EQ(manifest.mesh, "replicate 1");
  EXPECT_EQ(manifest.world_size, 1);
  EXPECT_EQ(checkpoint::load_training_state(folder / "s", example(0, 0), {}, Ranks()).iteration, 7);
}

TEST(CheckpointTrainingState, WhatIsMissingIsAnErrorUnlessItIsAllowed) {
  const Folder folder;
  TrainingState saved = example(0, 1);
  remove_entry(saved, StateKind::kCustom);
  remove_entry(saved, StateKind::kRandom);
  remove_entry(saved, StateKind::kDataloader, 1);
  save_training_state(folder / "s", saved, Ranks());
  TrainingState like = example(0, 0);
  remove_entry(like, StateKind::kRandom);
  expect_error(Status::kNotFound, "'custom_mine'", [&] { load_training_state(folder / "s", like, Ranks()); });
  remove_entry(like, StateKind::kCustom);
  expect_error(Status::kInvalidState, "data loaders", [&] { load_training_state(folder / "s", like, Ranks()); });
  remove_entry(like, StateKind::kDataloader, 1);
  like.push_back({StateKind::kRandom, "torch_manual_seed", {}, {}});
  expect_error(Status::kNotFound, "'torch_manual_seed' of rank 0",
               [&] { load_training_state(folder / "s", like, Ranks()); });
  LoadOptions options;
  options.allow_missing = true;
  TrainingState loaded = checkpoint::load_training_state(folder / "s", example(0, 0), options, Ranks()).entries;
  EXPECT_FALSE(entry_of(loaded, StateKind::kCustom).is_loaded);
  EXPECT_FALSE(entry_of(loaded, StateKind::kRandom).is_loaded);
  EXPECT_TRUE(entry_of(loaded, StateKind::kDataloader, 0).is_loaded);
  EXPECT_FALSE(entry_of(loaded, StateKind::kDataloader, 1).is_loaded);
  EXPECT_TRUE(entry_of(loaded, StateKind::kModel).is_loaded);
}

// Whatever a save that was killed had written, it is not taken for a folder of Accelerate.
// Regression: the chunks of a save that was killed were taken for a folder of Accelerate, and loaded by some ranks.
TEST(CheckpointTrainingState, APartOfASaveIsNoCheckpointOfAnyRank) {
  for (const char* const name :
       {"accel_rank_0.bin", "accel_rank_3.bin", "model_rank_00000.safetensors", "optimizer_1_rank_00012.safetensors"}) {
    const Folder folder;
    save_training_state(folder / "s", example(0, 1), Ranks());
    fs::remove(folder / "s/accel_manifest.json");
    fs::remove(folder / "s/accel_rank_0.bin");
    write_text(folder / (std::string("s/") + name), "x");
    expect_error(Status::kNotFound, "but no accel_manifest.json: it is a part of a checkpoint",
                 [&] { load_training_state(folder / "s", example(0, 0), Ranks()); });
  }
}

// As Accelerate saves them: without a manifest.
// Regression: a position of a loader in such a folder was an error instead of a warning, and `use_stateful_dataloader`
// did not take it.
// Regression: positions of loaders in a folder of Accelerate were ignored.
TEST(CheckpointTrainingState, PositionsOfLoadersOfTorchAreNoSilentLack) {
  const Folder folder;
  const std::string path = folder / "s";
  TrainingState saved = example(0, 1);
  remove_entry(saved, StateKind::kRankState);
  save_training_state(path, saved, Ranks(), quick_files());
  fs::remove(path + "/accel_manifest.json");
  fs::remove(path + "/accel_rank_0.bin");
  std::string logged;
  set_log_callback([](int32_t, const char* line, void* all) { *static_cast<std::string*>(all) += line; }, &logged,
                   nullptr);
  EXPECT_FALSE(entry_of(saved = load_training_state(path, saved, Ranks()), StateKind::kDataloader).is_loaded);
  for (const char* const name : {"sampler.bin", "dl_state_dict_1.bin"}) {
    write_text(path + "/" + name, "a pickle");
    logged.clear();
    saved = load_training_state(path, saved, Ranks());
    EXPECT_FALSE(entry_of(saved, StateKind::kDataloader).is_loaded);
    EXPECT_NE(logged.find(path + "/" + name), std::string::npos) << logged;
    EXPECT_NE(logged.find("the loader begins its epoch again"), std::string::npos) << logged;
    TrainingState without_loaders = saved;
    for (int i = 0; i < 2; i++) remove_entry(without_loaders, StateKind::kDataloader);
    logged.clear();
    load_training_state(path, without_loaders, Ranks());
    EXPECT_EQ(logged.find(name), std::string::npos) << logged;
    fs::remove(path + "/" + name);
  }
  set_log_callback(nullptr, nullptr, nullptr);
}

// A model and an optimizer whose rows are sharded over the ranks, unevenly.
struct Shards {
  static constexpr int64_t kRows = 7;
  static at::Tensor whole(double factor) { return at::arange(kRows * 3, at::kFloat).view({kRows, 3}) * factor; }

  static std::pair<int64_t, int64_t> rows(int rank, int size) {
    const int64_t each = (kRows + size - 1) / size;
    const int64_t begin = std::min(kRows, rank * each);
    return {begin, std::min(kRows, begin + each) - begin};
  }

  static c10::IValue chunk(double factor, const Ranks& ranks) {
    const auto [begin, count] = rows(ranks.rank, ranks.size);
    return tensor::chunk_value(whole(factor).narrow(0, begin, count),
                               tensor::box_placement({kRows, 3}, {{begin, 0}, {count, 3}}, "shard"));
  }

  static TrainingState state(const Ranks& ranks, bool sharded) {
    const auto tensor = [&](double factor) { return sharded ? chunk(factor, ranks) : c10::IValue(whole(factor)); };
    TrainingState state = {
        {StateKind::kModel, "", map_of({{"a", tensor(1)}, {"b", at::full({2}, 4)}}), {}},
        {StateKind::kOptimizer,
         "",
         map_of(
             {{"state", tree::new_map({{int64_t{0}, map_of({{"exp_avg", tensor(2)}, {"step", at::full({}, 9)}})}})}}),
         {}},
    };
    for (StateEntry& entry : state) entry.takes_chunks = sharded;
    return state;
  }

  static void expect_loaded(const TrainingState& loaded, const Ranks& ranks, bool sharded) {
    const auto model = loaded[0].state.toGenericDict();
    const auto entry = loaded[1].state.toGenericDict().at("state").toGenericDict().at(int64_t{0}).toGenericDict();
    const auto [begin, count] = rows(ranks.rank, ranks.size);
    const tensor::Box box = sharded ? tensor::Box{{begin, 0}, {count, 3}} : tensor::Box{{0, 0}, {kRows, 3}};
    for (const auto& [value, factor] : {std::pair(model.at("a"), 1.0), std::pair(entry.at("exp_avg"), 2.0)}) {
      EXPECT_TRUE(same(tensor::read_part(value, *tensor::box_placement({kRows, 3}, box, "shard"), "x"),
                       whole(factor).narrow(0, box.offset[0], box.sizes[0])));
      EXPECT_EQ(tensor::shape_of_saved(value, "x"), std::vector<int64_t>({kRows, 3}));
    }
    EXPECT_TRUE(same(model.at("b").toTensor(), at::full({2}, 4)));
    EXPECT_TRUE(same(entry.at("step").toTensor(), at::full({}, 9)));
  }
};

TEST(CheckpointChunks, AnyNumberOfRanksReadsWhatItNeeds) {
  for (const int savers : {1, 2, 3, 4})
    for (const bool saves_chunks : {true, false}) {
      const Folder folder;
      on_ranks(savers, [&](const Ranks& ranks) {
        save_training_state(folder / "s", Shards::state(ranks, saves_chunks), ranks, quick_files());
      });
      for (const int loaders : {1, 2, 4, 5})
        for (const bool loads_chunks : {true, false})
          on_ranks(loaders, [&](const Ranks& ranks) {
            const TrainingState like = Shards::state(ranks, loads_chunks);
            Shards::expect_loaded(load_training_state(folder / "s", like, ranks), ranks, loads_chunks);
          });
    }
}

TEST(CheckpointChunks, AreLeftOutByAllRanksOrNone) {
  const Folder folder;
  on_ranks(2, [&](const Ranks& ranks) {
    TrainingState state = Shards::state(ranks, true);
    if (ranks.rank == 1) {
      state[0].is_left_out = true;
      state[0].state = {};
    }
    expect_error(Status::kInvalidState, "rank 1 leaves the state 'model' out",
                 [&] { save_training_state(folder / "s", state, ranks, quick_files()); });
  });
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(CheckpointChunks, AMissingOrStrangeChunkIsNamed) {
  const Folder folder;
  on_ranks(2, [&](const Ranks& ranks) {
    save_training_state(folder / "s", Shards::state(ranks, true), ranks, quick_files());
  });
  const auto load = [&] { return load_training_state(folder / "s", Shards::state({}, false), Ranks()); };
  const std::string second = folder / "s/model_rank_00001.safetensors";
  const std::string first = folder / "s/model_rank_00000.safetensors";
  const std::string saved = read_text(second);
  fs::remove(second);
  expect_error(Status::kNotFound, "model_rank_00001", load);
  fs::copy_file(first, second);
  expect_error(Status::kCorrupt, "model_rank_00001", load);
  std::string flipped = saved;
  flipped[flipped.size() - 3] = static_cast<char>(flipped[flipped.size() - 3] ^ 1);
  write_text(second, flipped);
  expect_error(Status::kCorrupt, "chunk of 'a'", load);
  write_text(second, saved);
  EXPECT_NO_THROW(load());

  const auto table_of = [&](const std::vector<std::string>& files) {
    auto table = std::make_unique<ChunkTable>(true);
    for (const std::string& file : files) table->add(std::make_shared<const MappedFile>(file));
    return table;
  };
  expect_error(Status::kCorrupt, "overlaps", [&] { table_of({first, first}); });
  const auto half = table_of({first})->join(tree::new_map(), true);
  expect_error(Status::kCorrupt, "lacks 9 elements of 'a'", [&] { read_chunks(half); });
  expect_error(Status::kShapeMismatch, "not inside", [] { tensor::box_placement({3}, {{2}, {2}}, "shard"); });
}

}  // namespace checkpoint_test
}  // namespace accel::checkpoint
