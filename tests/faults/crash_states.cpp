// SPDX-License-Identifier: Apache-2.0
#include "crash_states.hpp"

#include <algorithm>
#include <cstddef>
#include <map>

namespace power_cut {
namespace {

constexpr size_t kBlock = 4096;
using Kind = Operation::Kind;

bool is_there(const Fate& fate, size_t block) {
  switch (fate.kind) {
    case Fate::Kind::kDone:
      return true;
    case Fate::Kind::kFirstBlock:
      return block == 0;
    case Fate::Kind::kAllButFirstBlock:
      return block != 0;
    case Fate::Kind::kSomeBlocks:
      return std::mt19937_64(fate.seed + block)() % 2 == 0;
    default:
      return false;
  }
}

void write(const Operation& operation, const Fate& fate, std::string& bytes) {
  const size_t end = operation.offset + operation.bytes.size();
  size_t begin = operation.offset;
  for (size_t block = 0; begin < end; block++) {
    const size_t next = std::min(end, (begin / kBlock + 1) * kBlock);
    const bool has_size = fate.kind != Fate::Kind::kFirstBlock || block == 0;
    if (has_size && bytes.size() < next) bytes.resize(next);
    if (is_there(fate, block))
      bytes.replace(begin, next - begin, operation.bytes, begin - operation.offset, next - begin);
    begin = next;
  }
}

void apply(const Operation& operation, const Fate& fate, Tree& tree) {
  switch (operation.kind) {
    case Kind::kCreate:
      tree[operation.file].is_folder = operation.is_folder;
      return;
    case Kind::kNames:
      for (const Name& name : operation.names) {
        if (name.file)
          tree[name.folder].names[name.name] = *name.file;
        else
          tree[name.folder].names.erase(name.name);
      }
      return;
    case Kind::kResize:
      tree[operation.file].bytes.resize(operation.size);
      return;
    case Kind::kWrite:
      return write(operation, fate, tree[operation.file].bytes);
    case Kind::kSync:
    case Kind::kPromise:
      return;
  }
}

// Whether `later` happens behind `earlier` in each order of the ranks' operations.
bool is_behind(const Operation& earlier, const Operation& later) {
  return earlier.rank == later.rank || earlier.epoch < later.epoch;
}

// For each operation the files whose syncs put it on the disk, each with the operations that are such syncs.
using Syncs = std::vector<std::vector<std::vector<size_t>>>;

Syncs syncs_of(const Recording& recording) {
  const std::vector<Operation>& operations = recording.operations;
  Syncs syncs(operations.size());
  for (size_t i = 0; i < operations.size(); i++) {
    std::vector<FileId> files;
    const Operation& operation = operations[i];
    if (operation.kind == Kind::kWrite || operation.kind == Kind::kResize) files = {operation.file};
    if (operation.kind == Kind::kNames && !recording.has_names_at_once)
      for (const Name& name : operation.names) files.push_back(name.folder);
    for (const FileId file : files) {
      std::vector<size_t> found;
      for (size_t j = i + 1; j < operations.size(); j++)
        if (operations[j].kind == Kind::kSync && operations[j].file == file && is_behind(operation, operations[j]))
          found.push_back(j);
      syncs[i].push_back(std::move(found));
    }
  }
  return syncs;
}

// A file that is created has no name yet, so that nobody sees whether it is there.
std::vector<Fate> fates_of(const Operation& operation, std::mt19937_64& random) {
  using Fates = std::vector<Fate>;
  if (operation.kind != Kind::kWrite) return Fates{{Fate::Kind::kLost}, {Fate::Kind::kDone}};
  Fates fates = {{Fate::Kind::kLost}, {Fate::Kind::kDone}, {Fate::Kind::kSizeAlone}};
  const size_t bytes = operation.offset % kBlock + operation.bytes.size();
  if (bytes > kBlock) fates.insert(fates.end(), {{Fate::Kind::kFirstBlock}, {Fate::Kind::kAllButFirstBlock}});
  if (bytes > 2 * kBlock)
    for (int i = 0; i < 3; i++) fates.push_back({Fate::Kind::kSomeBlocks, random()});
  return fates;
}

// The operations of each rank in one epoch.
using Epoch = std::map<int, std::vector<size_t>>;

struct Moment {
  std::vector<bool> is_done;
  std::vector<size_t> open;  // operations that are done, and not on the disk for sure
  double states = 1;
};

Moment moment_of(const Recording& recording, const Syncs& syncs, const std::vector<bool>& is_done) {
  std::mt19937_64 random;
  Moment moment;
  moment.is_done = is_done;
  for (size_t i = 0; i < is_done.size(); i++) {
    const bool is_on_disk = std::all_of(syncs[i].begin(), syncs[i].end(), [&](const std::vector<size_t>& of_file) {
      return std::any_of(of_file.begin(), of_file.end(), [&](size_t sync) { return is_done[sync]; });
    });
    if (!is_done[i] || is_on_disk) continue;
    moment.open.push_back(i);
    moment.states *= static_cast<double>(fates_of(recording.operations[i], random).size());
  }
  return moment;
}

std::vector<Moment> moments_of(const Recording& recording) {
  const Syncs syncs = syncs_of(recording);
  std::map<size_t, Epoch> epochs;
  for (size_t i = 0; i < recording.operations.size(); i++)
    epochs[recording.operations[i].epoch][recording.operations[i].rank].push_back(i);
  std::vector<bool> is_done(recording.operations.size(), false);
  std::vector<Moment> moments = {moment_of(recording, syncs, is_done)};
  for (const auto& [number, epoch] : epochs) {
    std::map<int, size_t> counts;  // of operations that each rank has done
    // Counts up like the digits of a number, to the moment at which all are done.
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (const auto& [rank, own] : epoch) {
        size_t& count = counts[rank];
        if (count < own.size()) {
          is_done[own[count++]] = true;
          goes_on = true;
          break;
        }
        for (const size_t i : own) is_done[i] = false;
        count = 0;
      }
      if (goes_on) moments.push_back(moment_of(recording, syncs, is_done));
    }
    for (const auto& [rank, own] : epoch)
      for (const size_t i : own) is_done[i] = true;
  }
  return moments;
}

// The states of a moment with which all moments together have at most `most`.
double limit_of(const std::vector<Moment>& moments, double most) {
  std::vector<double> states;
  for (const Moment& moment : moments) states.push_back(moment.states);
  std::sort(states.begin(), states.end());
  for (size_t i = 0; i < states.size(); i++) {
    const double share = std::max(1.0, most / static_cast<double>(states.size() - i));
    if (states[i] > share) return share;
    most -= states[i];
  }
  return states.back();
}

}  // namespace

std::string Fate::text() const {
  static const char* const kTexts[] = {"lost",       "done", "size alone", "first block", "all but the first block",
                                       "some blocks"};
  return kTexts[static_cast<size_t>(kind)];
}

Tree crash(const Recording& recording, const std::vector<Fate>& fates) {
  Tree tree = recording.before;
  for (size_t i = 0; i < fates.size(); i++)
    if (fates[i].kind != Fate::Kind::kLost) apply(recording.operations[i], fates[i], tree);
  return tree;
}

Tree Recording::after() const { return crash(*this, std::vector<Fate>(operations.size(), {Fate::Kind::kDone})); }

Moments for_each_crash(const Recording& recording, size_t most, std::mt19937_64& random,
                       const std::function<void(const CrashState& state)>& visit) {
  std::vector<Moment> moments = moments_of(recording);
  if (moments.size() > most) {  // the first and the last, and others that are drawn
    std::shuffle(moments.begin() + 1, moments.end() - 1, random);
    moments.erase(moments.begin() + 1, moments.end() - static_cast<std::ptrdiff_t>(most > 1 ? most - 1 : 1));
  }
  const double limit = limit_of(moments, static_cast<double>(most));
  Moments counts;
  for (const Moment& moment : moments) {
    CrashState state;
    for (size_t i = 0; i < moment.is_done.size(); i++) {
      const Operation& operation = recording.operations[i];
      state.fates.push_back({moment.is_done[i] ? Fate::Kind::kDone : Fate::Kind::kLost});
      if (moment.is_done[i] && operation.kind == Kind::kPromise)
        state.promised = std::max(state.promised, operation.size);
    }
    const bool is_complete = moment.states <= limit;
    counts.all++;
    if (is_complete) counts.complete++;
    const auto visits = static_cast<size_t>(std::min(moment.states, limit));
    for (size_t visited = 0; visited < visits; visited++) {
      size_t number = visited;
      for (const size_t i : moment.open) {
        const std::vector<Fate> choices = fates_of(recording.operations[i], random);
        state.fates[i] = choices[is_complete ? number % choices.size() : random() % choices.size()];
        number /= choices.size();
      }
      visit(state);
    }
  }
  return counts;
}

}  // namespace power_cut
