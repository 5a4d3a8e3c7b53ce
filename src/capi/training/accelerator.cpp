// SPDX-License-Identifier: Apache-2.0
// Section 10: preparing objects, saving and loading.
#include "accelerator/accelerator.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "accel.h"
#include "accelerator/description.hpp"
#include "accelerator/parameters/gathered_parameters.hpp"
#include "accelerator/prepared_model.hpp"
#include "accelerator/prepared_object.hpp"
#include "accelerator/training_memory.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/calls/scope.hpp"
#include "capi/generated/options/accelerator.hpp"
#include "capi/generated/options/parallelism.hpp"
#include "capi/generated/options/pipeline.hpp"
#include "capi/generated/options/prepare.hpp"
#include "capi/training/state_callbacks.hpp"
#include "capi/values/buffer.hpp"
#include "capi/values/named_tensors.hpp"
#include "capi/values/tensor_handle.hpp"
#include "capi/values/tensor_list.hpp"
#include "capi/values/value.hpp"
#include "data/prepared_dataloader.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

PrepareModelSettings read_prepare_model_options(const accel_prepare_model_options_t* given, const std::string& name) {
  const std::string ddp_name = name + ".ddp", comm_state_name = ddp_name + ".comm_state_option";
  const accel_ddp_options_t* const given_ddp = given_options(given, name.c_str()).ddp;
  PrepareModelSettings result = read_settings(given, name.c_str());
  result.ddp = read_settings(given_ddp, ddp_name.c_str());
  result.ddp.comm_state_option =
      read_settings(given_options(given_ddp, ddp_name.c_str()).comm_state_option, comm_state_name.c_str());
  // The engine reads their variables, which mean something together only.
  result.fsdp = given_settings(given_options(given, name.c_str()).fsdp, (name + ".fsdp").c_str());
  result.deepspeed = given_settings(given_options(given, name.c_str()).deepspeed, (name + ".deepspeed").c_str());
  result.tensor_parallel =
      read_settings(given_options(given, name.c_str()).tensor_parallel, (name + ".tensor_parallel").c_str());
  result.context_parallel =
      read_settings(given_options(given, name.c_str()).context_parallel, (name + ".context_parallel").c_str());
  result.expert_parallel =
      read_settings(given_options(given, name.c_str()).expert_parallel, (name + ".expert_parallel").c_str());
  result.pipeline = read_settings(given_options(given, name.c_str()).pipeline, (name + ".pipeline").c_str());
  require(result.ddp.comm_wrapper <= DdpCommHook::kBf16, Status::kInvalidArgument, ddp_name, ".comm_wrapper is ",
          static_cast<int>(result.ddp.comm_wrapper.value), "; expected ACCEL_DDP_COMM_HOOK_NO, _FP16 or _BF16");
  return result;
}

// Inputs by which a model is cut into stages, as a tuple or list; nothing where there are none.
c10::IValue read_sample_inputs(const accel_prepare_model_options_t* given, const std::string& name) {
  const std::string pipeline_name = name + ".pipeline";
  const accel_pipeline_options_t* const pipeline = given_options(given, name.c_str()).pipeline;
  const accel_value_t* const sample = given_options(pipeline, pipeline_name.c_str()).sample_inputs;
  if (sample == nullptr) return {};
  const c10::IValue inputs = to_ivalue(*sample, (pipeline_name + ".sample_inputs").c_str());
  return inputs.isTensor() ? tree::new_tuple({inputs}) : inputs;
}

constexpr const char* kPhases[] = {"forward", "backward", "step"};

c10::IValue describe(const parallel::MemoryEstimate& estimate) {
  auto map = tree::new_map();
  map.insert("parameters", estimate.peak.parameters);
  map.insert("parameter_copies", estimate.peak.parameter_copies);
  map.insert("buffers", estimate.peak.buffers);
  map.insert("optimizer_states", estimate.peak.optimizer_states);
  map.insert("gathered_parameters", estimate.peak.gathered_parameters);
  map.insert("gradients", estimate.peak.gradients);
  map.insert("exchanged_gradients", estimate.peak.exchanged_gradients);
  map.insert("activations", estimate.peak.activations);
  map.insert("peak", estimate.peak.total());
  map.insert("phase", std::string(kPhases[static_cast<size_t>(estimate.peak_phase)]));
  for (size_t phase = 0; phase < std::size(kPhases); phase++)
    map.insert(std::string(kPhases[phase]), estimate.phase_peaks[phase]);
  return map;
}

// The application's struct may be shorter or longer than this version's.
template <typename Item>
Item* item_at(Item* items, size_t index, size_t item_size) {
  using Byte = std::conditional_t<std::is_const_v<Item>, const std::byte, std::byte>;
  return reinterpret_cast<Item*>(reinterpret_cast<Byte*>(items) + index * item_size);
}

accelerator::PreparedObject read_item(const accel_prepare_item_t* items, size_t index) {
  const accel_prepare_item_t* const given = item_at(items, index, items->struct_size);
  const accel_prepare_item_t item = given_options(given, "items");
  require(given->struct_size == items->struct_size, Status::kInvalidArgument, "items[", index, "].struct_size is ",
          given->struct_size, "; expected that of the first, ", items->struct_size);
  const int handles =
      (item.module != nullptr) + (item.optimizer != nullptr) + (item.loader != nullptr) + (item.scheduler != nullptr);
  require(handles == 1, Status::kInvalidArgument, "items[", index, "] has ", handles, " handles; expected one");
  require(item.module != nullptr || item.model_options == nullptr, Status::kInvalidArgument, "items[", index,
          "] has model_options and no module; expected both, or no options");
  accelerator::PreparedObject object;
  if (item.module != nullptr) {
    object.model = check(item.module, "items.module").module;
    const std::string name = text("items[", index, "].model_options");
    object.model_settings = read_prepare_model_options(item.model_options, name);
    object.sample_inputs = read_sample_inputs(item.model_options, name);
  }
  if (item.optimizer != nullptr) object.optimizer = check(item.optimizer, "items.optimizer").optimizer;
  if (item.loader != nullptr) object.loader = check(item.loader, "items.loader").loader;
  if (item.scheduler != nullptr) object.scheduler = check(item.scheduler, "items.scheduler").scheduler;
  object.device_placement = settings_of(item).device_placement;
  return object;
}

// Until the caller has them.
struct PreparedHandles {
  explicit PreparedHandles(const accelerator::PreparedObject& object) {
    if (object.model != nullptr) module = std::make_unique<accel_module>(object.model);
    if (object.optimizer != nullptr) optimizer = std::make_unique<accel_optimizer>(object.optimizer);
    if (object.loader != nullptr) loader = std::make_unique<accel_dataloader>(object.loader);
    if (object.scheduler != nullptr) scheduler = std::make_unique<accel_scheduler>(object.scheduler);
  }

  std::unique_ptr<accel_module> module;
  std::unique_ptr<accel_optimizer> optimizer;
  std::unique_ptr<accel_dataloader> loader;
  std::unique_ptr<accel_scheduler> scheduler;
};

}  // namespace

ACCEL_FUNCTION accel_status_t accel_prepare_model(accel_state_t* state, accel_module_t* module,
                                                  const accel_prepare_model_options_t* options, accel_module_t** out) {
  return guarded(__func__, out, [&] {
    const nn::ModulePtr& model = check(module, "module").module;
    return accelerator_of(state)->preparation().prepare_model(model, read_prepare_model_options(options, "options"),
                                                              read_sample_inputs(options, "options"));
  });
}

ACCEL_FUNCTION accel_status_t accel_estimate_memory(const accel_module_t* module, const accel_optimizer_t* optimizer,
                                                    const accel_estimate_memory_options_t* options,
                                                    accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const nn::ModulePtr& model = check(module, "module").module;
    const auto* const states = optimizer == nullptr ? nullptr : check(optimizer, "optimizer").optimizer.get();
    EstimateMemorySettings settings = read_settings(options, "options");
    settings.model_options =
        read_prepare_model_options(given_options(options, "options").model_options, "options.model_options");
    return from_ivalue(describe(accelerator::estimate_memory(model, states, settings)));
  });
}

ACCEL_FUNCTION accel_status_t accel_register_comm_hook(accel_state_t* state, accel_module_t* module,
                                                       accel_comm_hook_fn hook, void* user_data,
                                                       accel_destroy_fn destroy) {
  return guarded(__func__, [&] {
    const Callback<accel_comm_hook_fn> callback(hook, user_data, destroy);
    accelerator_of(state);
    const nn::ModulePtr& model = check(module, "module").module;
    check_pointer(hook, "hook");
    auto* const exchange = accelerator::require_prepared(model)->exchange();
    if (exchange == nullptr) return;  // gradients stay on this rank
    exchange->register_comm_hook([callback](const at::Tensor& buffer, int64_t bucket, bool is_last) {
      const TensorHandle handle(new_tensor(buffer));
      callback.checked("hook", handle.get(), bucket, is_last ? 1 : 0);
    });
  });
}

ACCEL_FUNCTION accel_status_t accel_prepare_optimizer(accel_state_t* state, accel_optimizer_t* optimizer,
                                                      accel_optimizer_t** out) {
  return guarded(__func__, out, [&] {
    return accelerator_of(state)->preparation().prepare_optimizer(check(optimizer, "optimizer").optimizer);
  });
}

ACCEL_FUNCTION accel_status_t accel_prepare_scheduler(accel_state_t* state, accel_scheduler_t* scheduler,
                                                      accel_scheduler_t** out) {
  return guarded(__func__, out, [&] {
    return accelerator_of(state)->preparation().prepare_scheduler(check(scheduler, "scheduler").scheduler);
  });
}

ACCEL_FUNCTION accel_status_t accel_prepare_data_loader(accel_state_t* state, accel_dataloader_t* loader,
                                                        const accel_dataloader_config_t* config,
                                                        accel_dataloader_t** out) {
  return guarded(__func__, out, [&] {
    const auto& plain = check(loader, "loader").loader;
    return accelerator_of(state)->preparation().prepare_data_loader(*plain, read_settings(config, "config"));
  });
}

ACCEL_FUNCTION accel_status_t accel_prepare(accel_state_t* state, const accel_prepare_item_t* items, size_t n_items,
                                            accel_prepare_item_t* out_items) {
  return guarded(__func__, [&] {
    accelerator::Accelerator& accelerator = *accelerator_of(state);
    check_array(check_pointer(items, "items"), n_items, "items");
    check_pointer(out_items, "out_items");
    std::vector<accelerator::PreparedObject> objects;
    for (size_t i = 0; i < n_items; i++) objects.push_back(read_item(items, i));
    std::vector<PreparedHandles> prepared;
    for (const accelerator::PreparedObject& object : accelerator.preparation().prepare(objects))
      prepared.emplace_back(object);
    for (size_t i = 0; i < n_items; i++) {
      const size_t size = items->struct_size;
      accel_prepare_item_t* const out = item_at(out_items, i, size);
      std::memcpy(out, item_at(items, i, size), size);  // the other fields stay, also those of a newer program
      out->module = prepared[i].module.release();
      out->optimizer = prepared[i].optimizer.release();
      out->loader = prepared[i].loader.release();
      out->scheduler = prepared[i].scheduler.release();
    }
  });
}

ACCEL_FUNCTION accel_status_t accel_unwrap_model(accel_state_t* state, accel_module_t* module,
                                                 const accel_unwrap_model_options_t* options, accel_module_t** out) {
  return guarded(__func__, out, [&] {
    accelerator_of(state);
    const nn::ModulePtr& model = check(module, "module").module;
    const UnwrapModelSettings settings = read_settings(options, "options");
    const auto unwrap = settings.keep_fp32_wrapper ? accelerator::unwrap_keeping_precision : accelerator::unwrap_model;
    if (settings.recursive) accelerator::unwrap_parts(*accelerator::unwrap_model(model), unwrap);
    return unwrap(model);
  });
}

ACCEL_FUNCTION accel_status_t accel_get_state_dict(accel_state_t* state, accel_module_t* module, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    accelerator::Accelerator& accelerator = *accelerator_of(state);
    return from_ivalue(map_of(
        accelerator.files().whole_state_dict(check(module, "module").module, accelerator.state().is_main_process())));
  });
}

ACCEL_FUNCTION accel_status_t accel_sharded_modules(const accel_module_t* module, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const parallel::ParallelModelPtr model = accelerator::require_prepared(check(module, "module").module);
    auto list = tree::new_list();
    const auto* const parts = model->parts();
    for (const parallel::ShardedModule& sharded :
         parts != nullptr ? parts->sharded_modules() : std::vector<parallel::ShardedModule>()) {
      auto entry = tree::new_map();
      entry.insert("module", sharded.path);
      entry.insert("parameters", static_cast<int64_t>(sharded.parameters.size()));
      entry.insert("elements", sharded.elements);
      entry.insert("shard_elements", sharded.shard_elements);
      list.push_back(entry);
    }
    return from_ivalue(list);
  });
}

ACCEL_FUNCTION accel_status_t accel_gathered_parameters_begin(accel_state_t* state, accel_tensor_t* const* parameters,
                                                              size_t n_parameters, int32_t modifier_rank,
                                                              accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    require(modifier_rank >= -1, Status::kInvalidArgument, "modifier_rank is ", modifier_rank,
            "; expected a rank, or -1 for none");
    return open_scope<accelerator::GatheredParameters>(
        accelerator_of(state), read_tensors(parameters, n_parameters, "parameters"),
        modifier_rank < 0 ? std::nullopt : std::optional<int>(modifier_rank));
  });
}

ACCEL_FUNCTION accel_status_t accel_describe(accel_state_t* state, accel_buffer_t* out) {
  return guarded(__func__, out, [&] { return new_buffer(accelerator::describe(*accelerator_of(state))); });
}

ACCEL_FUNCTION accel_status_t accel_verify_replicas(accel_state_t* state, int32_t* out) {
  return guarded(__func__, out, [&]() -> int32_t { return accelerator_of(state)->preparation().replicas().run(); });
}

ACCEL_FUNCTION accel_status_t accel_empty_cache(accel_state_t* state) {
  return guarded(__func__, [&] { accelerator_of(state)->release_cached_memory(); });
}

ACCEL_FUNCTION accel_status_t accel_free_memory(accel_state_t* state) {
  return guarded(__func__, [&] { accelerator_of(state)->free_memory(); });
}

}  // namespace accel::capi
