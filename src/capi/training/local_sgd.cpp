// SPDX-License-Identifier: Apache-2.0
// Section 10: local SGD.
#include "parallel/localsgd/local_sgd.hpp"

#include <memory>
#include <utility>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/calls/scope.hpp"
#include "capi/generated/options/training_loop.hpp"
#include "capi/values/value.hpp"

namespace accel::capi {
namespace {

class LocalSgdScope {
 public:
  explicit LocalSgdScope(std::shared_ptr<parallel::LocalSgd> local_sgd) : local_sgd_(std::move(local_sgd)) {}
  void finish() { local_sgd_->finish(); }
  parallel::LocalSgd& local_sgd() { return *local_sgd_; }

 private:
  std::shared_ptr<parallel::LocalSgd> local_sgd_;
};

parallel::LocalSgd& local_sgd_of(accel_scope_t* scope) {
  return guard_of<LocalSgdScope>(scope, "local SGD", "accel_local_sgd_begin").local_sgd();
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_local_sgd_begin(accel_state_t* state, accel_module_t* module,
                                                    int64_t local_sgd_steps, const accel_local_sgd_options_t* options,
                                                    accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    const auto& accelerator = accelerator_of(state);
    const nn::ModulePtr& model = check(module, "module").module;
    const accel_state_t* const group = given_options(options, "options").gradient_group;
    return open_scope<LocalSgdScope>(accelerator->preparation().begin_local_sgd(
        model, local_sgd_steps, read_settings(options, "options"),
        group == nullptr ? nullptr : check(group, "options.gradient_group").accelerator->state().communicator()));
  });
}

ACCEL_FUNCTION accel_status_t accel_local_sgd_step(accel_scope_t* scope, int32_t* out_averaged) {
  return guarded(__func__, [&] {
    const bool averaged = local_sgd_of(scope).step();
    if (out_averaged != nullptr) *out_averaged = averaged ? 1 : 0;
  });
}

ACCEL_FUNCTION accel_status_t accel_local_sgd_state_dict(accel_scope_t* scope, accel_value_t* out) {
  return guarded(__func__, out, [&] { return from_ivalue(local_sgd_of(scope).state_dict()); });
}

ACCEL_FUNCTION accel_status_t accel_local_sgd_load_state_dict(accel_scope_t* scope, const accel_value_t* state_dict) {
  return guarded(__func__, [&] {
    const c10::IValue state = to_ivalue(*check_pointer(state_dict, "state_dict"), "state_dict");
    local_sgd_of(scope).load_state_dict(state);
  });
}

}  // namespace accel::capi
