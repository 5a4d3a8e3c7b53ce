/* SPDX-License-Identifier: Apache-2.0 */
/* Workloads startup and startup_engine_only: bench/run times the whole life of this process. */
#include "measure.h"

#include <string.h>

/* The floor: the engine is loaded and makes one tensor. */
static void make_tensor(void) {
  accel_tensor_t *tensor = NULL;
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  CHECK(accel_tensor_full(NULL, 0, 0, ACCEL_DTYPE_FLOAT32, &cpu, &tensor));
  accel_tensor_release(tensor);
}

static void make_state(void) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&options, &state));
  accel_state_release(state);
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "engine") == 0)
    make_tensor();
  else
    make_state();
  return 0;
}
