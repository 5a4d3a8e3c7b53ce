#include "parallel/localsgd/local_sgd.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_foreach_copy.h>

#include <torch/csrc/distributed/c10d/comm.hpp>
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

void LocalSgdSettings::check() const {
  require(local_sgd_steps >= 1, Status::kInvalidArgument, "local_sgd_steps is ", local_sgd_steps,
          "; expected at least 1");
  require(start_step >= 0, Status::kInvalidArgument, "start_step is ", start_step, "; expected at least 0");
}

LocalSgd::LocalSgd(std::shared_ptr<DistributedDataParallel> model, std::shared_ptr<comm::Communicator> communicator,
                   const LocalSgdSettings& settings, const std::shared_ptr<comm::Communicator>& gradient_group,
                   std::unique_ptr<OuterStep> outer)
    : model_(std::move(model)), communicator_(std::move(communicator)), settings_(settings), outer_(std::move(outer)) {
  settings_.check();
  if (gradient_group != nullptr && gradient_group->size() > 1)
    local_hook_ = make_comm_hook(DdpSettings{}, gradient_group->process_group());
  for (const at::Tensor& parameter : model_->parameters())
    if (parameter.requires_grad()) weights_.push_back(parameter.detach());
  exchange_as_due();
}

LocalSgd::~LocalSgd() { exchange_as_before(); }

void LocalSgd::exchange_as_due() {
  if (is_local() == exchanges_locally_) return;
  if (!is_local()) return exchange_as_before();
  if (local_hook_ != nullptr)
    former_hook_ = model_->set_comm_hook(local_hook_);
  else
    model_->set_local(true);
  exchanges_locally_ = true;
}

void LocalSgd::exchange_as_before() {
  if (!exchanges_locally_) return;
  if (local_hook_ != nullptr)
    model_->set_comm_hook(std::move(former_hook_));
  else
    model_->set_local(false);
  exchanges_locally_ = false;
}

bool LocalSgd::step() {
  num_steps_ += 1;
  if (!exchanges_locally_) met_at_ = num_steps_;  // all ranks made the same step
  const int64_t local_steps = num_steps_ - settings_.start_step;
  const bool due = local_steps > 0 && local_steps % settings_.local_sgd_steps == 0;
  if (due) meet();
  exchange_as_due();
  return due;
}

void LocalSgd::meet() {
  if (met_at_ == num_steps_) return;
  const at::NoGradGuard no_grad;
  auto list = tree::new_list();
  for (const at::Tensor& weight : weights_) list.push_back(weight);
  std::vector<at::Tensor> means;
  tree::for_each_tensor(comm::reduce(*communicator_, list, comm::Reduction::kMean, 1.0),
                        [&](const at::Tensor& mean) { means.push_back(mean); });
  if (outer_ != nullptr)
    outer_->apply(weights_, means);
  else
    at::_foreach_copy_(weights_, means);
  met_at_ = num_steps_;
}

c10::IValue LocalSgd::state_dict() const {
  auto state = tree::new_map();
  state.insert("num_steps", num_steps_);
  state.insert("met_at", met_at_);
  if (outer_ != nullptr) state.insert("outer", outer_->state_dict());
  return state;
}

void LocalSgd::load_state_dict(const c10::IValue& state_dict) {
  require(state_dict.isGenericDict(), Status::kInvalidArgument, "the state of local SGD is a ",
          tree::kind_name(state_dict), "; expected a map");
  const auto state = state_dict.toGenericDict();
  const int64_t num_steps = count_in(state, "num_steps"), met_at = count_in(state, "met_at");
  const auto outer = state.find("outer");
  require((outer != state.end()) == (outer_ != nullptr), Status::kInvalidArgument, "the state of local SGD has ",
          outer != state.end() ? "an" : "no", " \"outer\" step; expected ", outer_ != nullptr ? "one" : "none",
          ": set outer_lr as in the run that saved it");
  if (outer_ != nullptr) outer_->load_state_dict(outer->value());
  num_steps_ = num_steps;
  met_at_ = met_at;
  exchange_as_due();
}

}  // namespace accel::parallel
