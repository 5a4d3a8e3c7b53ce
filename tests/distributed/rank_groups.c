/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are started and not waited for, and groups of ranks: halves, and those that are left after a loss. */
#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "rank_program.h"

static accel_tensor_t* filled(double number) {
  const int64_t count = 1000;
  accel_tensor_t* tensor = NULL;
  CHECK(accel_tensor_full(&count, 1, number, ACCEL_DTYPE_FLOAT64, &kCpu, &tensor));
  return tensor;
}

static void expect_elements(accel_tensor_t* tensor, double number) {
  accel_tensor_t* const expected = filled(number);
  EXPECT(same_tensors(tensor, expected));
  accel_tensor_release(expected);
}

static void expect_sum_of_ranks(accel_state_t* group) {
  const int32_t size = accel_num_processes(group);
  accel_tensor_t* const tensor = filled(accel_process_index(group));
  CHECK(accel_all_reduce(group, tensor, ACCEL_REDUCE_SUM));
  expect_elements(tensor, size * (size - 1) / 2.0);
  accel_tensor_release(tensor);
}

static accel_status_t count_end(int32_t status, void* user_data) {
  ++*(int32_t*)user_data;
  return status;
}

/* The whole and the halves work at the same time; what was started runs in its order. */
void run_works(accel_state_t* state, const char* argument) {
  (void)argument;
  enum { WORKS = 20 };
  accel_state_t* half = NULL;
  accel_tensor_t *const whole = filled(1), *const part = filled(1);
  double expected_whole = 1, expected_part = 1;
  int32_t ends = 0;
  CHECK(accel_group_split(state, accel_process_index(state) % 2, 0, &half));
  for (int32_t i = 0; i < WORKS; i++) {
    accel_work_t *work = NULL, *other = NULL;
    CHECK(accel_all_reduce_async(state, whole, ACCEL_REDUCE_SUM, &work));
    CHECK(accel_all_reduce_async(half, part, ACCEL_REDUCE_SUM, &other));
    CHECK(accel_work_then(work, count_end, &ends, NULL));
    accel_work_release(work);
    accel_work_release(other);
    expected_whole *= accel_num_processes(state);
    expected_part *= accel_num_processes(half);
  }
  for (accel_status_t status = ACCEL_IN_PROGRESS; status == ACCEL_IN_PROGRESS;) {
    status = accel_progress(state, 100000);
    CHECK(status);
  }
  EXPECT(ends == WORKS);
  CHECK(accel_wait_for_everyone(half)); /* after all that was started */
  expect_elements(whole, expected_whole);
  expect_elements(part, expected_part);
  expect_sum_of_ranks(half);
  expect_sum_of_ranks(state);
  accel_tensor_release(whole);
  accel_tensor_release(part);
  accel_state_release(half);
}

/* Of this process, that move messages. */
static int progress_threads(void) {
  DIR* const threads = opendir("/proc/self/task");
  int count = 0;
  EXPECT(threads != NULL);
  for (const struct dirent* thread; (thread = readdir(threads)) != NULL;) {
    char path[300] = "", name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", thread->d_name);
    FILE* const file = fopen(path, "r");
    if (file == NULL) continue;
    if (fgets(name, sizeof name, file) != NULL && strcmp(name, "accel-ucx\n") == 0) count++;
    fclose(file);
  }
  closedir(threads);
  return count;
}

/* A state with eight groups of it has one progress thread. */
void run_many_groups(accel_state_t* state, const char* argument) {
  (void)argument;
  enum { GROUPS = 8 };
  accel_state_t* groups[GROUPS] = {NULL};
  accel_work_t* works[GROUPS] = {NULL};
  accel_tensor_t* tensors[GROUPS] = {NULL};
  for (int32_t i = 0; i < GROUPS; i++) {
    CHECK(accel_group_split(state, accel_process_index(state) % (1 + i % 2), 0, &groups[i]));
    tensors[i] = filled(1);
    CHECK(accel_all_reduce_async(groups[i], tensors[i], ACCEL_REDUCE_SUM, &works[i]));
  }
  EXPECT(progress_threads() == 1);
  for (int32_t i = GROUPS - 1; i >= 0; i--) {
    CHECK(accel_work_wait(works[i], 60000));
    expect_elements(tensors[i], accel_num_processes(groups[i]));
    expect_sum_of_ranks(groups[i]);
    accel_work_release(works[i]);
    accel_tensor_release(tensors[i]);
    accel_state_release(groups[i]);
  }
  expect_sum_of_ranks(state);
}

/* The ranks whose digits the argument lists die one after the other, and the rest goes on without them. */
void run_shrink(accel_state_t* state, const char* argument) {
  const int32_t own = accel_process_index(state);
  accel_state_t* group = state;
  EXPECT(argument != NULL);
  for (const char* lost = argument; *lost != '\0'; lost++) {
    accel_state_t* survivors = NULL;
    accel_status_t status = ACCEL_OK;
    expect_sum_of_ranks(group);
    if (own == *lost - '0') raise(SIGKILL);
    while (status == ACCEL_OK) status = accel_wait_for_everyone(group);
    EXPECT(status == ACCEL_ERROR_PEER_LOST);
    const int64_t start = now_ms();
    CHECK(accel_group_shrink(group, 30000, &survivors));
    EXPECT(now_ms() - start < 10000); /* who is lost is not waited for */
    EXPECT(accel_num_processes(survivors) == accel_num_processes(group) - 1);
    if (group != state) accel_state_release(group);
    group = survivors;
  }
  expect_sum_of_ranks(group);
  CHECK(accel_end_training(group));
  accel_state_release(group);
}

/* Rank 0 only stands still: the others do not go on without it, because there could be more on its side. */
void run_shrink_silent(accel_state_t* state, const char* argument) {
  (void)argument;
  accel_state_t* survivors = NULL;
  expect_sum_of_ranks(state);
  if (accel_process_index(state) == 0) raise(SIGSTOP);
  EXPECT(accel_wait_for_everyone(state) < 0);
  const int64_t start = now_ms();
  EXPECT(accel_group_shrink(state, 100, &survivors) == ACCEL_ERROR_TIMEOUT);
  EXPECT(strstr(accel_last_error(), "rank 0 of the job") != NULL);
  EXPECT(now_ms() - start < 10000);
}
