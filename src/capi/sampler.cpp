// Section 9: samplers.
#include "data/sampler.hpp"

#include <memory>

#include "accel.h"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/value.hpp"

using namespace accel;
using namespace accel::capi;

accel_status_t accel_sampler_sequential(int64_t length, accel_sampler_t** out) {
  return guarded(__func__, [&] {
    check_pointer(out, "out");
    *out = std::make_unique<accel_sampler>(std::make_shared<data::SequentialSampler>(length)).release();
    return ACCEL_OK;
  });
}

accel_status_t accel_sampler_seedable_random(int64_t length, int64_t seed, accel_sampler_t** out) {
  return guarded(__func__, [&] {
    check_pointer(out, "out");
    *out = std::make_unique<accel_sampler>(std::make_shared<data::SeedableRandomSampler>(length, seed)).release();
    return ACCEL_OK;
  });
}

accel_sampler_t* accel_sampler_retain(accel_sampler_t* sampler) { return retain_handle(__func__, sampler, "sampler"); }

void accel_sampler_release(accel_sampler_t* sampler) { release_handle(sampler); }

accel_status_t accel_sampler_indices(const accel_sampler_t* sampler, int64_t epoch, accel_tensor_t** out) {
  return guarded(__func__, [&] {
    const data::Sampler& engine = *check(sampler, "sampler").sampler;
    check_pointer(out, "out");
    require(epoch >= 0, Status::kInvalidArgument, "epoch is ", epoch, "; expected at least 0");
    *out = new_tensor(engine.indices(epoch));
    return ACCEL_OK;
  });
}
