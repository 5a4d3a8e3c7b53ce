// Section 9: loaders.
#include "data/dataloader.hpp"

#include <memory>

#include "accel.h"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/options.hpp"
#include "capi/value.hpp"

using namespace accel;
using namespace accel::capi;

namespace {

std::shared_ptr<const data::Sampler> make_sampler(const accel_dataloader_options_t& options, int64_t length) {
  const bool shuffle = option_flag(options.shuffle, "shuffle").value_or(false);
  if (options.sampler != nullptr) {
    require(!shuffle, Status::kInvalidArgument, "shuffle is 1 and a sampler was given; expected one of them");
    return check(options.sampler, "options.sampler").sampler;
  }
  if (shuffle) return std::make_shared<data::SeedableRandomSampler>(length, option_integer(options.seed).value_or(0));
  return std::make_shared<data::SequentialSampler>(length);
}

}  // namespace

void accel_dataloader_options_init(accel_dataloader_options_t* options) {
  if (options != nullptr) *options = ACCEL_DATALOADER_OPTIONS_INIT;
}

accel_status_t accel_dataloader_create(accel_dataset_t* dataset, const accel_dataloader_options_t* options,
                                       accel_dataloader_t** out) {
  return guarded(__func__, [&] {
    const auto& items = check(dataset, "dataset").dataset;
    check_pointer(out, "out");
    const auto given = read_options<accel_dataloader_options_t>(options, ACCEL_DATALOADER_OPTIONS_INIT, "options");
    data::LoaderOptions settings;
    settings.batch_size = option_integer(given.batch_size).value_or(settings.batch_size);
    settings.drop_last = option_flag(given.drop_last, "drop_last").value_or(settings.drop_last);
    settings.prefetch = option_integer(given.prefetch).value_or(settings.prefetch);
    *out = std::make_unique<accel_dataloader>(
               std::make_shared<data::DataLoader>(items, make_sampler(given, items->length()), settings))
               .release();
    return ACCEL_OK;
  });
}

accel_dataloader_t* accel_dataloader_retain(accel_dataloader_t* loader) {
  return retain_handle(__func__, loader, "loader");
}

void accel_dataloader_release(accel_dataloader_t* loader) { release_handle(loader); }

accel_status_t accel_dataloader_next(accel_dataloader_t* loader, accel_value_t* out) {
  return guarded(__func__, [&] {
    data::DataLoader& engine = *check(loader, "loader").loader;
    check_pointer(out, "out");
    const auto batch = engine.next();
    if (!batch) return ACCEL_ITER_END;
    give(out, *batch);
    return ACCEL_OK;
  });
}

int64_t accel_dataloader_length(const accel_dataloader_t* loader) {
  return guarded_value<int64_t>(__func__, -1, [&] { return check(loader, "loader").loader->length(); });
}

accel_status_t accel_dataloader_set_epoch(accel_dataloader_t* loader, int64_t epoch) {
  return guarded(__func__, [&] {
    check(loader, "loader").loader->set_epoch(epoch);
    return ACCEL_OK;
  });
}

accel_status_t accel_dataloader_state_dict(const accel_dataloader_t* loader, accel_value_t* out) {
  return guarded(__func__, [&] {
    const data::DataLoader& engine = *check(loader, "loader").loader;
    give(check_pointer(out, "out"), engine.state_dict());
    return ACCEL_OK;
  });
}

accel_status_t accel_dataloader_load_state_dict(accel_dataloader_t* loader, const accel_value_t* state_dict) {
  return guarded(__func__, [&] {
    data::DataLoader& engine = *check(loader, "loader").loader;
    engine.load_state_dict(to_ivalue(*check_pointer(state_dict, "state_dict"), "state_dict"));
    return ACCEL_OK;
  });
}

accel_status_t accel_skip_first_batches(accel_dataloader_t* loader, int64_t num_batches, accel_dataloader_t** out) {
  return guarded(__func__, [&] {
    const data::DataLoader& engine = *check(loader, "loader").loader;
    check_pointer(out, "out");
    *out = std::make_unique<accel_dataloader>(engine.skip_first(num_batches)).release();
    return ACCEL_OK;
  });
}
