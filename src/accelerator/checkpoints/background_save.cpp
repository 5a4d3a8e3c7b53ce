// SPDX-License-Identifier: Apache-2.0
#include "accelerator/checkpoints/background_save.hpp"

#include <utility>
#include <vector>

#include "base/log.hpp"
#include "trace/span.hpp"

namespace accel::accelerator {

ssize_t BackgroundSave::CountingFiles::write(int descriptor, const void* data, size_t size) {
  const ssize_t done = FileSystem::write(descriptor, data, size);
  if (done > 0) written += done;
  return done;
}

checkpoint::FileSystem& BackgroundSave::files(bool durable) {
  files_.durable = durable;
  return files_;
}

std::string BackgroundSave::copy(checkpoint::TrainingState& state, std::optional<int64_t> device_bytes) {
  const Span copied(SpanKind::kCheckpoint, "copy state");
  std::vector<c10::IValue> values;
  for (const checkpoint::StateEntry& entry : state) values.push_back(entry.state);
  snapshot_ = {};  // gives its memory back
  snapshot_ = memory_.take(values, device_bytes);
  if (!snapshot_.obstacle.empty()) return snapshot_.obstacle;
  for (size_t i = 0; i < state.size(); i++) state[i].state = std::move(snapshot_.values[i]);
  snapshot_.values.clear();
  return "";
}

void BackgroundSave::write_now(const std::string& folder, checkpoint::TrainingStateWriter& writer,
                               const checkpoint::TrainingState& state, const checkpoint::Ranks& ranks,
                               const std::string& obstacle) {
  if (!obstacle.empty() && !std::exchange(has_told_obstacle_, true))
    log(LogLevel::kWarning, "the asynchronous save of '", folder,
        "' is synchronous, and so are later ones that find no more memory: the copies of its tensors need ", obstacle,
        "; see device_copy_bytes of the save");
  writer.write(state, ranks);
  log(LogLevel::kInfo, "the training state is saved in '", folder, "'");
}

void BackgroundSave::start(const std::string& folder, std::unique_ptr<checkpoint::TrainingStateWriter> writer,
                           checkpoint::TrainingState state, checkpoint::Ranks ranks,
                           std::function<void(const checkpoint::Ranks&)> then) {
  folder_ = folder;
  files_.written = 0;
  total_ = static_cast<int64_t>(writer->bytes_to_write());
  // Shared, because std::function copies; the last owner is the thread.
  const auto work =
      std::make_shared<std::pair<std::unique_ptr<checkpoint::TrainingStateWriter>, checkpoint::TrainingState>>(
          std::move(writer), std::move(state));
  writer_.start("the asynchronous save of '" + folder + "'",
                [this, work, folder, ranks = std::move(ranks), then = std::move(then)] {
                  {
                    const auto [writer, state] = std::move(*work);  // whose memory is free again, also after an error
                    snapshot_.begin_to_read();
                    writer->write(state, ranks);
                  }
                  then(ranks);
                  log(LogLevel::kInfo, "the training state is saved in '", folder, "'");
                });
}

std::string BackgroundSave::finish() {
  writer_.wait(std::nullopt);
  std::string folder = std::exchange(folder_, {});
  writer_.throw_error();
  return folder;
}

BackgroundSave::Progress BackgroundSave::progress() const { return {writer_.is_busy(), files_.written, total_}; }

}  // namespace accel::accelerator
