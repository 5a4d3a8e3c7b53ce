// SPDX-License-Identifier: Apache-2.0
#include "file_record.hpp"

#include <memory>
#include <utility>

#include "file_recorder.hpp"

namespace power_cut {

thread_local bool is_inside = false;
std::atomic<bool> syncs_folders{true}, has_links{true};

namespace {
thread_local int rank_of_thread = 0;
}

Recorder& recorder() {
  static Recorder& instance = *std::make_unique<Recorder>().release();
  return instance;
}

void Recorder::add(Operation operation) {
  operation.rank = rank_of_thread;
  operation.epoch = epochs[rank_of_thread];
  recording.operations.push_back(std::move(operation));
}

std::string Operation::text() const {
  std::string result = rank == 0 && epoch == 0 ? "" : "rank " + std::to_string(rank) + ": ";
  switch (kind) {
    case Kind::kCreate:
      return result + "create " + std::to_string(file);
    case Kind::kWrite:
      return result + "write " + std::to_string(bytes.size()) + " bytes at " + std::to_string(offset) + " of " +
             std::to_string(file);
    case Kind::kResize:
      return result + "resize " + std::to_string(file) + " to " + std::to_string(size);
    case Kind::kSync:
      return result + "sync " + std::to_string(file);
    case Kind::kPromise:
      return result + "promise " + std::to_string(size);
    case Kind::kNames:
      for (const Name& name : names)
        result += "name " + std::to_string(name.folder) + "/" + name.name + " -> " +
                  (name.file ? std::to_string(*name.file) : std::string("nothing")) + "; ";
  }
  return result;
}

void begin_recording(const std::string& folder) {
  Recorder& to = recorder();
  const std::lock_guard lock(to.mutex);
  to.recording = {};
  to.ids.clear();
  to.epochs.clear();
  to.next = 0;
  to.recording.before = read_tree(folder, [&to](const Inode& inode) {
    const auto [found, is_new] = to.ids.emplace(inode, to.next);
    if (is_new) to.next++;
    return found->second;
  });
  to.is_on = true;
}

Recording end_recording() {
  Recorder& to = recorder();
  const std::lock_guard lock(to.mutex);
  to.is_on = false;
  return std::move(to.recording);
}

void set_rank(int rank) { rank_of_thread = rank; }

void rank_has_waited() {
  Recorder& to = recorder();
  const std::lock_guard lock(to.mutex);
  to.epochs[rank_of_thread]++;
}

void promise(size_t number) {
  Recorder& to = recorder();
  const std::lock_guard lock(to.mutex);
  Operation promised(Operation::Kind::kPromise);
  promised.size = number;
  if (to.is_on) to.add(std::move(promised));
}

void set_limits(const FileSystemLimits& limits) {
  syncs_folders = limits.syncs_folders;
  has_links = limits.has_links;
}

}  // namespace power_cut
