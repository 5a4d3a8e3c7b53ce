/* SPDX-License-Identifier: Apache-2.0 */
/* A run with trackers, for tests that look at what it leaves behind.
 *
 *     tracked_run FOLDER TRACKERS FIRST_STEP END_STEP [slow] [all] [unfinished | returns]
 *
 * Prints a line for each step that was logged. slow: a millisecond a step; all: also what is not a number; unfinished:
 * ends at once, without a word; returns: from main(), without ending the trackers. */
#define _POSIX_C_SOURCE 199309L
#include <accel.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int failed_steps;

static void check(accel_status_t status) {
  if (status == ACCEL_OK) return;
  fprintf(stderr, "%s: %s\n", accel_status_name(status), accel_last_error());
  exit(1);
}

static int has(int argc, char** argv, const char* word) {
  for (int i = 5; i < argc; i++)
    if (strcmp(argv[i], word) == 0) return 1;
  return 0;
}

static void set(accel_value_t* map, const char* name, accel_value_t value) {
  check(accel_value_set(map, name, &value));
}

static void log_step(accel_state_t* state, int64_t step) {
  const char* const names[] = {"loss", "train/lr"};
  const double values[] = {1.0 / (double)(step + 1), 0.001 * (double)step};
  const accel_status_t status = accel_log_scalars(state, names, values, 2, step);
  if (status == ACCEL_ERROR_IO) {
    if (failed_steps++ == 0) fprintf(stderr, "%s\n", accel_last_error());
  } else {
    check(status);
  }
}

static void log_everything(accel_state_t* state, const char* folder) {
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  const int64_t shape[] = {4, 6, 3}, numbers = 1000;
  accel_value_t values = ACCEL_VALUE_INIT, inner = ACCEL_VALUE_INIT, images = ACCEL_VALUE_INIT;
  accel_value_t columns = ACCEL_VALUE_INIT, rows = ACCEL_VALUE_INIT;
  accel_tensor_t *image = NULL, *weights = NULL;
  check(accel_tensor_full(shape, 3, 0.5, ACCEL_DTYPE_FLOAT32, &cpu, &image));
  check(accel_tensor_randn(&numbers, 1, ACCEL_DTYPE_FLOAT32, &cpu, &weights));
  check(accel_value_map(&values));
  check(accel_value_map(&inner));
  set(&inner, "accuracy", accel_arg_double(0.75));
  set(&values, "eval", inner);
  set(&values, "note", accel_arg_string("two\nlines | \"quoted\" \xc3\xa9"));
  set(&values, "flag", accel_arg_bool(1));
  set(&values, "tokens", accel_arg_int(1234567));
  set(&values, "weights", accel_arg_tensor(weights));
  check(accel_log(state, &values, 3, NULL));
  check(accel_value_map(&images));
  set(&images, "sample", accel_arg_tensor(image));
  check(accel_log_images(state, &images, 0, 3));
  check(accel_value_from_json("[\"question\", \"score\"]", &columns));
  check(accel_value_from_json("[[\"why?\", 0.5], [\"a|b\", 1]]", &rows));
  check(accel_log_table(state, "answers", &columns, &rows, 3));
  check(accel_log_figure(state, "plot", "<svg xmlns='http://www.w3.org/2000/svg'/>", 41, 3));
  check(accel_log_artifact(state, folder, "itself"));
  accel_value_dispose(&rows);
  accel_value_dispose(&columns);
  accel_value_dispose(&images);
  accel_value_dispose(&inner);
  accel_value_dispose(&values);
  accel_tensor_release(weights);
  accel_tensor_release(image);
}

int main(int argc, char** argv) {
  accel_state_options_t state_options = ACCEL_STATE_OPTIONS_INIT;
  accel_tracking_options_t options = ACCEL_TRACKING_OPTIONS_INIT;
  accel_state_t* state = NULL;
  accel_value_t config = ACCEL_VALUE_INIT, init_kwargs = ACCEL_VALUE_INIT;
  const char* const kwargs = getenv("TRACKED_RUN_KWARGS");
  if (argc < 5) return 2;
  state_options.cpu = 1;
  check(accel_state_create(&state_options, &state));
  options.logging_dir = argv[1];
  options.log_with = argv[2];
  options.flush_interval_ms = 50;
  options.queue_bytes = 65536;
  check(accel_value_from_json("{\"lr\": 0.001, \"model\": {\"layers\": 2, \"tied\": false}, \"name\": \"small\"}",
                              &config));
  check(accel_value_from_json(kwargs == NULL ? "{}" : kwargs, &init_kwargs));
  check(accel_init_trackers(state, "run", &config, &init_kwargs, &options));
  for (int64_t step = atoll(argv[3]); step < atoll(argv[4]); step++) {
    log_step(state, step);
    printf("%lld\n", (long long)step);
    fflush(stdout);
    if (has(argc, argv, "slow")) nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
  if (has(argc, argv, "all")) log_everything(state, argv[1]);
  if (has(argc, argv, "unfinished")) _Exit(0);
  if (has(argc, argv, "returns")) return 0;
  const accel_status_t ended = accel_finish_trackers(state);
  if (ended == ACCEL_ERROR_IO)
    fprintf(stderr, "%s\n", accel_last_error());
  else
    check(ended);
  printf("failed %d\n", failed_steps);
  accel_value_dispose(&init_kwargs);
  accel_value_dispose(&config);
  accel_state_release(state);
  return 0;
}
