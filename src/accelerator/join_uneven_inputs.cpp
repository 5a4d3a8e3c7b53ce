// SPDX-License-Identifier: Apache-2.0
#include "accelerator/join_uneven_inputs.hpp"

#include <algorithm>

#include "accelerator/checkpoints/rank_state.hpp"
#include "accelerator/prepared_model.hpp"
#include "accelerator/prepared_optimizer.hpp"
#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "data/prepared_dataloader.hpp"
#include "precision/grad_scaler.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

class SharedUpdates final : public parallel::UpdateFollower {
 public:
  explicit SharedUpdates(Accelerator& accelerator) : accelerator_(accelerator) {}

  void clip_by_norm(parallel::ParallelModel& model, double max_norm, double norm_type) override {
    accelerator_.clipping().unscale_gradients_of(*model.module());
    accelerator_.prepared().placed->clip_gradients_by_norm(model.module()->parameters(), max_norm, norm_type);
  }
  void clip_by_value(parallel::ParallelModel& model, double clip_value) override {
    accelerator_.clipping().unscale_gradients_of(*model.module());
    accelerator_.prepared().placed->clip_gradients_by_value(model.module()->parameters(), clip_value);
  }
  void step(size_t optimizer, int source) override {
    accelerator_.prepared().optimizers.at(optimizer)->update().follow(*accelerator_.state().groups().gradient_group(),
                                                                      source);
  }

 private:
  Accelerator& accelerator_;
};

// All ranks get the optimizers, schedulers and loss scale of one that trained longest. Afterwards this rank is as if it
// had taken the steps for which it had no inputs.
void broadcast_training_state(const Accelerator& accelerator, int rank) {
  const state::State& state = accelerator.state();
  const PreparedObjects& prepared = accelerator.prepared();
  comm::Communicator& ranks = *state.groups().gradient_group();
  std::vector<std::shared_ptr<tensor::Stateful>> followers;
  for (const auto& optimizer : prepared.optimizers)
    if (optimizer->update().updates_parts())
      optimizer->update().share_settings(ranks, rank);
    else
      followers.push_back(optimizer);
  followers.insert(followers.end(), prepared.schedulers.begin(), prepared.schedulers.end());
  followers.push_back(std::make_shared<AccumulationState>(prepared.windows(*state.gradient_state())));
  if (prepared.grad_scaler != nullptr) followers.push_back(prepared.grad_scaler);
  auto states = tree::new_list();
  for (const auto& follower : followers) states.push_back(follower->state_dict());
  const c10::IValue received = comm::broadcast_object_list(ranks, states, rank);
  if (rank == ranks.rank()) return;
  for (size_t i = 0; i < followers.size(); i++) followers[i]->load_state_dict(received.toListRef()[i]);
}

}  // namespace

JoinedInputs::JoinedInputs(std::shared_ptr<Accelerator> accelerator, const std::vector<nn::ModulePtr>& models,
                           std::optional<bool> even_batches)
    : accelerator_(std::move(accelerator)) {
  const auto& loaders = accelerator_->prepared().loaders;
  if (even_batches)
    for (const auto& loader : loaders) {
      former_even_.emplace_back(loader, loader->sharding().even_batches);
      loader->set_even_batches(*even_batches);
    }
  const bool even = !loaders.empty() && std::all_of(loaders.begin(), loaders.end(),
                                                    [](const auto& loader) { return loader->sharding().even_batches; });
  if (even_batches.value_or(even)) return;
  std::vector<parallel::ParallelModelPtr> parallel_models;
  for (const nn::ModulePtr& model : models) {
    auto parallel = parallel_model_of(model);
    require(parallel->pipeline() == nullptr, Status::kUnsupported,
            "a rank without inputs cannot go along with the steps of a model in stages; expected even batches");
    if (parallel->exchange() != nullptr) parallel_models.push_back(std::move(parallel));
  }
  if (!parallel_models.empty())
    inputs_.emplace(accelerator_->state().groups().gradient_group(), std::move(parallel_models),
                    std::make_unique<SharedUpdates>(*accelerator_));
}

JoinedInputs::~JoinedInputs() {
  for (const auto& [loader, even] : former_even_) loader->set_even_batches(even);
}

void JoinedInputs::finish() {
  if (!inputs_) return;
  if (const auto source = inputs_->finish()) broadcast_training_state(*accelerator_, *source);
}

}  // namespace accel::accelerator
