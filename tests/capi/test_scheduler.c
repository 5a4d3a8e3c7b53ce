/* SPDX-License-Identifier: Apache-2.0 */
/* Section 8: schedulers of learning rates. */
#include "capi_test.h"

#include <math.h>

static void assert_near(double number, double expected) {
  if (fabs(number - expected) <= 1e-9) return;
  fail_msg("%.9g is not %.9g", number, expected);
}

typedef struct {
  int calls;
  int destroyed;
} lambda_record_t;

static double halve(int64_t step, void *user_data) {
  double factor = 1;
  ((lambda_record_t *)user_data)->calls++;
  while (step-- > 0) factor /= 2;
  return factor;
}

static void count_destroy(void *user_data) { ((lambda_record_t *)user_data)->destroyed++; }

/* One group with rate 1. */
static accel_optimizer_t *new_optimizer(accel_tensor_t **leaf) {
  accel_optimizer_t *optimizer = NULL;
  const float one = 1;
  const int64_t shape[] = {1};
  *leaf = new_test_tensor(&one, shape, 1, ACCEL_DTYPE_FLOAT32);
  assert_ok(accel_optimizer_sgd(NULL, NULL, &optimizer));
  assert_ok(accel_optimizer_add_group(optimizer, leaf, 1, 1.0, 0));
  return optimizer;
}

static void lambda_drives_the_rate(void **state) {
  (void)state;
  lambda_record_t record = {0, 0};
  accel_tensor_t *leaf = NULL;
  accel_optimizer_t *optimizer = new_optimizer(&leaf);
  accel_scheduler_t *scheduler = NULL;
  double lr = 0;
  assert_ok(accel_scheduler_lambda(optimizer, halve, &record, count_destroy, &scheduler));
  assert_ok(accel_scheduler_step(scheduler));
  assert_ok(accel_scheduler_step(scheduler));
  assert_ok(accel_optimizer_lr(optimizer, 0, &lr));
  assert_true(lr == 0.25);
  assert_ok(accel_scheduler_last_lr(scheduler, 0, &lr));
  assert_true(lr == 0.25);
  assert_int_equal(record.calls, 3);
  assert_int_equal(record.destroyed, 0);
  accel_scheduler_release(accel_scheduler_retain(scheduler));
  accel_scheduler_release(scheduler);
  accel_scheduler_release(NULL);
  assert_int_equal(record.destroyed, 1);

  assert_fails(accel_scheduler_lambda(optimizer, NULL, &record, count_destroy, &scheduler),
               ACCEL_ERROR_INVALID_ARGUMENT, "lambda is NULL");
  assert_int_equal(record.destroyed, 2);
  assert_fails(accel_scheduler_lambda(NULL, halve, &record, count_destroy, &scheduler), ACCEL_ERROR_INVALID_ARGUMENT,
               "optimizer is NULL");
  assert_int_equal(record.destroyed, 3);
  accel_optimizer_release(optimizer);
  accel_tensor_release(leaf);
}

static double by_group(int64_t step, int64_t group, void *user_data) {
  (void)user_data;
  return group == 0 ? 1.0 / (double)(1 + step) : 3;
}

static void each_group_has_its_rate(void **state) {
  (void)state;
  accel_tensor_t *leaf = NULL, *other = NULL;
  accel_optimizer_t *optimizer = new_optimizer(&leaf);
  accel_scheduler_t *scheduler = NULL;
  lambda_record_t record = {0, 0};
  double lr = 0;
  assert_ok(accel_tensor_detach(leaf, &other));
  assert_ok(accel_tensor_set_requires_grad(other, 1));
  assert_ok(accel_optimizer_add_group(optimizer, &other, 1, 2.0, 0));
  assert_ok(accel_scheduler_group_lambda(optimizer, by_group, &record, count_destroy, &scheduler));
  assert_ok(accel_scheduler_step(scheduler));
  assert_ok(accel_scheduler_last_lr(scheduler, 0, &lr));
  assert_true(lr == 0.5);
  assert_ok(accel_scheduler_last_lr(scheduler, 1, &lr));
  assert_true(lr == 6);
  accel_scheduler_release(scheduler);
  assert_int_equal(record.destroyed, 1);
  accel_optimizer_release(optimizer);
  accel_tensor_release(other);
  accel_tensor_release(leaf);
}

static void schedules(void **state) {
  (void)state;
  accel_tensor_t *leaf = NULL;
  accel_optimizer_t *optimizer = new_optimizer(&leaf);
  accel_scheduler_t *scheduler = NULL;
  double lr = -1;
  assert_ok(accel_scheduler_linear_warmup(optimizer, 2, 4, &scheduler));
  const double warmup[] = {0, 0.5, 1, 0.5, 0, 0};
  for (size_t i = 0; i < sizeof warmup / sizeof *warmup; i++) {
    assert_ok(accel_optimizer_lr(optimizer, 0, &lr));
    assert_near(lr, warmup[i]);
    assert_ok(accel_scheduler_step(scheduler));
  }
  accel_scheduler_release(scheduler);

  assert_ok(accel_scheduler_cosine(optimizer, 0, 2, 0.1, &scheduler));
  const double cosine[] = {1, 0.55, 0.1, 0.1};
  for (size_t i = 0; i < sizeof cosine / sizeof *cosine; i++) {
    assert_ok(accel_scheduler_last_lr(scheduler, 0, &lr));
    assert_near(lr, cosine[i]);
    assert_ok(accel_scheduler_step(scheduler));
  }
  accel_scheduler_release(scheduler);

  assert_ok(accel_scheduler_step_lr(optimizer, 2, 0.1, &scheduler)); /* from the present rate, 0.1 */
  for (int i = 0; i < 3; i++) assert_ok(accel_scheduler_step(scheduler));
  assert_ok(accel_optimizer_lr(optimizer, 0, &lr));
  assert_near(lr, 0.01);
  assert_fails(accel_scheduler_last_lr(scheduler, 1, &lr), ACCEL_ERROR_NOT_FOUND, "group 1");
  assert_fails(accel_scheduler_last_lr(scheduler, 0, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  accel_scheduler_release(scheduler);

  scheduler = NULL;
  assert_fails(accel_scheduler_step_lr(optimizer, 0, 0.1, &scheduler), ACCEL_ERROR_INVALID_ARGUMENT, "step_size is 0");
  assert_fails(accel_scheduler_cosine(optimizer, 5, 4, 0, &scheduler), ACCEL_ERROR_INVALID_ARGUMENT,
               "warmup_steps is 5");
  assert_fails(accel_scheduler_linear_warmup(optimizer, -1, 4, &scheduler), ACCEL_ERROR_INVALID_ARGUMENT,
               "warmup_steps is -1");
  assert_fails(accel_scheduler_linear_warmup(optimizer, 1, 4, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_null(scheduler);
  accel_optimizer_release(optimizer);
  accel_tensor_release(leaf);
}

static void scheduler_state_resumes(void **state) {
  (void)state;
  accel_tensor_t *leaf = NULL, *other_leaf = NULL;
  accel_optimizer_t *optimizer = new_optimizer(&leaf), *other = new_optimizer(&other_leaf);
  accel_scheduler_t *scheduler = NULL, *resumed = NULL;
  accel_value_t dict = ACCEL_VALUE_INIT;
  double lr = 0;
  assert_ok(accel_scheduler_step_lr(optimizer, 1, 0.5, &scheduler));
  assert_ok(accel_scheduler_step(scheduler));
  assert_ok(accel_scheduler_step(scheduler));
  assert_ok(accel_scheduler_state_dict(scheduler, &dict));
  assert_int_equal(accel_value_get(&dict, "last_epoch")->as.integer, 2);
  assert_ok(accel_scheduler_step_lr(other, 1, 0.5, &resumed));
  assert_ok(accel_scheduler_load_state_dict(resumed, &dict));
  assert_ok(accel_scheduler_step(resumed));
  assert_ok(accel_optimizer_lr(other, 0, &lr));
  assert_true(lr == 0.125);
  const accel_value_t number = accel_arg_int(3);
  assert_fails(accel_scheduler_load_state_dict(resumed, &number), ACCEL_ERROR_INVALID_ARGUMENT, "expected a map");
  assert_fails(accel_scheduler_load_state_dict(resumed, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "state_dict is NULL");
  assert_fails(accel_scheduler_state_dict(resumed, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  accel_value_dispose(&dict);
  accel_scheduler_release(scheduler);
  accel_scheduler_release(resumed);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(other);
  accel_tensor_release(leaf);
  accel_tensor_release(other_leaf);
}

/* What the functions make, by the rates of the first steps; numbers of torch.optim.lr_scheduler. */
static void assert_curve(accel_scheduler_t *scheduler, const double *expected, size_t count) {
  accel_tensor_t *curve = NULL;
  void *data = NULL;
  assert_ok(accel_scheduler_curve(scheduler, (int64_t)count, &curve));
  accel_dtype_t dtype = 0;
  int64_t elements = 0;
  assert_ok(accel_tensor_dtype(curve, &dtype));
  assert_ok(accel_tensor_numel(curve, &elements));
  assert_int_equal(dtype, ACCEL_DTYPE_FLOAT64);
  assert_int_equal(elements, count);
  assert_ok(accel_tensor_data(curve, &data));
  for (size_t i = 0; i < count; i++) assert_near(((const double *)data)[i], expected[i]);
  accel_tensor_release(curve);
  accel_scheduler_release(scheduler);
}

#define assert_schedule(call, ...)                                         \
  do {                                                                     \
    const double expected_[] = {__VA_ARGS__};                              \
    accel_tensor_t *leaf = NULL;                                           \
    accel_optimizer_t *optimizer = new_optimizer(&leaf);                   \
    accel_scheduler_t *scheduler = NULL;                                   \
    assert_ok(call);                                                       \
    assert_curve(scheduler, expected_, sizeof expected_ / sizeof(double)); \
    accel_optimizer_release(optimizer);                                    \
    accel_tensor_release(leaf);                                            \
  } while (0)

static void schedules_of_torch(void **state) {
  (void)state;
  const int64_t milestones[] = {1, 3};
  assert_schedule(accel_scheduler_multi_step(optimizer, milestones, 2, 0.5, &scheduler), 1, 0.5, 0.5, 0.25);
  assert_schedule(accel_scheduler_constant(optimizer, 0.25, 2, &scheduler), 0.25, 0.25, 1, 1);
  assert_schedule(accel_scheduler_linear(optimizer, 0.5, 1, 2, &scheduler), 0.5, 0.75, 1, 1);
  assert_schedule(accel_scheduler_exponential(optimizer, 0.5, &scheduler), 1, 0.5, 0.25);
  assert_schedule(accel_scheduler_polynomial(optimizer, 2, 2, &scheduler), 1, 0.25, 0, 0);
  assert_schedule(accel_scheduler_cosine_annealing(optimizer, 2, 0.5, &scheduler), 1, 0.75, 0.5, 0.75, 1);
  assert_schedule(accel_scheduler_cosine_warm_restarts(optimizer, 2, 1, 0, &scheduler), 1, 0.5, 1, 0.5);
  assert_schedule(accel_scheduler_cosine_hard_restarts(optimizer, 0, 4, 2, &scheduler), 1, 0.5, 1, 0.5, 0);
  assert_schedule(accel_scheduler_constant_with_warmup(optimizer, 2, &scheduler), 0, 0.5, 1, 1);
  assert_schedule(accel_scheduler_inverse_sqrt(optimizer, 1, 4, &scheduler), 0, 1, 1 / sqrt(1.25), 1 / sqrt(1.5));
  assert_schedule(accel_scheduler_inverse_sqrt(optimizer, 2, ACCEL_UNSET_INT64, &scheduler), 0, 0.5, 1, 1 / sqrt(1.5));
}

static void schedules_with_options(void **state) {
  (void)state;
  accel_one_cycle_options_t one_cycle = ACCEL_ONE_CYCLE_OPTIONS_INIT, one_cycle_made;
  accel_cyclic_options_t cyclic = ACCEL_CYCLIC_OPTIONS_INIT, cyclic_made;
  accel_plateau_options_t plateau = ACCEL_PLATEAU_OPTIONS_INIT, plateau_made;
  accel_tensor_t *leaf = NULL;
  accel_optimizer_t *optimizer = new_optimizer(&leaf);
  accel_scheduler_t *scheduler = NULL;
  double lr = 0;
  memset(&one_cycle_made, 0, sizeof one_cycle_made);
  memset(&cyclic_made, 0, sizeof cyclic_made);
  memset(&plateau_made, 0, sizeof plateau_made);
  assert_ok(accel_options_init(ACCEL_OPTIONS_ONE_CYCLE, &one_cycle_made, sizeof one_cycle_made));
  assert_ok(accel_options_init(ACCEL_OPTIONS_CYCLIC, &cyclic_made, sizeof cyclic_made));
  assert_ok(accel_options_init(ACCEL_OPTIONS_PLATEAU, &plateau_made, sizeof plateau_made));
  assert_memory_equal(&one_cycle, &one_cycle_made, sizeof one_cycle);
  assert_memory_equal(&cyclic, &cyclic_made, sizeof cyclic);
  assert_memory_equal(&plateau, &plateau_made, sizeof plateau);

  one_cycle.pct_start = 0.5;
  one_cycle.div_factor = 4;
  one_cycle.final_div_factor = 2;
  one_cycle.anneal_strategy = ACCEL_ANNEAL_LINEAR;
  assert_ok(accel_scheduler_one_cycle(optimizer, 1, 6, &one_cycle, &scheduler));
  const double cycle[] = {0.25, 0.625, 1, 1 - 0.875 / 3, 1 - 1.75 / 3, 0.125};
  assert_curve(scheduler, cycle, sizeof cycle / sizeof *cycle);

  cyclic.step_size_up = 2;
  assert_ok(accel_scheduler_cyclic(optimizer, 0.5, 1, &cyclic, &scheduler));
  const double waves[] = {0.5, 0.75, 1, 0.75, 0.5, 0.75};
  assert_curve(scheduler, waves, sizeof waves / sizeof *waves);

  assert_ok(accel_optimizer_set_lr(optimizer, 0, 1));
  plateau.patience = 0;
  plateau.factor = 0.5;
  plateau.mode = ACCEL_METRIC_MAX;
  assert_ok(accel_scheduler_plateau(optimizer, &plateau, &scheduler));
  assert_ok(accel_scheduler_step_metric(scheduler, 1));
  assert_ok(accel_scheduler_step_metric(scheduler, 2));
  assert_ok(accel_optimizer_lr(optimizer, 0, &lr));
  assert_near(lr, 1);
  assert_ok(accel_scheduler_step_metric(scheduler, 2));
  assert_ok(accel_scheduler_last_lr(scheduler, 0, &lr));
  assert_near(lr, 0.5);
  assert_fails(accel_scheduler_step(scheduler), ACCEL_ERROR_INVALID_STATE, "without a metric");
  accel_scheduler_release(scheduler);

  scheduler = NULL;
  one_cycle.anneal_strategy = 2;
  assert_fails(accel_scheduler_one_cycle(optimizer, 1, 6, &one_cycle, &scheduler), ACCEL_ERROR_INVALID_ARGUMENT,
               "options.anneal_strategy is 2");
  cyclic.struct_size = 3;
  assert_fails(accel_scheduler_cyclic(optimizer, 0.5, 1, &cyclic, &scheduler), ACCEL_ERROR_INVALID_ARGUMENT,
               "options.struct_size is 3");
  plateau.cooldown = -1;
  assert_fails(accel_scheduler_plateau(optimizer, &plateau, &scheduler), ACCEL_ERROR_INVALID_ARGUMENT,
               "cooldown is -1");
  assert_null(scheduler);
  accel_optimizer_release(optimizer);
  accel_tensor_release(leaf);
}

static void composed_schedules(void **state) {
  (void)state;
  accel_tensor_t *leaf = NULL, *other_leaf = NULL;
  accel_optimizer_t *optimizer = new_optimizer(&leaf), *other = new_optimizer(&other_leaf);
  accel_scheduler_t *parts[2] = {NULL, NULL}, *scheduler = NULL;
  const int64_t milestone = 2;
  assert_ok(accel_scheduler_constant(optimizer, 0.5, 2, &parts[0]));
  assert_ok(accel_scheduler_exponential(optimizer, 0.5, &parts[1]));
  assert_ok(accel_scheduler_chained(parts, 2, &scheduler));
  const double chained[] = {0.5, 0.25, 0.25, 0.125};
  assert_curve(scheduler, chained, sizeof chained / sizeof *chained);
  assert_ok(accel_scheduler_sequential(parts, 2, &milestone, 1, &scheduler));
  const double sequential[] = {0.5, 0.5, 1, 0.5, 0.25};
  assert_curve(scheduler, sequential, sizeof sequential / sizeof *sequential);

  scheduler = NULL;
  assert_fails(accel_scheduler_sequential(parts, 2, &milestone, 0, &scheduler), ACCEL_ERROR_INVALID_ARGUMENT,
               "0 milestones");
  assert_fails(accel_scheduler_chained(parts, 0, &scheduler), ACCEL_ERROR_INVALID_ARGUMENT, "no scheduler");
  accel_scheduler_release(parts[1]);
  assert_ok(accel_scheduler_exponential(other, 0.5, &parts[1]));
  assert_fails(accel_scheduler_chained(parts, 2, &scheduler), ACCEL_ERROR_INVALID_ARGUMENT, "another optimizer");
  accel_scheduler_release(parts[1]);
  parts[1] = NULL;
  assert_fails(accel_scheduler_chained(parts, 2, &scheduler), ACCEL_ERROR_INVALID_ARGUMENT, "schedulers[i] is NULL");
  assert_null(scheduler);
  accel_scheduler_release(parts[0]);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(other);
  accel_tensor_release(leaf);
  accel_tensor_release(other_leaf);
}

/* Eight ranks would move it eight steps; one rank shows the option, and that the curve follows it. */
static void steps_of_a_prepared_scheduler(void **unused) {
  (void)unused;
  accel_state_options_t options = one_process_options();
  accel_state_t *state = NULL;
  accel_tensor_t *leaf = NULL;
  accel_optimizer_t *optimizer = new_optimizer(&leaf);
  accel_scheduler_t *plain = NULL, *prepared = NULL, *twice = NULL;
  accel_buffer_t text = ACCEL_BUFFER_INIT;
  options.scheduler_steps = 2;
  assert_fails(accel_state_create(&options, &state), ACCEL_ERROR_INVALID_ARGUMENT, "options.scheduler_steps is 2");
  options.scheduler_steps = ACCEL_SCHEDULER_STEPS_PER_UPDATE;
  assert_ok(accel_state_create(&options, &state));
  assert_ok(accel_state_describe(state, &text));
  assert_non_null(strstr(text.data, "scheduler_steps = per_update (call)"));
  accel_buffer_dispose(&text);
  assert_ok(accel_scheduler_exponential(optimizer, 0.5, &plain));
  assert_ok(accel_prepare_scheduler(state, plain, &prepared));
  assert_fails(accel_prepare_scheduler(state, prepared, &twice), ACCEL_ERROR_INVALID_STATE, "prepared already");
  assert_fails(accel_scheduler_chained(&prepared, 1, &twice), ACCEL_ERROR_INVALID_ARGUMENT, "is prepared");
  assert_ok(accel_scheduler_step(prepared));
  const double curve[] = {0.5, 0.25};
  assert_curve(prepared, curve, 2);
  accel_scheduler_release(plain);
  accel_optimizer_release(optimizer);
  accel_tensor_release(leaf);
  accel_state_release(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(lambda_drives_the_rate),
      capi_unit_test(each_group_has_its_rate),
      capi_unit_test(schedules),
      capi_unit_test(schedules_of_torch),
      capi_unit_test(schedules_with_options),
      capi_unit_test(composed_schedules),
      capi_unit_test(scheduler_state_resumes),
      capi_unit_test(steps_of_a_prepared_scheduler),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
