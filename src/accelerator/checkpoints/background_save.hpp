// SPDX-License-Identifier: Apache-2.0
// The asynchronous save of a training state: its copy, and the thread that writes it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/background_writer.hpp"
#include "checkpoint/files/file_system.hpp"
#include "checkpoint/save_training_state.hpp"
#include "checkpoint/snapshot.hpp"
#include "checkpoint/training_state.hpp"
#include "comm/communicator.hpp"

namespace accel::accelerator {

class BackgroundSave {
 public:
  struct Progress {
    bool is_busy = false;
    int64_t written = 0;  // bytes of the last save, by this rank
    int64_t total = 0;    // about
  };

  // Copies the tensors of the state; the training may change them afterwards. Copies on an accelerator take at most
  // `device_bytes`, or half of what is free; if that is too little, the state stays as it is, and the obstacle is
  // returned.
  std::string copy(checkpoint::TrainingState& state, std::optional<int64_t> device_bytes = std::nullopt);
  // Writes the state on the thread, in the folder that `writer` has made, and calls `then`. `group` is a group of the
  // job's ranks for this purpose; null for one rank.
  void start(const std::string& folder, std::unique_ptr<checkpoint::TrainingStateWriter> writer,
             checkpoint::TrainingState state, checkpoint::Ranks ranks,
             std::function<void(const checkpoint::Ranks&)> then);

  // Writes the state before it returns, with what start() is given: the copies had an `obstacle` on this rank, if it is
  // not empty, or on another.
  void write_now(const std::string& folder, checkpoint::TrainingStateWriter& writer,
                 const checkpoint::TrainingState& state, const checkpoint::Ranks& ranks, const std::string& obstacle);

  // The folder of a save that has ended well, once; empty without one. Waits for it, and throws its error.
  std::string finish();
  bool wait(std::chrono::milliseconds timeout) const { return writer_.wait(timeout); }
  Progress progress() const;
  const std::string& folder() const { return folder_; }

  // Counts what is written.
  checkpoint::FileSystem& files(bool durable);
  std::shared_ptr<comm::Communicator>& group() { return group_; }
  void release_memory() { memory_.release(); }

 private:
  class CountingFiles final : public checkpoint::FileSystem {
   public:
    bool durable = true;
    std::atomic<int64_t> written{0};
    ssize_t write(int descriptor, const void* data, size_t size) override;
    int sync(int descriptor) override { return durable ? FileSystem::sync(descriptor) : 0; }
    bool is_durable() const override { return durable; }
  };

  CountingFiles files_;
  checkpoint::SnapshotMemory memory_;
  checkpoint::Snapshot snapshot_;
  std::shared_ptr<comm::Communicator> group_;
  std::string folder_;
  bool has_told_obstacle_ = false;
  std::atomic<int64_t> total_{0};
  checkpoint::BackgroundWriter writer_;  // last: it uses the others until its destructor has ended
};

}  // namespace accel::accelerator
