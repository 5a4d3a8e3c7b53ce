// SPDX-License-Identifier: Apache-2.0
// Section 14: loggers.
#include "logging/logger.hpp"

#include <memory>
#include <utility>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "base/error.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/logger.hpp"
#include "logging/log_sink.hpp"

namespace accel::capi {
namespace {

int32_t checked_level(int32_t level, int32_t most) {
  require(level >= 0 && level <= most, Status::kInvalidArgument, "level is ", level,
          "; expected ACCEL_LOG_DEBUG (10), ", "INFO (20), WARNING (30), ERROR (40), or another number from 0 to ",
          most);
  return level;
}

constexpr int32_t kHighestMessage = ACCEL_LOG_OFF - 1;

track::LogRanks checked_ranks(accel_log_ranks_t ranks) {
  require(ranks >= ACCEL_LOG_MAIN_PROCESS && ranks <= ACCEL_LOG_IN_ORDER, Status::kInvalidArgument, "ranks is ", ranks,
          "; expected ACCEL_LOG_MAIN_PROCESS (0), ALL_PROCESSES (1) or IN_ORDER (2)");
  return static_cast<track::LogRanks>(ranks);
}

// A logger may outlive its state.
track::Logger::Place place_of(const std::shared_ptr<accelerator::Accelerator>& accelerator) {
  const auto& communicator = accelerator->state().communicator();
  return {communicator->rank(), communicator->size(), [owner = std::weak_ptr<accelerator::Accelerator>(accelerator)] {
            const auto alive = owner.lock();
            require(alive != nullptr, Status::kInvalidState, "the state of the logger is released; IN_ORDER needs it");
            alive->state().communicator()->barrier();
          }};
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_log_sink_add(accel_state_t* state, const accel_log_sink_options_t* options,
                                                 int64_t* out_sink) {
  return guarded(__func__, [&] {
    const auto& accelerator = accelerator_of(state);
    check_pointer(out_sink, "out_sink");
    *out_sink = track::add_log_sink(read_settings(options, "options"), accelerator->state().communicator()->rank());
  });
}

ACCEL_FUNCTION accel_status_t accel_log_sink_remove(int64_t sink) {
  return guarded(__func__, [&] {
    require(track::remove_log_sink(sink), Status::kNotFound, "sink is ", sink,
            "; expected a number of accel_log_sink_add() that was not removed yet");
  });
}

ACCEL_FUNCTION accel_status_t accel_logger_create(accel_state_t* state, const char* name, int32_t level,
                                                  accel_logger_fn callback, void* user_data, accel_destroy_fn destroy,
                                                  accel_logger_t** out) {
  return guarded(__func__, [&] {
    const Callback<accel_logger_fn> owned(callback, user_data, destroy);  // owns user_data from here on
    const auto& accelerator = accelerator_of(state);
    check_pointer(name, "name");
    check_pointer(out, "out");
    const auto lowest = optional_number(level);
    if (lowest) checked_level(*lowest, ACCEL_LOG_OFF);
    track::Logger::Callback show;
    if (callback != nullptr)
      show = [owned](int32_t of_message, const char* logger, const char* message) {
        owned(of_message, logger, message);
      };
    auto logger = std::make_shared<track::Logger>(name, lowest, place_of(accelerator), std::move(show));
    *out = std::make_unique<accel_logger>(std::move(logger)).release();
  });
}

ACCEL_FUNCTION accel_logger_t* accel_logger_retain(accel_logger_t* logger) {
  return retain_handle(__func__, logger, "logger");
}

ACCEL_FUNCTION void accel_logger_release(accel_logger_t* logger) { release_handle(logger); }

ACCEL_FUNCTION int32_t accel_logger_enabled(const accel_logger_t* logger, int32_t level) {
  return guarded_value(__func__, -1, [&] { return check(logger, "logger").logger->is_enabled(level) ? 1 : 0; });
}

ACCEL_FUNCTION accel_status_t accel_logger_log(accel_logger_t* logger, int32_t level, const char* message,
                                               accel_log_ranks_t ranks) {
  return guarded(__func__, [&] {
    track::Logger& engine = *check(logger, "logger").logger;
    engine.log(checked_level(level, kHighestMessage), check_pointer(message, "message"), checked_ranks(ranks));
  });
}

ACCEL_FUNCTION accel_status_t accel_logger_warning_once(accel_logger_t* logger, const char* message,
                                                        accel_log_ranks_t ranks) {
  return guarded(__func__, [&] {
    check(logger, "logger").logger->warn_once(check_pointer(message, "message"), checked_ranks(ranks));
  });
}

}  // namespace accel::capi
