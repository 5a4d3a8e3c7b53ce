/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that disagree, come late, stop or die: the others get an error in time, never a hang. */
#define _POSIX_C_SOURCE 200809L

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rank_program.h"

static const int64_t kDeathNoticedMs = 2000;

static void sleep_ms(int64_t milliseconds) {
  struct timespec left = {(time_t)(milliseconds / 1000), (long)(milliseconds % 1000) * 1000000};
  while (nanosleep(&left, &left) != 0) {
  }
}

static accel_tensor_t* ones(int64_t count, accel_dtype_t dtype) {
  accel_tensor_t* tensor = NULL;
  CHECK(accel_tensor_full(&count, 1, 1, dtype, &kCpu, &tensor));
  return tensor;
}

static void expect_mismatch(accel_status_t status) {
  EXPECT(status == ACCEL_ERROR_COLLECTIVE_MISMATCH);
  EXPECT(strlen(accel_last_error()) > 0 && strchr(accel_last_error(), '\n') == NULL);
}

static void expect_group_works(accel_state_t* state) {
  accel_tensor_t* const tensor = ones(1, ACCEL_DTYPE_FLOAT64);
  double sum = 0;
  CHECK(accel_all_reduce(state, tensor, ACCEL_REDUCE_SUM));
  CHECK(accel_tensor_item(tensor, &sum));
  EXPECT(sum == accel_num_processes(state));
  accel_tensor_release(tensor);
}

/* Every rank hears of it, and the group goes on. */
void run_mismatch(accel_state_t* state, const char* argument) {
  (void)argument;
  const int32_t last = accel_process_index(state) == accel_num_processes(state) - 1;
  accel_tensor_t* tensor = ones(last ? 5 : 4, ACCEL_DTYPE_FLOAT32);
  expect_mismatch(accel_all_reduce(state, tensor, ACCEL_REDUCE_SUM)); /* sizes */
  accel_tensor_release(tensor);
  expect_group_works(state);

  tensor = ones(4, last ? ACCEL_DTYPE_INT32 : ACCEL_DTYPE_FLOAT32);
  expect_mismatch(accel_all_reduce(state, tensor, ACCEL_REDUCE_SUM)); /* dtypes of the same size */
  accel_tensor_release(tensor);
  expect_group_works(state);

  tensor = ones(4, ACCEL_DTYPE_FLOAT32);
  expect_mismatch(accel_all_reduce(state, tensor, last ? ACCEL_REDUCE_MAX : ACCEL_REDUCE_SUM));
  expect_group_works(state);
  expect_mismatch(last ? accel_wait_for_everyone(state) : accel_all_reduce(state, tensor, ACCEL_REDUCE_SUM));
  expect_group_works(state);
  accel_tensor_release(tensor);
}

/* The last rank never comes. */
void run_timeout(accel_state_t* state, const char* argument) {
  (void)argument;
  accel_tensor_t* const tensor = ones(100, ACCEL_DTYPE_FLOAT32);
  CHECK(accel_all_reduce(state, tensor, ACCEL_REDUCE_SUM));
  if (accel_process_index(state) == accel_num_processes(state) - 1) {
    sleep_ms(9000);
  } else {
    const int64_t start = now_ms();
    EXPECT(accel_all_reduce(state, tensor, ACCEL_REDUCE_SUM) == ACCEL_ERROR_TIMEOUT);
    const int64_t waited = now_ms() - start;
    /* Ranks enter the call at different times, and the first whose deadline passes ends it for all. */
    EXPECT(waited >= 3000 && waited < 9000);
    EXPECT(strstr(accel_last_error(), "no call since all_reduce #0") != NULL);
    sleep_ms(9000 - waited); /* so that nobody is seen to die meanwhile */
  }
  accel_tensor_release(tensor);
}

/* The last rank stops in the middle of a loop; the runner ends it. */
void run_stop(accel_state_t* state, const char* argument) {
  (void)argument;
  accel_tensor_t* const tensor = ones(1000, ACCEL_DTYPE_FLOAT32);
  const int32_t stops = accel_process_index(state) == accel_num_processes(state) - 1;
  accel_status_t status = ACCEL_OK;
  int64_t start = 0;
  for (int32_t i = 0; status == ACCEL_OK; i++) {
    EXPECT(i <= 50);
    if (stops && i == 50) raise(SIGSTOP);
    start = now_ms();
    status = accel_all_reduce(state, tensor, ACCEL_REDUCE_MAX);
  }
  EXPECT(status == ACCEL_ERROR_TIMEOUT); /* also where it is heard of from a neighbour */
  EXPECT(strstr(accel_last_error(), "timed out after") != NULL);
  EXPECT(now_ms() - start < 9000);
  accel_tensor_release(tensor);
}

/* Rank 1 dies in the middle of a loop; the argument is the number of elements. */
void run_kill(accel_state_t* state, const char* argument) {
  EXPECT(argument != NULL);
  accel_tensor_t* const tensor = ones(strtoll(argument, NULL, 10), ACCEL_DTYPE_FLOAT32);
  accel_status_t status = ACCEL_OK;
  int64_t start = 0;
  for (int32_t i = 0; status == ACCEL_OK; i++) {
    EXPECT(i <= 30);
    if (i == 30 && accel_process_index(state) == 1) raise(SIGKILL);
    start = now_ms();
    status = accel_all_reduce(state, tensor, ACCEL_REDUCE_MAX);
  }
  EXPECT(status == ACCEL_ERROR_PEER_LOST);
  EXPECT(now_ms() - start < kDeathNoticedMs);
  /* And so is every later call, at once. */
  start = now_ms();
  EXPECT(accel_wait_for_everyone(state) < 0);
  EXPECT(now_ms() - start < kDeathNoticedMs);
  accel_tensor_release(tensor);
}

/* Rank 1 dies behind many messages that it has not read: what UCX still holds for it must not hide its end. */
void run_kill_unread(accel_state_t* state, const char* argument) {
  (void)argument;
  enum { MESSAGES = 2000 };
  static accel_work_t* works[MESSAGES];
  accel_tensor_t *const tensor = ones(10, ACCEL_DTYPE_FLOAT32), *const process = ones(1, ACCEL_DTYPE_FLOAT64);
  const int32_t rank = accel_process_index(state);
  void* number = NULL;
  CHECK(accel_tensor_data(process, &number));
  if (rank == 1) *(double*)number = getpid();
  CHECK(accel_all_reduce(state, process, ACCEL_REDUCE_MAX));
  while (rank == 1) pause();
  for (int32_t i = 0; rank == 0 && i < MESSAGES; i++) CHECK(accel_send_async(state, tensor, 1, 0, &works[i]));
  const int64_t start = now_ms();
  if (rank == 0) EXPECT(kill((pid_t) * (double*)number, SIGKILL) == 0);
  EXPECT(accel_all_reduce(state, tensor, ACCEL_REDUCE_MAX) == ACCEL_ERROR_PEER_LOST);
  if (rank == 0) EXPECT(now_ms() - start < kDeathNoticedMs);
  /* All sends have ended, well or not. */
  for (int32_t i = 0; rank == 0 && i < MESSAGES; i++) {
    const accel_status_t status = accel_work_wait(works[i], kDeathNoticedMs);
    EXPECT(status == ACCEL_OK || status == ACCEL_ERROR_PEER_LOST);
    accel_work_release(works[i]);
  }
  accel_tensor_release(process);
  accel_tensor_release(tensor);
}

/* What the main process makes is there when the others run. The argument is the path of a file. */
void run_first(accel_state_t* state, const char* argument) {
  EXPECT(argument != NULL);
  accel_scope_t* scope = NULL;
  CHECK(accel_main_process_first_begin(state, &scope));
  if (accel_is_main_process(state)) {
    sleep_ms(200);
    FILE* const file = fopen(argument, "w");
    EXPECT(file != NULL && fclose(file) == 0);
  } else {
    EXPECT(access(argument, F_OK) == 0);
  }
  CHECK(accel_scope_end(scope));
}

/* The main process fails in its body and leaves. */
void run_first_fails(accel_state_t* state, const char* argument) {
  (void)argument;
  accel_scope_t* scope = NULL;
  const int64_t start = now_ms();
  const accel_status_t status = accel_main_process_first_begin(state, &scope);
  if (accel_is_main_process(state)) {
    EXPECT(status == ACCEL_OK);
    exit(0);
  }
  EXPECT(status == ACCEL_ERROR_PEER_LOST || status == ACCEL_ERROR_TIMEOUT);
  EXPECT(now_ms() - start < 6000);
}

/* A collective of a kind and a size that depend on `step` alone, so that all ranks make the same one. */
static accel_status_t make_collective(accel_state_t* state, int64_t step) {
  static const int64_t kCounts[] = {1, 17, 1025, 65537, 300001};
  const int64_t count = kCounts[step * 7 % 5], total = count * accel_num_processes(state);
  accel_tensor_t *const part = ones(count, ACCEL_DTYPE_FLOAT32), *const whole = ones(total, ACCEL_DTYPE_FLOAT32);
  const accel_value_t value = accel_arg_tensor(part);
  accel_status_t status = ACCEL_OK;
  switch (step % 6) {
    case 0:
      status = accel_all_reduce(state, part, ACCEL_REDUCE_MAX);
      break;
    case 1:
      status = accel_all_gather(state, part, whole);
      break;
    case 2:
      status = accel_reduce_scatter(state, whole, ACCEL_REDUCE_MAX, part);
      break;
    case 3:
      status = accel_broadcast(state, &value, (int32_t)(step % accel_num_processes(state)));
      break;
    case 4:
      status = accel_all_to_all(state, whole, whole);
      break;
    default:
      status = accel_wait_for_everyone(state);
  }
  accel_tensor_release(whole);
  accel_tensor_release(part);
  return status;
}

void report_failure(int64_t milliseconds, accel_status_t status) {
  printf("%d ms %s %s\n", (int)milliseconds, accel_status_name(status), accel_last_error());
  fflush(stdout);
  while (getchar() != EOF) {
  }
}

/* Goes on until a collective fails, and says how long that one took and how it ended. "running" tells the runner that
 * it may do harm. The argument is the number of steps after which this rank exits by itself. */
void run_until_failure(accel_state_t* state, const char* argument) {
  const int64_t last_step = argument != NULL ? strtoll(argument, NULL, 10) : INT64_MAX;
  accel_status_t status = ACCEL_OK;
  int64_t start = 0;
  for (int64_t step = 0; status == ACCEL_OK; step++) {
    if (step == 10) {
      puts("running");
      fflush(stdout);
    }
    if (step == last_step) exit(0);
    start = now_ms();
    status = make_collective(state, step);
  }
  report_failure(now_ms() - start, status);
}
