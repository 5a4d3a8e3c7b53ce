// SPDX-License-Identifier: Apache-2.0
// Training states of two ranks, which are threads: "state" holds 1, or is not there, and a save writes 2. Each exchange
// of the ranks is a moment at which they wait for each other.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "../engine/checkpoint_fixture.hpp"
#include "base/error.hpp"
#include "checkpoint/load_training_state.hpp"
#include "checkpoint/save_training_state.hpp"
#include "tensor/tensor_chunk.hpp"
#include "written_kinds.hpp"

namespace power_cut {
namespace {

using namespace accel::checkpoint;
namespace example = accel::checkpoint::tests;

constexpr int kRanks = 2;
constexpr int64_t kRows = 6, kWide = 4;
constexpr const char* kAddedFile = "added/below/words";

struct RankSave {
  int ranks = kRanks;
  bool has_older = true;
  bool asynchronous = false;
  bool adds_files = false;  // of the program, two folders below the checkpoint
  int64_t large = 0;        // elements of a tensor
  SaveOptions options = {};
};

at::Tensor sharded_tensor(double number) { return at::full({kRows, kWide}, number); }

// A replicated model, a sharded one, and what else a training has.
TrainingState state_of(const Ranks& ranks, double number, const RankSave& save) {
  TrainingState state = example::example(ranks.rank, number);
  const int64_t count = kRows / ranks.size, begin = ranks.rank * count;
  StateEntry sharded{StateKind::kModel, "", {}, {}};
  sharded.state = example::map_of(
      {{"sharded", accel::tensor::chunk_value(
                       sharded_tensor(number).narrow(0, begin, count),
                       accel::tensor::box_placement({kRows, kWide}, {{begin, 0}, {count, kWide}}, "shard"))}});
  sharded.takes_chunks = true;
  state.insert(state.begin() + 2, std::move(sharded));
  if (save.options.incremental)  // the same in both saves, so that they share its file
    state.push_back({StateKind::kCustom, "constant", example::map_of({{"x", at::full({3}, 5)}}), {}});
  if (save.large > 0)
    state.push_back({StateKind::kCustom, "large", example::map_of({{"x", at::full({save.large}, number)}}), {}});
  return state;
}

void add_file(const std::string& folder, double number) {
  for (const char* name : {"/added", "/added/below"}) ::mkdir((folder + name).c_str(), 0777);
  const int file = ::open((folder + "/" + kAddedFile).c_str(), O_WRONLY | O_CREAT, 0666);
  const std::string words = std::to_string(static_cast<int>(number));
  if (file < 0 || ::write(file, words.data(), words.size()) < 0) std::exit(2);
  ::close(file);
}

// Runs body(ranks) on each rank, and throws the first error of one.
template <typename Body>
void on_ranks(int size, const Body& body) {
  example::ThreadAllGather gather(size);
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; rank++)
    threads.emplace_back([&, rank] {
      set_rank(rank);
      Ranks ranks;
      ranks.rank = rank;
      ranks.size = size;
      ranks.all_gather = [&, rank](const std::string& text) {
        std::vector<std::string> texts = gather.all_gather(rank, text);
        rank_has_waited();
        return texts;
      };
      try {
        body(ranks);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (failure == nullptr) failure = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (failure != nullptr) std::rethrow_exception(failure);
}

// An asynchronous save writes on a thread of its own.
void write_on_thread(TrainingStateWriter& writer, const TrainingState& state, const Ranks& ranks) {
  std::exception_ptr failure;
  std::thread thread([&] {
    set_rank(ranks.rank);
    try {
      writer.write(state, ranks);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  thread.join();
  if (failure != nullptr) std::rethrow_exception(failure);
}

void save_state(const std::string& folder, double number, const RankSave& save) {
  on_ranks(save.ranks, [&](const Ranks& ranks) {
    SaveOptions options = save.options;
    options.previous = folder + "/state";
    TrainingStateWriter writer(folder + "/state", options, ranks);
    TrainingState state = writer.collect(
        [&](const std::string& temporary) {
          if (save.adds_files && ranks.rank == 0) add_file(temporary, number);
          return state_of(ranks, number, save);
        },
        ranks);
    if (save.asynchronous) {
      writer.drop_others(state);
      write_on_thread(writer, state, ranks);
    } else {
      writer.write(state, ranks);
    }
    promise(1);
  });
}

// The number of what this rank has loaded; -1 where parts differ.
double number_in(TrainingState loaded, const Ranks& ranks, const RankSave& save) {
  const auto sharded = loaded.begin() + 2;
  const int64_t count = kRows / ranks.size, begin = ranks.rank * count;
  const at::Tensor rows = accel::tensor::read_part(
      sharded->state.toGenericDict().at("sharded"),
      *accel::tensor::box_placement({kRows, kWide}, {{begin, 0}, {count, kWide}}, "shard"), "x");
  const double number = rows[0][0].item<double>();
  if (!example::same(rows, sharded_tensor(number).narrow(0, begin, count))) return -1;
  loaded.erase(sharded);
  TrainingState expected = state_of(ranks, number, save);
  expected.erase(expected.begin() + 2);
  return example::same(loaded, expected) ? number : -1;
}

Contents read_state(const std::string& folder, const RankSave& save) {
  std::vector<double> numbers(static_cast<size_t>(save.ranks), -1);
  try {
    on_ranks(save.ranks, [&](const Ranks& ranks) {
      numbers[static_cast<size_t>(ranks.rank)] =
          number_in(load_training_state(folder + "/state", state_of(ranks, 0, save), {}, ranks).entries, ranks, save);
    });
  } catch (const accel::Error& error) {
    const bool is_old = !save.has_older && error.status() == accel::Status::kNotFound;
    return {is_old ? Found::kOld : Found::kLost, error.message()};
  }
  for (const double number : numbers)
    if (number != numbers.front()) return {Found::kLost, "the ranks have different states"};
  if (save.adds_files && example::read_text(folder + "/state/" + kAddedFile) != std::to_string(int(numbers.front())))
    return {Found::kLost, std::string(kAddedFile) + " has other words"};
  if (numbers.front() == 2) return {Found::kNew};
  return {numbers.front() == 1 && save.has_older ? Found::kOld : Found::kLost};
}

Kind kind_of(const char* name, const RankSave& save) {
  Kind kind;
  kind.name = std::to_string(save.ranks) + (save.ranks == 1 ? " rank, " : " ranks, ") + name;
  kind.prepare = [=](const std::string& folder) {
    if (save.has_older) save_state(folder, 1, save);
  };
  kind.write = [=](const std::string& folder) { save_state(folder, 2, save); };
  kind.read = [=](const std::string& folder, size_t /*promised*/) { return read_state(folder, save); };
  kind.go_on = [=](const std::string& folder, size_t /*promised*/) -> std::string {
    save_state(folder, 2, save);
    size_t entries = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) entries++;
    if (entries != 1) return std::to_string(entries) + " entries are in the folder after another save";
    return read_state(folder, save).found == Found::kNew ? "" : "another save is not read";
  };
  return kind;
}

}  // namespace

std::vector<Kind> states_of_ranks() {
  RankSave first, asynchronous, incremental, compressed, added, large;
  first.has_older = false;
  asynchronous.asynchronous = true;
  incremental.options.incremental = true;
  compressed.options.compression_level = 1;
  added.ranks = 1;
  added.adds_files = true;
  large.large = 20000;
  std::vector<Kind> kinds = {
      kind_of("default", {}),
      kind_of("first of its name", first),
      kind_of("asynchronous", asynchronous),
      kind_of("incremental", incremental),
      kind_of("compressed", compressed),
      kind_of("with files of the program", added),
      kind_of("files of many blocks", large),
      kind_of("folders cannot be synced", {}),
  };
  kinds.back().limits.syncs_folders = false;
  return kinds;
}

}  // namespace power_cut
