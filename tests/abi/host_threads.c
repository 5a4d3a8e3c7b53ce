/* SPDX-License-Identifier: Apache-2.0 */
/* A host with threads of its own: exit() while some are inside of the library, how many threads compute, small stacks.
 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "accel.h"

enum { SECONDS_UNTIL_A_CHILD_HANGS = 60, EXITS = 10, THREADS = 3, STACK = 256 * 1024 /* docs/embedding.md */ };

static const accel_device_t kCpu = {ACCEL_DEVICE_CPU, -1};

static void sleep_ms(long milliseconds) {
  const struct timespec time = {0, milliseconds * 1000000};
  nanosleep(&time, NULL);
}

/* 0 is success, and a signal is its number above 128. */
static int run_in_child(void (*body)(void)) {
  int status = 0;
  pid_t child;
  fflush(NULL);
  child = fork();
  if (child == 0) {
    alarm(SECONDS_UNTIL_A_CHILD_HANGS);
    body();
    _exit(99);
  }
  assert_true(child > 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Forward and backward of a layer, so many times; ends the process with 2 when a call fails. */
static void* train(void* steps) {
  const int64_t shape[] = {8, 64};
  accel_state_t* state = NULL;
  accel_module_t* layer = NULL;
  accel_tensor_t* rows = NULL;
  accel_value_t input, output = ACCEL_VALUE_INIT;
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  long step;
  options.cpu = 1;
  if (accel_state_create(&options, &state) != ACCEL_OK || accel_module_linear(64, 64, 1, &layer) != ACCEL_OK ||
      accel_tensor_full(shape, 2, 0.5, ACCEL_DTYPE_FLOAT32, &kCpu, &rows) != ACCEL_OK)
    _exit(2);
  input = accel_arg_tensor(rows);
  for (step = *(const long*)steps; step > 0; step--) {
    accel_value_t sum = ACCEL_VALUE_INIT;
    const accel_op_t* op = NULL;
    size_t results = 0;
    if (accel_module_call(layer, &input, 1, &output) != ACCEL_OK || accel_op_find("aten::sum", "", &op) != ACCEL_OK ||
        accel_op_call(op, &output, 1, &sum, 1, &results) != ACCEL_OK ||
        accel_tensor_backward(sum.as.tensor, NULL) != ACCEL_OK)
      _exit(2);
    accel_value_dispose(&output);
    accel_value_dispose(&sum);
  }
  accel_tensor_release(rows);
  accel_module_release(layer);
  accel_state_release(state);
  return NULL;
}

static void exit_beside_training_threads(void) {
  static long for_ever = LONG_MAX;
  pthread_t thread;
  int i;
  for (i = 0; i < THREADS; i++)
    if (pthread_create(&thread, NULL, train, &for_ever) != 0) _exit(3);
  sleep_ms(300);
  exit(0);
}

// Regression: `exit()` beside calls on other threads crashed.
static void test_exit_beside_running_calls(void** state) {
  int i;
  (void)state;
  for (i = 0; i < EXITS; i++) assert_int_equal(run_in_child(exit_beside_training_threads), 0);
}

static int64_t million(void* unused) {
  (void)unused;
  return 1000000;
}

static volatile int64_t last_read = 0;
static accel_dataloader_t* left_loader = NULL;

static accel_status_t number(int64_t index, accel_value_t* out, void* unused) {
  (void)unused;
  last_read = index;
  *out = accel_arg_int(index);
  return ACCEL_OK;
}

static void expect_that_nothing_is_read(void) {
  const int64_t before = last_read;
  sleep_ms(50);
  if (last_read != before) _exit(5);
  accel_dataloader_release(left_loader); /* joins the workers */
}

static void exit_beside_reading_workers(void) {
  accel_dataset_t* numbers = NULL;
  accel_value_t batch = ACCEL_VALUE_INIT;
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  options.num_workers = THREADS;
  options.prefetch = 1000000;          /* so that they read until the end */
  atexit(expect_that_nothing_is_read); /* before the first call, so that it runs after the library's */
  if (accel_dataset_create(million, number, NULL, NULL, NULL, NULL, &numbers) != ACCEL_OK ||
      accel_dataloader_create(numbers, &options, &left_loader) != ACCEL_OK ||
      accel_dataloader_next(left_loader, &batch) != ACCEL_OK)
    _exit(2);
  exit(0);
}

// Regression: workers of a loader read on while `exit()` destroyed what they used.
static void test_exit_beside_reading_workers(void** state) {
  int i;
  (void)state;
  for (i = 0; i < EXITS; i++) assert_int_equal(run_in_child(exit_beside_reading_workers), 0);
}

static accel_status_t number_or_exit(int64_t index, accel_value_t* out, void* unused) {
  if (index == 100) exit(7);
  return number(index, out, unused);
}

static void release_the_loader(void) { accel_dataloader_release(left_loader); }

/* The main thread waits in next() meanwhile, and never returns. */
static void exit_in_a_worker(void) {
  accel_dataset_t* numbers = NULL;
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  options.num_workers = THREADS;
  atexit(release_the_loader);
  if (accel_dataset_create(million, number_or_exit, NULL, NULL, NULL, NULL, &numbers) != ACCEL_OK ||
      accel_dataloader_create(numbers, &options, &left_loader) != ACCEL_OK)
    _exit(2);
  for (;;) {
    accel_value_t batch = ACCEL_VALUE_INIT;
    if (accel_dataloader_next(left_loader, &batch) != ACCEL_OK) _exit(4);
    accel_value_dispose(&batch);
  }
}

// Regression: a worker's callback called `exit()`, whose handler released that worker's loader: it hung, or aborted.
static void test_a_handler_of_exit_in_a_worker_releases_its_loader(void** state) {
  (void)state;
  assert_int_equal(run_in_child(exit_in_a_worker), 7);
}

static volatile int loader_is_left = 0, dataset_has_ended = 0;

/* Another one, which may be at the place of the one that was released. */
static void read_another_loader(void) {
  accel_dataset_t* numbers = NULL;
  accel_dataloader_t* loader = NULL;
  accel_value_t batch = ACCEL_VALUE_INIT;
  if (accel_dataset_create(million, number, NULL, NULL, NULL, NULL, &numbers) != ACCEL_OK ||
      accel_dataloader_create(numbers, NULL, &loader) != ACCEL_OK || accel_dataloader_next(loader, &batch) != ACCEL_OK)
    _exit(6);
  accel_value_dispose(&batch);
  accel_dataloader_release(loader);
  accel_dataset_release(numbers);
}

static accel_status_t number_that_ends(int64_t index, accel_value_t* out, void* unused) {
  if (loader_is_left == 1) {
    loader_is_left = 2;
    accel_dataloader_release(left_loader);
    read_another_loader();
  }
  return number(index, out, unused);
}

static void note_the_end(void* unused) {
  (void)unused;
  dataset_has_ended = 1;
}

static void release_in_a_worker(void) {
  accel_dataset_t* numbers = NULL;
  accel_value_t batch = ACCEL_VALUE_INIT;
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  options.num_workers = 1;
  options.prefetch = 1000000; /* so that it reads until the end */
  if (accel_dataset_create(million, number_that_ends, NULL, NULL, NULL, note_the_end, &numbers) != ACCEL_OK ||
      accel_dataloader_create(numbers, &options, &left_loader) != ACCEL_OK ||
      accel_dataloader_next(left_loader, &batch) != ACCEL_OK)
    _exit(2);
  accel_value_dispose(&batch);
  accel_dataset_release(numbers);
  loader_is_left = 1;
  while (!dataset_has_ended) sleep_ms(1);
  exit(accel_debug_live_objects() == 0 ? 0 : 5);
}

// Regression: a worker's callback released its own loader: it aborted.
// Regression: after a worker's callback had released its own loader, another loader in this callback was refused as the
// released one.
static void test_a_worker_releases_its_loader(void** state) {
  (void)state;
  assert_int_equal(run_in_child(release_in_a_worker), 0);
}

static volatile int call_has_ended = 0;

static accel_status_t compute(accel_tensor_t* tensor, accel_tensor_t** out, void* unused) {
  struct timespec begin, now;
  (void)unused;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do clock_gettime(CLOCK_MONOTONIC, &now);
  while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < 2000);
  return accel_tensor_detach(tensor, out);
}

static void* call_for_two_seconds(void* unused) {
  const int64_t shape[] = {2};
  accel_tensor_t* tensor = NULL;
  accel_value_t value, made = ACCEL_VALUE_INIT;
  if (accel_tensor_full(shape, 1, 0, ACCEL_DTYPE_FLOAT32, &kCpu, &tensor) != ACCEL_OK) _exit(2);
  value = accel_arg_tensor(tensor);
  if (accel_recursively_apply(&value, 1, compute, NULL, NULL, &made) != ACCEL_OK) _exit(2);
  call_has_ended = 1;
  return unused;
}

static void expect_that_the_call_has_ended(void) { _exit(call_has_ended ? 0 : 5); }

static void exit_beside_a_long_computation(void) {
  pthread_t thread;
  atexit(expect_that_the_call_has_ended); /* before the first call, so that it runs after the library's */
  if (pthread_create(&thread, NULL, call_for_two_seconds, NULL) != 0) _exit(3);
  sleep_ms(500);
  exit(0);
}

// Regression: `exit()` beside a call that computes crashed where the machine was so busy that the call took more than a
// second.
static void test_exit_waits_for_a_call_that_computes(void** state) {
  (void)state;
  assert_int_equal(run_in_child(exit_beside_a_long_computation), 0);
}

static accel_tensor_t* held = NULL;

static void release_what_is_held(void) {
  size_t ndim = 0;
  if (accel_tensor_ndim(held, &ndim) != ACCEL_OK || ndim != 1) _exit(4);
  accel_tensor_release(held);
}

static void exit_with_a_handler_of_the_host(void) {
  const int64_t shape[] = {2};
  atexit(release_what_is_held); /* before the first call, so that it runs after the library's */
  if (accel_tensor_full(shape, 1, 0, ACCEL_DTYPE_FLOAT32, &kCpu, &held) != ACCEL_OK) _exit(2);
  exit(0);
}

static void test_handlers_of_the_host_may_call(void** state) {
  (void)state;
  assert_int_equal(run_in_child(exit_with_a_handler_of_the_host), 0);
}

static int count_threads(void) {
  int count = 0;
  const struct dirent* entry;
  DIR* const folder = opendir("/proc/self/task");
  if (folder == NULL) _exit(5);
  while ((entry = readdir(folder)) != NULL) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

static accel_value_t images = ACCEL_VALUE_INIT;

/* The first operator on its thread is one of oneDNN's. */
static void* convolve(void* argument) {
  const accel_op_t* op = NULL;
  accel_value_t out = ACCEL_VALUE_INIT, arguments[2];
  size_t results = 0;
  (void)argument;
  arguments[0] = images;
  arguments[1] = images;
  if (accel_op_find("aten::conv2d", "", &op) != ACCEL_OK ||
      accel_op_call(op, arguments, 2, &out, 1, &results) != ACCEL_OK)
    _exit(6);
  accel_value_dispose(&out);
  return NULL;
}

static void compute_on_a_new_thread(void) {
  const int64_t shape[] = {16, 16, 32, 32};
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t* state = NULL;
  accel_tensor_t* tensor = NULL;
  pthread_t thread;
  int before;
  options.cpu = 1;
  options.num_threads = 1;
  if (accel_state_create(&options, &state) != ACCEL_OK ||
      accel_tensor_full(shape, 4, 0.5, ACCEL_DTYPE_FLOAT32, &kCpu, &tensor) != ACCEL_OK)
    _exit(2);
  images = accel_arg_tensor(tensor);
  before = count_threads();
  if (pthread_create(&thread, NULL, convolve, NULL) != 0) _exit(3);
  pthread_join(thread, NULL);
  _exit(count_threads() > before); /* OpenMP keeps its threads */
}

// Regression: `num_threads` did not hold on a thread whose first operator is one of oneDNN's.
static void test_num_threads_holds_on_every_thread(void** state) {
  (void)state;
  assert_int_equal(run_in_child(compute_on_a_new_thread), 0);
}

static void train_on_a_small_stack(void) {
  static long some = 3;
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstacksize(&attributes, STACK) != 0 ||
      pthread_create(&thread, &attributes, train, &some) != 0)
    _exit(3);
  pthread_attr_destroy(&attributes);
  pthread_join(thread, NULL);
  _exit(0);
}

// Regression: nobody said how much stack a thread needs.
static void test_a_small_stack_is_enough(void** state) {
  (void)state;
  assert_int_equal(run_in_child(train_on_a_small_stack), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_exit_beside_running_calls),
      cmocka_unit_test(test_exit_beside_reading_workers),
      cmocka_unit_test(test_a_handler_of_exit_in_a_worker_releases_its_loader),
      cmocka_unit_test(test_a_worker_releases_its_loader),
      cmocka_unit_test(test_exit_waits_for_a_call_that_computes),
      cmocka_unit_test(test_handlers_of_the_host_may_call),
      cmocka_unit_test(test_num_threads_holds_on_every_thread),
      cmocka_unit_test(test_a_small_stack_is_enough),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
