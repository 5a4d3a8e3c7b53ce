/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/** Seeds a generator of the application's language.
 * @param seed The seed, with the rank where that was asked for.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_seed_fn)(int64_t seed, void *user_data);

/** Has accel_set_seed() seed one more generator, such as the host language's or a library's.
 * @param state A state.
 * @param seed,user_data,destroy The function, what is handed to it, and the end of its life.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_add_seed_callback(accel_state_t *state, accel_seed_fn seed, void *ACCEL_NULLABLE user_data,
                        accel_destroy_fn ACCEL_NULLABLE destroy);

/** Seeds the default generators of all devices, and runs the callbacks of accel_add_seed_callback().
 * @param state A state.
 * @param seed The seed.
 * @param device_specific 1: adds the rank.
 * @param deterministic 1: from now on the process uses algorithms whose results do not differ from run to run, and
 *   operators that have none fail.
 * @return ACCEL_OK or INVALID_ARGUMENT; the status of a callback.
 * @threads object
 * @accelerate utils.set_seed */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_set_seed(accel_state_t *state, int64_t seed, int32_t device_specific, int32_t deterministic);

/** A generator of its own, with the numbers of torch.Generator.
 * @param seed Its seed.
 * @param device Whose numbers it draws.
 * @param out The generator.
 * @return ACCEL_OK or UNSUPPORTED.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_generator_create(int64_t seed, const accel_device_t *device, accel_generator_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param generator A generator.
 * @return This generator, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_generator_t *accel_generator_retain(accel_generator_t *generator);

/** Removes an owner.
 * @param generator A generator, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_generator_release(accel_generator_t *ACCEL_NULLABLE generator);

/** Starts a generator anew.
 * @param generator A generator.
 * @param seed The seed.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_generator_set_seed(accel_generator_t *generator, int64_t seed);

/** The state of a generator.
 * @param generator A generator; NULL: the default one of the CPU.
 * @param out A tensor of bytes, as torch.Generator.get_state() returns it.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_generator_state(accel_generator_t *ACCEL_NULLABLE generator, accel_tensor_t *ACCEL_OWNED *out);

/** Sets the state of a generator.
 * @param generator A generator of the same device; NULL: the default one of the CPU.
 * @param state A result of accel_generator_state().
 * @return ACCEL_OK; TYPE_MISMATCH or TORCH for an invalid state.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_generator_set_state(accel_generator_t *ACCEL_NULLABLE generator, const accel_tensor_t *state);

/** Broadcasts the states of rank 0's generators to all ranks.
 * @param state A state.
 * @param rng_types "torch" (the CPU's default generator), the type of the state's device ("npu": its default
 *   generator), "generator" (the one given), joined by commas.
 * @param generator For "generator"; else NULL.
 * @return ACCEL_OK; INVALID_ARGUMENT for another name, or "generator" without one; UNSUPPORTED for the generator of a
 *   device that the state does not use; TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits
 * @accelerate utils.synchronize_rng_states */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_synchronize_rng_states(accel_state_t *state, const char *rng_types, accel_generator_t *ACCEL_NULLABLE generator);
