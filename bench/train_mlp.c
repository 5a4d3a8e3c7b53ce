/* SPDX-License-Identifier: Apache-2.0 */
/* Workload train_mlp: milliseconds a step of a multi-layer perceptron. One process of the ranks; bench/run starts them.
 *
 * With `--independent 1` each process trains by itself, on as many rows as it would get, without any communication:
 * what training on several processes could reach at best. The processes still begin together.
 */
#include "measure.h"
#include "training.h"
#include "workloads.h"

#include <stdio.h>
#include <stdlib.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

static int64_t default_steps(int64_t width) { return width == 64 ? 200 : width == 512 ? 100 : width == 2048 ? 30 : 50; }

/* A state that knows of no other process. */
static accel_state_t *make_lone_state(const char *device) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.process_index = 0;
  options.num_processes = 1;
  return measure_state(options, device);
}

int main(int argc, char **argv) {
  enum { DEVICE, WIDTH, DEPTH, BATCH, STEPS, INDEPENDENT, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {
      {"--device", "cpu"}, {"--width", TEXT(MLP_WIDTH)}, {"--depth", TEXT(MLP_DEPTH)}, {"--batch", TEXT(MLP_BATCH)},
      {"--steps", "0"},    {"--independent", "0"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const int64_t width = measure_integer(&options[WIDTH]), depth = measure_integer(&options[DEPTH]);
  const int64_t batch = measure_integer(&options[BATCH]), given_steps = measure_integer(&options[STEPS]);
  const int independent = measure_integer(&options[INDEPENDENT]) != 0;
  const size_t steps = (size_t)(given_steps > 0 ? given_steps : default_steps(width));

  accel_state_t *everyone = workload_state(options[DEVICE].value, "no", 1);
  accel_state_t *state = independent ? make_lone_state(options[DEVICE].value) : accel_state_retain(everyone);
  const double base_rss_mb = measure_memory("VmHWM");
  CHECK(accel_set_seed(state, 0, 0, 0));

  struct training training = {0};
  workload_mlp(&training, state, width, depth, batch, MLP_WARMUP + steps);

  double *samples = measure_allocate(steps * sizeof *samples);
  CHECK(accel_wait_for_everyone(everyone));
  const double loss = training_run(&training, MLP_WARMUP, steps, samples);
  for (size_t i = 0; i < steps; i++) samples[i] *= 1e3;

  char params[160], extra[64];
  snprintf(params, sizeof params, "{\"width\": %lld, \"depth\": %lld, \"batch\": %lld, \"procs\": %d}",
           (long long)width, (long long)depth, (long long)batch, accel_num_processes(everyone));
  snprintf(extra, sizeof extra, "\"loss\": %.5g", loss);
  const struct figure figure = {
      independent ? "train_mlp_independent" : "train_mlp", params, "ms", 0, samples, steps, base_rss_mb, extra};
  measure_report(everyone, &figure);

  CHECK(accel_end_training(everyone));
  training_release(&training);
  accel_state_release(state);
  accel_state_release(everyone);
  free(samples);
  return 0;
}
