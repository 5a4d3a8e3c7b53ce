#include "accelerator/accelerator.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "accelerator/prepared_model.hpp"
#include "accelerator/prepared_optimizer.hpp"
#include "base/error.hpp"
#include "checkpoint/training_state.hpp"

namespace accel::accelerator {
namespace {

bool has_trainable_parameter(const nn::Module& module) {
  const auto parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const at::Tensor& tensor) { return tensor.requires_grad(); });
}

}  // namespace

nn::ModulePtr Accelerator::prepare_model(nn::ModulePtr module, const parallel::DdpOptions& options) {
  require(unwrap_model(module) == module, Status::kInvalidState,
          "the model is prepared already; prepare the model inside it");
  module->to(std::nullopt, state_.device());
  std::shared_ptr<parallel::DistributedDataParallel> ddp;
  if (state_.use_distributed() && has_trainable_parameter(*module))
    ddp = std::make_shared<parallel::DistributedDataParallel>(module, state_.communicator(), options);
  models_.push_back(module);
  return std::make_shared<PreparedModel>(std::move(module), std::move(ddp), state_.mixed_precision(),
                                         state_.device().type());
}

std::shared_ptr<optim::Optimizer> Accelerator::prepare_optimizer(std::shared_ptr<optim::Optimizer> optimizer) {
  auto prepared = std::make_shared<PreparedOptimizer>(std::move(optimizer), state_.gradient_state());
  optimizers_.push_back(prepared);
  return prepared;
}

std::shared_ptr<optim::Scheduler> Accelerator::prepare_scheduler(std::shared_ptr<optim::Scheduler> scheduler) {
  SchedulerStepping stepping;
  stepping.step_with_optimizer = state_.settings().step_scheduler_with_optimizer;
  stepping.split_batches = state_.settings().split_batches;
  stepping.num_processes = state_.num_processes();
  auto prepared =
      std::make_shared<PreparedScheduler>(std::move(scheduler), optimizers_, state_.gradient_state(), stepping);
  schedulers_.push_back(prepared);
  return prepared;
}

std::shared_ptr<data::DataLoader> Accelerator::prepare_data_loader(const data::DataLoader& loader,
                                                                   const DataLoaderConfiguration& configuration) {
  require(!loader.is_sharded(), Status::kInvalidState,
          "the loader is prepared already; prepare the loader that it was made from");
  data::ShardOptions sharding;
  sharding.num_processes = state_.num_processes();
  sharding.process_index = state_.process_index();
  sharding.split_batches = configuration.split_batches.value_or(state_.settings().split_batches);
  sharding.even_batches = configuration.even_batches;
  if (configuration.put_on_device) sharding.device = state_.device();
  sharding.non_blocking = configuration.non_blocking;
  sharding.gradient_state = state_.gradient_state();
  auto prepared = loader.sharded(sharding);
  loaders_.push_back(prepared);
  return prepared;
}

std::shared_ptr<PreparedParameters> Accelerator::prepare_parameters(nn::ModulePtr module, double bucket_cap_mb) {
  require(unwrap_model(module) == module, Status::kInvalidState,
          "the module is prepared already; expected one whose gradients the program computes");
  module->to(std::nullopt, state_.device());
  auto prepared =
      std::make_shared<PreparedParameters>(*module, state_.communicator(), bucket_cap_mb, state_.gradient_state());
  models_.push_back(std::move(module));
  return prepared;
}

void Accelerator::backward(const at::Tensor& loss) {
  require(loss.numel() == 1, Status::kShapeMismatch, "the loss has shape ", loss.sizes(),
          "; expected one element: take its mean or sum");
  require(loss.requires_grad(), Status::kInvalidState,
          "the loss has no gradient history; expected the result of operators on parameters, outside of no_grad");
  // The seed of backward carries the division, so the loss is not touched.
  const double share = 1.0 / static_cast<double>(state_.gradient_state()->settings().num_steps);
  torch::autograd::backward({loss}, {at::full(loss.sizes(), share, loss.options().requires_grad(false))});
}

int64_t Accelerator::rows_for_metrics() const {
  const state::GradientState& gradient_state = *state_.gradient_state();
  return gradient_state.end_of_dataloader() ? std::max<int64_t>(gradient_state.remainder(), 0) : 0;
}

void Accelerator::register_for_checkpointing(RegisteredObject object) {
  checkpoint::check_custom_name(object.name);
  for (const RegisteredObject& other : objects_)
    require(other.name != object.name, Status::kAlreadyExists, "an object called '", object.name,
            "' is registered already");
  objects_.push_back(std::move(object));
}

void Accelerator::free_memory() {
  models_.clear();
  optimizers_.clear();
  schedulers_.clear();
  loaders_.clear();
  objects_.clear();
  state_.gradient_state()->set_micro_batch(0);
  state_.communicator()->result_memory().release();
}

void Accelerator::end_training() {
  state_.communicator()->barrier();
  state_.communicator()->shutdown();
}

}  // namespace accel::accelerator
