// SPDX-License-Identifier: Apache-2.0
// accel_save_state() by one rank: "state" holds 1, or is not there, and a save writes 2.
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "written_kinds.hpp"

extern "C" {
#include "training_work.h"
}

namespace power_cut {
namespace {

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

void save(const std::string& folder, int64_t number, const accel_save_state_options_t& options) {
  const outcome_t outcome = run("save", folder, number, &options);
  if (outcome.status >= 0) return;
  std::fprintf(stderr, "a save without a power cut: %s\n", outcome.message);
  std::exit(2);
}

Contents read(const std::string& folder, bool has_older) {
  const outcome_t outcome = run("load", folder, 0);
  if (outcome.status >= 0 && outcome.contents == 2) return {Found::kNew};
  const bool is_old =
      has_older ? outcome.status >= 0 && outcome.contents == 1 : outcome.status == ACCEL_ERROR_NOT_FOUND;
  return {is_old ? Found::kOld : Found::kLost, outcome.message};
}

// A save succeeds, and leaves nothing there but the checkpoint.
std::string go_on(const std::string& folder) {
  const outcome_t outcome = run("save", folder, 0);
  if (outcome.status < 0) return outcome.message;
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) entries++;
  if (entries != 2) return std::to_string(entries) + " entries are in the folder after another save";
  return read(folder, true).found == Found::kNew ? "" : "another save is not read";
}

enum class Older { kNone, kDurable, kNotDurable };

Kind kind_of(const char* name, Older older, void (*choose)(accel_save_state_options_t& options)) {
  accel_save_state_options_t options = ACCEL_SAVE_STATE_OPTIONS_INIT;
  choose(options);
  Kind kind;
  kind.name = std::string("state, ") + name;
  kind.prepare = [=](const std::string& folder) {
    write_rows(folder.c_str());
    if (older == Older::kDurable) save(folder, -1, options);
  };
  kind.write = [=](const std::string& folder) {
    accel_save_state_options_t first = ACCEL_SAVE_STATE_OPTIONS_INIT;
    first.durable = 0;
    if (older == Older::kNotDurable) save(folder, -1, first);
    save(folder, 0, options);
    promise(1);
  };
  kind.read = [=](const std::string& folder, size_t promised) {
    const Contents contents = read(folder, older == Older::kDurable);
    // Nobody promised that a checkpoint that is not durable outlasts a power cut.
    if (older == Older::kNotDurable && promised == 0 && contents.found != Found::kNew) return Contents{Found::kOld};
    return contents;
  };
  kind.go_on = [=](const std::string& folder, size_t promised) -> std::string {
    return older == Older::kNotDurable && promised == 0 ? "" : go_on(folder);  // a damaged manifest is not replaced
  };
  return kind;
}

}  // namespace

std::vector<Kind> training_states() {
  std::vector<Kind> kinds = {
      kind_of("default", Older::kDurable, [](accel_save_state_options_t&) {}),
      kind_of("first of its name", Older::kNone, [](accel_save_state_options_t&) {}),
      kind_of("asynchronous", Older::kDurable, [](accel_save_state_options_t& options) { options.asynchronous = 1; }),
      kind_of("incremental", Older::kDurable, [](accel_save_state_options_t& options) { options.incremental = 1; }),
      kind_of("incremental behind one that is not durable", Older::kNotDurable,
              [](accel_save_state_options_t& options) { options.incremental = 1; }),
      kind_of("compressed", Older::kDurable,
              [](accel_save_state_options_t& options) { options.compression_level = 1; }),
      kind_of("torch files", Older::kDurable,
              [](accel_save_state_options_t& options) { options.safe_serialization = 0; }),
      kind_of("folders cannot be synced", Older::kDurable, [](accel_save_state_options_t&) {}),
  };
  kinds.back().limits.syncs_folders = false;
  return kinds;
}

}  // namespace power_cut

// training_work.c arms calls around the call of the library. None fails here.
extern "C" {
void arm_calls(int, int64_t, int32_t) {}
void disarm_calls(void) {}
int64_t count_of_calls(int) { return 0; }
int32_t a_call_has_failed(void) { return 0; }
}
