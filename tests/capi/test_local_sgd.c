/* SPDX-License-Identifier: Apache-2.0 */
/* Section 10: local SGD and the hooks that exchange gradients, with one process. tests/distributed has them with
 * several. */
#include "capi_test.h"

static int destroyed;
static void count_destroy(void *user_data) {
  (void)user_data;
  destroyed++;
}

static accel_status_t never_called(accel_tensor_t *buffer, int64_t bucket, int32_t is_last, void *user_data) {
  (void)buffer, (void)bucket, (void)is_last, (void)user_data;
  return ACCEL_ERROR_USER;
}

struct setting {
  accel_state_t *state;
  accel_module_t *model, *prepared;
};

static void begin(struct setting *s) {
  s->state = new_state();
  assert_ok(accel_module_linear(2, 2, 1, &s->model));
  assert_ok(accel_prepare_model(s->state, s->model, NULL, &s->prepared));
}

static void end(struct setting *s) {
  accel_module_release(s->prepared);
  accel_module_release(s->model);
  accel_state_release(s->state);
}

static void one_process_averages_nothing(void **unused) {
  struct setting s;
  accel_scope_t *scope = NULL;
  accel_value_t saved = ACCEL_VALUE_INIT;
  int32_t averaged = -1;
  int i;
  (void)unused;
  begin(&s);
  assert_ok(accel_local_sgd_begin(s.state, s.prepared, 1, NULL, &scope));
  for (i = 0; i < 3; i++) {
    assert_ok(accel_local_sgd_step(scope, &averaged));
    assert_int_equal(averaged, 0);
  }
  assert_ok(accel_local_sgd_step(scope, NULL));
  assert_ok(accel_local_sgd_state_dict(scope, &saved));
  assert_ok(accel_local_sgd_load_state_dict(scope, &saved));
  accel_value_dispose(&saved);
  assert_ok(accel_scope_end(scope));
  destroyed = 0;
  assert_ok(accel_register_comm_hook(s.state, s.prepared, never_called, NULL, count_destroy));
  assert_int_equal(destroyed, 1);
  end(&s);
}

static void wrong_arguments_are_refused(void **unused) {
  struct setting s;
  accel_scope_t *scope = NULL;
  accel_module_t *again = NULL;
  accel_value_t value = ACCEL_VALUE_INIT;
  accel_local_sgd_options_t options = ACCEL_LOCAL_SGD_OPTIONS_INIT;
  accel_ddp_options_t ddp = ACCEL_DDP_OPTIONS_INIT;
  (void)unused;
  begin(&s);
  assert_fails(accel_local_sgd_begin(s.state, s.model, 1, NULL, &scope), ACCEL_ERROR_INVALID_ARGUMENT, "not prepared");
  assert_fails(accel_local_sgd_begin(s.state, s.prepared, 0, NULL, &scope), ACCEL_ERROR_INVALID_ARGUMENT,
               "local_sgd_steps is 0");
  options.start_step = -1;
  assert_fails(accel_local_sgd_begin(s.state, s.prepared, 1, &options, &scope), ACCEL_ERROR_INVALID_ARGUMENT,
               "start_step is -1");
  options.start_step = ACCEL_UNSET_INT64;
  options.outer_momentum = 0.9;
  assert_fails(accel_local_sgd_begin(s.state, s.prepared, 1, &options, &scope), ACCEL_ERROR_INVALID_ARGUMENT,
               "without outer_lr");
  options.outer_lr = -1;
  assert_fails(accel_local_sgd_begin(s.state, s.prepared, 1, &options, &scope), ACCEL_ERROR_INVALID_ARGUMENT,
               "lr is -1");
  assert_null(scope);
  assert_ok(accel_no_sync_begin(s.state, s.prepared, &scope));
  assert_fails(accel_local_sgd_step(scope, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "not one of local SGD");
  assert_fails(accel_local_sgd_state_dict(scope, &value), ACCEL_ERROR_INVALID_ARGUMENT, "not one of local SGD");
  assert_ok(accel_scope_end(scope));
  destroyed = 0;
  assert_fails(accel_register_comm_hook(s.state, s.model, never_called, NULL, count_destroy),
               ACCEL_ERROR_INVALID_ARGUMENT, "not prepared");
  assert_fails(accel_register_comm_hook(s.state, s.prepared, NULL, NULL, count_destroy), ACCEL_ERROR_INVALID_ARGUMENT,
               "hook is NULL");
  assert_int_equal(destroyed, 2);
  accel_prepare_model_options_t preparation = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  preparation.ddp = &ddp;
  ddp.comm_hook = 5;
  assert_fails(accel_prepare_model(s.state, s.model, &preparation, &again), ACCEL_ERROR_INVALID_ARGUMENT,
               "options.ddp.comm_hook is 5");
  ddp.comm_hook = ACCEL_UNSET;
  ddp.comm_wrapper = ACCEL_DDP_COMM_HOOK_POWER_SGD;
  assert_fails(accel_prepare_model(s.state, s.model, &preparation, &again), ACCEL_ERROR_INVALID_ARGUMENT,
               "options.ddp.comm_wrapper is 3");
  assert_null(again);
  end(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(one_process_averages_nothing),
      capi_unit_test(wrong_arguments_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
