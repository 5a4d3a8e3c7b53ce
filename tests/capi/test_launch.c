/* SPDX-License-Identifier: Apache-2.0 */
/* Launching from a program: functions in forked processes, and in this program started again. */
#define _DEFAULT_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "capi_test.h"

enum { kRanks = 3 };

/* What ranks share with the test, and with each other. */
struct shared {
  int32_t calls[kRanks]; /* of the function of each local rank */
  int32_t seen[kRanks];
  int32_t pids[kRanks];
};

static struct shared *shared;
static int destroyed;

static void count_destroy(void *user_data) {
  (void)user_data;
  destroyed++;
}

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int open_files(void) {
  int count = 0;
  DIR *const folder = opendir("/proc/self/fd");
  assert_non_null(folder);
  while (readdir(folder) != NULL) count++;
  closedir(folder);
  return count;
}

static int prepare(void **state) {
  (void)state;
  memset(shared, 0, sizeof(*shared));
  destroyed = 0;
  return 0;
}

/* No process of any launch is left, running or not waited for. */
static int no_process_is_left(void **state) {
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
  assert_int_equal(errno, ECHILD);
  return assert_nothing_left(state);
}

static accel_launch_options_t options_of(int32_t num_processes) {
  accel_launch_options_t options = ACCEL_LAUNCH_OPTIONS_INIT;
  options.num_processes = num_processes;
  options.cpu = 1;
  return options;
}

static int number_of(const char *variable) {
  const char *const text = getenv(variable);
  return text == NULL ? -1 : atoi(text);
}

/* Ranks meet and add up their numbers. */
static accel_status_t add_up(int32_t local_process_index, void *user_data) {
  struct shared *const out = user_data;
  const int64_t shape[] = {1};
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  accel_state_t *state = NULL;
  accel_tensor_t *number = NULL, *sum = NULL;
  accel_value_t in, result = ACCEL_VALUE_INIT;
  void *data = NULL;
  accel_status_t status = accel_state_create(NULL, &state);
  if (status < 0) return status;
  status = accel_tensor_full(shape, 1, accel_process_index(state) + 1, ACCEL_DTYPE_INT64, &cpu, &number);
  if (status < 0) return status;
  in = accel_arg_tensor(number);
  status = accel_reduce(state, &in, ACCEL_REDUCE_SUM, 1.0, &result);
  if (status < 0) return status;
  sum = result.as.tensor;
  status = accel_tensor_data(sum, &data);
  if (status < 0) return status;
  out->calls[local_process_index]++;
  out->seen[local_process_index] = (int32_t) * (const int64_t *)data + 100 * accel_fork_launched(state) +
                                   1000 * (accel_local_process_index(state) == local_process_index);
  accel_value_dispose(&result);
  accel_tensor_release(number);
  accel_state_release(state);
  return ACCEL_OK;
}

static void forked_ranks_train_together(void **unused) {
  const accel_launch_options_t options = options_of(kRanks);
  const int files = open_files();
  (void)unused;
  assert_ok(accel_launch(&options, add_up, shared, count_destroy));
  for (int rank = 0; rank < kRanks; rank++) {
    assert_int_equal(shared->calls[rank], 1);
    assert_int_equal(shared->seen[rank], 1 + 2 + 3 + 100 + 1000);
  }
  assert_int_equal(destroyed, 1);
  assert_int_equal(open_files(), files);
}

static accel_status_t only_join(int32_t local_process_index, void *user_data) {
  accel_state_t *state = NULL;
  const accel_status_t status = accel_state_create(NULL, &state);
  (void)local_process_index;
  (void)user_data;
  accel_state_release(state);
  return status;
}

/* The store of rank 0 is there until all have joined. */
static void ranks_stay_until_all_are_done(void **unused) {
  const accel_launch_options_t options = options_of(kRanks);
  (void)unused;
  for (int i = 0; i < 5; i++) assert_ok(accel_launch(&options, only_join, NULL, NULL));
}

static accel_status_t tell_environment(int32_t local_process_index, void *user_data) {
  const char *const precision = getenv("ACCELERATE_MIXED_PRECISION"), *const address = getenv("MASTER_ADDR");
  (void)user_data;
  if (precision == NULL || strcmp(precision, "bf16") != 0 || address == NULL || strcmp(address, "127.0.0.9") != 0)
    return ACCEL_ERROR_USER;
  shared->seen[local_process_index] = 10000 * number_of("MASTER_PORT") + 1000 * number_of("WORLD_SIZE") +
                                      100 * number_of("LOCAL_WORLD_SIZE") + 10 * number_of("RANK") +
                                      number_of("LOCAL_RANK");
  return ACCEL_OK;
}

static void the_environment_says_the_place(void **unused) {
  accel_launch_options_t options = options_of(4);
  (void)unused;
  options.num_machines = 2;
  options.machine_rank = 1;
  options.main_process_ip = "127.0.0.9";
  options.main_process_port = 2345;
  options.mixed_precision = ACCEL_PRECISION_BF16;
  assert_ok(accel_launch(&options, tell_environment, NULL, NULL));
  assert_int_equal(shared->seen[0], 23454220);
  assert_int_equal(shared->seen[1], 23454231);
  assert_null(getenv("LOCAL_RANK"));
}

static accel_status_t fail_at_rank_1(int32_t local_process_index, void *user_data) {
  (void)user_data;
  if (local_process_index != 1) {
    sleep(60);
    return ACCEL_OK;
  }
  accel_error_set(ACCEL_ERROR_NOT_FOUND, "mine");
  return ACCEL_ERROR_NOT_FOUND;
}

static void the_error_is_that_of_the_function(void **unused) {
  const accel_launch_options_t options = options_of(kRanks);
  const double begin = seconds_now();
  accel_error_t *error = NULL;
  (void)unused;
  assert_fails(accel_launch(&options, fail_at_rank_1, NULL, count_destroy), ACCEL_ERROR_NOT_FOUND,
               "rank 1 of 3 failed: mine");
  assert_ok(accel_error_take(&error));
  assert_int_equal(accel_error_rank(error), 1);
  accel_error_release(error);
  assert_int_equal(destroyed, 1);
  assert_true(seconds_now() - begin < 3);
}

static accel_status_t ignore_the_end(int32_t local_process_index, void *user_data) {
  signal(SIGTERM, SIG_IGN);
  return fail_at_rank_1(local_process_index, user_data);
}

static void ranks_that_do_not_end_are_killed(void **unused) {
  const accel_launch_options_t options = options_of(2);
  const double begin = seconds_now();
  (void)unused;
  assert_status(accel_launch(&options, ignore_the_end, NULL, NULL), ACCEL_ERROR_NOT_FOUND);
  assert_true(seconds_now() - begin < 4);
}

static accel_status_t be_killed(int32_t local_process_index, void *user_data) {
  (void)user_data;
  if (local_process_index == 0) raise(SIGKILL);
  sleep(60);
  return ACCEL_OK;
}

static accel_status_t exit_with_a_word(int32_t local_process_index, void *user_data) {
  if (local_process_index == 0) sleep(60);
  printf("first\nlast\n");
  fflush(stdout);
  _exit(*(const int *)user_data);
}

static void processes_that_end_by_themselves_are_lost(void **unused) {
  const accel_launch_options_t options = options_of(2);
  int status = 3;
  (void)unused;
  assert_fails(accel_launch(&options, be_killed, NULL, NULL), ACCEL_ERROR_PEER_LOST,
               "rank 0 of 2 ended before its function returned: SIGKILL");
  assert_fails(accel_launch(&options, exit_with_a_word, &status, NULL), ACCEL_ERROR_PEER_LOST,
               "rank 1 of 2 ended before its function returned: exit status 3; its last line is 'last'");
  status = 0;
  assert_fails(accel_launch(&options, exit_with_a_word, &status, NULL), ACCEL_ERROR_PEER_LOST, "exit status 0");
}

static accel_status_t fail_twice(int32_t local_process_index, void *user_data) {
  (void)user_data;
  if (local_process_index != 0) return ACCEL_OK;
  if (++shared->calls[0] != number_of("TORCHELASTIC_RESTART_COUNT") + 1) return ACCEL_ERROR_INTERNAL;
  return shared->calls[0] <= 2 ? ACCEL_ERROR_USER : ACCEL_OK;
}

static void failures_are_followed_by_restarts(void **unused) {
  accel_launch_options_t options = options_of(2);
  (void)unused;
  options.max_restarts = 2;
  assert_ok(accel_launch(&options, fail_twice, NULL, NULL));
  assert_int_equal(shared->calls[0], 3);
  memset(shared, 0, sizeof(*shared));
  options.max_restarts = 1;
  assert_fails(accel_launch(&options, fail_twice, NULL, NULL), ACCEL_ERROR_USER, "failed, after 1 restarts");
  assert_int_equal(shared->calls[0], 2);
}

static accel_status_t sleep_long(int32_t local_process_index, void *user_data) {
  (void)user_data;
  shared->pids[local_process_index] = getpid();
  sleep(60);
  return ACCEL_OK;
}

static void ranks_have_a_deadline(void **unused) {
  accel_launch_options_t options = options_of(2);
  const double begin = seconds_now();
  (void)unused;
  options.timeout_ms = 300;
  assert_fails(accel_launch(&options, sleep_long, NULL, NULL), ACCEL_ERROR_TIMEOUT, "within timeout_ms, 300 ms");
  assert_true(seconds_now() - begin < 3);
}

/* In one write a line, and a second without an end. */
static accel_status_t say_who(int32_t local_process_index, void *user_data) {
  (void)user_data;
  printf("number %d\nlast", local_process_index);
  return ACCEL_OK;
}

/* Runs the launch with its output in a file, and reads that. */
static void output_of(const accel_launch_options_t *options, char *text, size_t size) {
  FILE *const file = tmpfile();
  assert_non_null(file);
  fflush(stdout);
  const int former = dup(STDOUT_FILENO);
  assert_true(former >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
  const accel_status_t status = accel_launch(options, say_who, NULL, NULL);
  fflush(stdout);
  assert_true(dup2(former, STDOUT_FILENO) >= 0);
  close(former);
  assert_ok(status);
  rewind(file);
  text[fread(text, 1, size - 1, file)] = '\0';
  fclose(file);
}

static void lines_of_ranks_have_the_prefix_of_the_template(void **unused) {
  accel_launch_options_t options = options_of(2);
  char text[256];
  (void)unused;
  output_of(&options, text, sizeof(text));
  assert_string_equal(text, "number 0\nlast");
  options.log_line_prefix_template = "<${role_name} ${rank}/${local_rank} $x> ";
  output_of(&options, text, sizeof(text));
  for (int rank = 0; rank < 2; rank++)
    for (int line = 0; line < 2; line++) {
      char expected[64];
      snprintf(expected, sizeof(expected), line == 0 ? "<default %d/%d $x> number %d\n" : "<default %d/%d $x> last\n",
               rank, rank, rank);
      assert_non_null(strstr(text, expected));
    }
  options.log_dir = "logs";
  assert_fails(accel_launch(&options, say_who, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT,
               "log_dir and log_line_prefix_template are both given");
}

static accel_status_t compare_rendezvous(int32_t local_process_index, void *user_data) {
  const char *const job = getenv("ACCEL_JOB_TOKEN");
  (void)local_process_index;
  (void)user_data;
  return job != NULL && strcmp(job, "tuesday") == 0 && number_of("ACCEL_TIMEOUT_MS") == 4321 ? ACCEL_OK
                                                                                             : ACCEL_ERROR_USER;
}

static void ranks_know_their_job_and_their_deadline(void **unused) {
  accel_launch_options_t options = options_of(2);
  (void)unused;
  options.job_id = "tuesday";
  options.rendezvous_timeout_ms = 4321;
  assert_ok(accel_launch(&options, compare_rendezvous, NULL, NULL));
  options.rendezvous_timeout_ms = 60000;
  assert_ok(accel_launch(&options, add_up, shared, NULL));
  assert_int_equal(shared->calls[0] + shared->calls[1], 2);
  options.rendezvous_timeout_ms = 0;
  assert_fails(accel_launch(&options, add_up, shared, NULL), ACCEL_ERROR_INVALID_ARGUMENT,
               "rendezvous_timeout_ms is 0");
}

static accel_status_t launch_again(int32_t local_process_index, void *user_data) {
  const accel_launch_options_t options = options_of(1);
  (void)local_process_index;
  (void)user_data;
  return accel_launch(&options, add_up, NULL, NULL);
}

static void wrong_calls_start_nothing(void **unused) {
  accel_launch_options_t options = ACCEL_LAUNCH_OPTIONS_INIT;
  (void)unused;
  assert_fails(accel_launch(&options, add_up, NULL, count_destroy), ACCEL_ERROR_INVALID_ARGUMENT, "num_processes");
  assert_int_equal(destroyed, 1);
  options = options_of(0);
  assert_fails(accel_launch(&options, add_up, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "num_processes is 0");
  options = options_of(3);
  options.num_machines = 2;
  assert_fails(accel_launch(&options, add_up, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT,
               "num_processes is 3; expected a multiple of num_machines, which is 2");
  options = options_of(2);
  options.machine_rank = 1;
  assert_fails(accel_launch(&options, add_up, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "machine_rank is 1");
  options = options_of(1);
  options.log_dir = "/proc/none/logs";
  assert_fails(accel_launch(&options, add_up, NULL, NULL), ACCEL_ERROR_IO, "/proc/none/logs");
  signal(SIGCHLD, SIG_IGN);
  options = options_of(1);
  assert_fails(accel_launch(&options, add_up, NULL, NULL), ACCEL_ERROR_INVALID_STATE, "SIGCHLD is ignored");
  signal(SIGCHLD, SIG_DFL);
  assert_fails(accel_launch(&options, launch_again, NULL, NULL), ACCEL_ERROR_INVALID_STATE,
               "is a rank of accel_launch() itself");
}

static void *wait_for_the_end(void *end) {
  while (!__atomic_load_n((int *)end, __ATOMIC_ACQUIRE)) usleep(1000);
  return NULL;
}

static void a_process_with_threads_is_not_forked(void **unused) {
  const accel_launch_options_t options = options_of(2);
  pthread_t thread;
  int end = 0;
  (void)unused;
  assert_int_equal(pthread_create(&thread, NULL, wait_for_the_end, &end), 0);
  assert_fails(accel_launch(&options, add_up, shared, NULL), ACCEL_ERROR_INVALID_STATE, "ACCEL_START_PROGRAM");
  __atomic_store_n(&end, 1, __ATOMIC_RELEASE);
  assert_int_equal(pthread_join(thread, NULL), 0);
}

static void on_signal(int number) { (void)number; }

static accel_status_t have_the_same_signals(int32_t local_process_index, void *user_data) {
  sigset_t mask;
  struct sigaction action;
  (void)local_process_index;
  (void)user_data;
  sigprocmask(SIG_SETMASK, NULL, &mask);
  sigaction(SIGUSR1, NULL, &action);
  return sigismember(&mask, SIGUSR2) && action.sa_handler == on_signal ? ACCEL_OK : ACCEL_ERROR_USER;
}

// Regression: `accel_set_numa_affinity(INT32_MAX)` crashed.
static void numbers_of_ranks_have_a_range(void **unused) {
  (void)unused;
  assert_fails(accel_set_numa_affinity(-1), ACCEL_ERROR_INVALID_ARGUMENT, "local_process_index is -1");
  assert_fails(accel_set_numa_affinity(INT32_MAX), ACCEL_ERROR_INVALID_ARGUMENT, "expected a number from 0 to 65535");
  assert_int_equal(setenv("LOCAL_WORLD_SIZE", "4294967297", 1), 0);
  assert_fails(accel_set_numa_affinity(0), ACCEL_ERROR_INVALID_ARGUMENT, "LOCAL_WORLD_SIZE is 4294967297");
  assert_int_equal(unsetenv("LOCAL_WORLD_SIZE"), 0);
}

static void signals_stay_as_they_are(void **unused) {
  const accel_launch_options_t options = options_of(2);
  struct sigaction action = {0}, before, after;
  sigset_t mask, mask_before, mask_after;
  (void)unused;
  action.sa_handler = on_signal;
  assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR2);
  assert_int_equal(sigprocmask(SIG_BLOCK, &mask, NULL), 0);
  sigprocmask(SIG_SETMASK, NULL, &mask_before);
  assert_ok(accel_launch(&options, have_the_same_signals, NULL, NULL));
  for (int number = 1; number < 32; number++) {
    sigprocmask(SIG_SETMASK, NULL, &mask_after);
    assert_int_equal(sigismember(&mask_before, number), sigismember(&mask_after, number));
  }
  assert_int_equal(sigaction(SIGUSR1, &before, &after), 0);
  assert_true(after.sa_handler == on_signal);
  assert_int_equal(sigprocmask(SIG_UNBLOCK, &mask, NULL), 0);
}

static accel_status_t print_rank(int32_t local_process_index, void *user_data) {
  (void)user_data;
  printf("rank %d\n", (int)local_process_index);
  return ACCEL_OK;
}

static void assert_text_of(const char *path, const char *expected) {
  char text[64] = {0};
  FILE *const file = fopen(path, "r");
  assert_non_null(file);
  assert_true(fread(text, 1, sizeof(text) - 1, file) < sizeof(text));
  fclose(file);
  assert_string_equal(text, expected);
  assert_int_equal(unlink(path), 0);
}

static void output_goes_to_logs(void **unused) {
  char folder[] = "/tmp/accel_logs_XXXXXX", path[64];
  accel_launch_options_t options = options_of(2);
  (void)unused;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof(path), "%s/of job", folder);
  options.log_dir = path;
  printf("what is buffered is written once ");
  assert_ok(accel_launch(&options, print_rank, NULL, NULL));
  snprintf(path, sizeof(path), "%s/of job/rank_0.log", folder);
  assert_text_of(path, "rank 0\n");
  snprintf(path, sizeof(path), "%s/of job/rank_1.log", folder);
  assert_text_of(path, "rank 1\n");
  snprintf(path, sizeof(path), "%s/of job", folder);
  assert_int_equal(rmdir(path), 0);
  assert_int_equal(rmdir(folder), 0);
}

/* Scenarios: this program with a word behind it, which starts itself again or is killed. Each prints what happens. */

static void *end_the_waits(void *unused) {
  (void)unused;
  usleep(500000);
  if (accel_interrupt() != ACCEL_OK) abort();
  return NULL;
}

static int show(accel_status_t status) {
  printf("%s %s\n", accel_status_name(status), status < 0 ? accel_last_error() : "");
  fflush(stdout);
  return 0;
}

static accel_status_t say_first(int32_t local_process_index, void *user_data) {
  (void)user_data;
  if (local_process_index == 0) printf("first %d\n", number_of("FORK_LAUNCHED"));
  return ACCEL_OK;
}

static accel_status_t say_sum(int32_t local_process_index, void *user_data) {
  struct shared result = {{0}, {0}, {0}};
  const accel_status_t status = add_up(local_process_index, &result);
  (void)user_data;
  if (local_process_index == 0) printf("sum %d\n", (int)result.seen[0]);
  return status;
}

static accel_status_t say_and_sleep(int32_t local_process_index, void *user_data) {
  const int output = *(const int *)user_data;
  char line[32];
  const int size = snprintf(line, sizeof(line), "%d\n", (int)getpid());
  if (write(output, line, (size_t)size) != size) return ACCEL_ERROR_IO;
  return sleep_long(local_process_index, NULL);
}

/* By several threads, where there are. */
static accel_status_t compute(int32_t local_process_index, void *user_data) {
  const int64_t shape[] = {1000, 1000};
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  const accel_op_t *product = NULL;
  accel_tensor_t *ones = NULL;
  accel_value_t factors[2], result = ACCEL_VALUE_INIT;
  size_t results = 0;
  accel_status_t status = accel_op_find("aten::mm", "", &product);
  (void)local_process_index;
  (void)user_data;
  if (status >= 0) status = accel_tensor_full(shape, 2, 1, ACCEL_DTYPE_FLOAT32, &cpu, &ones);
  if (status < 0) return status;
  factors[0] = factors[1] = accel_arg_tensor(ones);
  status = accel_op_call(product, factors, 2, &result, 1, &results);
  accel_value_dispose(&result);
  accel_tensor_release(ones);
  return status;
}

static int threads_of_process(void) {
  int count = -2;
  DIR *const folder = opendir("/proc/self/task");
  while (readdir(folder) != NULL) count++;
  closedir(folder);
  return count;
}

static int run_scenario(const char *name) {
  accel_launch_options_t options = options_of(2);
  pthread_t thread;
  if (strcmp(name, "killed") == 0) { /* the launcher is killed by the test */
    int output = dup(STDOUT_FILENO);
    return show(accel_launch(&options, say_and_sleep, &output, NULL));
  }
  if (strcmp(name, "computed") == 0) {
    if (compute(0, NULL) != ACCEL_OK) return 1;
    printf("%s threads, ", threads_of_process() > 1 ? "several" : "no");
    options.timeout_ms = 20000;
    return show(accel_launch(&options, compute, NULL, NULL));
  }
  if (strcmp(name, "state") == 0) {
    accel_state_t *state = NULL;
    if (accel_state_create(NULL, &state) != ACCEL_OK) return 1;
    accel_state_release(state);
    return show(accel_launch(&options, add_up, shared, NULL));
  }
  if (strcmp(name, "forked") == 0) { /* by the program itself */
    int status = 0;
    accel_buffer_t info = ACCEL_BUFFER_INIT;
    if (accel_build_info(&info) != ACCEL_OK) return 1;
    accel_buffer_dispose(&info);
    fflush(stdout);
    if (fork() == 0) {
      show(accel_build_info(&info));
      show(accel_accept_fork());
      show(accel_build_info(&info));
      _exit(0);
    }
    wait(&status);
    return show(accel_accept_fork());
  }
  options.start_method = ACCEL_START_PROGRAM;
  if (strcmp(name, "silent") == 0 && getenv("ACCEL_LAUNCHED") != NULL) return 0;
  if (strcmp(name, "interrupted") == 0) {
    if (pthread_create(&thread, NULL, end_the_waits, NULL) != 0) return 1;
    show(accel_launch(&options, sleep_long, NULL, NULL));
    return pthread_join(thread, NULL);
  }
  if (accel_launch(&options, say_first, NULL, NULL) != ACCEL_OK) return show(ACCEL_ERROR_INTERNAL);
  return show(accel_launch(&options, strcmp(name, "fails") == 0 ? fail_at_rank_1 : say_sum, NULL, NULL));
}

static FILE *start_scenario(const char *name, pid_t *process) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  *process = fork();
  assert_true(*process >= 0);
  if (*process == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execl("/proc/self/exe", "test_launch", name, NULL);
    _exit(127);
  }
  close(ends[1]);
  return fdopen(ends[0], "r");
}

static void assert_scenario(const char *name, const char *expected) {
  char text[2048] = {0};
  int status = 0;
  pid_t process;
  FILE *const output = start_scenario(name, &process);
  assert_true(fread(text, 1, sizeof(text) - 1, output) > 0);
  fclose(output);
  assert_int_equal(waitpid(process, &status, 0), process);
  if (strncmp(text, expected, strlen(expected)) != 0) print_error("%s: '%s'\n", name, text);
  assert_true(strncmp(text, expected, strlen(expected)) == 0);
  assert_int_equal(status, 0);
}

static void threads_of_computations_are_no_obstacle(void **unused) {
  (void)unused;
  setenv("OMP_NUM_THREADS", "2", 1);
  assert_scenario("computed", "several threads, ACCEL_OK");
  setenv("OMP_NUM_THREADS", "1", 1);
}

static void programs_start_themselves_again(void **unused) {
  (void)unused;
  assert_scenario("two calls", "first 0\nsum 1003\nACCEL_OK ");
  assert_scenario("fails", "first 0\nACCEL_ERROR_NOT_FOUND rank 1 of 2 failed: mine");
  assert_scenario("silent", "ACCEL_ERROR_INTERNAL rank ");
  assert_scenario("interrupted", "ACCEL_ERROR_CANCELLED accel_interrupt() has ended the ranks");
}

static void processes_that_cannot_be_forked_say_so(void **unused) {
  (void)unused;
  assert_scenario("state", "ACCEL_ERROR_INVALID_STATE this process has made a state");
  assert_scenario("forked", "ACCEL_ERROR_INVALID_STATE this process was forked off");
}

static void ranks_end_with_a_launcher_that_is_killed(void **unused) {
  char line[32];
  int ranks[2], status;
  pid_t process;
  FILE *const output = start_scenario("killed", &process);
  (void)unused;
  for (int i = 0; i < 2; i++) {
    assert_non_null(fgets(line, sizeof(line), output));
    ranks[i] = atoi(line);
    assert_int_equal(kill(ranks[i], 0), 0);
  }
  assert_int_equal(kill(process, SIGKILL), 0);
  assert_int_equal(waitpid(process, &status, 0), process);
  /* The pipe ends with the last process that has it. */
  assert_null(fgets(line, sizeof(line), output));
  fclose(output);
  for (int i = 0; i < 2; i++) {
    const double begin = seconds_now();
    while (kill(ranks[i], 0) == 0 && seconds_now() - begin < 5) usleep(10000);
    assert_int_not_equal(kill(ranks[i], 0), 0);
  }
}

int main(int count, char **arguments) {
#define launch_test(function) cmocka_unit_test_setup_teardown(function, prepare, no_process_is_left)
  const struct CMUnitTest tests[] = {
      launch_test(forked_ranks_train_together),
      launch_test(ranks_stay_until_all_are_done),
      launch_test(the_environment_says_the_place),
      launch_test(the_error_is_that_of_the_function),
      launch_test(ranks_that_do_not_end_are_killed),
      launch_test(processes_that_end_by_themselves_are_lost),
      launch_test(failures_are_followed_by_restarts),
      launch_test(ranks_have_a_deadline),
      launch_test(lines_of_ranks_have_the_prefix_of_the_template),
      launch_test(ranks_know_their_job_and_their_deadline),
      launch_test(wrong_calls_start_nothing),
      launch_test(a_process_with_threads_is_not_forked),
      launch_test(numbers_of_ranks_have_a_range),
      launch_test(signals_stay_as_they_are),
      launch_test(output_goes_to_logs),
      launch_test(threads_of_computations_are_no_obstacle),
      launch_test(programs_start_themselves_again),
      launch_test(processes_that_cannot_be_forked_say_so),
      launch_test(ranks_end_with_a_launcher_that_is_killed),
  };
  shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  if (count > 1) return run_scenario(arguments[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
