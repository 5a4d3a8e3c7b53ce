/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/** Trains, or whatever needs memory, with a batch size.
 * @param batch_size The size to try.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK: it fits; OUT_OF_MEMORY, of the host or the device: a smaller size is tried; another error ends the
 *   search.
 * @threads caller */
typedef accel_status_t (*accel_batch_size_fn)(int64_t batch_size, void *user_data);

/** Called for each size that did not fit; chooses the next one.
 * @param batch_size The size that did not fit; with several ranks the smallest of theirs.
 * @param next_batch_size The default of the next size: 0.9 of it.
 * @param reason The message of the failure; of another rank: "another rank ran out of memory".
 * @param user_data Handed to the callback.
 * @return The size to try next, the same on all ranks: smaller than batch_size; 0 gives up.
 * @threads caller */
typedef int64_t (*accel_reduce_batch_size_fn)(int64_t batch_size, int64_t next_batch_size, const char *reason,
                                              void *user_data);

/** Calls a function with smaller and smaller batch sizes until one fits into memory. All ranks continue with the next size
 * when one of them ran out of memory; those that wait for it in a collective get COLLECTIVE_MISMATCH there, which they
 * should return. Cached memory is returned to the system before each attempt.
 * @param state A state.
 * @param function The work. It must release what it made, also when it fails.
 * @param reduce NULL: 0.9 of the size, rounded down.
 * @param user_data,destroy Handed to both callbacks; destroy ends its life.
 * @param starting_batch_size The first size; the former result in a second search.
 * @param out_batch_size The size that fits; untouched after an error.
 * @return ACCEL_OK; OUT_OF_MEMORY when no size fits; INVALID_ARGUMENT for a negative size or a `reduce` that does not
 *   reduce; CANCELLED when the function failed on another rank; the function's own error.
 * @threads collective, waits
 * @accelerate utils.find_executable_batch_size */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_find_executable_batch_size(accel_state_t *state, accel_batch_size_fn function,
                                 accel_reduce_batch_size_fn ACCEL_NULLABLE reduce, void *ACCEL_NULLABLE user_data,
                                 accel_destroy_fn ACCEL_NULLABLE destroy, int64_t starting_batch_size,
                                 int64_t *ACCEL_NULLABLE out_batch_size);

/** Lets go of all prepared objects, of the memory that is cached for the next large CPU tensors, and of what the device's
 * allocator keeps. Micro-batches are counted from the start again. Objects registered for checkpoints stay.
 * @param state A state.
 * @return ACCEL_OK.
 * @threads object, waits
 * @accelerate free_memory, clear, utils.release_memory */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_free_memory(accel_state_t *state);

/** Returns memory that is cached for later tensors to the system and to other programs: memory of large CPU tensors, of
 * large results of a gather or a reduce, and of the device. Memory in use stays.
 * @param state A state.
 * @return ACCEL_OK.
 * @threads any
 * @accelerate utils.clear_device_cache */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_empty_cache(accel_state_t *state);
