/* SPDX-License-Identifier: Apache-2.0 */
/* Section 8: an optimizer and a scheduler that the application implements: a count of its updates stands for them. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include "folder_fixture.h"

struct counts {
  accel_tensor_t *parameter; /* borrowed: what a step changes */
  int64_t steps, metrics, counted, cleared, destroyed;
  accel_status_t answer; /* of the next steps */
};

static accel_status_t save(accel_value_t *out_state, void *user_data) {
  *out_state = accel_arg_int(((struct counts *)user_data)->steps);
  return ACCEL_OK;
}

static accel_status_t load(const accel_value_t *state, void *user_data) {
  ((struct counts *)user_data)->steps = state->as.integer;
  return ACCEL_OK;
}

static accel_status_t step(void *user_data) {
  struct counts *const counts = user_data;
  counts->steps += counts->answer == ACCEL_OK;
  if (counts->answer < 0) accel_error_set(counts->answer, "the application's optimizer is broken");
  return counts->answer;
}

static accel_status_t zero_grad(int32_t set_to_none, void *user_data) {
  ((struct counts *)user_data)->cleared += set_to_none == 1;
  return ACCEL_OK;
}

static accel_status_t step_schedule(double metric, void *user_data) {
  struct counts *const counts = user_data;
  counts->steps++;
  counts->metrics += metric == 0.5;
  return ACCEL_OK;
}

static accel_status_t count_step(void *user_data) {
  ((struct counts *)user_data)->counted++;
  return ACCEL_OK;
}

static void count_destroy(void *user_data) { ((struct counts *)user_data)->destroyed++; }

struct setting {
  accel_state_t *state;
  accel_module_t *model, *prepared_model;
  accel_optimizer_t *optimizer, *prepared;
  accel_scheduler_t *scheduler, *prepared_scheduler;
  struct counts steps, schedule;
};

static void begin(struct setting *s, int64_t accumulation) {
  accel_state_options_t options = one_process_options();
  accel_tensor_t *weight = NULL;
  memset(s, 0, sizeof *s);
  options.gradient_accumulation_steps = accumulation;
  options.adjust_scheduler = 1;
  assert_ok(accel_state_create(&options, &s->state));
  assert_ok(accel_module_linear(2, 1, 0, &s->model));
  assert_ok(accel_prepare_model(s->state, s->model, NULL, &s->prepared_model));
  assert_ok(accel_optimizer_from_callbacks(save, load, step, zero_grad, &s->steps, count_destroy, &s->optimizer));
  assert_ok(accel_module_tensor(s->model, "weight", &weight));
  assert_ok(accel_optimizer_add_group(s->optimizer, &weight, 1, 0.25, ACCEL_UNSET_DOUBLE));
  accel_tensor_release(weight);
  assert_ok(accel_prepare_optimizer(s->state, s->optimizer, &s->prepared));
  assert_ok(accel_scheduler_from_callbacks(s->prepared, save, load, step_schedule, count_step, &s->schedule,
                                           count_destroy, &s->scheduler));
  assert_ok(accel_prepare_scheduler(s->state, s->scheduler, &s->prepared_scheduler));
}

static void end(struct setting *s) {
  accel_scheduler_release(s->prepared_scheduler);
  accel_scheduler_release(s->scheduler);
  accel_optimizer_release(s->prepared);
  accel_optimizer_release(s->optimizer);
  accel_module_release(s->prepared_model);
  accel_module_release(s->model);
  accel_state_release(s->state);
  assert_int_equal(s->steps.destroyed, 1);
  assert_int_equal(s->schedule.destroyed, 1);
}

static void step_when_gradients_are_complete(void **unused) {
  struct setting s;
  accel_scope_t *scope = NULL;
  double lr = 0;
  int i;
  (void)unused;
  begin(&s, 2);
  for (i = 0; i < 4; i++) {
    assert_ok(accel_accumulate_begin(s.state, &s.prepared_model, 1, &scope));
    assert_status(accel_optimizer_step(s.prepared), i % 2 == 0 ? ACCEL_STEP_SKIPPED : ACCEL_OK);
    assert_ok(accel_scheduler_step(s.prepared_scheduler));
    assert_ok(accel_optimizer_zero_grad(s.prepared, 1));
    assert_ok(accel_scope_end(scope));
  }
  assert_int_equal(s.steps.steps, 2);
  assert_int_equal(s.steps.cleared, 2);
  assert_int_equal(s.schedule.steps, 2);
  assert_int_equal(s.schedule.counted, 2);
  assert_ok(accel_scheduler_step_metric(s.prepared_scheduler, 0.5));
  assert_int_equal(s.schedule.metrics, 1);
  assert_int_equal(accel_optimizer_num_groups(s.prepared), 1);
  assert_ok(accel_optimizer_lr(s.prepared, 0, &lr));
  assert_true(lr == 0.25);
  end(&s);
}

static void a_skipped_step_holds_the_schedule(void **unused) {
  struct setting s;
  (void)unused;
  begin(&s, 1);
  s.steps.answer = ACCEL_STEP_SKIPPED;
  assert_status(accel_optimizer_step(s.prepared), ACCEL_STEP_SKIPPED);
  assert_int_equal(accel_optimizer_step_was_skipped(s.prepared), 1);
  assert_ok(accel_scheduler_step(s.prepared_scheduler));
  assert_int_equal(s.schedule.steps, 0);
  s.steps.answer = ACCEL_ERROR_USER;
  assert_fails(accel_optimizer_step(s.prepared), ACCEL_ERROR_USER, "the application's optimizer is broken");
  s.steps.answer = ACCEL_OK;
  assert_ok(accel_optimizer_step(s.prepared));
  assert_ok(accel_scheduler_step(s.prepared_scheduler));
  assert_int_equal(s.schedule.steps, 1);
  end(&s);
}

static void saved_with_the_training_state(void **unused) {
  struct setting s;
  (void)unused;
  begin(&s, 1);
  s.steps.steps = 7;
  s.schedule.steps = 9;
  assert_ok(accel_save_state(s.state, path_of("state"), NULL));
  s.steps.steps = s.schedule.steps = 0;
  assert_ok(accel_load_state(s.state, path_of("state"), NULL));
  assert_int_equal(s.steps.steps, 7);
  assert_int_equal(s.schedule.steps, 9);
  end(&s);
}

static void wrong_arguments_are_refused(void **unused) {
  struct counts counts = {0};
  accel_optimizer_t *optimizer = NULL;
  accel_scheduler_t *scheduler = NULL;
  accel_tensor_t *rates = NULL;
  double lr = 0;
  (void)unused;
  assert_fails(accel_optimizer_from_callbacks(save, load, NULL, zero_grad, &counts, count_destroy, &optimizer),
               ACCEL_ERROR_INVALID_ARGUMENT, "expected four functions");
  assert_int_equal(counts.destroyed, 1);
  assert_ok(accel_optimizer_from_callbacks(save, load, step, zero_grad, &counts, count_destroy, &optimizer));
  assert_fails(accel_scheduler_from_callbacks(optimizer, save, NULL, step_schedule, count_step, &counts, count_destroy,
                                              &scheduler),
               ACCEL_ERROR_INVALID_ARGUMENT, "expected four functions");
  assert_int_equal(counts.destroyed, 2);
  assert_fails(accel_optimizer_lr(optimizer, 0, &lr), ACCEL_ERROR_NOT_FOUND, "parameter group 0 is not there");
  assert_ok(accel_scheduler_from_callbacks(optimizer, save, load, step_schedule, count_step, &counts, count_destroy,
                                           &scheduler));
  assert_fails(accel_scheduler_curve(scheduler, 3, &rates), ACCEL_ERROR_UNSUPPORTED, "cannot be copied");
  accel_scheduler_release(scheduler);
  accel_optimizer_release(optimizer);
  assert_int_equal(counts.destroyed, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(step_when_gradients_are_complete),
      capi_unit_test(a_skipped_step_holds_the_schedule),
      cmocka_unit_test_setup_teardown(saved_with_the_training_state, make_folder, remove_folder_and_files),
      capi_unit_test(wrong_arguments_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
