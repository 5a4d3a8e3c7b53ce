// SPDX-License-Identifier: Apache-2.0
#include "accelerator/checkpoints/project_checkpoint.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/ranks.hpp"
#include "base/error.hpp"
#include "checkpoint/files/make_folders.hpp"
#include "checkpoint/run_on_all_ranks.hpp"
#include "comm/group.hpp"
#include "config/generated/settings/state/state.hpp"

namespace accel::accelerator {

void ProjectCheckpoints::save_checkpoint(const std::optional<std::string>& given, checkpoint::SaveOptions options) {
  options.save_on_each_node = project_.settings().save_on_each_node;
  const checkpoint::Ranks ranks = ranks_of(state_, options.save_on_each_node);
  std::string folder;
  checkpoint::run_on_all_ranks(ranks, [&]() -> std::string {
    finish_background_save(options.when_busy == WhenBusy::kRefuse);
    folder = given ? *given : project_.next_folder();
    if (ranks.writer() != 0) return {};
    if (!given) project_.require_new(folder);
    checkpoint::make_folders(checkpoint::parent_folder(folder));
    return {};
  });
  const bool is_agreed = replicas_.run_before_save();
  if (options.incremental) options.previous = last_checkpoint_;
  options.may_replace = given.has_value();
  options.mesh = state_.groups().mesh()->describe();
  options.iteration = project_.settings().iteration;
  const bool rotates = !given && project_.settings().total_limit.value.has_value();
  const auto rotate = [project = project_, folder, agreed = is_agreed ? folder : agreed_checkpoint(),
                       rotates](const checkpoint::Ranks& ranks) {
    if (!rotates) return;
    checkpoint::run_on_all_ranks(ranks, [&]() -> std::string {
      if (ranks.writer() == 0) project.remove_oldest(folder, checkpoint::system_files(), agreed);
      return {};
    });
  };
  if (options.asynchronous && start_background_save(folder, options, ranks, rotate)) {
    project_.count_save();
    background_is_agreed_ = is_agreed;
    return;
  }
  if (!options.asynchronous) training_.save_state(folder, options);
  last_checkpoint_ = folder;
  replicas_.note_checkpoint(folder, is_agreed);
  project_.count_save();  // also when what is old cannot be removed
  rotate(ranks);
}

bool ProjectCheckpoints::start_background_save(const std::string& folder, const checkpoint::SaveOptions& options,
                                               const checkpoint::Ranks& ranks,
                                               const std::function<void(const checkpoint::Ranks&)>& then) {
  training_.require_known_parts();
  if (background_ == nullptr) background_ = std::make_unique<BackgroundSave>();
  // The training uses the job's own communicator meanwhile.
  if (ranks.size > 1 && background_->group() == nullptr)
    background_->group() = comm::split_group(*state_.communicator(), 0, ranks.rank);
  auto writer =
      std::make_unique<checkpoint::TrainingStateWriter>(folder, options, ranks, background_->files(options.durable));
  checkpoint::TrainingState state =
      writer->collect([&](const std::string& temporary) { return training_.collect_state(temporary); }, ranks);
  writer->drop_others(state);
  std::string obstacle;
  checkpoint::run_on_all_ranks(ranks, [&]() -> std::string {
    obstacle = background_->copy(state, options.device_copy_bytes.value);
    return {};
  });
  const std::vector<std::string> obstacles = ranks.all_gather(obstacle);  // also of ranks with another folder
  if (std::any_of(obstacles.begin(), obstacles.end(), [](const std::string& one) { return !one.empty(); })) {
    background_->write_now(folder, *writer, state, ranks, obstacle);
    return false;
  }
  comm::Communicator& group = background_->group() == nullptr ? *state_.communicator() : *background_->group();
  background_->start(folder, std::move(writer), std::move(state), ranks_of(state_, group, options.save_on_each_node),
                     then);
  return true;
}

void ProjectCheckpoints::finish_background_save(bool refuse) {
  if (background_ == nullptr) return;
  const BackgroundSave::Progress progress = background_->progress();
  require(!refuse || !progress.is_busy, Status::kInvalidState, "the asynchronous save of '", background_->folder(),
          "' is under way, ", progress.written, " of ", progress.total,
          " bytes are written; wait for it with accel_checkpoint_wait()");
  std::string folder = background_->finish();
  if (folder.empty()) return;
  replicas_.note_checkpoint(folder, background_is_agreed_);
  last_checkpoint_ = std::move(folder);
}

bool ProjectCheckpoints::wait_for_checkpoint(std::chrono::milliseconds timeout) {
  if (background_ == nullptr) return true;
  if (!background_->wait(timeout)) return false;
  finish_background_save(/*refuse=*/false);
  return true;
}

BackgroundSave::Progress ProjectCheckpoints::checkpoint_progress() const {
  return background_ == nullptr ? BackgroundSave::Progress{} : background_->progress();
}

void ProjectCheckpoints::load_checkpoint(const std::optional<std::string>& given, checkpoint::LoadOptions options) {
  options.save_on_each_node = project_.settings().save_on_each_node;
  const checkpoint::Ranks ranks = ranks_of(state_, options.save_on_each_node);
  const std::vector<std::string> folders = checkpoint::run_on_all_ranks(ranks, [&] {
    finish_background_save(/*refuse=*/false);
    return given ? *given : project_.newest_folder();
  });
  const std::string folder = given ? *given : folders.front();
  std::optional<int64_t> iteration = training_.load_state(folder, options);
  if (!iteration) iteration = checkpoint::number_of_checkpoint(folder);
  last_checkpoint_ = folder;
  replicas_.note_checkpoint(folder, /*is_agreed=*/false);
  if (!iteration) return;
  const std::vector<std::string> next =
      checkpoint::run_on_all_ranks(ranks, [&] { return std::to_string(project_.iteration_after(*iteration)); });
  project_.set_iteration(std::stoll(next.front()));  // rank 0's, whatever the others see of its disk
}

void ProjectCheckpoints::release_memory() {
  if (background_ != nullptr) background_->release_memory();
}

}  // namespace accel::accelerator
