// SPDX-License-Identifier: Apache-2.0
// Power cuts in what the library writes: power_cut MOST [SEED [NAME]]
//
// For each kind of file that the library writes, the calls of a write are recorded. Then each state in which a power
// cut at any moment may leave the files (crash_states.hpp; at most MOST of a kind) is built in another folder, and
// must be read as what was there before or as what is new; as what is new once the write has returned. A later write
// succeeds and clears away what the power cut left. Prints how many states there were. With a NAME only kinds that have
// it in their names.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "crash_states.hpp"
#include "written_kinds.hpp"

namespace {

using namespace power_cut;

struct Counts {
  size_t states = 0, reads = 0, old_ones = 0, new_ones = 0, nothing = 0, failures = 0;
  Moments moments;
};

void print_failure(const Recording& of, const CrashState& state, const std::string& message) {
  std::printf("promise %zu: %s\n", state.promised, message.c_str());
  for (size_t i = 0; i < of.operations.size(); i++)
    std::printf("  %s: %s\n", of.operations[i].text().c_str(), state.fates[i].text().c_str());
}

bool is_allowed(const Kind& kind, Found found, size_t promised) {
  if (found == Found::kNew) return true;
  if (promised >= kind.last_promise) return false;
  return found == Found::kOld || (found == Found::kNothing && kind.may_be_nothing);
}

// Reads each tree once.
Counts try_crashes(const Kind& kind, const Recording& of, const std::string& folder, size_t most, uint64_t seed,
                   bool prints) {
  constexpr size_t kGoesOn = 4;  // one of so many
  std::mt19937_64 random(seed);
  std::unordered_set<size_t> tried;
  Counts counts;
  counts.moments = for_each_crash(of, most, random, [&](const CrashState& state) {
    counts.states++;
    const Tree tree = crash(of, state.fates);
    if (!tried.insert(std::hash<std::string>()(text_of(tree) + std::to_string(state.promised))).second) return;
    counts.reads++;
    std::filesystem::remove_all(folder);
    write_tree(tree, folder);
    const Contents contents = kind.read(folder, state.promised);
    if (contents.found == Found::kNew) counts.new_ones++;
    if (contents.found == Found::kOld) counts.old_ones++;
    if (contents.found == Found::kNothing) counts.nothing++;
    std::string wrong;
    if (!is_allowed(kind, contents.found, state.promised))
      wrong = "is lost: " + (contents.message.empty() ? "something else is there" : contents.message);
    else if (counts.reads % kGoesOn == 0)
      wrong = kind.go_on(folder, state.promised);
    if (!wrong.empty() && counts.failures++ < 3 && prints) print_failure(of, state, wrong);
  });
  return counts;
}

Recording without_syncs(Recording of) {
  of.operations.erase(
      std::remove_if(of.operations.begin(), of.operations.end(),
                     [](const Operation& operation) { return operation.kind == Operation::Kind::kSync; }),
      of.operations.end());
  return of;
}

bool try_kind(const Kind& kind, const std::string& folder, size_t most, uint64_t seed, size_t& states) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string before = folder + "/before", crashed = folder + "/crashed";
  std::filesystem::remove_all(before);
  std::filesystem::create_directory(before);
  set_limits(kind.limits);
  kind.prepare(before);
  begin_recording(before);
  kind.write(before);
  Recording recording = end_recording();
  set_limits({});
  recording.has_names_at_once = !kind.limits.syncs_folders;
  if (text_of(recording.after()) != text_of(read_tree(before))) {
    std::fprintf(stderr, "%s: the record does not give the files that are there: a call is missing\n",
                 kind.name.c_str());
    return false;
  }
  const Counts counts = try_crashes(kind, recording, crashed, most, seed, true);
  Counts wrong;
  if (kind.needs_syncs)
    wrong = try_crashes(kind, without_syncs(recording), crashed, std::min<size_t>(most, 60), seed, false);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%s: %zu operations, %zu states (all of %zu of %zu moments), %zu different ones: %zu old, %zu new, ",
              kind.name.c_str(), recording.operations.size(), counts.states, counts.moments.complete,
              counts.moments.all, counts.reads, counts.old_ones, counts.new_ones);
  if (kind.may_be_nothing) std::printf("%zu with nothing, ", counts.nothing);
  std::printf("%zu lost; without syncs %zu of %zu; %.1f s\n", counts.failures, wrong.failures, wrong.reads,
              seconds.count());
  std::fflush(stdout);
  states += counts.states;
  return counts.failures == 0 && counts.old_ones > 0 && counts.new_ones > 0 && (wrong.failures > 0) == kind.needs_syncs;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: power_cut MOST [SEED [NAME]]\n");
    return 2;
  }
  const size_t most = std::strtoull(argv[1], nullptr, 10);
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const std::string wanted = argc > 3 ? argv[3] : "";
  // Where nothing waits for a disk, if that can be.
  std::string folder = (access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path().string()) +
                       "/accel-power-cut-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 2;
  bool all_hold = true;
  size_t states = 0;
  for (const auto& kinds :
       {training_states(), states_of_ranks(), numbered_states(), models(), offload_folders(), tracker_files()})
    for (const Kind& kind : kinds)
      if (kind.name.find(wanted) != std::string::npos)
        all_hold = try_kind(kind, folder, most, seed, states) && all_hold;
  std::filesystem::remove_all(folder);
  std::printf("%zu states\n", states);
  return all_hold ? 0 : 1;
}
