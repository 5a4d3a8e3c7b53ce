// Section 10: the training loop.
#include "accelerator/accelerator.hpp"

#include <ATen/ATen.h>

#include "accel.h"
#include "accelerator/prepared_model.hpp"
#include "capi/callback.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/options.hpp"
#include "capi/scope.hpp"
#include "capi/value.hpp"
#include "optim/clip.hpp"
#include "precision/autocast.hpp"

using namespace accel;
using namespace accel::capi;

namespace {

constexpr accel_ddp_options_t kUnsetDdpOptions = ACCEL_DDP_OPTIONS_INIT;
constexpr accel_dataloader_config_t kUnsetDataloaderConfig = ACCEL_DATALOADER_CONFIG_INIT;

accelerator::Accelerator& accelerator_of(const accel_state_t* state) { return *check(state, "state").accelerator; }

parallel::DdpOptions read_ddp_options(const accel_ddp_options_t* given) {
  const accel_ddp_options_t options = read_options(given, kUnsetDdpOptions, "options");
  parallel::DdpOptions result;
  result.broadcast_buffers =
      option_flag(options.broadcast_buffers, "options.broadcast_buffers").value_or(result.broadcast_buffers);
  result.find_unused_parameters = option_flag(options.find_unused_parameters, "options.find_unused_parameters")
                                      .value_or(result.find_unused_parameters);
  result.gradient_as_bucket_view = option_flag(options.gradient_as_bucket_view, "options.gradient_as_bucket_view")
                                       .value_or(result.gradient_as_bucket_view);
  result.static_graph = option_flag(options.static_graph, "options.static_graph").value_or(result.static_graph);
  result.bucket_cap_mb = option_number(options.bucket_cap_mb).value_or(result.bucket_cap_mb);
  option_flag(options.check_reduction, "options.check_reduction");
  return result;
}

accelerator::DataLoaderConfiguration read_dataloader_config(const accel_dataloader_config_t* given) {
  const accel_dataloader_config_t config = read_options(given, kUnsetDataloaderConfig, "config");
  accelerator::DataLoaderConfiguration result;
  result.even_batches = option_flag(config.even_batches, "config.even_batches").value_or(result.even_batches);
  result.split_batches = option_flag(config.split_batches, "config.split_batches");
  result.put_on_device = option_flag(config.put_on_device, "config.put_on_device").value_or(result.put_on_device);
  result.non_blocking = option_flag(config.non_blocking, "config.non_blocking").value_or(result.non_blocking);
  return result;
}

std::vector<nn::ModulePtr> read_modules(accel_module_t* const* modules, size_t count) {
  if (count > 0) check_pointer(modules, "modules");
  std::vector<nn::ModulePtr> result;
  for (size_t i = 0; i < count; i++) result.push_back(check(modules[i], "modules[i]").module);
  return result;
}

}  // namespace

void accel_ddp_options_init(accel_ddp_options_t* options) {
  if (options != nullptr) *options = kUnsetDdpOptions;
}

void accel_dataloader_config_init(accel_dataloader_config_t* config) {
  if (config != nullptr) *config = kUnsetDataloaderConfig;
}

accel_status_t accel_prepare_model(accel_state_t* state, accel_module_t* module, const accel_ddp_options_t* options,
                                   accel_module_t** out) {
  return guarded(__func__, [&] {
    accelerator::Accelerator& accelerator = accelerator_of(state);
    const nn::ModulePtr& model = check(module, "module").module;
    const parallel::DdpOptions ddp = read_ddp_options(options);
    check_pointer(out, "out");
    *out = std::make_unique<accel_module>(accelerator.prepare_model(model, ddp)).release();
    return ACCEL_OK;
  });
}

accel_status_t accel_prepare_optimizer(accel_state_t* state, accel_optimizer_t* optimizer, accel_optimizer_t** out) {
  return guarded(__func__, [&] {
    accelerator::Accelerator& accelerator = accelerator_of(state);
    const auto& plain = check(optimizer, "optimizer").optimizer;
    check_pointer(out, "out");
    *out = std::make_unique<accel_optimizer>(accelerator.prepare_optimizer(plain)).release();
    return ACCEL_OK;
  });
}

accel_status_t accel_prepare_scheduler(accel_state_t* state, accel_scheduler_t* scheduler, accel_scheduler_t** out) {
  return guarded(__func__, [&] {
    accelerator::Accelerator& accelerator = accelerator_of(state);
    const auto& plain = check(scheduler, "scheduler").scheduler;
    check_pointer(out, "out");
    *out = std::make_unique<accel_scheduler>(accelerator.prepare_scheduler(plain)).release();
    return ACCEL_OK;
  });
}

accel_status_t accel_prepare_data_loader(accel_state_t* state, accel_dataloader_t* loader,
                                         const accel_dataloader_config_t* config, accel_dataloader_t** out) {
  return guarded(__func__, [&] {
    accelerator::Accelerator& accelerator = accelerator_of(state);
    const auto& plain = check(loader, "loader").loader;
    const auto configuration = read_dataloader_config(config);
    check_pointer(out, "out");
    *out = std::make_unique<accel_dataloader>(accelerator.prepare_data_loader(*plain, configuration)).release();
    return ACCEL_OK;
  });
}

accel_status_t accel_backward(accel_state_t* state, accel_tensor_t* loss) {
  return guarded(__func__, [&] {
    accelerator::Accelerator& accelerator = accelerator_of(state);
    accelerator.backward(check(loss, "loss").tensor);
    return ACCEL_OK;
  });
}

accel_status_t accel_accumulate_begin(accel_state_t* state, accel_module_t* const* modules, size_t n_modules,
                                      accel_scope_t** out) {
  return guarded(__func__, [&] {
    const auto& engine = accelerator_of(state).state();
    std::vector<nn::ModulePtr> models = read_modules(modules, n_modules);
    check_pointer(out, "out");
    state::GradientState& gradient_state = *engine.gradient_state();
    gradient_state.begin_micro_batch();
    const bool exchange =
        gradient_state.sync_gradients() || (engine.use_distributed() && gradient_state.settings().sync_each_batch);
    if (exchange) models.clear();
    *out = open_scope(std::make_unique<GuardScope<accelerator::NoSyncGuard>>(std::move(models)));
    return ACCEL_OK;
  });
}

accel_status_t accel_no_sync_begin(accel_state_t* state, accel_module_t* module, accel_scope_t** out) {
  return guarded(__func__, [&] {
    accelerator_of(state);
    std::vector<nn::ModulePtr> models{check(module, "module").module};
    check_pointer(out, "out");
    *out = open_scope(std::make_unique<GuardScope<accelerator::NoSyncGuard>>(std::move(models)));
    return ACCEL_OK;
  });
}

accel_status_t accel_autocast_begin(accel_state_t* state, accel_scope_t** out) {
  return guarded(__func__, [&] {
    const auto& engine = accelerator_of(state).state();
    check_pointer(out, "out");
    *out = open_scope(
        std::make_unique<GuardScope<precision::AutocastGuard>>(engine.mixed_precision(), engine.device().type()));
    return ACCEL_OK;
  });
}

accel_status_t accel_clip_grad_norm(accel_state_t* state, const accel_module_t* module, double max_norm,
                                    double norm_type, double* out_norm) {
  return guarded(__func__, [&] {
    const accelerator::Accelerator& accelerator = accelerator_of(state);
    const nn::Module& model = *check(module, "module").module;
    if (!accelerator.sync_gradients()) return ACCEL_STEP_SKIPPED;
    const at::Tensor norm = optim::clip_gradients_by_norm(model.parameters(), max_norm, norm_type);
    if (out_norm != nullptr) *out_norm = norm.item<double>();
    return ACCEL_OK;
  });
}

accel_status_t accel_clip_grad_value(accel_state_t* state, const accel_module_t* module, double clip_value) {
  return guarded(__func__, [&] {
    const accelerator::Accelerator& accelerator = accelerator_of(state);
    const nn::Module& model = *check(module, "module").module;
    if (!accelerator.sync_gradients()) return ACCEL_STEP_SKIPPED;
    optim::clip_gradients_by_value(model.parameters(), clip_value);
    return ACCEL_OK;
  });
}

accel_status_t accel_unwrap_model(accel_state_t* state, accel_module_t* module, accel_module_t** out) {
  return guarded(__func__, [&] {
    accelerator_of(state);
    const nn::ModulePtr& model = check(module, "module").module;
    check_pointer(out, "out");
    *out = std::make_unique<accel_module>(accelerator::unwrap_model(model)).release();
    return ACCEL_OK;
  });
}

accel_status_t accel_set_seed(accel_state_t* state, int64_t seed, int32_t device_specific) {
  return guarded(__func__, [&] {
    const auto& engine = accelerator_of(state).state();
    require(seed >= 0, Status::kInvalidArgument, "seed is ", seed, "; expected 0 or more");
    at::manual_seed(static_cast<uint64_t>(seed + (device_specific != 0 ? engine.process_index() : 0)));
    return ACCEL_OK;
  });
}

accel_status_t accel_free_memory(accel_state_t* state) {
  return guarded(__func__, [&] {
    accelerator_of(state).free_memory();
    return ACCEL_OK;
  });
}

accel_status_t accel_save_model(accel_state_t* state, const accel_module_t* module, const char* folder) {
  return guarded(__func__, [&] {
    accelerator::Accelerator& accelerator = accelerator_of(state);
    const nn::ModulePtr& model = check(module, "module").module;
    accelerator.save_model(*accelerator::unwrap_model(model), check_pointer(folder, "folder"));
    return ACCEL_OK;
  });
}

accel_status_t accel_save_state(accel_state_t* state, const char* folder) {
  return guarded(__func__, [&] {
    accelerator_of(state).save_state(check_pointer(folder, "folder"));
    return ACCEL_OK;
  });
}

accel_status_t accel_load_state(accel_state_t* state, const char* folder) {
  return guarded(__func__, [&] {
    accelerator_of(state).load_state(check_pointer(folder, "folder"));
    return ACCEL_OK;
  });
}

accel_status_t accel_register_for_checkpointing(accel_state_t* state, const char* name, accel_save_state_fn save,
                                                accel_load_state_fn load, void* user_data, accel_destroy_fn destroy) {
  return guarded(__func__, [&] {
    const Callback<accel_save_state_fn> save_callback(save, user_data, destroy);  // owns user_data from here on
    accelerator::Accelerator& accelerator = accelerator_of(state);
    check_pointer(name, "name");
    require(save != nullptr && load != nullptr, Status::kInvalidArgument,
            "save or load is NULL; expected two functions");
    const auto load_callback = save_callback.with<accel_load_state_fn>(load);
    accelerator::RegisteredObject object;
    object.name = name;
    object.save = [save_callback] {
      accel_value_t value = ACCEL_VALUE_INIT;
      check_callback(save_callback(&value), "the save function");
      const DisposeValue disposed(value);
      return to_ivalue(value, "out_state");
    };
    object.load = [load_callback](const c10::IValue& saved) {
      accel_value_t value = from_ivalue(saved);
      const DisposeValue disposed(value);
      check_callback(load_callback(&value), "the load function");
    };
    accelerator.register_for_checkpointing(std::move(object));
    return ACCEL_OK;
  });
}
