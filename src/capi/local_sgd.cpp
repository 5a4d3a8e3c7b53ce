// Section 10: local SGD.
#include "parallel/localsgd/local_sgd.hpp"

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "accelerator/outer_sgd.hpp"
#include "accelerator/prepared_model.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/options.hpp"
#include "capi/scope.hpp"
#include "capi/value.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

constexpr double kDilocoMomentum = 0.9;

class LocalSgdScope final : public ScopeBody {
 public:
  // Null when nothing is averaged: with one process, or when it is turned off.
  explicit LocalSgdScope(std::unique_ptr<parallel::LocalSgd> local_sgd) : local_sgd_(std::move(local_sgd)) {}
  void finish() override {
    if (local_sgd_ != nullptr) local_sgd_->meet();
  }
  parallel::LocalSgd* local_sgd() const { return local_sgd_.get(); }

 private:
  std::unique_ptr<parallel::LocalSgd> local_sgd_;
};

parallel::LocalSgd* local_sgd_of(ScopeBody& scope) {
  const auto* const body = dynamic_cast<LocalSgdScope*>(&scope);
  require(body != nullptr, Status::kInvalidArgument,
          "scope is not one of local SGD; expected what "
          "accel_local_sgd_begin() opened");
  return body->local_sgd();
}

std::unique_ptr<parallel::OuterStep> outer_step(const accel_local_sgd_options_t& options, const nn::Module& model) {
  std::optional<double> lr, momentum;
  std::optional<bool> nesterov;
  set_given(lr, options.outer_lr);
  set_given(momentum, options.outer_momentum);
  set_given(nesterov, options.outer_nesterov);
  require(lr || !(momentum || nesterov), Status::kInvalidArgument,
          "options.outer_momentum or outer_nesterov is set without outer_lr; expected all of them or none");
  if (!lr) return nullptr;
  const double inertia = momentum.value_or(kDilocoMomentum);
  const optim::GivenSettings settings = {
      {"lr", *lr}, {"momentum", inertia}, {"nesterov", nesterov.value_or(inertia > 0) ? 1.0 : 0.0}};
  std::vector<at::Tensor> weights;
  for (const at::Tensor& parameter : model.parameters())
    if (parameter.requires_grad()) weights.push_back(parameter);
  return std::make_unique<accelerator::OuterSgd>(settings, weights);
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_local_sgd_begin(accel_state_t* state, accel_module_t* module,
                                                    int64_t local_sgd_steps, const accel_local_sgd_options_t* given,
                                                    accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    const auto& engine = check(state, "state").accelerator->state();
    const nn::ModulePtr& model = check(module, "module").module;
    const accel_local_sgd_options_t options = read_options(given, "options");
    const auto* const prepared = dynamic_cast<const accelerator::PreparedModel*>(model.get());
    require(prepared != nullptr, Status::kInvalidArgument,
            "module is not prepared; expected what accel_prepare_model() gave");
    parallel::LocalSgdSettings settings;
    settings.local_sgd_steps = local_sgd_steps;
    set_given(settings.start_step, options.start_step);
    settings.check();
    std::shared_ptr<comm::Communicator> group;
    if (options.gradient_group != nullptr)
      group = check(options.gradient_group, "options.gradient_group").accelerator->state().communicator();
    auto outer = outer_step(options, *model);
    std::unique_ptr<parallel::LocalSgd> local_sgd;
    if (options.enabled != 0 && prepared->ddp() != nullptr)
      local_sgd = std::make_unique<parallel::LocalSgd>(prepared->ddp(), engine.communicator(), settings, group,
                                                       std::move(outer));
    return open_scope(std::make_unique<LocalSgdScope>(std::move(local_sgd)));
  });
}

ACCEL_FUNCTION accel_status_t accel_local_sgd_step(accel_scope_t* scope, int32_t* out_averaged) {
  return guarded(__func__, [&] {
    parallel::LocalSgd* const local_sgd = local_sgd_of(body_of(scope));
    const bool averaged = local_sgd != nullptr && local_sgd->step();
    if (out_averaged != nullptr) *out_averaged = averaged ? 1 : 0;
  });
}

ACCEL_FUNCTION accel_status_t accel_local_sgd_state_dict(accel_scope_t* scope, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    ScopeBody& body = body_of(scope);
    const parallel::LocalSgd* const local_sgd = local_sgd_of(body);
    return from_ivalue(local_sgd != nullptr ? local_sgd->state_dict() : c10::IValue(tree::new_map()));
  });
}

ACCEL_FUNCTION accel_status_t accel_local_sgd_load_state_dict(accel_scope_t* scope, const accel_value_t* state_dict) {
  return guarded(__func__, [&] {
    ScopeBody& body = body_of(scope);
    const c10::IValue state = to_ivalue(*check_pointer(state_dict, "state_dict"), "state_dict");
    parallel::LocalSgd* const local_sgd = local_sgd_of(body);
    if (local_sgd != nullptr) local_sgd->load_state_dict(state);
  });
}

}  // namespace accel::capi
