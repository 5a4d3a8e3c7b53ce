// SPDX-License-Identifier: Apache-2.0
// Section 9: samplers.
#include "data/sampler.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "accel.h"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/values/value.hpp"
#include "data/samplers/callback_sampler.hpp"
#include "data/samplers/distributed_sampler.hpp"
#include "data/samplers/length_grouped_sampler.hpp"
#include "data/samplers/subset_sampler.hpp"
#include "data/samplers/weighted_sampler.hpp"

namespace accel::capi {
namespace {

template <typename Number>
std::vector<Number> read_numbers(const Number* numbers, size_t count, const char* name) {
  check_array(numbers, count, name);
  return {numbers, numbers + count};
}

std::optional<int64_t> seed_of(int32_t shuffle, int64_t seed) {
  if (!read_flag(shuffle, "shuffle")) return std::nullopt;
  return seed;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_sampler_sequential(int64_t length, accel_sampler_t** out) {
  return guarded(__func__, out, [&] { return std::make_shared<data::SequentialSampler>(length); });
}

ACCEL_FUNCTION accel_status_t accel_sampler_seedable_random(int64_t length, int64_t seed, accel_sampler_t** out) {
  return guarded(__func__, out, [&] { return std::make_shared<data::SeedableRandomSampler>(length, seed); });
}

ACCEL_FUNCTION accel_status_t accel_sampler_random_draws(int64_t length, int64_t num_samples, int32_t replacement,
                                                         int64_t seed, accel_sampler_t** out) {
  return guarded(__func__, out, [&] {
    const data::RandomDraw draw{read_flag(replacement, "replacement"), num_samples};
    return std::make_shared<data::SeedableRandomSampler>(length, seed, draw);
  });
}

ACCEL_FUNCTION accel_status_t accel_sampler_weighted(const double* weights, size_t n_weights, int64_t num_samples,
                                                     int32_t replacement, int64_t seed, accel_sampler_t** out) {
  return guarded(__func__, out, [&] {
    return std::make_shared<data::WeightedSampler>(read_numbers(weights, n_weights, "weights"), num_samples,
                                                   read_flag(replacement, "replacement"), seed);
  });
}

ACCEL_FUNCTION accel_status_t accel_sampler_subset(const int64_t* indices, size_t n_indices, int32_t shuffle,
                                                   int64_t seed, accel_sampler_t** out) {
  return guarded(__func__, out, [&] {
    return std::make_shared<data::SubsetSampler>(read_numbers(indices, n_indices, "indices"), seed_of(shuffle, seed));
  });
}

ACCEL_FUNCTION accel_status_t accel_sampler_length_grouped(const int64_t* lengths, size_t n_lengths, int64_t batch_size,
                                                           int64_t group_batches, int64_t seed, accel_sampler_t** out) {
  return guarded(__func__, out, [&] {
    return std::make_shared<data::LengthGroupedSampler>(read_numbers(lengths, n_lengths, "lengths"), batch_size,
                                                        optional_number(group_batches), seed);
  });
}

ACCEL_FUNCTION accel_status_t accel_sampler_distributed(int64_t length, int64_t num_replicas, int64_t rank,
                                                        int32_t shuffle, int64_t seed, int32_t drop_last,
                                                        accel_sampler_t** out) {
  return guarded(__func__, out, [&] {
    return std::make_shared<data::DistributedSampler>(length, num_replicas, rank, seed_of(shuffle, seed),
                                                      read_flag(drop_last, "drop_last"));
  });
}

ACCEL_FUNCTION accel_status_t accel_sampler_create(int64_t length, accel_order_fn order, void* user_data,
                                                   accel_destroy_fn destroy, accel_sampler_t** out) {
  return guarded(__func__, [&] {
    const Callback<accel_order_fn> callback(order, user_data, destroy);
    check_pointer(order, "order");
    check_pointer(out, "out");
    const auto count = static_cast<size_t>(std::max<int64_t>(length, 0));
    write_output(out,
                 std::make_shared<data::CallbackSampler>(length, [callback, count](int64_t epoch, int64_t* indices) {
                   callback.checked("order", epoch, indices, count);
                 }));
  });
}

ACCEL_FUNCTION accel_sampler_t* accel_sampler_retain(accel_sampler_t* sampler) {
  return retain_handle(__func__, sampler, "sampler");
}

ACCEL_FUNCTION void accel_sampler_release(accel_sampler_t* sampler) { release_handle(sampler); }

ACCEL_FUNCTION int64_t accel_sampler_length(const accel_sampler_t* sampler) {
  return guarded_value<int64_t>(__func__, -1, [&] { return check(sampler, "sampler").sampler->length(); });
}

ACCEL_FUNCTION accel_status_t accel_sampler_indices(const accel_sampler_t* sampler, int64_t epoch,
                                                    accel_tensor_t** out) {
  return guarded(__func__, out, [&] {
    const data::Sampler& engine = *check(sampler, "sampler").sampler;
    require(epoch >= 0, Status::kInvalidArgument, "epoch is ", epoch, "; expected at least 0");
    return engine.indices(epoch);
  });
}

}  // namespace accel::capi
