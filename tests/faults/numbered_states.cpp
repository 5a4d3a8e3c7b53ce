// SPDX-License-Identifier: Apache-2.0
// Numbered checkpoints of a project: the load takes the newest, and each that has a name is whole.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "accelerator/accelerator.hpp"
#include "base/error.hpp"
#include "checkpoint/project.hpp"
#include "config/generated/settings/checkpoint/project.hpp"
#include "config/generated/settings/state/state.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"
#include "written_kinds.hpp"

namespace power_cut {
namespace {

namespace fs = std::filesystem;
using accel::Error;
using accel::Status;

// A training with one tensor, in the project of a folder.
class Training {
 public:
  Training(const std::string& folder, bool asynchronous) {
    accel::StateSettings settings;
    settings.cpu = true;
    settings.process_index = 0;
    settings.num_processes = 1;
    accelerator_ = std::make_unique<accel::accelerator::Accelerator>(settings);
    model_->add_parameter("numbers", at::zeros({3}));
    accelerator_->preparation().prepare_model(model_);
    accel::ProjectSettings project;
    project.project_dir = folder + "/new/run";
    project.automatic_checkpoint_naming = true;
    project.total_limit = std::optional<int64_t>(2);
    accelerator_->projects().project().set(project);
    options_.asynchronous = asynchronous;
  }

  void save(double number, int64_t iteration) {
    {
      const at::NoGradGuard no_grad;
      accel::nn::find_tensor(*model_, "numbers").fill_(number);
    }
    accelerator_->projects().project().set_iteration(iteration);
    accelerator_->projects().save_checkpoint(std::nullopt, options_);
    accelerator_->projects().wait_for_checkpoint(std::chrono::seconds(30));
  }

  // Nothing: the newest.
  double load(const std::optional<std::string>& folder) {
    accelerator_->projects().load_checkpoint(folder, {});
    const at::Tensor numbers = accel::nn::find_tensor(*model_, "numbers").detach();
    return numbers.min().item<double>() == numbers.max().item<double>() ? numbers[0].item<double>() : -1;
  }

 private:
  std::unique_ptr<accel::accelerator::Accelerator> accelerator_;
  std::shared_ptr<accel::nn::CallbackModule> model_ = std::make_shared<accel::nn::CallbackModule>("Numbers");
  accel::checkpoint::SaveOptions options_;
};

// checkpoint_N holds N + 1; the newest is the last of `before` or the one behind it.
Contents read_project(const std::string& folder, bool asynchronous, int64_t before) {
  Training training(folder, asynchronous);
  double newest = 0;
  try {
    newest = training.load(std::nullopt);
    for (const auto& entry : fs::directory_iterator(folder + "/new/run/checkpoints")) {
      const auto number = accel::checkpoint::number_of_checkpoint(entry.path());
      if (number && training.load(entry.path()) != static_cast<double>(*number + 1))
        return {Found::kLost, entry.path().string() + " holds another number"};
    }
  } catch (const Error& error) {
    const bool is_old = before == 0 && error.status() == Status::kNotFound;
    return {is_old ? Found::kOld : Found::kLost, error.message()};
  }
  if (newest == static_cast<double>(before + 1)) return {Found::kNew};
  return {newest == static_cast<double>(before) ? Found::kOld : Found::kLost};
}

Kind kind_of(const char* name, bool asynchronous, int64_t before) {
  Kind kind;
  kind.name = std::string("numbered states, ") + name;
  kind.prepare = [=](const std::string& folder) {
    Training training(folder, false);
    for (int64_t i = 0; i < before; i++) training.save(static_cast<double>(i + 1), i);
  };
  kind.write = [=](const std::string& folder) {
    Training training(folder, asynchronous);
    training.save(static_cast<double>(before + 1), before);
    promise(1);
  };
  kind.read = [=](const std::string& folder, size_t /*promised*/) {
    return read_project(folder, asynchronous, before);
  };
  kind.go_on = [=](const std::string& folder, size_t /*promised*/) -> std::string {
    Training training(folder, asynchronous);
    training.save(static_cast<double>(before + 2), before + 1);
    if (read_project(folder, asynchronous, before + 1).found != Found::kNew) return "the next save is not the newest";
    size_t entries = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder + "/new/run/checkpoints")) entries++;
    return entries <= 2 ? "" : std::to_string(entries) + " entries are there after another save; expected 2";
  };
  return kind;
}

}  // namespace

std::vector<Kind> numbered_states() {
  return {
      kind_of("the first", false, 0),
      kind_of("the oldest goes", false, 2),
      kind_of("the oldest goes behind an asynchronous save", true, 2),
  };
}

}  // namespace power_cut
