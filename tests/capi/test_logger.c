/* SPDX-License-Identifier: Apache-2.0 */
/* Section 14: loggers. What sinks write is tested in tests/observe. */
#define _DEFAULT_SOURCE
#include <unistd.h>

#include "capi_test.h"

struct heard {
  int messages, destroyed;
  int32_t level;
  char logger[64], message[256];
};

static void hear(int32_t level, const char *logger, const char *message, void *user_data) {
  struct heard *const heard = user_data;
  heard->messages++;
  heard->level = level;
  snprintf(heard->logger, sizeof heard->logger, "%s", logger);
  snprintf(heard->message, sizeof heard->message, "%s", message);
}

static void count_destroy(void *user_data) { ((struct heard *)user_data)->destroyed++; }

static void a_callback_gets_what_is_logged(void **unused) {
  struct heard heard = {0};
  accel_state_t *const state = new_state();
  accel_logger_t *logger = NULL;
  (void)unused;
  assert_ok(accel_logger_create(state, "train", ACCEL_LOG_INFO, hear, &heard, count_destroy, &logger));
  assert_int_equal(accel_logger_enabled(logger, ACCEL_LOG_DEBUG), 0);
  assert_int_equal(accel_logger_enabled(logger, ACCEL_LOG_INFO), 1);
  assert_ok(accel_logger_log(logger, ACCEL_LOG_DEBUG, "no", ACCEL_LOG_ALL_PROCESSES));
  assert_int_equal(heard.messages, 0);
  assert_ok(accel_logger_log(logger, ACCEL_LOG_ERROR, "yes", ACCEL_LOG_MAIN_PROCESS));
  assert_int_equal(heard.level, ACCEL_LOG_ERROR);
  assert_string_equal(heard.logger, "train");
  assert_string_equal(heard.message, "yes");
  assert_ok(accel_logger_log(logger, 25, "all\xff", ACCEL_LOG_ALL_PROCESSES));
  assert_int_equal(heard.level, 25);
  assert_string_equal(heard.message, "[RANK 0] all\xef\xbf\xbd");
  assert_ok(accel_logger_log(logger, ACCEL_LOG_INFO, "order", ACCEL_LOG_IN_ORDER));
  assert_string_equal(heard.message, "[RANK 0] order");
  assert_int_equal(heard.messages, 3);
  assert_ok(accel_logger_warning_once(logger, "twice", ACCEL_LOG_MAIN_PROCESS));
  assert_ok(accel_logger_warning_once(logger, "twice", ACCEL_LOG_MAIN_PROCESS));
  assert_int_equal(heard.messages, 4);
  accel_state_release(state); /* the logger stays */
  assert_ok(accel_logger_log(logger, ACCEL_LOG_INFO, "after", ACCEL_LOG_MAIN_PROCESS));
  assert_int_equal(heard.destroyed, 0);
  accel_logger_release(logger);
  assert_int_equal(heard.destroyed, 1);
}

static void bad_arguments_are_refused(void **unused) {
  struct heard heard = {0};
  accel_log_sink_options_t options = ACCEL_LOG_SINK_OPTIONS_INIT;
  accel_state_t *const state = new_state();
  accel_logger_t *logger = NULL;
  int64_t sink = 0;
  (void)unused;
  assert_fails(accel_logger_create(state, "x", 101, hear, &heard, count_destroy, &logger), ACCEL_ERROR_INVALID_ARGUMENT,
               "level is 101");
  assert_int_equal(heard.destroyed, 1);
  setenv("ACCELERATE_LOG_LEVEL", "loud", 1);
  assert_fails(accel_logger_create(state, "x", ACCEL_UNSET, NULL, NULL, NULL, &logger), ACCEL_ERROR_INVALID_ARGUMENT,
               "ACCELERATE_LOG_LEVEL is 'loud'; expected one of 'CRITICAL'");
  setenv("ACCELERATE_LOG_LEVEL", "Debug", 1);
  assert_ok(accel_logger_create(state, "x", ACCEL_UNSET, NULL, NULL, NULL, &logger));
  unsetenv("ACCELERATE_LOG_LEVEL");
  assert_int_equal(accel_logger_enabled(logger, ACCEL_LOG_DEBUG), 1);
  assert_fails(accel_logger_log(logger, ACCEL_LOG_OFF, "x", ACCEL_LOG_MAIN_PROCESS), ACCEL_ERROR_INVALID_ARGUMENT,
               "level is 100");
  assert_fails(accel_logger_log(logger, ACCEL_LOG_INFO, "x", 3), ACCEL_ERROR_INVALID_ARGUMENT, "ranks is 3");
  assert_fails(accel_logger_warning_once(logger, "x", ACCEL_LOG_IN_ORDER), ACCEL_ERROR_INVALID_ARGUMENT,
               "ranks is IN_ORDER");
  options.kind = ACCEL_LOG_SINK_FILE;
  assert_fails(accel_log_sink_add(state, &options, &sink), ACCEL_ERROR_INVALID_ARGUMENT, "has no path");
  options.path = "/no/such/folder/log";
  assert_fails(accel_log_sink_add(state, &options, &sink), ACCEL_ERROR_IO, "/no/such/folder/log");
  options.level = 9;
  assert_fails(accel_log_sink_add(state, &options, &sink), ACCEL_ERROR_INVALID_ARGUMENT, "level is 9");
  assert_fails(accel_log_sink_remove(12345), ACCEL_ERROR_NOT_FOUND, "sink is 12345");
  accel_logger_release(logger);
  accel_state_release(state);
}

/* A full disk fails the call that logs, and no other one. */
static void a_full_disk_is_an_error(void **unused) {
  accel_log_sink_options_t options = ACCEL_LOG_SINK_OPTIONS_INIT;
  accel_state_t *const state = new_state();
  accel_logger_t *logger = NULL;
  int64_t sink = 0;
  (void)unused;
  if (access("/dev/full", W_OK) != 0) skip();
  options.kind = ACCEL_LOG_SINK_JSON_LINES;
  options.path = "/dev/full";
  assert_ok(accel_log_sink_add(state, &options, &sink));
  assert_ok(accel_logger_create(state, "x", ACCEL_LOG_INFO, NULL, NULL, NULL, &logger));
  assert_fails(accel_logger_log(logger, ACCEL_LOG_INFO, "x", ACCEL_LOG_MAIN_PROCESS), ACCEL_ERROR_IO,
               "No space left on device");
  assert_ok(accel_wait_for_everyone(state));
  assert_ok(accel_log_sink_remove(sink));
  assert_ok(accel_logger_log(logger, ACCEL_LOG_INFO, "x", ACCEL_LOG_MAIN_PROCESS));
  accel_logger_release(logger);
  accel_state_release(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(a_callback_gets_what_is_logged),
      capi_unit_test(bad_arguments_are_refused),
      capi_unit_test(a_full_disk_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
