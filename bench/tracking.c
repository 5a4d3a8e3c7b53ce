/* SPDX-License-Identifier: Apache-2.0 */
/* Workload tracking: microseconds of an accel_log() of ten scalars on the thread that calls it, and scalars a second
 * until all are in the files. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SCALARS = 10, CALLS = 1000 };

static accel_value_t make_values(void) {
  accel_value_t values = ACCEL_VALUE_INIT;
  CHECK(accel_value_map(&values));
  for (int i = 0; i < SCALARS; i++) {
    char name[32];
    const accel_value_t number = accel_arg_double(0.1 * i);
    snprintf(name, sizeof name, "train/metric_%d", i);
    CHECK(accel_value_set(&values, name, &number));
  }
  return values;
}

static void start(accel_state_t *state, const char *folder, const char *trackers, int number) {
  accel_tracking_options_t options = ACCEL_TRACKING_OPTIONS_INIT;
  char name[32];
  snprintf(name, sizeof name, "run_%d", number);
  options.logging_dir = folder;
  options.log_with = trackers;
  CHECK(accel_init_trackers(state, name, NULL, NULL, &options));
}

int main(int argc, char **argv) {
  enum { TRACKERS, TOTAL, REPEAT, DIR, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {
      {"--trackers", "tensorboard"}, {"--scalars", "1000000"}, {"--repeat", "5"}, {"--dir", "/tmp"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const size_t repeat = (size_t)measure_integer(&options[REPEAT]);
  const int64_t total = measure_integer(&options[TOTAL]);
  char folder[4096], command[4200];
  snprintf(folder, sizeof folder, "%s/accel_tracking_XXXXXX", options[DIR].value);
  if (mkdtemp(folder) == NULL) return 1;

  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  settings.cpu = 1;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&settings, &state));
  const double base_rss_mb = measure_memory("VmHWM");
  double *const call = measure_allocate(repeat * sizeof(double)), *const rate =
                                                                      measure_allocate(repeat * sizeof(double));
  accel_value_t values = make_values();
  for (size_t i = 0; i < repeat; i++) {
    /* As a training loop calls it, with time between the calls, which is not counted. */
    double seconds = 0;
    start(state, folder, options[TRACKERS].value, 0);
    for (int step = 0; step < CALLS; step++) {
      const struct timespec pause = {0, 100000};
      nanosleep(&pause, NULL);
      const double begin = measure_now();
      CHECK(accel_log(state, &values, step, NULL));
      seconds += measure_now() - begin;
    }
    CHECK(accel_finish_trackers(state));
    call[i] = seconds / CALLS * 1e6;
    start(state, folder, options[TRACKERS].value, 1 + (int)i);
    const double begin = measure_now();
    for (int64_t step = 0; step < total / SCALARS; step++) CHECK(accel_log(state, &values, step, NULL));
    CHECK(accel_finish_trackers(state));
    rate[i] = (double)total / (measure_now() - begin);
  }
  char params[128];
  snprintf(params, sizeof params, "{\"part\": \"call\", \"trackers\": \"%s\"}", options[TRACKERS].value);
  const struct figure of_call = {"tracking", params, "us", 0, call, repeat, base_rss_mb, NULL};
  measure_report(state, &of_call);
  snprintf(params, sizeof params, "{\"part\": \"rate\", \"trackers\": \"%s\"}", options[TRACKERS].value);
  const struct figure of_rate = {"tracking", params, "scalars/s", 1, rate, repeat, base_rss_mb, NULL};
  measure_report(state, &of_rate);
  accel_value_dispose(&values);
  accel_state_release(state);
  free(rate);
  free(call);
  snprintf(command, sizeof command, "rm -r '%s'", folder);
  return system(command) == 0 ? 0 : 1;
}
