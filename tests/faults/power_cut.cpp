// SPDX-License-Identifier: Apache-2.0
// A power cut in a save: power_cut MOST [SEED]
//
// A checkpoint holds 1, or is not there, and a save of each kind writes 2, whose calls are recorded. Then each state in
// which a power cut at any moment may leave the files (recorded_files.hpp; at most MOST of each moment) is built in
// another folder, and must load as 1 or as 2; as 2 once the save has returned. A later save succeeds and clears away
// what the power cut left. Prints how many states there were.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "recorded_files.hpp"

extern "C" {
#include "training_work.h"
}

namespace {

using namespace power_cut;

std::string recorded_folder;  // empty: nothing is recorded
Recording recording;

outcome_t run(const char* name, const std::string& folder, int64_t number,
              const accel_save_state_options_t* options = nullptr) {
  work_t work{};
  work.folder = folder.c_str();
  work.number = number;
  work.ranks = 1;
  work.options = options;
  static outcome_t outcome;
  outcome = {};
  work_named(name)->run(&work, &outcome);
  return outcome;
}

void require_saved(const outcome_t& outcome) {
  if (outcome.status >= 0) return;
  std::fprintf(stderr, "a save without a power cut: %s\n", outcome.message);
  std::exit(2);
}

struct Kind {
  const char* name;
  void (*choose)(accel_save_state_options_t& options);
  bool has_older = true;  // a checkpoint of the same name
};

const Kind kKinds[] = {
    {"default", [](accel_save_state_options_t&) {}},
    {"first", [](accel_save_state_options_t&) {}, false},
    {"asynchronous", [](accel_save_state_options_t& options) { options.asynchronous = 1; }},
    {"incremental", [](accel_save_state_options_t& options) { options.incremental = 1; }},
    {"compressed", [](accel_save_state_options_t& options) { options.compression_level = 1; }},
    {"torch files", [](accel_save_state_options_t& options) { options.safe_serialization = 0; }},
};

void print_failure(const Recording& of, size_t count, const std::vector<Fate>& fates, const outcome_t& seen) {
  std::printf("after %zu of %zu operations: %s; contents %d\n", count, of.operations.size(),
              seen.status < 0 ? seen.message : "no error", seen.contents);
  for (size_t i = 0; i < count; i++) {
    static const char* const kFates[] = {"lost", "done", "size alone", "first block", "all but the first block"};
    std::printf("  %s: %s\n", of.operations[i].text().c_str(), kFates[static_cast<size_t>(fates[i])]);
  }
}

struct Counts {
  size_t states = 0, loads = 0, old_ones = 0, new_ones = 0, failures = 0;
};

// Whether a save into the folder succeeds, and leaves nothing there but the checkpoint.
bool can_go_on(const std::string& folder, outcome_t& outcome) {
  outcome = run("save", folder, 0);
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) entries++;
  if (outcome.status < 0 || entries != 2) return false;
  outcome = run("load", folder, 0);
  return outcome.status >= 0 && outcome.contents == 2;
}

// Loads each state once; behind the last operation the save has returned, and the state must be the new one.
Counts try_crashes(const Recording& of, const std::string& folder, size_t most, uint64_t seed, bool has_older,
                   bool prints) {
  constexpr size_t kGoesOn = 4;  // one of so many
  std::mt19937_64 random(seed);
  std::unordered_set<std::string> tried_before, tried_after;
  Counts counts;
  for_each_crash(of, most, random, [&](size_t count, const std::vector<Fate>& fates) {
    counts.states++;
    const bool has_returned = count == of.operations.size();
    const Tree tree = crash(of, count, fates);
    if (!(has_returned ? tried_after : tried_before).insert(text_of(tree)).second) return;
    counts.loads++;
    std::filesystem::remove_all(folder);
    write_tree(tree, folder);
    outcome_t outcome = run("load", folder, 0);
    const bool is_new = outcome.status >= 0 && outcome.contents == 2;
    const bool is_old =
        has_older ? outcome.status >= 0 && outcome.contents == 1 : outcome.status == ACCEL_ERROR_NOT_FOUND;
    if (is_new) counts.new_ones++;
    if (is_old) counts.old_ones++;
    if (is_new || (is_old && !has_returned))
      if (counts.loads % kGoesOn != 0 || can_go_on(folder, outcome)) return;
    if (counts.failures++ < 3 && prints) print_failure(of, count, fates, outcome);
  });
  return counts;
}

// A save without syncs must fail here: else nothing is tried.
Recording without_syncs(Recording of) {
  of.operations.erase(
      std::remove_if(of.operations.begin(), of.operations.end(),
                     [](const Operation& operation) { return operation.kind == Operation::Kind::kSync; }),
      of.operations.end());
  return of;
}

bool try_kind(const Kind& kind, const std::string& folder, size_t most, uint64_t seed) {
  const std::string before = folder + "/before", crashed = folder + "/crashed";
  accel_save_state_options_t options = ACCEL_SAVE_STATE_OPTIONS_INIT;
  kind.choose(options);
  std::filesystem::remove_all(before);
  std::filesystem::create_directory(before);
  write_rows(before.c_str());
  if (kind.has_older) require_saved(run("save", before, -1, &options));
  recorded_folder = before;
  require_saved(run("save", before, 0, &options));
  recorded_folder.clear();
  if (!are_equal(recording.after(), read_tree(before))) {
    std::fprintf(stderr, "the recorded operations do not give the files that are there: a call was not recorded\n");
    std::exit(2);
  }
  const Counts counts = try_crashes(recording, crashed, most, seed, kind.has_older, true);
  const Counts wrong =
      try_crashes(without_syncs(recording), crashed, std::min<size_t>(most, 4), seed, kind.has_older, false);
  std::printf(
      "%s: %zu operations, %zu states, %zu different ones: %zu with the old checkpoint, %zu with the new one, "
      "%zu failed; without syncs %zu of %zu\n",
      kind.name, recording.operations.size(), counts.states, counts.loads, counts.old_ones, counts.new_ones,
      counts.failures, wrong.failures, wrong.loads);
  return counts.failures == 0 && counts.old_ones > 0 && counts.new_ones > 0 && wrong.failures > 0;
}

}  // namespace

// training_work.c arms calls around the call of the library.
extern "C" {
void arm_calls(int, int64_t, int32_t) {
  if (!recorded_folder.empty()) begin_recording(recorded_folder);
}
void disarm_calls(void) {
  if (!recorded_folder.empty()) recording = end_recording();
}
int64_t count_of_calls(int) { return 0; }
int32_t a_call_has_failed(void) { return 0; }
}

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: power_cut MOST [SEED]\n");
    return 2;
  }
  const size_t most = std::strtoull(argv[1], nullptr, 10);
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  // Where nothing waits for a disk, if that can be.
  std::string folder = (access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path().string()) +
                       "/accel-power-cut-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 2;
  bool all_hold = true;
  for (const Kind& kind : kKinds) all_hold = try_kind(kind, folder, most, seed) && all_hold;
  std::filesystem::remove_all(folder);
  return all_hold ? 0 : 1;
}
