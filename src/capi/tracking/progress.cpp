// SPDX-License-Identifier: Apache-2.0
// Section 14: progress bars.
#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "base/error.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/progress.hpp"
#include "capi/values/value.hpp"
#include "data/prepared_dataloader.hpp"
#include "logging/progress_bar.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

std::shared_ptr<track::ProgressBar> new_bar(const accel_state_t* state, const char* label, std::optional<int64_t> total,
                                            const accel_progress_options_t* options, track::ProgressBar::Show show) {
  const auto& accelerator = accelerator_of(state);
  const ProgressSettings settings = read_settings(options, "options");
  const bool shows = !settings.local_main_process_only || accelerator->state().is_local_main_process();
  return std::make_shared<track::ProgressBar>(check_pointer(label, "label"), total, settings, shows, std::move(show));
}

std::string epoch_label(const std::string& label, int64_t epoch) {
  return text(label, label.empty() ? "" : " ", "epoch ", epoch);
}

// A batch is done when the next one is asked for.
data::PreparedDataLoader::Follower follower(const std::shared_ptr<track::ProgressBar>& bar, std::string label) {
  return [weak = std::weak_ptr<track::ProgressBar>(bar), label = std::move(label), in_use = false, ended = false](
             const data::PreparedDataLoader& loader, bool has_batch) mutable {
    const auto shown = weak.lock();
    if (shown == nullptr || shown->has_ended()) return false;
    if (in_use) shown->update(1);
    if (ended && has_batch) shown->restart(loader.length(), epoch_label(label, loader.epoch()));
    in_use = has_batch;
    ended = !has_batch;
    return true;
  };
}

track::ProgressValue progress_value(const std::string& name, const c10::IValue& value) {
  if (value.isNone()) {
    require(name == "memory", Status::kTypeMismatch, "value '", name, "' is NONE, which only \"memory\" may be");
    return std::monostate();
  }
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) return value.toDouble();
  require(value.isString(), Status::kTypeMismatch, "value '", name, "' is ", value.tagKind(),
          "; expected a number or a text");
  return value.toStringRef();
}

c10::IValue optional_value(const std::optional<double>& number) {
  return number ? c10::IValue(*number) : c10::IValue();
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_progress_begin(accel_state_t* state, const char* label, int64_t total,
                                                   const accel_progress_options_t* options, accel_progress_fn show,
                                                   void* user_data, accel_destroy_fn destroy,
                                                   accel_progress_bar_t** out) {
  return guarded(__func__, [&] {
    const Callback<accel_progress_fn> owned(show, user_data, destroy);  // owns user_data from here on
    check_pointer(out, "out");
    track::ProgressBar::Show shown;
    if (show != nullptr) shown = [owned](const char* line, bool is_last) { owned(line, is_last ? 1 : 0); };
    auto bar = new_bar(state, label, optional_number(total), options, std::move(shown));
    *out = std::make_unique<accel_progress_bar>(std::move(bar)).release();
  });
}

ACCEL_FUNCTION accel_status_t accel_progress_of_dataloader(accel_state_t* state, const char* label,
                                                           accel_dataloader_t* loader,
                                                           const accel_progress_options_t* options,
                                                           accel_progress_bar_t** out) {
  return guarded(__func__, out, [&] {
    accelerator_of(state);
    check_pointer(label, "label");
    const auto prepared = std::dynamic_pointer_cast<data::PreparedDataLoader>(check(loader, "loader").loader);
    require(prepared != nullptr, Status::kInvalidArgument,
            "loader is not prepared; expected one of accel_prepare_data_loader()");
    auto bar = new_bar(state, epoch_label(label, prepared->epoch()).c_str(), prepared->length(), options, {});
    prepared->set_follower(follower(bar, label));
    return bar;
  });
}

ACCEL_FUNCTION accel_progress_bar_t* accel_progress_bar_retain(accel_progress_bar_t* bar) {
  return retain_handle(__func__, bar, "bar");
}

ACCEL_FUNCTION void accel_progress_bar_release(accel_progress_bar_t* bar) { release_handle(bar); }

ACCEL_FUNCTION accel_status_t accel_progress_update(accel_progress_bar_t* bar, int64_t count) {
  return guarded(__func__, [&] { check(bar, "bar").bar->update(count); });
}

ACCEL_FUNCTION accel_status_t accel_progress_set_total(accel_progress_bar_t* bar, int64_t total) {
  return guarded(__func__, [&] { check(bar, "bar").bar->set_total(optional_number(total)); });
}

ACCEL_FUNCTION accel_status_t accel_progress_write(accel_progress_bar_t* bar, const char* line) {
  return guarded(__func__, [&] {
    track::ProgressBar& engine = *check(bar, "bar").bar;
    engine.write(check_pointer(line, "line"));
  });
}

ACCEL_FUNCTION accel_status_t accel_progress_set_values(accel_progress_bar_t* bar, const accel_value_t* values) {
  return guarded(__func__, [&] {
    track::ProgressBar& engine = *check(bar, "bar").bar;
    const c10::IValue map = to_ivalue(*check_pointer(values, "values"), "values");
    require(map.isGenericDict(), Status::kTypeMismatch, "values is ", map.tagKind(), "; expected a map");
    track::ProgressValues shown;
    for (const auto& item : map.toGenericDict()) {
      require(item.key().isString(), Status::kTypeMismatch, "a key of values is ", item.key().tagKind(),
              "; expected a text");
      const std::string& name = item.key().toStringRef();
      shown.emplace_back(name, progress_value(name, item.value()));
    }
    engine.set_values(std::move(shown));
  });
}

ACCEL_FUNCTION accel_status_t accel_progress_report(const accel_progress_bar_t* bar, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const track::ProgressState now = check(bar, "bar").bar->state();
    return from_ivalue(tree::new_map({{"count", now.count},
                                      {"total", now.total ? c10::IValue(*now.total) : c10::IValue()},
                                      {"seconds", now.seconds},
                                      {"rate", now.rate.value_or(0)},
                                      {"remaining_seconds", optional_value(now.remaining_seconds)}}));
  });
}

ACCEL_FUNCTION accel_status_t accel_progress_end(accel_progress_bar_t* bar) {
  return guarded(__func__, [&] { check(bar, "bar").bar->end(); });
}

}  // namespace accel::capi
