// Checkpoints of a project: their names, their number, and the removal of the oldest.
#include <string>
#include <utility>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "accelerator/ranks.hpp"
#include "checkpoint/files/make_folders.hpp"
#include "checkpoint/run_on_all_ranks.hpp"

namespace accel::accelerator {

void Accelerator::save_checkpoint(const std::optional<std::string>& given, checkpoint::SaveOptions options) {
  const std::string folder = given ? *given : project_.next_folder();
  options.save_on_each_node = project_.settings().save_on_each_node;
  const checkpoint::Ranks ranks = ranks_of(state_, options.save_on_each_node);
  checkpoint::run_on_all_ranks(ranks, [&]() -> std::string {
    if (ranks.writer() != 0) return {};
    if (!given) project_.require_new(folder);
    checkpoint::make_folders(checkpoint::parent_folder(folder));
    return {};
  });
  if (options.incremental) options.previous = last_checkpoint_;
  options.mesh = state_.mesh()->describe();
  options.iteration = project_.settings().iteration;
  save_state(folder, options);
  project_.count_save();
  last_checkpoint_ = folder;
  if (given || !project_.settings().total_limit.value) return;
  checkpoint::run_on_all_ranks(ranks, [&]() -> std::string {
    if (ranks.writer() == 0) project_.remove_oldest(folder);
    return {};
  });
}

void Accelerator::load_checkpoint(const std::optional<std::string>& given, checkpoint::LoadOptions options) {
  options.save_on_each_node = project_.settings().save_on_each_node;
  const checkpoint::Ranks ranks = ranks_of(state_, options.save_on_each_node);
  const std::string folder =
      given ? *given : checkpoint::run_on_all_ranks(ranks, [this] { return project_.newest_folder(); }).front();
  std::optional<int64_t> iteration = load_state(folder, options);
  if (!iteration) iteration = checkpoint::number_of_checkpoint(folder);
  last_checkpoint_ = folder;
  if (!iteration) return;
  const std::vector<std::string> next =
      checkpoint::run_on_all_ranks(ranks, [&] { return std::to_string(project_.iteration_after(*iteration)); });
  project_.set_iteration(std::stoll(next.front()));  // rank 0's, whatever the others see of its disk
}

}  // namespace accel::accelerator
