/* SPDX-License-Identifier: Apache-2.0 */
/* Workload observe: nanoseconds that a loop pays for being watched: a progress bar, a logger, step reports. */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 200000, REPORTS = 2000 };

struct watched {
  accel_state_t *state;
  accel_progress_bar_t *bar;
  accel_logger_t *logger;
};

static void ignore_line(const char *line, int32_t is_last, void *user_data) {
  (void)line;
  (void)is_last;
  (void)user_data;
}

static void move_bar(struct watched *watched) { CHECK(accel_progress_update(watched->bar, 1)); }
static void log_below_the_level(struct watched *watched) {
  CHECK(accel_logger_log(watched->logger, ACCEL_LOG_DEBUG, "a message", ACCEL_LOG_MAIN_PROCESS));
}
static void log_to_a_file(struct watched *watched) {
  CHECK(accel_logger_log(watched->logger, ACCEL_LOG_INFO, "a message", ACCEL_LOG_MAIN_PROCESS));
}
static void count_tokens(struct watched *watched) { CHECK(accel_count_tokens(watched->state, 1)); }
static void report(struct watched *watched) {
  accel_value_t value = ACCEL_VALUE_INIT;
  CHECK(accel_step_report(watched->state, 0, &value));
  accel_value_dispose(&value);
}

static void measure_call(struct watched *watched, const char *name, void (*call)(struct watched *), int calls,
                         size_t repeat) {
  double *const samples = measure_allocate(repeat * sizeof *samples);
  char params[64];
  size_t i;
  snprintf(params, sizeof params, "{\"call\": \"%s\"}", name);
  for (i = 0; i < repeat; i++) {
    const double start = measure_now();
    for (int k = 0; k < calls; k++) call(watched);
    samples[i] = (measure_now() - start) * 1e9 / calls;
  }
  const struct figure figure = {"observe", params, "ns", 0, samples, repeat, 0, NULL};
  measure_report(watched->state, &figure);
  free(samples);
}

int main(int argc, char **argv) {
  struct option_value options[] = {{"--repeat", "5"}};
  accel_log_sink_options_t sink_options = ACCEL_LOG_SINK_OPTIONS_INIT;
  struct watched watched = {NULL, NULL, NULL};
  int64_t sink = 0;
  measure_begin(argc, argv, options, 1);
  const size_t repeat = (size_t)measure_integer(&options[0]);
  CHECK(accel_state_create(NULL, &watched.state));
  CHECK(
      accel_progress_begin(watched.state, "bench", (int64_t)CALLS * 100, NULL, ignore_line, NULL, NULL, &watched.bar));
  CHECK(accel_logger_create(watched.state, "bench", ACCEL_LOG_INFO, NULL, NULL, NULL, &watched.logger));
  sink_options.kind = ACCEL_LOG_SINK_FILE;
  sink_options.path = "/dev/null";
  CHECK(accel_log_sink_add(watched.state, &sink_options, &sink));
  measure_call(&watched, "accel_progress_update", move_bar, CALLS, repeat);
  measure_call(&watched, "accel_logger_log, below the level", log_below_the_level, CALLS, repeat);
  measure_call(&watched, "accel_logger_log, to a file", log_to_a_file, CALLS / 10, repeat);
  measure_call(&watched, "accel_count_tokens", count_tokens, CALLS, repeat);
  measure_call(&watched, "accel_step_report", report, REPORTS, repeat);
  CHECK(accel_log_sink_remove(sink));
  accel_logger_release(watched.logger);
  accel_progress_bar_release(watched.bar);
  accel_state_release(watched.state);
  return 0;
}
