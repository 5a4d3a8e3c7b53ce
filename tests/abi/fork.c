/* SPDX-License-Identifier: Apache-2.0 */
/* After fork(): a child of a process that had used the library is refused everything but exec(), and nothing hangs. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "everyday_work.h"

enum { SECONDS_UNTIL_A_CHILD_HANGS = 60 };

/* What the parent holds when it forks. */
static struct rank ranks[2];
static accel_tensor_t* tensor = NULL;
static accel_module_t* model = NULL;
static accel_optimizer_t* optimizer = NULL;
static accel_scope_t* scope = NULL;
static accel_value_t list = ACCEL_VALUE_INIT;
static const accel_device_t kCpu = {ACCEL_DEVICE_CPU, -1};

/* The child ends as `body` says: 0 is success, and a signal is its number above 128. */
static int run_in_child(int (*body)(void)) {
  int status = 0;
  pid_t child;
  fflush(NULL); /* else a child that exits would write it too */
  child = fork();
  if (child == 0) {
    alarm(SECONDS_UNTIL_A_CHILD_HANGS);
    _exit(body());
  }
  assert_true(child > 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int is_refused(accel_status_t status, const char* call) {
  if (status == ACCEL_ERROR_INVALID_STATE && strstr(accel_last_error(), "only exec() is possible") != NULL) return 1;
  fprintf(stderr, "%s gave %s in the child: %s\n", call, accel_status_name(status), accel_last_error());
  return 0;
}

#define REFUSED(call) is_refused((call), #call)
/* For calls that return a value: they leave the error to be asked for. */
#define REFUSED_VALUE(call, wrong) ((call) == (wrong) && is_refused(ACCEL_ERROR_INVALID_STATE, #call))

static int use_everything(void) {
  accel_state_t* state = NULL;
  accel_tensor_t* other = NULL;
  accel_error_t* error = NULL;
  accel_module_t* layer = NULL;
  accel_value_t out = ACCEL_VALUE_INIT;
  accel_buffer_t text = ACCEL_BUFFER_INIT;
  const accel_op_t* op = NULL;
  int64_t rows = 2;
  const int refused =
      REFUSED(accel_state_create(NULL, &state)) &&
      REFUSED(accel_tensor_full(&rows, 1, 1.0, ACCEL_DTYPE_FLOAT32, &kCpu, &other)) &&
      REFUSED(accel_tensor_clone(tensor, &other)) && REFUSED(accel_op_find("aten::add", "Tensor", &op)) &&
      REFUSED(accel_all_reduce(ranks[0].state, tensor, ACCEL_REDUCE_SUM)) &&
      REFUSED(accel_wait_for_everyone(ranks[1].state)) && REFUSED(accel_module_linear(2, 2, 1, &layer)) &&
      REFUSED(accel_module_call(model, &list, 1, &out)) && REFUSED(accel_optimizer_step(optimizer)) &&
      REFUSED(accel_value_push(&list, &out)) && REFUSED(accel_save(&list, NULL, "unused", NULL)) &&
      REFUSED(accel_build_info(&text)) && REFUSED(accel_error_take(&error)) && REFUSED(accel_scope_end(scope)) &&
      REFUSED_VALUE(accel_process_index(ranks[0].state), -1) && REFUSED_VALUE(accel_backend(ranks[0].state), NULL) &&
      REFUSED_VALUE(accel_tensor_retain(tensor), NULL);
  return refused ? 0 : 1;
}

static void release_everything(void) {
  accel_optimizer_release(optimizer);
  accel_module_release(model);
  accel_value_dispose(&list);
  accel_tensor_release(tensor);
  close_pair(ranks);
}

static int release_and_exit(void) {
  release_everything();
  exit(0); /* with all that is registered for the end of a process */
}

static int fork_again(void) { return run_in_child(use_everything); }

static int execute_this_program(void) {
  execl("/proc/self/exe", "fork", "--work", (char*)NULL);
  return 1;
}

static void test_a_child_works_if_its_parent_did_not(void** state) {
  (void)state;
  assert_int_equal(run_in_child(do_everyday_work), 0);
}

static void test_a_child_is_refused_if_its_parent_worked(void** state) {
  const int64_t rows = 2;
  (void)state;
  assert_int_equal(open_pair(ranks), 0);
  assert_int_equal(accel_tensor_full(&rows, 1, 1.0, ACCEL_DTYPE_FLOAT32, &kCpu, &tensor), ACCEL_OK);
  assert_int_equal(accel_module_linear(2, 2, 1, &model), ACCEL_OK);
  assert_int_equal(accel_optimizer_adamw(model, NULL, &optimizer), ACCEL_OK);
  assert_int_equal(accel_value_list(NULL, 0, &list), ACCEL_OK);
  assert_int_equal(accel_no_grad_begin(&scope), ACCEL_OK);
  assert_int_equal(run_in_child(use_everything), 0);
  assert_int_equal(run_in_child(fork_again), 0);
}

static void test_a_child_can_release_and_exit(void** state) {
  (void)state;
  assert_int_equal(run_in_child(release_and_exit), 0);
}

static void test_a_child_can_execute_a_program(void** state) {
  (void)state;
  assert_int_equal(run_in_child(execute_this_program), 0);
}

static void test_the_parent_goes_on(void** state) {
  (void)state;
  assert_int_equal(accel_scope_end(scope), ACCEL_OK);
  assert_int_equal(add_on_pair(ranks), 0);
  release_everything();
  assert_int_equal(accel_debug_live_objects(), 0);
  assert_int_equal(do_everyday_work(), 0);
}

int main(int count, char** arguments) {
  /* In this order: each one begins with what the one before has left. */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_child_works_if_its_parent_did_not),
      cmocka_unit_test(test_a_child_is_refused_if_its_parent_worked),
      cmocka_unit_test(test_a_child_can_release_and_exit),
      cmocka_unit_test(test_a_child_can_execute_a_program),
      cmocka_unit_test(test_the_parent_goes_on),
  };
  if (count == 2 && strcmp(arguments[1], "--work") == 0) return do_everyday_work();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
