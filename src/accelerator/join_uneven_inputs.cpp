#include "accelerator/join_uneven_inputs.hpp"

#include <algorithm>

namespace accel::accelerator {
namespace {

class SharedUpdates final : public parallel::UpdateFollower {
 public:
  explicit SharedUpdates(Accelerator& accelerator) : accelerator_(accelerator) {}

  void clip_by_norm(parallel::ParallelModel& model, double max_norm, double norm_type) override {
    accelerator_.unscale_gradients_of(*model.module());
    accelerator_.placed_parameters().clip_gradients_by_norm(model.module()->parameters(), max_norm, norm_type);
  }
  void clip_by_value(parallel::ParallelModel& model, double clip_value) override {
    accelerator_.unscale_gradients_of(*model.module());
    accelerator_.placed_parameters().clip_gradients_by_value(model.module()->parameters(), clip_value);
  }
  void step(size_t optimizer, int source) override {
    accelerator_.optimizers().at(optimizer)->update().follow(*accelerator_.state().groups().gradient_group(), source);
  }

 private:
  Accelerator& accelerator_;
};

}  // namespace

JoinedInputs::JoinedInputs(std::shared_ptr<Accelerator> accelerator, const std::vector<nn::ModulePtr>& models,
                           std::optional<bool> even_batches)
    : accelerator_(std::move(accelerator)) {
  const auto& loaders = accelerator_->loaders();
  if (even_batches)
    for (const auto& loader : loaders) {
      former_even_.emplace_back(loader, loader->sharding().even_batches);
      loader->set_even_batches(*even_batches);
    }
  const bool even = !loaders.empty() && std::all_of(loaders.begin(), loaders.end(),
                                                    [](const auto& loader) { return loader->sharding().even_batches; });
  if (even_batches.value_or(even)) return;
  std::vector<parallel::ParallelModelPtr> parallel_models;
  for (const nn::ModulePtr& model : models)
    if (auto parallel = parallel_model_of(model); parallel->exchange() != nullptr)
      parallel_models.push_back(std::move(parallel));
  if (!parallel_models.empty())
    inputs_.emplace(accelerator_->state().groups().gradient_group(), std::move(parallel_models),
                    std::make_unique<SharedUpdates>(*accelerator_));
}

JoinedInputs::~JoinedInputs() {
  for (const auto& [loader, even] : former_even_) loader->set_even_batches(even);
}

void JoinedInputs::finish() {
  if (!inputs_) return;
  if (const auto source = inputs_->finish()) accelerator_->broadcast_training_state(*source);
}

}  // namespace accel::accelerator
