/* SPDX-License-Identifier: Apache-2.0 */
/* Section 1: version, status, errors, logging, scopes. */
#define _POSIX_C_SOURCE 200809L /* barriers */
#include <pthread.h>

#include "capi_test.h"

static void test_version(void **state) {
  (void)state;
  int32_t major = -1, minor = -1, patch = -1;
  accel_version(&major, &minor, &patch);
  assert_int_equal(major, ACCEL_VERSION_MAJOR);
  assert_int_equal(minor, ACCEL_VERSION_MINOR);
  assert_int_equal(patch, ACCEL_VERSION_PATCH);
  accel_version(NULL, NULL, NULL);
}

static void test_build_info(void **state) {
  (void)state;
  accel_buffer_t text = ACCEL_BUFFER_INIT;
  accel_value_t info = ACCEL_VALUE_INIT;
  assert_ok(accel_build_info(&text));
  assert_int_equal(strlen(text.data), text.size);
  assert_ok(accel_value_from_json(text.data, &info));
  assert_string_equal(accel_value_get(&info, "version")->as.string, "0.1.0");
  assert_int_equal(accel_value_get(&info, "libtorch")->kind, ACCEL_VALUE_STRING);
  assert_int_equal(accel_value_get(&info, "compiler")->kind, ACCEL_VALUE_STRING);
  assert_int_equal(accel_value_get(&info, "plugins")->kind, ACCEL_VALUE_MAP);
  accel_value_dispose(&info);
  accel_buffer_dispose(&text);
  assert_null(text.data);
  accel_buffer_dispose(&text);
  accel_buffer_dispose(NULL);
  assert_fails(accel_build_info(NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
}

static void test_is_available(void **state) {
  (void)state;
  assert_int_equal(accel_is_available("torchscript"), 1);
  assert_int_equal(accel_is_available("teleportation"), 0);
  assert_int_equal(accel_is_available(""), 0);
  assert_int_equal(accel_is_available(NULL), -1);
  assert_in_range(accel_is_available("cuda"), 0, 1);
  assert_in_range(accel_is_available("ucx"), 0, 1);
  assert_in_range(accel_is_available("cuda_graphs"), 0, 1);
  accel_buffer_t reason = ACCEL_BUFFER_INIT;
  assert_ok(accel_unavailable_reason("torchscript", &reason));
  assert_int_equal(reason.size, 0);
  accel_buffer_dispose(&reason);
  assert_ok(accel_unavailable_reason("npu", &reason));
  assert_string_equal(reason.data, "the plugin of npu is not loaded: give its library in ACCEL_DEVICE_PLUGINS");
  accel_buffer_dispose(&reason);
  assert_ok(accel_unavailable_reason("ucx", &reason));
  assert_int_equal(reason.size == 0, accel_is_available("ucx"));
  accel_buffer_dispose(&reason);
  assert_ok(accel_unavailable_reason("cuda_graphs", &reason));
  assert_int_equal(reason.size == 0, accel_is_available("cuda_graphs"));
  accel_buffer_dispose(&reason);
  assert_fails(accel_unavailable_reason("teleportation", &reason), ACCEL_ERROR_INVALID_ARGUMENT, "'teleportation'");
}

static void test_status_names(void **state) {
  (void)state;
  assert_string_equal(accel_status_name(ACCEL_OK), "ACCEL_OK");
  assert_string_equal(accel_status_name(ACCEL_ITER_END), "ACCEL_ITER_END");
  assert_string_equal(accel_status_name(ACCEL_ERROR_TIMEOUT), "ACCEL_ERROR_TIMEOUT");
  assert_string_equal(accel_status_name(ACCEL_ERROR_INTERNAL), "ACCEL_ERROR_INTERNAL");
  assert_string_equal(accel_status_name(-999), "unknown status");
  assert_string_equal(accel_status_name(999), "unknown status");
}

static void test_take_error(void **state) {
  (void)state;
  accel_error_t *error = NULL, *none = NULL;
  int64_t size = 7;
  assert_fails(accel_find_batch_size(NULL, &size), ACCEL_ERROR_INVALID_ARGUMENT, "value is NULL");
  assert_int_equal(size, 7);
  int32_t equal = 0;
  const accel_value_t number = accel_arg_int(1);
  assert_ok(accel_value_equal(&number, &number, &equal));
  assert_message("value is NULL"); /* success clears nothing */
  assert_ok(accel_error_take(&error));
  assert_string_equal(accel_last_error(), "");
  assert_int_equal(accel_error_code(error), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_string_equal(accel_error_function(error), "accel_find_batch_size");
  assert_non_null(strstr(accel_error_message(error), "value is NULL"));
  assert_int_equal(accel_error_rank(error), -1);
  assert_status(accel_error_take(&none), ACCEL_ERROR_NOT_FOUND);
  assert_null(none);
  assert_status(accel_error_take(&none), ACCEL_ERROR_NOT_FOUND); /* that was not an error of its own */
  accel_error_release(error);
  accel_error_release(NULL);
  assert_fails(accel_error_take(NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
}

static void test_getters_refuse(void **state) {
  (void)state;
  const float number = 1;
  accel_tensor_t *const tensor = new_test_tensor(&number, NULL, 0, ACCEL_DTYPE_FLOAT32);
  const accel_error_t *const wrong = (const accel_error_t *)(const void *)tensor;
  assert_int_equal(accel_error_code(NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_message("error is NULL");
  assert_null(accel_error_message(NULL));
  assert_null(accel_error_function(NULL));
  assert_int_equal(accel_error_rank(NULL), -1);
  assert_int_equal(accel_error_code(wrong), ACCEL_ERROR_INVALID_HANDLE);
  assert_message("error is a tensor; expected a error");
  accel_tensor_release(tensor);
}

/* What they quote may be any bytes. */
// Regression: messages quoted damaged files byte for byte, so that Python could not read them.
static void test_messages_are_text(void **state) {
  (void)state;
  accel_error_set(ACCEL_ERROR_USER, "file \xe3p, \x01 and a\ttab, \xc3\xa4 stays");
  assert_string_equal(accel_last_error(), "file ?p, ? and a tab, \xc3\xa4 stays");
}

static void test_set_error(void **state) {
  (void)state;
  accel_error_t *error = NULL;
  accel_error_set(ACCEL_ERROR_USER, "two\nlines");
  assert_string_equal(accel_last_error(), "two lines");
  assert_ok(accel_error_take(&error));
  assert_int_equal(accel_error_code(error), ACCEL_ERROR_USER);
  accel_error_release(error);
  accel_error_set(ACCEL_OK, "no failure");
  assert_message("status is 0; expected a negative number");
  accel_error_set(ACCEL_ERROR_USER, NULL);
  assert_message("message is NULL");
  char *const endless = malloc(10001);
  memset(endless, 'x', 10000);
  endless[10000] = '\0';
  accel_error_set(ACCEL_ERROR_USER, endless);
  assert_in_range(strlen(accel_last_error()), 4000, 10000);
  free(endless);
}

static accel_status_t fail_with_message(accel_tensor_t *tensor, accel_tensor_t **out, void *user_data) {
  (void)tensor, (void)out;
  accel_error_set(-1234, user_data);
  return -1234;
}

static accel_status_t fail_silently(accel_tensor_t *tensor, accel_tensor_t **out, void *user_data) {
  (void)tensor, (void)out, (void)user_data;
  return ACCEL_ERROR_USER;
}

// Regression: a callback that failed without a message was given that of an older error.
static void test_callback_status_comes_back(void **state) {
  (void)state;
  const float number = 1;
  accel_tensor_t *const tensor = new_test_tensor(&number, NULL, 0, ACCEL_DTYPE_FLOAT32);
  const accel_value_t value = accel_arg_tensor(tensor);
  accel_value_t out = accel_arg_int(42);
  accel_error_t *error = NULL;
  char message[] = "the host said no";
  assert_fails(accel_recursively_apply(&value, 0, fail_with_message, message, NULL, &out), -1234, "the host said no");
  assert_ok(accel_error_take(&error));
  assert_int_equal(accel_error_code(error), -1234);
  assert_string_equal(accel_error_function(error), "accel_recursively_apply");
  accel_error_release(error);
  assert_fails(accel_recursively_apply(&value, 0, fail_silently, NULL, NULL, &out), ACCEL_ERROR_USER, "set no message");
  accel_error_set(ACCEL_ERROR_USER, "an older error");
  assert_fails(accel_recursively_apply(&value, 0, fail_silently, NULL, NULL, &out), ACCEL_ERROR_USER, "set no message");
  assert_int_equal(out.as.integer, 42);
  accel_tensor_release(tensor);
}

static void test_torch_errors_are_one_line(void **state) {
  (void)state;
  const float numbers[6] = {0};
  const int64_t two_by_three[] = {2, 3};
  accel_tensor_t *const tensor = new_test_tensor(numbers, two_by_three, 2, ACCEL_DTYPE_FLOAT32);
  const accel_op_t *matmul = NULL;
  assert_ok(accel_op_find("aten::mm", "", &matmul));
  const accel_value_t arguments[] = {accel_arg_tensor(tensor), accel_arg_tensor(tensor)};
  accel_value_t result = ACCEL_VALUE_INIT;
  size_t count = 0;
  assert_fails(accel_op_call(matmul, arguments, 2, &result, 1, &count), ACCEL_ERROR_TORCH, "2x3");
  assert_null(strstr(accel_last_error(), "Exception raised from")); /* no backtrace */
  assert_int_equal(result.kind, ACCEL_VALUE_NONE);
  accel_tensor_release(tensor);
}

static void test_out_of_memory(void **state) {
  (void)state;
  const int64_t shape[] = {(int64_t)1 << 30, (int64_t)1 << 20};
  const accel_op_t *empty = NULL;
  accel_value_t arguments[1] = {ACCEL_VALUE_INIT}, result = ACCEL_VALUE_INIT;
  size_t count = 0;
  assert_ok(accel_op_find("aten::empty", "memory_format", &empty));
  assert_ok(accel_value_int_list(shape, 2, &arguments[0]));
  assert_fails(accel_op_call(empty, arguments, 1, &result, 1, &count), ACCEL_ERROR_OUT_OF_MEMORY,
               "DefaultCPUAllocator");
  accel_value_dispose(&arguments[0]);
}

static void *read_own_error(void *message) {
  snprintf(message, 64, "%s|", accel_last_error());
  accel_error_set(ACCEL_ERROR_USER, "of the other thread");
  return NULL;
}

static void test_errors_belong_to_their_thread(void **state) {
  (void)state;
  pthread_t thread;
  char message[64] = "";
  accel_error_set(ACCEL_ERROR_USER, "of this thread");
  assert_int_equal(pthread_create(&thread, NULL, read_own_error, message), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_string_equal(message, "|");
  assert_string_equal(accel_last_error(), "of this thread");
}

/* The number of the latest error of the process. */
static int64_t latest_error(void) {
  accel_value_t errors = ACCEL_VALUE_INIT;
  assert_ok(accel_recent_errors(0, &errors));
  const size_t count = accel_value_count(&errors);
  const int64_t number = count == 0 ? 0 : accel_value_get(accel_value_at(&errors, count - 1), "number")->as.integer;
  accel_value_dispose(&errors);
  return number;
}

static void *fail_elsewhere(void *unused) {
  int64_t size = 0;
  (void)unused;
  return accel_find_batch_size(NULL, &size) == ACCEL_ERROR_INVALID_ARGUMENT ? NULL : unused;
}

// Regression: languages that move functions between threads could not get the message of a call on another thread.
static void test_recent_errors(void **state) {
  (void)state;
  const int64_t before = latest_error();
  pthread_t thread;
  accel_error_set(ACCEL_ERROR_USER, "of the first thread, \xff\xfe");
  assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  accel_value_t errors = ACCEL_VALUE_INIT;
  assert_ok(accel_recent_errors(before, &errors));
  assert_int_equal(accel_value_count(&errors), 2);
  const accel_value_t *const own = accel_value_at(&errors, 0), *const other = accel_value_at(&errors, 1);
  assert_int_equal(accel_value_get(own, "number")->as.integer, before + 1);
  assert_int_equal(accel_value_get(own, "status")->as.integer, ACCEL_ERROR_USER);
  assert_string_equal(accel_value_get(own, "function")->as.string, "");
  assert_string_equal(accel_value_get(own, "message")->as.string, "of the first thread, ??");
  assert_int_equal(accel_value_get(other, "number")->as.integer, before + 2);
  assert_int_equal(accel_value_get(other, "status")->as.integer, ACCEL_ERROR_INVALID_ARGUMENT);
  assert_int_equal(accel_value_get(other, "rank")->as.integer, -1);
  assert_string_equal(accel_value_get(other, "function")->as.string, "accel_find_batch_size");
  assert_non_null(strstr(accel_value_get(other, "message")->as.string, "value is NULL"));
  assert_int_not_equal(accel_value_get(own, "thread")->as.integer, accel_value_get(other, "thread")->as.integer);
  accel_value_dispose(&errors);
  for (int i = 0; i < 70; i++) accel_error_set(ACCEL_ERROR_USER, "again");
  assert_ok(accel_recent_errors(before, &errors));
  assert_int_equal(accel_value_count(&errors), 64);
  assert_int_equal(accel_value_get(accel_value_at(&errors, 0), "number")->as.integer, before + 2 + 70 - 63);
  accel_value_dispose(&errors);
  assert_ok(accel_recent_errors(INT64_MAX, &errors));
  assert_int_equal(accel_value_count(&errors), 0);
  accel_value_dispose(&errors);
  assert_fails(accel_recent_errors(0, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
}

struct log_record {
  int destroyed;
};

static void record_log(int32_t level, const char *message, void *user_data) {
  (void)level, (void)message, (void)user_data;
}

static void destroy_record(void *user_data) { ((struct log_record *)user_data)->destroyed++; }

static void test_log_callback(void **state) {
  (void)state;
  struct log_record first = {0}, second = {0};
  assert_ok(accel_set_log_callback(record_log, &first, destroy_record));
  assert_int_equal(first.destroyed, 0);
  assert_ok(accel_set_log_callback(record_log, &second, destroy_record));
  assert_int_equal(first.destroyed, 1);
  assert_ok(accel_set_log_callback(NULL, NULL, NULL));
  assert_int_equal(first.destroyed, 1);
  assert_int_equal(second.destroyed, 1);
}

static void test_log_level(void **state) {
  (void)state;
  assert_ok(accel_set_log_level(ACCEL_LOG_DEBUG));
  assert_ok(accel_set_log_level(ACCEL_LOG_OFF));
  assert_fails(accel_set_log_level(15), ACCEL_ERROR_INVALID_ARGUMENT, "level is 15");
  assert_ok(accel_set_log_level(ACCEL_LOG_WARNING));
}

static void *end_elsewhere(void *scope) {
  static accel_status_t status;
  status = accel_scope_end(scope);
  return &status;
}

static void test_scopes_nest(void **state) {
  (void)state;
  accel_scope_t *outer = NULL, *inner = NULL;
  assert_ok(accel_no_grad_begin(&outer));
  assert_ok(accel_enable_grad_begin(&inner));
  assert_int_equal(accel_debug_live_objects(), 2);
  assert_fails(accel_scope_end(outer), ACCEL_ERROR_INVALID_STATE, "innermost");
  pthread_t thread;
  void *status = NULL;
  assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, inner), 0);
  assert_int_equal(pthread_join(thread, &status), 0);
  assert_int_equal(*(accel_status_t *)status, ACCEL_ERROR_INVALID_STATE);
  assert_ok(accel_scope_end(inner));
  assert_ok(accel_scope_end(outer));
  assert_fails(accel_scope_end(NULL), ACCEL_ERROR_INVALID_ARGUMENT, "scope is NULL");
}

/* Whether a product of a tensor that requires a gradient is recorded on this thread. */
static int32_t gradients_are_recorded(void) {
  const float number = 2;
  accel_tensor_t *const leaf = new_test_tensor(&number, NULL, 0, ACCEL_DTYPE_FLOAT32);
  const accel_value_t arguments[] = {accel_arg_tensor(leaf), accel_arg_tensor(leaf)};
  const accel_op_t *product = NULL;
  accel_value_t result = ACCEL_VALUE_INIT;
  size_t count = 0;
  int32_t recorded = 42;
  assert_ok(accel_tensor_set_requires_grad(leaf, 1));
  assert_ok(accel_op_find("aten::mul", "Tensor", &product));
  assert_ok(accel_op_call(product, arguments, 2, &result, 1, &count));
  assert_ok(accel_tensor_requires_grad(result.as.tensor, &recorded));
  accel_value_dispose(&result);
  accel_tensor_release(leaf);
  return recorded;
}

struct scope_body {
  accel_status_t status;
  accel_scope_t *outside; /* ended inside when it is not NULL */
  int destroyed;
};

static accel_status_t leave_scopes_open(void *user_data) {
  const struct scope_body *const body = user_data;
  accel_scope_t *none = NULL, *all = NULL, *ended = NULL;
  if (body->outside != NULL)
    assert_fails(accel_scope_end(body->outside), ACCEL_ERROR_INVALID_STATE, "before the accel_scope_call()");
  assert_ok(accel_no_grad_begin(&none));
  assert_int_equal(gradients_are_recorded(), 0);
  assert_ok(accel_enable_grad_begin(&all));
  assert_int_equal(gradients_are_recorded(), 1);
  assert_ok(accel_no_grad_begin(&ended));
  assert_ok(accel_scope_end(ended));
  if (body->status < 0) accel_error_set(body->status, "the body's own words");
  return body->status;
}

static void note_destroyed(void *user_data) { ((struct scope_body *)user_data)->destroyed++; }

// Regression: languages that move functions between threads could not use scopes.
static void test_scope_call(void **state) {
  (void)state;
  struct scope_body body = {ACCEL_OK, NULL, 0};
  assert_ok(accel_scope_call(leave_scopes_open, &body, note_destroyed));
  assert_int_equal(body.destroyed, 1);
  assert_int_equal(gradients_are_recorded(), 1);
  assert_int_equal(accel_debug_live_objects(), 0);
  body.status = ACCEL_ITER_END;
  assert_status(accel_scope_call(leave_scopes_open, &body, NULL), ACCEL_ITER_END);
  body.status = ACCEL_ERROR_USER;
  assert_fails(accel_scope_call(leave_scopes_open, &body, NULL), ACCEL_ERROR_USER, "the body's own words");
  assert_int_equal(accel_debug_live_objects(), 0);
  assert_fails(accel_scope_call(NULL, &body, note_destroyed), ACCEL_ERROR_INVALID_ARGUMENT, "body is NULL");
  assert_int_equal(body.destroyed, 2);
  /* Scopes outside stay as they are. */
  body.status = ACCEL_OK;
  assert_ok(accel_no_grad_begin(&body.outside));
  assert_ok(accel_scope_call(leave_scopes_open, &body, NULL));
  assert_int_equal(gradients_are_recorded(), 0);
  assert_ok(accel_scope_end(body.outside));
  assert_int_equal(gradients_are_recorded(), 1);
}

/* A thread whose scopes stray: it waits with them open until it may go on. */
struct straying {
  accel_scope_t *outer, *inner;
  pthread_barrier_t barrier;
  int ends_open; /* whether the thread ends with open scopes */
  int32_t recorded_inside, recorded_within_inner, recorded_later;
};

static void *open_and_stray(void *argument) {
  struct straying *const thread = argument;
  (void)!accel_no_grad_begin(&thread->outer);
  thread->recorded_inside = gradients_are_recorded();
  if (thread->ends_open) return NULL;
  (void)!accel_enable_grad_begin(&thread->inner);
  pthread_barrier_wait(&thread->barrier);
  pthread_barrier_wait(&thread->barrier); /* the outer one has been released */
  thread->recorded_within_inner = gradients_are_recorded();
  (void)!accel_scope_end(thread->inner);
  thread->recorded_later = gradients_are_recorded();
  return NULL;
}

// Regression: a scope that strayed to another thread stayed there for ever.
static void test_scope_release(void **state) {
  (void)state;
  struct straying thread = {NULL, NULL, {{0}}, 0, 42, 42, 42};
  pthread_t id;
  assert_int_equal(pthread_barrier_init(&thread.barrier, NULL, 2), 0);
  assert_int_equal(pthread_create(&id, NULL, open_and_stray, &thread), 0);
  pthread_barrier_wait(&thread.barrier);
  assert_fails(accel_scope_end(thread.outer), ACCEL_ERROR_INVALID_STATE, "accel_scope_release()");
  accel_scope_release(thread.outer);
  pthread_barrier_wait(&thread.barrier);
  assert_int_equal(pthread_join(id, NULL), 0);
  assert_int_equal(thread.recorded_inside, 0);
  assert_int_equal(thread.recorded_within_inner, 1);
  assert_int_equal(thread.recorded_later, 1);
  thread.ends_open = 1;
  assert_int_equal(pthread_create(&id, NULL, open_and_stray, &thread), 0);
  assert_int_equal(pthread_join(id, NULL), 0);
  assert_int_equal(accel_debug_live_objects(), 1);
  assert_fails(accel_scope_end(thread.outer), ACCEL_ERROR_INVALID_STATE, "another thread");
  accel_scope_release(thread.outer);
  accel_scope_release(NULL);
  assert_int_equal(accel_debug_live_objects(), 0);
  pthread_barrier_destroy(&thread.barrier);
  /* On the own thread. */
  accel_scope_t *own = NULL;
  assert_ok(accel_no_grad_begin(&own));
  accel_scope_release(own);
  assert_int_equal(gradients_are_recorded(), 1);
}

static void test_scope_end_refuses_other_handles(void **state) {
  (void)state;
  const float number = 1;
  accel_tensor_t *const tensor = new_test_tensor(&number, NULL, 0, ACCEL_DTYPE_FLOAT32);
  assert_fails(accel_scope_end((accel_scope_t *)(void *)tensor), ACCEL_ERROR_INVALID_HANDLE, "scope is a tensor");
  accel_tensor_release(tensor);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_version),
      capi_unit_test(test_build_info),
      capi_unit_test(test_is_available),
      capi_unit_test(test_status_names),
      capi_unit_test(test_take_error),
      capi_unit_test(test_getters_refuse),
      capi_unit_test(test_messages_are_text),
      capi_unit_test(test_set_error),
      capi_unit_test(test_callback_status_comes_back),
      capi_unit_test(test_torch_errors_are_one_line),
      capi_unit_test(test_out_of_memory),
      capi_unit_test(test_errors_belong_to_their_thread),
      capi_unit_test(test_recent_errors),
      capi_unit_test(test_log_callback),
      capi_unit_test(test_log_level),
      capi_unit_test(test_scopes_nest),
      capi_unit_test(test_scope_call),
      capi_unit_test(test_scope_release),
      capi_unit_test(test_scope_end_refuses_other_handles),
  };
  return cmocka_run_group_tests_name("errors", tests, NULL, NULL);
}
