/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of one rank share: checks that say where they failed, and tensors with known elements. */
#ifndef RANK_PROGRAM_H
#define RANK_PROGRAM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "accel.h"

/* A rank that fails ends; the runner sees its status, and its message on standard error. */
#define CHECK(call)                                                                                      \
  do {                                                                                                   \
    const accel_status_t check_status = (call);                                                          \
    if (check_status < 0) {                                                                              \
      fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, accel_status_name(check_status), \
              accel_last_error());                                                                       \
      exit(1);                                                                                           \
    }                                                                                                    \
  } while (0)

#define EXPECT(condition)                                                                                 \
  do {                                                                                                    \
    if (!(condition)) {                                                                                   \
      fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, accel_last_error()); \
      exit(1);                                                                                            \
    }                                                                                                     \
  } while (0)

static const accel_device_t kCpu = {ACCEL_DEVICE_CPU, 0};

/* The sub-commands. `argument` is what follows the name on the command line, or NULL. */
void run_collectives(accel_state_t* state, const char* argument);
void run_objects(accel_state_t* state, const char* argument);
void run_ddp(accel_state_t* state, const char* argument);
void run_hooks(accel_state_t* state, const char* argument);
void run_checkpoint(accel_state_t* state, const char* argument);
void run_uneven(accel_state_t* state, const char* argument);
void run_dispatch(accel_state_t* state, const char* argument);
void run_leave(accel_state_t* state, const char* argument);
void run_leave_epoch(accel_state_t* state, const char* folder);
void run_resume_epoch(accel_state_t* state, const char* folder);
void run_mismatch(accel_state_t* state, const char* argument);
void run_timeout(accel_state_t* state, const char* argument);
void run_stop(accel_state_t* state, const char* argument);
void run_kill(accel_state_t* state, const char* argument);
void run_kill_unread(accel_state_t* state, const char* argument);
void run_first(accel_state_t* state, const char* argument);
void run_first_fails(accel_state_t* state, const char* argument);
void run_works(accel_state_t* state, const char* argument);
void run_mesh(accel_state_t* state, const char* argument);
void run_context(accel_state_t* state, const char* method);
void run_many_groups(accel_state_t* state, const char* argument);
void run_shrink(accel_state_t* state, const char* argument);
void run_shrink_silent(accel_state_t* state, const char* argument);
void run_environment(accel_state_t* state, const char* argument);
void run_until_failure(accel_state_t* state, const char* argument);
void run_sharding_until_lost(accel_state_t* state, const char* argument);
void run_sharding_losses(accel_state_t* state, const char* checkpoint);
void run_sharded_parameters(accel_state_t* state, const char* argument);
void run_registered_parameters(accel_state_t* state, const char* argument);
void run_registered_kill(accel_state_t* state, const char* argument);
void run_sharding_growth(accel_state_t* state, const char* argument);
void run_split_memory(accel_state_t* state, const char* folder);

/* Milliseconds of a clock that only goes forward. */
int64_t now_ms(void);

/* Prints how long a call took and how it failed, for the runner. Then it stays until its input is closed: a rank that
 * leaves is one more that the others have lost. */
void report_failure(int64_t milliseconds, accel_status_t status);

/* A tensor whose element i is `element(i, context)`. */
typedef double (*element_fn)(int64_t i, const void* context);
accel_tensor_t* make_tensor(int64_t count, accel_dtype_t dtype, element_fn element, const void* context);

/* Whether dtype, shape and all elements are equal. */
int32_t same_tensors(accel_tensor_t* a, accel_tensor_t* b);

#endif
