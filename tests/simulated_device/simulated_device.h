/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated device: an accelerator inside a LibTorch without one, for tests. The library is loaded with dlopen()
 * and registers itself as the device "sim"; these functions are found with dlsym().
 *
 * Like a GPU it has memory of its own with a limit, which the host cannot touch, streams that run beside the host,
 * events, pinned host memory and generators, and it can fail. Its operators compute on the host: an operator waits
 * until the earlier work of its stream has ended, computes, and queues the write of its results on the stream. What
 * reads the results on another stream without waiting for an event, or frees memory that another stream uses without
 * recording it there, gets wrong numbers: memory that has no value is filled with bytes of ones, which is NaN in every
 * floating-point type and -1 in every integer.
 *
 * Environment variables, read when the library is loaded:
 *   SIMULATED_DEVICE_NAME             the name of the device (sim)
 *   SIMULATED_DEVICE_COUNT            1 to 8 devices (4)
 *   SIMULATED_DEVICE_MEMORY           bytes of each device (1 GiB)
 *   SIMULATED_DEVICE_SEED             seed of the random delays (0: no random delays)
 *   SIMULATED_DEVICE_RANDOM_DELAY_US  longest random delay of a task of a stream (200)
 *   SIMULATED_DEVICE_COPY_DELAY_US    time that each copy takes (0)
 *   SIMULATED_DEVICE_OPERATOR_DELAY_US  time that each operator takes (0)
 *   SIMULATED_DEVICE_PINNED_BYTES     most bytes of one allocation of pinned memory (no limit)
 *   SIMULATED_DEVICE_FAIL_ALLOCATION  "DEVICE:N": the N-th allocation fails, counted from 1
 *   SIMULATED_DEVICE_FAIL_COPY        "DEVICE:N": the N-th copy fails */
#ifndef SIMULATED_DEVICE_H
#define SIMULATED_DEVICE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIMULATED_DEVICE_API __attribute__((visibility("default")))

typedef struct simulated_device_settings {
  int32_t device_count;
  int64_t memory_bytes;
  uint64_t seed;
  int64_t random_delay_us;
  int64_t copy_delay_us;
  int64_t operator_delay_us;
  int64_t pinned_bytes; /* most bytes of one allocation of pinned memory, as by `ulimit -l` */
} simulated_device_settings;

typedef struct simulated_device_statistics {
  int64_t allocations;     /* since the start, with those that failed */
  int64_t allocated_bytes; /* now, as tensors asked for them, rounded up to 512 bytes */
  int64_t copies;          /* to, from and on the device */
  int64_t operators;
  int64_t streams;         /* streams of the device that were used */
  int64_t pending_tasks;   /* of all its streams */
  int64_t pageable_copies; /* between it and host memory that is not pinned */
  int64_t host_waits;   /* of the program for it: for streams, events, copies that block, and numbers that it reads */
  int64_t pinned_bytes; /* pinned memory of the host now, whatever the device */
  int64_t peak_pinned_bytes; /* the most since simulated_device_reset_peak_pinned() */
  int64_t launches; /* kernels: operators that compute on the device, and copies on it that convert. One of lists
                     * (_foreach, _fused) is one where CUDA has a kernel for the lists, else one for each tensor */
  int64_t casts;    /* of these, copies between dtypes on the device */
} simulated_device_statistics;

SIMULATED_DEVICE_API void simulated_device_get_settings(simulated_device_settings* settings);
/* Returns NULL, or what is wrong with the settings, which then stay as they were. Applies to what is queued from now
 * on. */
SIMULATED_DEVICE_API const char* simulated_device_configure(const simulated_device_settings* settings);

/* Makes the n-th allocation (copy) from now fail, counted from 1; 0 takes the fault back. Device -1: of any device. */
SIMULATED_DEVICE_API void simulated_device_fail_allocation(int32_t device, int64_t n);
SIMULATED_DEVICE_API void simulated_device_fail_copy(int32_t device, int64_t n);
/* Every later call on the device raises "device sim:1 is lost"; what is queued never runs, and waiting for it ends. */
SIMULATED_DEVICE_API void simulated_device_lose(int32_t device);
/* Gives all lost devices back and takes all faults back. Tensors of a device that was lost have lost their values. */
SIMULATED_DEVICE_API void simulated_device_restore(void);

/* Queues a kernel that takes this long on the calling thread's current stream of the device. Returns at once. */
SIMULATED_DEVICE_API void simulated_device_run_kernel(int32_t device, int64_t microseconds);
SIMULATED_DEVICE_API void simulated_device_get_statistics(int32_t device, simulated_device_statistics* statistics);
SIMULATED_DEVICE_API void simulated_device_reset_peak_pinned(void);

#ifdef __cplusplus
}
#endif

#endif
