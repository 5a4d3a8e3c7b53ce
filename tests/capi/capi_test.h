/* SPDX-License-Identifier: Apache-2.0 */
/* What every program of this folder begins with: CMocka, the header, and assertions on statuses and messages. */
#ifndef ACCEL_CAPI_TEST_H
#define ACCEL_CAPI_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "accel.h"

/* The call succeeds. */
#define assert_ok(call) assert_status_at((call), ACCEL_OK, #call, __FILE__, __LINE__)
/* The call ends with this status, whatever the message. */
#define assert_status(call, status) assert_status_at((call), (status), #call, __FILE__, __LINE__)
/* The call fails with this status, and the message is one line that contains `part`. */
#define assert_fails(call, status, part) assert_fails_at((call), (status), (part), #call, __FILE__, __LINE__)
#define assert_message(part) assert_message_at((part), __FILE__, __LINE__)

static inline void assert_status_at(accel_status_t status, accel_status_t expected, const char *call, const char *file,
                                    int line) {
  if (status == expected) return;
  print_error("%s gave %s, not %s: %s\n", call, accel_status_name(status), accel_status_name(expected),
              accel_last_error());
  _fail(file, line);
}

static inline void assert_message_at(const char *part, const char *file, int line) {
  const char *const message = accel_last_error();
  if (strstr(message, part) != NULL && strchr(message, '\n') == NULL) return;
  print_error("'%s' is not in the line '%s'\n", part, message);
  _fail(file, line);
}

static inline void assert_fails_at(accel_status_t status, accel_status_t expected, const char *part, const char *call,
                                   const char *file, int line) {
  assert_status_at(status, expected, call, file, line);
  assert_message_at(part, file, line);
}

/* Options of the only process of a job, on the CPU. */
static inline accel_state_options_t one_process_options(void) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  options.process_index = 0;
  options.num_processes = 1;
  return options;
}

static inline accel_state_t *new_state(void) {
  const accel_state_options_t options = one_process_options();
  accel_state_t *state = NULL;
  assert_ok(accel_state_create(&options, &state));
  return state;
}

/* A contiguous tensor on the CPU. */
static inline accel_tensor_t *new_test_tensor(const void *data, const int64_t *shape, size_t ndim,
                                              accel_dtype_t dtype) {
  accel_tensor_t *tensor = NULL;
  assert_ok(accel_tensor_from_data(data, shape, ndim, dtype, &tensor));
  return tensor;
}

/* The numbers of an int64 tensor of this size on the CPU. */
static inline const int64_t *elements(const accel_tensor_t *tensor, size_t expected) {
  void *data = NULL;
  int64_t count = 0;
  assert_ok(accel_tensor_numel(tensor, &count));
  assert_int_equal(count, expected);
  assert_ok(accel_tensor_data(tensor, &data));
  return (const int64_t *)data;
}

/* What an optimizer's state dict has of a parameter. */
static inline const accel_value_t *state_of_parameter(const accel_value_t *state_dict, int64_t index) {
  const accel_value_t key = accel_arg_int(index);
  return accel_value_find(accel_value_get(state_dict, "state"), &key);
}

/* A teardown: the test gave back everything that it was given. */
static inline int assert_nothing_left(void **state) {
  (void)state;
  const int64_t left = accel_debug_live_objects();
  if (left == 0) return 0;
  print_error("%lld handles were not released\n", (long long)left);
  return -1;
}

#define capi_unit_test(function) cmocka_unit_test_teardown(function, assert_nothing_left)

static inline accel_value_t from_json(const char *json) {
  accel_value_t value = ACCEL_VALUE_INIT;
  assert_ok(accel_value_from_json(json, &value));
  return value;
}

static inline void assert_json(const accel_value_t *value, const char *expected) {
  accel_buffer_t json = ACCEL_BUFFER_INIT;
  assert_ok(accel_value_to_json(value, &json));
  assert_string_equal(json.data, expected);
  accel_buffer_dispose(&json);
}

#endif
