/* SPDX-License-Identifier: Apache-2.0 */
/* Workload staged: milliseconds of an all_reduce of tensors on a device whose collectives are staged through host
 * memory, and of what it consists of: the copy to the host, the all_reduce there, the copy back. One process of
 * `ranks`; bench/run starts them. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>

#include "measure.h"

static const accel_device_t kCpu = {ACCEL_DEVICE_CPU, -1};

enum step { COPY_TO_HOST, ALL_REDUCE_ON_HOST, COPY_TO_DEVICE, ALL_REDUCE_STAGED, N_STEPS };
static const char *const kNames[N_STEPS] = {"copy_to_host", "all_reduce_on_host", "copy_to_device",
                                            "all_reduce_staged"};

struct work {
  accel_state_t *state;
  accel_device_t device;
  accel_tensor_t *on_host, *on_device;
};

/* Ends when the device has done its work. */
static void run_step(const struct work *work, enum step step) {
  switch (step) {
    case COPY_TO_HOST: CHECK(accel_tensor_copy(work->on_host, work->on_device)); return;
    case ALL_REDUCE_ON_HOST: CHECK(accel_all_reduce(work->state, work->on_host, ACCEL_REDUCE_MEAN)); return;
    case COPY_TO_DEVICE: CHECK(accel_tensor_copy(work->on_device, work->on_host)); break;
    default: CHECK(accel_all_reduce(work->state, work->on_device, ACCEL_REDUCE_MEAN)); break;
  }
  CHECK(accel_device_synchronize(&work->device));
}

static double measure_step(const struct work *work, enum step step, int64_t bytes, const char *device,
                           struct figure *figure) {
  char params[256];
  run_step(work, step);
  for (size_t i = 0; i < figure->n_samples; i++) {
    CHECK(accel_wait_for_everyone(work->state));
    const double start = measure_now();
    run_step(work, step);
    CHECK(accel_wait_for_everyone(work->state));
    figure->samples[i] = (measure_now() - start) * 1e3;
  }
  snprintf(params, sizeof params, "{\"step\": \"%s\", \"procs\": %d, \"device\": \"%s\", \"bytes\": %lld}",
           kNames[step], accel_num_processes(work->state), device, (long long)bytes);
  figure->params = params;
  measure_report(work->state, figure);
  return measure_median(figure->samples, figure->n_samples);
}

int main(int argc, char **argv) {
  enum { DEVICE, BYTES, SAMPLES, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {{"--device", "sim"}, {"--bytes", "67108864"}, {"--samples", "9"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  settings.torch_device = options[DEVICE].value;
  struct work work = {NULL, {0, 0}, NULL, NULL};
  CHECK(accel_state_create(&settings, &work.state));
  work.device = *accel_device(work.state);
  const int64_t bytes = measure_integer(&options[BYTES]), count = bytes / 4;
  CHECK(accel_tensor_full(&count, 1, 1, ACCEL_DTYPE_FLOAT32, &kCpu, &work.on_host));
  CHECK(accel_tensor_full(&count, 1, 1, ACCEL_DTYPE_FLOAT32, &work.device, &work.on_device));

  struct figure figure = {
      "staged", NULL, "ms", 0, NULL, (size_t)measure_integer(&options[SAMPLES]), measure_memory("VmHWM"), NULL};
  figure.samples = measure_allocate(figure.n_samples * sizeof *figure.samples);
  double parts = 0, largest = 0, whole = 0;
  char extra[128];
  for (int step = 0; step < N_STEPS; step++) {
    whole = measure_step(&work, (enum step)step, bytes, options[DEVICE].value, &figure);
    if (step == ALL_REDUCE_STAGED) break;
    parts += whole;
    if (whole > largest) largest = whole;
    snprintf(extra, sizeof extra, "\"sum_of_parts_ms\": %.5g, \"largest_part_ms\": %.5g", parts, largest);
    figure.extra = step == COPY_TO_DEVICE ? extra : NULL;
  }
  accel_tensor_release(work.on_device);
  accel_tensor_release(work.on_host);
  CHECK(accel_end_training(work.state));
  accel_state_release(work.state);
  free(figure.samples);
  return 0;
}
