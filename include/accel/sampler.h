/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/** 0, 1, 2, ...
 * @param length How many.
 * @param out The sampler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_sequential(int64_t length, accel_sampler_t *ACCEL_OWNED *out);

/** A new order in every epoch, the same in every run and on every rank: the permutation of generator(seed + epoch), as
 * Accelerate's SeedableRandomSampler.
 * @param length How many.
 * @param seed The data seed.
 * @param out The sampler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_seedable_random(int64_t length, int64_t seed, accel_sampler_t *ACCEL_OWNED *out);

/** Draws of another number than there are items, as torch's RandomSampler: permutation after permutation, or with
 * replacement.
 * @param length Items.
 * @param num_samples Draws of an epoch.
 * @param replacement 1: an item may come again at once.
 * @param seed The seed of generator(seed + epoch).
 * @param out The sampler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_random_draws(int64_t length, int64_t num_samples, int32_t replacement, int64_t seed,
                           accel_sampler_t *ACCEL_OWNED *out);

/** Draws by weight, as torch's WeightedRandomSampler.
 * @param weights [n_weights] Of each item, of any sum; an item of weight 0 is never drawn.
 * @param n_weights Items.
 * @param num_samples Draws of an epoch.
 * @param replacement 1: an item may be drawn again. 0: num_samples is at most the number of weights above 0.
 * @param seed The seed of generator(seed + epoch).
 * @param out The sampler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_weighted(const double *weights, size_t n_weights, int64_t num_samples, int32_t replacement, int64_t seed,
                       accel_sampler_t *ACCEL_OWNED *out);

/** Some of the items, as torch's SubsetRandomSampler when they are shuffled.
 * @param indices [n_indices] From 0; they may repeat.
 * @param n_indices Their number.
 * @param shuffle 1: a new order in every epoch. 0: as given.
 * @param seed The seed of generator(seed + epoch).
 * @param out The sampler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_subset(const int64_t *ACCEL_NULLABLE indices, size_t n_indices, int32_t shuffle, int64_t seed,
                     accel_sampler_t *ACCEL_OWNED *out);

/** Random batches of items of about one length, which need little padding, as transformers' LengthGroupedSampler: a
 * permutation is cut into groups, each sorted by length; the longest item of all comes first.
 * @param lengths [n_lengths] Of each item.
 * @param n_lengths Items.
 * @param batch_size The loader's, of all ranks together.
 * @param group_batches Batches that are sorted together; ACCEL_UNSET_INT64: a quarter of all, from 1 to 50.
 * @param seed The seed of generator(seed + epoch).
 * @param out The sampler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_length_grouped(const int64_t *lengths, size_t n_lengths, int64_t batch_size, int64_t group_batches,
                             int64_t seed, accel_sampler_t *ACCEL_OWNED *out);

/** One rank's share of an order, as torch's DistributedSampler, for programs that share the items out themselves: a
 * prepared loader does so by itself.
 * @param length Items.
 * @param num_replicas Ranks.
 * @param rank This one.
 * @param shuffle 1: of the permutation of generator(seed + epoch). 0: of the sequence.
 * @param seed Equal on all ranks.
 * @param drop_last 1: a tail that does not reach all ranks is left out; 0: it is filled up with items from the start.
 * @param out The sampler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_distributed(int64_t length, int64_t num_replicas, int64_t rank, int32_t shuffle, int64_t seed,
                          int32_t drop_last, accel_sampler_t *ACCEL_OWNED *out);

/** Makes the order of an epoch. Resuming asks for the same epoch again: the answer must be the same.
 * @param epoch From 0.
 * @param indices [n_indices] Room for the order; zeros before.
 * @param n_indices The sampler's length.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_order_fn)(int64_t epoch, int64_t *indices, size_t n_indices, void *user_data);

/** An order that the application determines.
 * @param length How many.
 * @param order Called at the start of each epoch.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out The sampler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_create(int64_t length, accel_order_fn order, void *ACCEL_NULLABLE user_data,
                     accel_destroy_fn ACCEL_NULLABLE destroy, accel_sampler_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param sampler A sampler.
 * @return This sampler, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_sampler_t *accel_sampler_retain(accel_sampler_t *sampler);

/** Removes an owner.
 * @param sampler A sampler, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_sampler_release(accel_sampler_t *ACCEL_NULLABLE sampler);

/** The number of draws.
 * @param sampler A sampler.
 * @return Draws of an epoch; -1 for an invalid handle.
 * @threads any */
ACCEL_SINCE(0, 1) int64_t accel_sampler_length(const accel_sampler_t *sampler);

/** The order of an epoch.
 * @param sampler A sampler.
 * @param epoch From 0.
 * @param out An int64 tensor with that epoch's order.
 * @return ACCEL_OK; INVALID_ARGUMENT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_indices(const accel_sampler_t *sampler, int64_t epoch, accel_tensor_t *ACCEL_OWNED *out);
