// SPDX-License-Identifier: Apache-2.0
// Section 3: process control.
#include "state/state.hpp"

#include <ATen/Parallel.h>

#include <atomic>
#include <cstdio>
#include <iterator>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "base/log.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/loaded_libtorch.hpp"
#include "capi/calls/options.hpp"
#include "capi/calls/scope.hpp"
#include "capi/generated/options/profiler.hpp"
#include "capi/generated/options/state.hpp"
#include "capi/models/device.hpp"
#include "capi/values/buffer.hpp"
#include "capi/values/value.hpp"
#include "comm/collectives.hpp"
#include "config/generated/settings/state/state.hpp"
#include "data/prepared_dataloader.hpp"
#include "os/host_name.hpp"
#include "os/interruption.hpp"
#include "profile/automatic_profile.hpp"
#include "state/main_process_first.hpp"
#include "state/split.hpp"
#include "tensor/device/device_work.hpp"
#include "tensor/tree.hpp"

accel_state::accel_state(std::shared_ptr<accel::accelerator::Accelerator> accelerator)
    : accelerator(std::move(accelerator)), device(accel::capi::from_device(this->accelerator->state().device())) {}

namespace accel::capi {
namespace {

static_assert(static_cast<int32_t>(state::DistributedType::kNo) == ACCEL_DISTRIBUTED_NO &&
              static_cast<int32_t>(state::DistributedType::kMultiCpu) == ACCEL_DISTRIBUTED_MULTI_CPU &&
              static_cast<int32_t>(state::DistributedType::kMultiGpu) == ACCEL_DISTRIBUTED_MULTI_GPU &&
              static_cast<int32_t>(state::DistributedType::kMultiNpu) == ACCEL_DISTRIBUTED_MULTI_NPU &&
              static_cast<int32_t>(state::DistributedType::kMultiNeuron) == ACCEL_DISTRIBUTED_MULTI_NEURON &&
              static_cast<int32_t>(state::DistributedType::kXla) == ACCEL_DISTRIBUTED_XLA);

// Getters: return the value, or -1 for an invalid handle.
template <typename Read>
int32_t read_state(const char* function, const accel_state_t* handle, Read&& read) {
  return guarded_value<int32_t>(
      function, -1, [&] { return static_cast<int32_t>(read(check(handle, "state").accelerator->state())); });
}

std::atomic<accel_state_t*> default_state{nullptr};

// The program goes on without a profile if it cannot be made.
void profile_automatically(const state::State& engine) {
  try {
    profile::begin_automatic_profile(read_settings<accel_profile_options_t>(nullptr, "options"), engine.communicator(),
                                     engine.device().type());
  } catch (const Error& error) {
    log(LogLevel::kError, "this program is not profiled: ", error.what());
  }
}

// Once for a process.
void log_libraries() {
  static std::atomic<bool> is_logged{false};
  if (!log_enabled(LogLevel::kInfo) || is_logged.exchange(true)) return;
  const LoadedLibtorch loaded = loaded_libtorch();
  log(LogLevel::kInfo, "libaccel ", ACCEL_VERSION_MAJOR, ".", ACCEL_VERSION_MINOR, ".", ACCEL_VERSION_PATCH, " is ",
      loaded.accel, ", LibTorch ", loaded.version, " is ", loaded.torch_cpu);
}

void log_state(const state::State& engine) {
  if (!log_enabled(LogLevel::kInfo)) return;
  const auto& group = engine.communicator()->group();
  log(LogLevel::kInfo, "rank ", engine.process_index(), " of ", engine.num_processes(), " has joined: device ",
      engine.device(), engine.num_processes() > 1 ? text(", collectives by ", group.backend_name) : "", ", threads ",
      at::get_num_threads(), engine.settings().embedded ? ", embedded" : "", ", on host ", host_name());
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_state_create(const accel_state_options_t* options, accel_state_t** out) {
  return guarded(__func__, out, [&] {
    note_state();
    log_libraries();
    auto accelerator = std::make_shared<accelerator::Accelerator>(given_settings(options, "options"));
    log_state(accelerator->state());
    if (profile::is_profiled_automatically()) profile_automatically(accelerator->state());
    return accelerator;
  });
}

ACCEL_FUNCTION accel_status_t accel_state_share(accel_state_t* state, const accel_state_options_t* options,
                                                accel_state_t** out) {
  return guarded(__func__, out, [&] {
    const auto& parent = *check(state, "state").accelerator;
    return std::make_shared<accelerator::Accelerator>(parent, given_settings(options, "options"));
  });
}

ACCEL_FUNCTION accel_state_t* accel_state_retain(accel_state_t* state) {
  return retain_handle(__func__, state, "state");
}

ACCEL_FUNCTION void accel_state_release(accel_state_t* state) { release_handle(state); }

ACCEL_FUNCTION accel_status_t accel_state_set_default(accel_state_t* state) {
  return guarded(__func__, [&] {
    if (state != nullptr) check(state, "state").retain();
    release_handle(default_state.exchange(state));
  });
}

ACCEL_FUNCTION accel_state_t* accel_state_default(void) { return default_state.load(); }

ACCEL_FUNCTION accel_status_t accel_state_describe(const accel_state_t* state, accel_buffer_t* out) {
  return guarded(__func__, out, [&] { return new_buffer(check(state, "state").accelerator->state().describe()); });
}

ACCEL_FUNCTION int32_t accel_process_index(const accel_state_t* state) {
  return read_state(__func__, state, [](const state::State& engine) { return engine.process_index(); });
}

ACCEL_FUNCTION int32_t accel_num_processes(const accel_state_t* state) {
  return read_state(__func__, state, [](const state::State& engine) { return engine.num_processes(); });
}

ACCEL_FUNCTION int32_t accel_local_process_index(const accel_state_t* state) {
  return read_state(__func__, state, [](const state::State& engine) { return engine.local_process_index(); });
}

ACCEL_FUNCTION int32_t accel_local_num_processes(const accel_state_t* state) {
  return read_state(__func__, state, [](const state::State& engine) { return engine.local_num_processes(); });
}

ACCEL_FUNCTION int32_t accel_is_main_process(const accel_state_t* state) {
  return read_state(__func__, state, [](const state::State& engine) { return engine.is_main_process(); });
}

ACCEL_FUNCTION int32_t accel_is_local_main_process(const accel_state_t* state) {
  return read_state(__func__, state, [](const state::State& engine) { return engine.is_local_main_process(); });
}

ACCEL_FUNCTION int32_t accel_is_last_process(const accel_state_t* state) {
  return read_state(__func__, state, [](const state::State& engine) { return engine.is_last_process(); });
}

ACCEL_FUNCTION int32_t accel_use_distributed(const accel_state_t* state) {
  return read_state(__func__, state, [](const state::State& engine) { return engine.use_distributed(); });
}

ACCEL_FUNCTION const char* accel_distributed_type_name(accel_distributed_type_t type) {
  static constexpr const char* kNames[] = {"NO",         "MULTI_CPU",  "MULTI_GPU", "MULTI_NPU",  "MULTI_MLU",
                                           "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU", "MULTI_HPU",  "MULTI_NEURON",
                                           "DEEPSPEED",  "FSDP",       "XLA",       "MEGATRON_LM"};
  static_assert(std::size(kNames) == ACCEL_DISTRIBUTED_MEGATRON_LM + 1);
  return type >= 0 && type <= ACCEL_DISTRIBUTED_MEGATRON_LM ? kNames[type] : nullptr;
}

ACCEL_FUNCTION accel_distributed_type_t accel_distributed_type(const accel_state_t* state) {
  return read_state(__func__, state, [](const state::State& engine) { return engine.distributed_type(); });
}

ACCEL_FUNCTION const char* accel_backend(const accel_state_t* state) {
  return guarded_value<const char*>(__func__, nullptr, [&] {
    return check(state, "state").accelerator->state().communicator()->group().backend_name.c_str();
  });
}

ACCEL_FUNCTION accel_precision_t accel_mixed_precision(const accel_state_t* state) {
  return read_state(__func__, state,
                    [](const state::State& engine) { return engine.settings().mixed_precision.value; });
}

ACCEL_FUNCTION int32_t accel_debug(const accel_state_t* state) {
  return read_state(__func__, state, [](const state::State& engine) { return engine.settings().debug.value; });
}

ACCEL_FUNCTION int32_t accel_fork_launched(const accel_state_t* state) {
  return read_state(__func__, state, [](const state::State& engine) { return engine.fork_launched(); });
}

ACCEL_FUNCTION const accel_device_t* accel_device(const accel_state_t* state) {
  return guarded_value<const accel_device_t*>(__func__, nullptr, [&] { return &check(state, "state").device; });
}

ACCEL_FUNCTION accel_status_t accel_set_device(const accel_state_t* state) {
  return guarded(__func__, [&] { tensor::set_current_device(check(state, "state").accelerator->state().device()); });
}

ACCEL_FUNCTION accel_status_t accel_main_process_first_begin(accel_state_t* state, accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    const state::State& engine = accelerator_of(state)->state();
    return open_scope<state::MainProcessFirst>(engine.communicator(), engine.is_main_process());
  });
}

ACCEL_FUNCTION accel_status_t accel_local_main_process_first_begin(accel_state_t* state, accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    const state::State& engine = accelerator_of(state)->state();
    return open_scope<state::MainProcessFirst>(engine.communicator(), engine.is_local_main_process());
  });
}

ACCEL_FUNCTION accel_status_t accel_split_range(const accel_state_t* state, int64_t length, int64_t* out_begin,
                                                int64_t* out_end) {
  return guarded(__func__, [&] {
    const auto& engine = check(state, "state").accelerator->state();
    check_pointer(out_begin, "out_begin");
    check_pointer(out_end, "out_end");
    std::tie(*out_begin, *out_end) = state::split_range(length, engine.process_index(), engine.num_processes());
  });
}

ACCEL_FUNCTION accel_status_t accel_split_between_processes(const accel_state_t* state, const accel_value_t* inputs,
                                                            int32_t apply_padding, accel_value_t* out) {
  return guarded(__func__, [&] {
    const auto& engine = check(state, "state").accelerator->state();
    const c10::IValue value = to_ivalue(*check_pointer(inputs, "inputs"), "inputs");
    check_pointer(out, "out");
    give(out,
         state::split_between_processes(value, engine.process_index(), engine.num_processes(), apply_padding != 0));
  });
}

ACCEL_FUNCTION accel_status_t accel_print(const accel_state_t* state, const char* line) {
  return guarded(__func__, [&] {
    const auto& engine = check(state, "state").accelerator->state();
    check_pointer(line, "line");
    if (!engine.is_local_main_process()) return ACCEL_OK;
    // At once, for a stream without a buffer, which other processes write to as well.
    const std::string whole = std::string(line) + '\n';
    const bool written = std::fwrite(whole.data(), 1, whole.size(), stdout) == whole.size() && std::fflush(stdout) == 0;
    require(written, Status::kIo, "standard output does not take the line");
    return ACCEL_OK;
  });
}

ACCEL_FUNCTION accel_status_t accel_set_trigger(accel_state_t* state) {
  return guarded(__func__, [&] { check(state, "state").accelerator->state().trigger().set(); });
}

ACCEL_FUNCTION accel_status_t accel_check_trigger(accel_state_t* state, int32_t* out) {
  return guarded(__func__, out, [&] {
    state::State& engine = check(state, "state").accelerator->state();
    return engine.trigger().check(*engine.communicator());
  });
}

ACCEL_FUNCTION accel_status_t accel_destroy_process_group(accel_state_t* state) {
  return guarded(__func__, [&] { check(state, "state").accelerator->state().communicator()->shutdown(); });
}

ACCEL_FUNCTION accel_status_t accel_interrupt(void) {
  return guarded(__func__, [] { interrupt(); });
}

ACCEL_FUNCTION accel_status_t accel_end_training(accel_state_t* state) {
  return guarded(__func__, [&] {
    accelerator::Accelerator& accelerator = *check(state, "state").accelerator;
    profile::end_automatic_profile();
    accelerator.end_training();
    log(LogLevel::kInfo, "rank ", accelerator.state().process_index(), " has ended its training");
  });
}

ACCEL_FUNCTION int32_t accel_sync_gradients(const accel_state_t* state) {
  return read_state(__func__, state,
                    [](const state::State& engine) { return engine.gradient_state()->sync_gradients(); });
}

ACCEL_FUNCTION int32_t accel_end_of_dataloader(const accel_state_t* state) {
  return read_state(__func__, state,
                    [](const state::State& engine) { return engine.gradient_state()->end_of_dataloader(); });
}

ACCEL_FUNCTION accel_status_t accel_set_sync_gradients(accel_state_t* state, int32_t sync) {
  return guarded(__func__, [&] {
    check(state, "state").accelerator->state().gradient_state()->set_sync_gradients(read_flag(sync, "sync"));
  });
}

ACCEL_FUNCTION int64_t accel_remainder(const accel_state_t* state) {
  return guarded_value<int64_t>(
      __func__, -1, [&] { return check(state, "state").accelerator->state().gradient_state()->remainder(); });
}

ACCEL_FUNCTION int64_t accel_gradient_accumulation_steps(const accel_state_t* state) {
  return guarded_value<int64_t>(
      __func__, -1, [&] { return check(state, "state").accelerator->state().gradient_state()->settings().num_steps; });
}

ACCEL_FUNCTION int64_t accel_accumulation_step(const accel_state_t* state) {
  return guarded_value<int64_t>(__func__, -1,
                                [&] { return check(state, "state").accelerator->backward().accumulation_step(); });
}

ACCEL_FUNCTION accel_status_t accel_set_accumulation_step(accel_state_t* state, int64_t step) {
  return guarded(__func__, [&] { check(state, "state").accelerator->backward().set_accumulation_step(step); });
}

ACCEL_FUNCTION accel_status_t accel_set_gradient_accumulation(accel_state_t* state,
                                                              const accel_gradient_accumulation_options_t* options) {
  return guarded(__func__, [&] {
    state::GradientState& gradient_state = *check(state, "state").accelerator->state().gradient_state();
    const auto given = given_options(check_pointer(options, "options"), "options");
    state::AccumulationSettings settings = gradient_state.settings();
    set_given(settings.num_steps, given.num_steps);
    set_given(settings.adjust_scheduler, given.adjust_scheduler);
    set_given(settings.sync_with_dataloader, given.sync_with_dataloader);
    set_given(settings.sync_each_batch, given.sync_each_batch);
    set_given(settings.true_divisor, given.true_divisor);
    gradient_state.set_settings(settings);
  });
}

ACCEL_FUNCTION accel_status_t accel_gradient_accumulation(const accel_state_t* state, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const auto& settings = check(state, "state").accelerator->state().gradient_state()->settings();
    c10::impl::GenericDict fields = tree::new_map();
    fields.insert(std::string("num_steps"), settings.num_steps);
    fields.insert(std::string("adjust_scheduler"), settings.adjust_scheduler);
    fields.insert(std::string("sync_with_dataloader"), settings.sync_with_dataloader);
    fields.insert(std::string("sync_each_batch"), settings.sync_each_batch);
    fields.insert(std::string("true_divisor"), settings.true_divisor);
    return from_ivalue(fields);
  });
}

ACCEL_FUNCTION int32_t accel_in_dataloader(const accel_state_t* state) {
  return read_state(__func__, state,
                    [](const state::State& engine) { return engine.gradient_state()->in_dataloader(); });
}

ACCEL_FUNCTION accel_status_t accel_active_dataloader(const accel_state_t* state, int64_t depth,
                                                      accel_dataloader_t** out) {
  return guarded(__func__, out, [&] {
    const auto& gradient_state = *check(state, "state").accelerator->state().gradient_state();
    require(depth >= 0, Status::kInvalidArgument, "depth is ", depth, "; expected at least 0");
    auto loader = gradient_state.active_loader(depth);
    require(loader != nullptr, Status::kNotFound, "no loop over a prepared loader is under way at depth ", depth);
    return loader;
  });
}

}  // namespace accel::capi
