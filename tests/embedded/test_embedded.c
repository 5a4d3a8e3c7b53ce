/* SPDX-License-Identifier: Apache-2.0 */
/* What a state with `embedded = 1` does to its process: settings, threads, files, memory, signals. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../capi/capi_test.h"

extern char **environ;

enum { FEATURES = 512, HIDDEN = 1024, ROWS = 64 }; /* large enough for several threads, and for kept memory */

struct training {
  accel_state_t *state;
  accel_module_t *model;
  accel_optimizer_t *optimizer;
  accel_tensor_t *x, *y;
};

static accel_state_t *state_of_host(accel_flag_t embedded) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  options.embedded = embedded;
  accel_state_t *state = NULL;
  assert_ok(accel_state_create(&options, &state));
  return state;
}

static struct training begin(accel_flag_t embedded) {
  struct training made = {NULL, NULL, NULL, NULL, NULL};
  made.state = state_of_host(embedded);
  accel_module_t *layers[3] = {NULL};
  assert_ok(accel_module_linear(FEATURES, HIDDEN, 1, &layers[0]));
  assert_ok(accel_module_activation("gelu", &layers[1]));
  assert_ok(accel_module_linear(HIDDEN, 1, 1, &layers[2]));
  accel_module_t *plain = NULL;
  assert_ok(accel_module_sequential(layers, 3, &plain));
  for (int i = 0; i < 3; i++) accel_module_release(layers[i]);
  accel_optimizer_t *optimizer = NULL;
  assert_ok(accel_optimizer_adamw(plain, NULL, &optimizer));
  assert_ok(accel_prepare_model(made.state, plain, NULL, &made.model));
  assert_ok(accel_prepare_optimizer(made.state, optimizer, &made.optimizer));
  accel_optimizer_release(optimizer);
  accel_module_release(plain);
  const int64_t rows[] = {ROWS, FEATURES}, column[] = {ROWS, 1};
  assert_ok(accel_tensor_randn(rows, 2, ACCEL_DTYPE_FLOAT32, accel_device(made.state), &made.x));
  assert_ok(accel_tensor_randn(column, 2, ACCEL_DTYPE_FLOAT32, accel_device(made.state), &made.y));
  return made;
}

static void train(const struct training *with, int steps) {
  const accel_value_t input = accel_arg_tensor(with->x);
  for (int step = 0; step < steps; step++) {
    accel_value_t output = ACCEL_VALUE_INIT;
    accel_tensor_t *loss = NULL;
    assert_ok(accel_module_call(with->model, &input, 1, &output));
    assert_ok(accel_mse_loss(output.as.tensor, with->y, &loss));
    assert_ok(accel_backward(with->state, loss, NULL));
    assert_ok(accel_optimizer_step(with->optimizer));
    assert_ok(accel_optimizer_zero_grad(with->optimizer, 1));
    accel_tensor_release(loss);
    accel_value_dispose(&output);
  }
}

static void end(struct training *made) {
  accel_tensor_release(made->y);
  accel_tensor_release(made->x);
  accel_optimizer_release(made->optimizer);
  accel_module_release(made->model);
  assert_ok(accel_end_training(made->state));
  accel_state_release(made->state);
}

static int count_entries(const char *folder) {
  DIR *const opened = opendir(folder);
  assert_non_null(opened);
  int count = -3; /* without ".", ".." and, of descriptors, this one; threads have one more */
  while (readdir(opened) != NULL) count++;
  closedir(opened);
  return count;
}

static int count_threads(void) { return count_entries("/proc/self/task") + 1; }

static void assert_described(const accel_state_t *state, const char *line) {
  accel_buffer_t text = ACCEL_BUFFER_INIT;
  assert_ok(accel_state_describe(state, &text));
  if (strstr(text.data, line) == NULL) fail_msg("'%s' is not in:\n%s", line, text.data);
  accel_buffer_dispose(&text);
}

static void test_other_defaults(void **unused) {
  (void)unused;
  accel_state_t *const state = state_of_host(1);
  assert_described(state, "embedded = yes (call)\n");
  assert_described(state, "num_threads = 1 (embedded)\n");
  assert_described(state, "cpu_kernels = default (embedded)\n");
  assert_described(state, "cpu_memory = cached (embedded)\n");
  assert_described(state, "cpu_memory_kept = 67108864 (embedded)\n");
  accel_state_release(state);
}

static void test_what_is_given_wins(void **unused) {
  (void)unused;
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  options.cpu_memory_kept = 1 << 20;
  setenv("ACCEL_EMBEDDED", "1", 1);
  setenv("ACCEL_CPU_MEMORY", "default", 1);
  setenv("OMP_NUM_THREADS", "2", 1); /* OpenMP has read it before */
  accel_state_t *state = NULL;
  const accel_status_t status = accel_state_create(&options, &state);
  unsetenv("ACCEL_EMBEDDED");
  unsetenv("ACCEL_CPU_MEMORY");
  unsetenv("OMP_NUM_THREADS");
  assert_int_equal(status, ACCEL_OK);
  assert_described(state, "embedded = yes (ACCEL_EMBEDDED)\n");
  assert_described(state, "cpu_memory_kept = 1048576 (call)\n");
  assert_described(state, "cpu_memory = default (ACCEL_CPU_MEMORY)\n");
  assert_described(state, "cpu_kernels = default (embedded)\n");
  accel_buffer_t text = ACCEL_BUFFER_INIT;
  assert_ok(accel_state_describe(state, &text));
  assert_null(strstr(text.data, "num_threads = 1 (embedded)"));
  accel_buffer_dispose(&text);
  accel_state_release(state);
}

static void test_a_state_that_shares_the_job_has_the_same(void **unused) {
  (void)unused;
  accel_state_t *const state = state_of_host(1);
  accel_state_t *shared = NULL;
  assert_ok(accel_state_share(state, NULL, &shared));
  assert_described(shared, "embedded = yes (call)\n");
  assert_described(shared, "cpu_kernels = default (embedded)\n");
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.embedded = 0;
  accel_state_t *none = NULL;
  assert_fails(accel_state_share(state, &options, &none), ACCEL_ERROR_INVALID_ARGUMENT, "embedded differs from");
  accel_state_release(shared);
  accel_state_release(state);
}

static void test_one_thread(void **unused) {
  (void)unused;
  struct training training = begin(1);
  train(&training, 3);
  assert_int_equal(count_threads(), 1);
  end(&training);
  assert_int_equal(count_threads(), 1);
}

/* A file that is made, opened or written in a folder of the user, also one that is removed again. */
static void test_no_files(void **unused) {
  (void)unused;
  char folder[] = "/tmp/accel-embedded-XXXXXX", cache[64];
  assert_non_null(mkdtemp(folder));
  snprintf(cache, sizeof cache, "%s/.cache", folder);
  assert_int_equal(mkdir(cache, 0700), 0);
  for (size_t i = 0; i < 2; i++) setenv(i == 0 ? "HOME" : "TMPDIR", folder, 1);
  unsetenv("XDG_CACHE_HOME");
  const int seen = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  const uint32_t anything = IN_CREATE | IN_OPEN | IN_MODIFY | IN_MOVED_TO | IN_ATTRIB;
  assert_true(seen >= 0);
  const char *const watched[] = {folder, cache, "/dev/shm"};
  for (size_t i = 0; i < 3; i++)
    if (access(watched[i], F_OK) == 0)
      assert_true(inotify_add_watch(seen, watched[i], i < 2 ? anything : IN_CREATE) > 0);
  const int descriptors = count_entries("/proc/self/fd");
  struct training training = begin(1);
  train(&training, 3);
  assert_int_equal(count_entries("/proc/self/fd"), descriptors);
  end(&training);
  char events[4096];
  assert_int_equal(read(seen, events, sizeof events), -1);
  FILE *const written = fopen(strcat(strcpy(events, cache), "/file"), "w"); /* the watch would have seen one */
  assert_non_null(written);
  fclose(written);
  assert_true(read(seen, events + sizeof events / 2, sizeof events / 2) > 0);
  close(seen);
  unlink(events);
  rmdir(cache);
  rmdir(folder);
}

static int64_t resident_bytes(void) {
  long total = 0, resident = 0;
  FILE *const file = fopen("/proc/self/statm", "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%ld %ld", &total, &resident), 2);
  fclose(file);
  return resident * sysconf(_SC_PAGESIZE);
}

/* Batches of many sizes: what is kept of each must not add up. */
static void test_bounded_memory(void **unused) {
  (void)unused;
  enum { STEPS = 10000, WARM = 2000, MOST = 8 << 20 };
  accel_state_t *const state = state_of_host(1);
  accel_module_t *model = NULL;
  accel_optimizer_t *optimizer = NULL;
  assert_ok(accel_module_linear(8, 8, 1, &model));
  assert_ok(accel_optimizer_adamw(model, NULL, &optimizer));
  int64_t warm = 0;
  for (int step = 0; step < STEPS; step++) {
    if (step == WARM) warm = resident_bytes();
    const int64_t shape[] = {1 + step * 37 % 4000, 8};
    accel_tensor_t *x = NULL, *loss = NULL;
    accel_value_t output = ACCEL_VALUE_INIT;
    assert_ok(accel_tensor_full(shape, 2, 1, ACCEL_DTYPE_FLOAT32, accel_device(state), &x));
    const accel_value_t input = accel_arg_tensor(x);
    assert_ok(accel_module_call(model, &input, 1, &output));
    assert_ok(accel_mse_loss(output.as.tensor, x, &loss));
    assert_ok(accel_backward(state, loss, NULL));
    assert_ok(accel_optimizer_step(optimizer));
    assert_ok(accel_optimizer_zero_grad(optimizer, 1));
    accel_tensor_release(loss);
    accel_value_dispose(&output);
    accel_tensor_release(x);
  }
  const int64_t grown = resident_bytes() - warm;
  if (grown > MOST) fail_msg("%lld bytes more after %d steps", (long long)grown, STEPS - WARM);
  accel_optimizer_release(optimizer);
  accel_module_release(model);
  accel_state_release(state);
}

static void test_signals_and_environment_stay(void **unused) {
  (void)unused;
  struct sigaction before[65], after;
  sigset_t mask_before, mask_after;
  char **const environment = environ;
  memset(before, 0, sizeof before);
  for (int signal = 1; signal <= 64; signal++) sigaction(signal, NULL, &before[signal]);
  sigemptyset(&mask_before);
  sigemptyset(&mask_after);
  sigprocmask(SIG_SETMASK, NULL, &mask_before);
  struct training training = begin(1);
  train(&training, 2);
  end(&training);
  for (int signal = 1; signal <= 64; signal++) {
    memset(&after, 0, sizeof after);
    sigaction(signal, NULL, &after);
    if (after.sa_handler != before[signal].sa_handler || after.sa_flags != before[signal].sa_flags)
      fail_msg("signal %d has another handler", signal);
  }
  sigprocmask(SIG_SETMASK, NULL, &mask_after);
  for (int signal = 1; signal <= 64; signal++)
    assert_int_equal(sigismember(&mask_before, signal), sigismember(&mask_after, signal));
  assert_ptr_equal(environ, environment);
}

int main(int argc, char **argv) {
  (void)argc;
  if (getenv("OMP_NUM_THREADS") != NULL) { /* OpenMP reads it when it is loaded */
    unsetenv("OMP_NUM_THREADS");
    execv("/proc/self/exe", argv);
    return 1;
  }
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_one_thread), /* first: nothing has made another thread */
      capi_unit_test(test_other_defaults),
      capi_unit_test(test_what_is_given_wins),
      capi_unit_test(test_a_state_that_shares_the_job_has_the_same),
      capi_unit_test(test_no_files),
      capi_unit_test(test_bounded_memory),
      capi_unit_test(test_signals_and_environment_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
