/* SPDX-License-Identifier: Apache-2.0 */
/* A program that shows what it does, for the tests beside it: what it prints is on its stderr.
 *   observed_program bars|loader|sleep MILLISECONDS|log FOLDER|serve PORT */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accel.h"

static void must(accel_status_t status, const char* call) {
  if (status >= 0) return;
  printf("%s: %s\n", call, accel_last_error());
  exit(1);
}
#define MUST(call) must((call), #call)

static accel_state_t* new_state(void) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t* state = NULL;
  options.cpu = 1;
  MUST(accel_state_create(&options, &state));
  return state;
}

static void set_loss(accel_progress_bar_t* bar, double loss) {
  accel_value_t values = ACCEL_VALUE_INIT, number = accel_arg_double(loss), memory = ACCEL_VALUE_INIT;
  MUST(accel_value_map(&values));
  MUST(accel_value_set(&values, "loss", &number));
  MUST(accel_value_set(&values, "memory", &memory));
  MUST(accel_progress_set_values(bar, &values));
  accel_value_dispose(&values);
}

/* Three bars, of which the last one vanishes, and a message above them. */
static void show_bars(void) {
  accel_progress_options_t options = ACCEL_PROGRESS_OPTIONS_INIT;
  accel_state_t* const state = new_state();
  accel_logger_t* logger = NULL;
  accel_progress_bar_t *outer = NULL, *inner = NULL, *passing = NULL;
  int64_t sink = 0;
  int i;
  options.interval_ms = 0;
  MUST(accel_log_sink_add(state, NULL, &sink));
  MUST(accel_logger_create(state, "test", ACCEL_LOG_INFO, NULL, NULL, NULL, &logger));
  MUST(accel_progress_begin(state, "outer", 4, &options, NULL, NULL, NULL, &outer));
  MUST(accel_progress_begin(state, "inner", ACCEL_UNSET_INT64, &options, NULL, NULL, NULL, &inner));
  options.leave = 0;
  MUST(accel_progress_begin(state, "passing", 2, &options, NULL, NULL, NULL, &passing));
  for (i = 0; i < 4; i++) {
    set_loss(inner, 0.5 / (i + 1));
    MUST(accel_progress_update(inner, 10));
    MUST(accel_progress_update(outer, 1));
    MUST(accel_progress_update(passing, 1));
    if (i == 1) MUST(accel_logger_log(logger, ACCEL_LOG_INFO, "half of it\nis done", ACCEL_LOG_MAIN_PROCESS));
  }
  MUST(accel_progress_end(passing));
  MUST(accel_progress_end(inner));
  MUST(accel_progress_end(outer));
  accel_progress_bar_release(passing);
  accel_progress_bar_release(inner);
  accel_progress_bar_release(outer);
  MUST(accel_logger_log(logger, ACCEL_LOG_WARNING, "the end", ACCEL_LOG_ALL_PROCESSES));
  MUST(accel_log_sink_remove(sink));
  accel_logger_release(logger);
  accel_state_release(state);
}

/* Two epochs of a prepared loader of three batches, of which the program itself says nothing. */
static void follow_a_loader(void) {
  const int64_t shape[] = {3, 2};
  const float rows[6] = {0};
  accel_progress_options_t options = ACCEL_PROGRESS_OPTIONS_INIT;
  accel_state_t* const state = new_state();
  accel_tensor_t* tensor = NULL;
  accel_dataset_t* dataset = NULL;
  accel_dataloader_t *loader = NULL, *prepared = NULL;
  accel_progress_bar_t* bar = NULL;
  int epoch;
  options.interval_ms = 0;
  MUST(accel_tensor_from_data(rows, shape, 2, ACCEL_DTYPE_FLOAT32, &tensor));
  MUST(accel_dataset_tensors(&tensor, 1, &dataset));
  MUST(accel_dataloader_create(dataset, NULL, &loader));
  MUST(accel_prepare_data_loader(state, loader, NULL, &prepared));
  MUST(accel_progress_of_dataloader(state, "train", prepared, &options, &bar));
  for (epoch = 0; epoch < 2; epoch++)
    for (;;) {
      accel_value_t batch = ACCEL_VALUE_INIT;
      const accel_status_t status = accel_dataloader_next(prepared, &batch);
      MUST(status);
      accel_value_dispose(&batch);
      if (status == ACCEL_ITER_END) break;
    }
  MUST(accel_progress_end(bar));
  accel_progress_bar_release(bar);
  accel_dataloader_release(prepared);
  accel_dataloader_release(loader);
  accel_dataset_release(dataset);
  accel_tensor_release(tensor);
  accel_state_release(state);
}

/* One step, and then nothing for so long. */
static void sleep_with_a_bar(int milliseconds) {
  accel_state_t* const state = new_state();
  accel_progress_bar_t* bar = NULL;
  accel_progress_options_t options = ACCEL_PROGRESS_OPTIONS_INIT;
  int i;
  options.interval_ms = 0;
  MUST(accel_progress_begin(state, "a label that is as long as a label may be", 100, &options, NULL, NULL, NULL, &bar));
  for (i = 0; i < milliseconds / 10; i++) {
    usleep(10000);
    MUST(accel_progress_update(bar, 1));
  }
  accel_progress_bar_release(bar);
  accel_state_release(state);
}

static accel_status_t log_as_a_rank(int32_t local_process_index, void* folder) {
  accel_log_sink_options_t options = ACCEL_LOG_SINK_OPTIONS_INIT;
  accel_state_t* const state = new_state();
  accel_logger_t* logger = NULL;
  int64_t own = 0, all = 0;
  int turn;
  char path[4096];
  snprintf(path, sizeof path, "%s/rank{rank}.jsonl", (const char*)folder);
  options.path = path;
  options.kind = ACCEL_LOG_SINK_JSON_LINES;
  MUST(accel_log_sink_add(state, &options, &own));
  snprintf(path, sizeof path, "%s/all.jsonl", (const char*)folder);
  MUST(accel_log_sink_add(state, &options, &all));
  /* Rank 1 logs nothing below a warning, and takes part all the same. */
  MUST(accel_logger_create(state, "ranks", local_process_index == 1 ? ACCEL_LOG_WARNING : ACCEL_LOG_INFO, NULL, NULL,
                           NULL, &logger));
  for (turn = 0; turn < 20; turn++) MUST(accel_logger_log(logger, ACCEL_LOG_INFO, "info", ACCEL_LOG_IN_ORDER));
  for (turn = 0; turn < 20; turn++) MUST(accel_logger_log(logger, ACCEL_LOG_ERROR, "error", ACCEL_LOG_IN_ORDER));
  MUST(accel_logger_log(logger, ACCEL_LOG_ERROR, "main", ACCEL_LOG_MAIN_PROCESS));
  MUST(accel_logger_warning_once(logger, "once", ACCEL_LOG_ALL_PROCESSES));
  MUST(accel_logger_warning_once(logger, "once", ACCEL_LOG_ALL_PROCESSES));
  accel_logger_release(logger);
  MUST(accel_log_sink_remove(own));
  MUST(accel_log_sink_remove(all));
  accel_state_release(state);
  return ACCEL_OK;
}

static void log_from_ranks(char* folder) {
  accel_launch_options_t options = ACCEL_LAUNCH_OPTIONS_INIT;
  options.num_processes = 3;
  options.cpu = 1;
  MUST(accel_launch(&options, log_as_a_rank, folder, NULL));
}

/* Serves until its stdin ends: each line there is a step, "again" moves the server, "release" ends it. */
static void serve(int port) {
  accel_serve_metrics_options_t options = ACCEL_SERVE_METRICS_OPTIONS_INIT;
  accel_state_t* state = new_state();
  const char* const name = "loss";
  const double loss = 1.5;
  char line[64];
  int32_t found = 0;
  options.port = port;
  MUST(accel_serve_metrics(state, &options, &found));
  printf("%d\n", (int)found);
  fflush(stdout);
  while (fgets(line, sizeof line, stdin) != NULL) {
    if (strcmp(line, "release\n") == 0) {
      accel_state_release(state);
      state = NULL;
      printf("released\n");
    } else if (strcmp(line, "again\n") == 0) {
      options.port = 0;
      MUST(accel_serve_metrics(state, &options, &found));
      printf("%d\n", (int)found);
    } else {
      MUST(accel_count_tokens(state, 100));
      MUST(accel_set_model_flops(state, 6e6, 1e12));
      MUST(accel_log_scalars(state, &name, &loss, 1, ACCEL_NO_STEP));
      printf("step\n");
    }
    fflush(stdout);
  }
  accel_state_release(state);
}

int main(int count, char** arguments) {
  const char* const what = count > 1 ? arguments[1] : "";
  if (strcmp(what, "bars") == 0) {
    show_bars();
  } else if (strcmp(what, "loader") == 0) {
    follow_a_loader();
  } else if (strcmp(what, "sleep") == 0 && count == 3) {
    sleep_with_a_bar(atoi(arguments[2]));
  } else if (strcmp(what, "log") == 0 && count == 3) {
    log_from_ranks(arguments[2]);
  } else if (strcmp(what, "serve") == 0 && count == 3) {
    serve(atoi(arguments[2]));
  } else {
    fprintf(stderr, "usage: observed_program bars|loader|sleep MILLISECONDS|log FOLDER|serve PORT\n");
    return 2;
  }
  return accel_debug_live_objects() == 0 ? 0 : 1;
}
