// SPDX-License-Identifier: Apache-2.0
#include "parallel/localsgd/local_sgd.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_foreach_copy.h>

#include <utility>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

int64_t count_in(const c10::impl::GenericDict& state, const char* key) {
  const auto entry = state.find(key);
  require(entry != state.end() && entry->value().isInt() && entry->value().toInt() >= 0, Status::kInvalidArgument,
          "the state of local SGD has no \"", key, "\"; expected an integer of at least 0");
  return entry->value().toInt();
}

}  // namespace

LocalSgd::LocalSgd(ParallelModelPtr model, CommunicatorPtr communicator, int64_t local_sgd_steps,
                   const LocalSgdSettings& settings, CommunicatorPtr gradient_group)
    : model_(std::move(model)),
      communicator_(std::move(communicator)),
      gradient_group_(std::move(gradient_group)),
      local_sgd_steps_(local_sgd_steps),
      settings_(settings),
      // A split model without replicas exchanges gradients, too.
      enabled_(settings.enabled && model_->exchange() != nullptr && communicator_->size() > 1) {
  require(local_sgd_steps >= 1, Status::kInvalidArgument, "local_sgd_steps is ", local_sgd_steps,
          "; expected at least 1");
  require(settings.start_step >= 0, Status::kInvalidArgument, "start_step is ", settings.start_step.value,
          "; expected at least 0");
  const bool has_outer_step = settings.outer_lr.value.has_value();
  require(has_outer_step || !(settings.outer_momentum.value || settings.outer_nesterov.value), Status::kInvalidArgument,
          "options.outer_momentum or outer_nesterov is set without outer_lr; expected all of them or none");
  for (const at::Tensor& parameter : model_->module()->parameters())
    if (parameter.requires_grad()) weights_.push_back(parameter.detach());
  if (has_outer_step) outer_.emplace(settings, weights_);  // which refuses what contradicts itself
  if (!enabled_) outer_.reset();
  exchange_as_due();
}

LocalSgd::~LocalSgd() { exchange_as_before(); }

void LocalSgd::exchange_as_due() {
  if (!enabled_ || is_local() == exchanges_locally_) return;
  if (!is_local()) return exchange_as_before();
  former_group_ = model_->exchange()->set_gradient_group(gradient_group_);
  exchanges_locally_ = true;
}

void LocalSgd::exchange_as_before() {
  if (!exchanges_locally_) return;
  model_->exchange()->set_gradient_group(std::move(former_group_));
  exchanges_locally_ = false;
}

bool LocalSgd::step() {
  if (!enabled_) return false;
  num_steps_ += 1;
  if (!exchanges_locally_) averaged_at_ = num_steps_;  // all ranks made the same step
  const int64_t local_steps = num_steps_ - settings_.start_step;
  const bool due = local_steps > 0 && local_steps % local_sgd_steps_ == 0;
  if (due) average_parameters();
  exchange_as_due();
  return due;
}

void LocalSgd::average_parameters() {
  if (!enabled_ || averaged_at_ == num_steps_) return;
  const at::NoGradGuard no_grad;
  auto list = tree::new_list();
  for (const at::Tensor& weight : weights_) list.push_back(weight);
  std::vector<at::Tensor> means;
  tree::for_each_tensor(comm::reduce(*communicator_, list, comm::ReduceOp::kMean, 1.0),
                        [&](const at::Tensor& mean) { means.push_back(mean); });
  if (outer_)
    outer_->apply(weights_, means);
  else
    at::_foreach_copy_(weights_, means);
  averaged_at_ = num_steps_;
}

c10::IValue LocalSgd::state_dict() const {
  auto state = tree::new_map();
  if (!enabled_) return state;
  state.insert("num_steps", num_steps_);
  state.insert("met_at", averaged_at_);
  if (outer_) state.insert("outer", outer_->state_dict());
  return state;
}

void LocalSgd::load_state_dict(const c10::IValue& state_dict) {
  if (!enabled_) return;
  require(state_dict.isGenericDict(), Status::kInvalidArgument, "the state of local SGD is a ",
          tree::kind_name(state_dict), "; expected a map");
  const auto state = state_dict.toGenericDict();
  const int64_t num_steps = count_in(state, "num_steps"), averaged_at = count_in(state, "met_at");
  const auto outer = state.find("outer");
  require((outer != state.end()) == outer_.has_value(), Status::kInvalidArgument, "the state of local SGD has ",
          outer != state.end() ? "an" : "no", " \"outer\" step; expected ", outer_ ? "one" : "none",
          ": set outer_lr as in the run that saved it");
  if (outer_) outer_->load_state_dict(outer->value());
  num_steps_ = num_steps;
  averaged_at_ = averaged_at;
  exchange_as_due();
}

void LocalSgd::restart() {
  if (outer_) outer_.emplace(settings_, weights_);
  num_steps_ = averaged_at_ = 0;
  exchange_as_due();
}

}  // namespace accel::parallel
