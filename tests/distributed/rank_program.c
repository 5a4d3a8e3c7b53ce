/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of the tests with real processes: rank_program NAME [ARGUMENT]. */
#define _POSIX_C_SOURCE 200809L

#include "rank_program.h"

#include <string.h>
#include <time.h>

typedef struct sub_command {
  const char* name;
  void (*run)(accel_state_t* state, const char* argument);
  int64_t timeout_ms; /* of the collectives, and of the start, which takes seconds on a busy machine */
  int32_t leaves_in_order;
} sub_command_t;

static const sub_command_t kCommands[] = {
    {"collectives", run_collectives, 60000, 1},
    {"objects", run_objects, 60000, 1},
    {"ddp", run_ddp, 60000, 1},
    {"hooks", run_hooks, 60000, 1},
    {"checkpoint", run_checkpoint, 60000, 1},
    {"uneven", run_uneven, 60000, 1},
    {"dispatch", run_dispatch, 60000, 1},
    {"leave_epoch", run_leave_epoch, 60000, 1},
    {"resume_epoch", run_resume_epoch, 60000, 1},
    {"mismatch", run_mismatch, 20000, 1},
    {"timeout", run_timeout, 5000, 0},
    {"stop", run_stop, 5000, 0},
    {"kill", run_kill, 60000, 0},
    {"kill_unread", run_kill_unread, 60000, 0},
    {"first", run_first, 20000, 1},
    {"first_fails", run_first_fails, 10000, 0},
    {"works", run_works, 60000, 1},
    {"mesh", run_mesh, 60000, 1},
    {"context", run_context, 60000, 1},
    {"many_groups", run_many_groups, 60000, 1},
    {"shrink", run_shrink, 60000, 0},
    {"shrink_silent", run_shrink_silent, 5000, 0},
    {"environment", run_environment, 60000, 1},
    {"leave", run_leave, 60000, 0},
    {"until_lost", run_until_failure, 60000, 0},
    {"until_silent", run_until_failure, 5000, 0},
    {"sharding_until_lost", run_sharding_until_lost, 60000, 0},
    {"sharding_losses", run_sharding_losses, 60000, 1},
    {"sharded_parameters", run_sharded_parameters, 60000, 1},
    {"registered_parameters", run_registered_parameters, 60000, 1},
    {"registered_kill", run_registered_kill, 60000, 0},
    {"sharding_growth", run_sharding_growth, 60000, 1},
    {"split_memory", run_split_memory, 60000, 1},
};

int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

accel_tensor_t* make_tensor(int64_t count, accel_dtype_t dtype, element_fn element, const void* context) {
  double* const elements = malloc((size_t)(count > 0 ? count : 1) * sizeof(double));
  accel_tensor_t *doubles = NULL, *tensor = NULL;
  EXPECT(elements != NULL);
  for (int64_t i = 0; i < count; i++) elements[i] = element(i, context);
  CHECK(accel_tensor_from_data(elements, &count, 1, ACCEL_DTYPE_FLOAT64, &doubles));
  free(elements);
  CHECK(accel_tensor_to(doubles, dtype, &kCpu, 0, &tensor));
  accel_tensor_release(doubles);
  return tensor;
}

int32_t same_tensors(accel_tensor_t* a, accel_tensor_t* b) {
  const accel_value_t x = accel_arg_tensor(a), y = accel_arg_tensor(b);
  int32_t equal = 0;
  CHECK(accel_value_equal(&x, &y, &equal));
  return equal;
}

int main(int argc, char** argv) {
  for (size_t i = 0; argc >= 2 && i < sizeof kCommands / sizeof kCommands[0]; i++) {
    if (strcmp(argv[1], kCommands[i].name) != 0) continue;
    accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
    accel_state_t* state = NULL;
    options.cpu = 1;
    options.timeout_ms = kCommands[i].timeout_ms;
    CHECK(accel_state_create(&options, &state));
    kCommands[i].run(state, argc > 2 ? argv[2] : NULL);
    if (kCommands[i].leaves_in_order) CHECK(accel_end_training(state));
    accel_state_release(state);
    EXPECT(accel_debug_live_objects() == 0);
    return 0;
  }
  fprintf(stderr, "usage: rank_program NAME [ARGUMENT]\n");
  return 2;
}
