/* SPDX-License-Identifier: Apache-2.0 */
/* Section 8: the kinds of optimizers, their settings and precisions, the program's own update, LOMO, closures. */
#include "optimizer_fixture.h"

#define N_ELEMENTS 6

/* One step from 1 with the gradient 1, by the defaults and with a learning rate of 0.5. Ends `optimizer`. */
static void check_step(accel_module_t *module, accel_tensor_t *weight, accel_optimizer_t *optimizer, double expected) {
  accel_value_t dict = ACCEL_VALUE_INIT;
  back_propagate(weight);
  assert_ok(accel_optimizer_step(optimizer));
  assert_near(element(weight, 0), expected);
  assert_ok(accel_optimizer_state_dict(optimizer, &dict));
  assert_ok(accel_optimizer_load_state_dict(optimizer, &dict));
  accel_value_dispose(&dict);
  accel_optimizer_release(optimizer);
  accel_module_release(module);
  accel_tensor_release(weight);
}

#define check_kind(kind, options_kind, macro, expected)                                                         \
  do {                                                                                                          \
    accel_##options_kind##_options_t options = macro;                                                           \
    accel_tensor_t *weight = NULL;                                                                              \
    accel_module_t *module = new_model(ACCEL_DTYPE_FLOAT32, &weight);                                           \
    accel_optimizer_t *optimizer = NULL;                                                                        \
    options.lr = 0.5;                                                                                           \
    assert_ok(accel_optimizer_##kind(module, &options, &optimizer));                                            \
    check_step(module, weight, optimizer, expected);                                                            \
    optimizer = NULL;                                                                                           \
    options.lr = -1;                                                                                            \
    assert_fails(accel_optimizer_##kind(NULL, &options, &optimizer), ACCEL_ERROR_INVALID_ARGUMENT, "lr is -1"); \
    assert_null(optimizer);                                                                                     \
  } while (0)

static void each_kind_steps(void **state) {
  (void)state;
  check_kind(adagrad, adagrad, ACCEL_ADAGRAD_OPTIONS_INIT, 0.5);           /* the step is lr g / |g| */
  check_kind(rmsprop, rmsprop, ACCEL_RMSPROP_OPTIONS_INIT, 1 - 0.5 / 0.1); /* a tenth is the root of 1 - alpha */
  check_kind(adamax, adamax, ACCEL_ADAMAX_OPTIONS_INIT, 0.5);
  check_kind(nadam, nadam, ACCEL_NADAM_OPTIONS_INIT, 0.4717741);
  check_kind(radam, radam, ACCEL_RADAM_OPTIONS_INIT, 0.5); /* SGD as long as little is known */
  check_kind(lion, lion, ACCEL_LION_OPTIONS_INIT, 0.5);
  check_kind(lamb, lamb, ACCEL_LAMB_OPTIONS_INIT, 0.5); /* the direction is as long as the parameter */
  check_kind(adafactor, adafactor, ACCEL_ADAFACTOR_OPTIONS_INIT, 0.5);
  check_kind(schedule_free_sgd, schedule_free_sgd, ACCEL_SCHEDULE_FREE_SGD_OPTIONS_INIT, 0.5);
  check_kind(schedule_free_adamw, schedule_free_adamw, ACCEL_SCHEDULE_FREE_ADAMW_OPTIONS_INIT, 0.5);
  check_kind(adamw_8bit, adam, ACCEL_ADAM_OPTIONS_INIT, 0.495); /* after a decay by lr * 0.01 */
}

static void muon_updates_matrices(void **state) {
  (void)state;
  accel_muon_options_t options = ACCEL_MUON_OPTIONS_INIT;
  accel_tensor_t *weight = NULL, *bias = NULL;
  const int64_t shape[] = {2};
  const float numbers[] = {1, 1};
  accel_module_t *module = new_model(ACCEL_DTYPE_FLOAT32, &weight);
  accel_optimizer_t *optimizer = NULL;
  options.adjust_lr_fn = ACCEL_MUON_ADJUST_MATCH_RMS_ADAMW;
  assert_ok(accel_optimizer_muon(module, &options, &optimizer));
  back_propagate(weight);
  assert_ok(accel_optimizer_step(optimizer));
  assert_true(element(weight, 0) < 1);
  bias = new_test_tensor(numbers, shape, 1, ACCEL_DTYPE_FLOAT32);
  assert_fails(accel_optimizer_add_group(optimizer, &bias, 1, 1, 0), ACCEL_ERROR_INVALID_ARGUMENT, "matrices");
  accel_optimizer_release(optimizer);
  optimizer = NULL;
  options.adjust_lr_fn = 2;
  assert_fails(accel_optimizer_muon(NULL, &options, &optimizer), ACCEL_ERROR_INVALID_ARGUMENT, "adjust_lr_fn is 2");
  accel_tensor_release(bias);
  accel_tensor_release(weight);
  accel_module_release(module);
}

static void settings_go_by_name(void **state) {
  (void)state;
  accel_tensor_t *weight = NULL;
  accel_module_t *module = new_model(ACCEL_DTYPE_FLOAT32, &weight);
  accel_optimizer_t *sgd = NULL, *adafactor = NULL;
  double value = 7;
  assert_ok(accel_optimizer_sgd(module, NULL, &sgd));
  assert_ok(accel_optimizer_adafactor(module, NULL, &adafactor));
  assert_ok(accel_optimizer_setting(sgd, 0, "momentum", &value));
  assert_true(value == 0);
  assert_ok(accel_optimizer_set_setting(sgd, 0, "momentum", 0.75));
  assert_ok(accel_optimizer_setting(sgd, 0, "momentum", &value));
  assert_true(value == 0.75);
  assert_ok(accel_optimizer_set_setting(sgd, 0, "weight_decay", 0.5));
  assert_ok(accel_optimizer_setting(adafactor, 0, "eps1", &value));
  assert_true(value == ACCEL_UNSET_DOUBLE);
  assert_ok(accel_optimizer_set_setting(adafactor, 0, "eps1", 1e-6));
  assert_ok(accel_optimizer_set_setting(adafactor, 0, "eps1", ACCEL_UNSET_DOUBLE));

  assert_fails(accel_optimizer_setting(sgd, 0, "beta1", &value), ACCEL_ERROR_NOT_FOUND, "momentum, dampening");
  assert_fails(accel_optimizer_set_setting(sgd, 1, "momentum", 1), ACCEL_ERROR_NOT_FOUND, "group 1");
  assert_fails(accel_optimizer_set_setting(sgd, 0, "nesterov", 2), ACCEL_ERROR_INVALID_ARGUMENT, "nesterov is 2");
  assert_fails(accel_optimizer_set_setting(sgd, 0, "momentum", ACCEL_UNSET_DOUBLE), ACCEL_ERROR_INVALID_ARGUMENT,
               "momentum is nan");
  assert_ok(accel_optimizer_set_setting(sgd, 0, "nesterov", 1));
  assert_fails(accel_optimizer_set_setting(sgd, 0, "momentum", 0), ACCEL_ERROR_INVALID_ARGUMENT, "nesterov");
  assert_ok(accel_optimizer_setting(sgd, 0, "momentum", &value));
  assert_true(value == 0.75);
  accel_optimizer_release(sgd);
  accel_optimizer_release(adafactor);
  accel_module_release(module);
  accel_tensor_release(weight);
}

static void master_weights_keep_small_steps(void **state) {
  (void)state;
  accel_sgd_options_t options = ACCEL_SGD_OPTIONS_INIT;
  accel_tensor_t *weight = NULL;
  accel_module_t *module = new_model(ACCEL_DTYPE_BFLOAT16, &weight);
  accel_optimizer_t *optimizer = NULL;
  accel_value_t dict = ACCEL_VALUE_INIT;
  options.lr = 1.0 / 4096; /* bfloat16 below 1 goes in steps of 1 / 256 */
  assert_ok(accel_optimizer_sgd(module, &options, &optimizer));
  assert_int_equal(accel_optimizer_state_bytes(optimizer), 0);
  assert_ok(accel_optimizer_set_update_precision(optimizer, 0, ACCEL_UPDATE_PRECISION_MASTER_WEIGHTS));
  back_propagate(weight);
  for (int i = 0; i < 16; i++) assert_ok(accel_optimizer_step(optimizer));
  assert_ok(accel_optimizer_state_dict(optimizer, &dict));
  const accel_value_t *const own = state_of_parameter(&dict, 0);
  const accel_value_t *const master = accel_value_get(own, "master_param");
  assert_non_null(master);
  assert_near(element(master->as.tensor, 0), 1 - 16.0 / 4096);
  uint16_t *bits = NULL;
  assert_ok(accel_tensor_data(weight, (void **)(void *)&bits));
  assert_int_equal(*bits, 0x3f7f);                                              /* the number before 1 */
  assert_int_equal(accel_optimizer_state_bytes(optimizer), 4 * N_ELEMENTS + 4); /* and the count of steps */
  assert_ok(accel_optimizer_set_update_precision(optimizer, 0, ACCEL_UPDATE_PRECISION_STOCHASTIC_ROUNDING));
  assert_ok(accel_optimizer_step(optimizer));
  assert_fails(accel_optimizer_set_update_precision(optimizer, 0, 3), ACCEL_ERROR_INVALID_ARGUMENT, "precision is 3");
  assert_fails(accel_optimizer_set_update_precision(optimizer, 1, 0), ACCEL_ERROR_NOT_FOUND, "group 1");
  accel_value_dispose(&dict);
  accel_optimizer_release(optimizer);
  accel_module_release(module);
  accel_tensor_release(weight);
}

typedef struct {
  int64_t latest_step;
  int fails;
  int destroyed;
} own_update_t;

/* weight -= lr * (velocity = velocity + gradient), by the numbers themselves. */
static accel_status_t update(accel_tensor_t *parameter, accel_tensor_t *gradient, const accel_value_t *states,
                             int64_t step, double lr, double weight_decay, void *user_data) {
  own_update_t *const own = user_data;
  void *numbers = NULL, *slopes = NULL, *velocities = NULL;
  own->latest_step = step;
  if (own->fails) {
    accel_error_set(ACCEL_ERROR_USER, "out of velocity");
    return ACCEL_ERROR_USER;
  }
  assert_true(weight_decay == 0.25);
  assert_ok(accel_tensor_data(parameter, &numbers));
  assert_ok(accel_tensor_data(gradient, &slopes));
  assert_ok(accel_tensor_data(accel_value_get(states, "velocity")->as.tensor, &velocities));
  for (int i = 0; i < N_ELEMENTS; i++) {
    ((float *)velocities)[i] += ((const float *)slopes)[i];
    ((float *)numbers)[i] -= (float)lr * ((const float *)velocities)[i];
  }
  return ACCEL_OK;
}

static void count_destroy(void *user_data) { ((own_update_t *)user_data)->destroyed++; }

static void program_updates(void **state) {
  (void)state;
  own_update_t own = {0, 0, 0};
  const char *const names[] = {"velocity"};
  accel_tensor_t *weight = NULL;
  accel_module_t *module = new_model(ACCEL_DTYPE_FLOAT32, &weight);
  accel_optimizer_t *optimizer = NULL;
  accel_value_t dict = ACCEL_VALUE_INIT;
  assert_ok(accel_optimizer_create(module, names, 1, 0.5, 0.25, update, &own, count_destroy, &optimizer));
  back_propagate(weight);
  assert_ok(accel_optimizer_step(optimizer));
  assert_ok(accel_optimizer_step(optimizer));
  assert_near(element(weight, 0), 1 - 0.5 - 1);
  assert_int_equal(own.latest_step, 2);
  assert_ok(accel_optimizer_state_dict(optimizer, &dict));
  const accel_value_t *const kept = state_of_parameter(&dict, 0);
  assert_near(element(accel_value_get(kept, "velocity")->as.tensor, 0), 2);
  accel_value_dispose(&dict);
  own.fails = 1;
  assert_fails(accel_optimizer_step(optimizer), ACCEL_ERROR_USER, "out of velocity");
  assert_near(element(weight, 0), -0.5);
  assert_int_equal(own.destroyed, 0);
  accel_optimizer_release(optimizer);
  assert_int_equal(own.destroyed, 1);

  assert_fails(accel_optimizer_create(NULL, NULL, 1, 1, 0, update, &own, count_destroy, &optimizer),
               ACCEL_ERROR_INVALID_ARGUMENT, "state_names is NULL");
  assert_int_equal(own.destroyed, 2);
  assert_fails(accel_optimizer_create(NULL, NULL, 0, -2, 0, update, &own, count_destroy, &optimizer),
               ACCEL_ERROR_INVALID_ARGUMENT, "lr is -2");
  assert_int_equal(own.destroyed, 3);
  accel_module_release(module);
  accel_tensor_release(weight);
}

// Regression: a prepared LOMO with `backward()` and `step()` trained nothing without a word.
static void lomo_updates_in_backward(void **state) {
  (void)state;
  accel_lomo_options_t options = ACCEL_LOMO_OPTIONS_INIT;
  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *accelerator = NULL;
  accel_tensor_t *weight = NULL, *gradient = NULL;
  accel_module_t *module = new_model(ACCEL_DTYPE_FLOAT32, &weight);
  accel_optimizer_t *lomo = NULL, *prepared = NULL;
  settings.cpu = 1;
  options.lr = 0.25;
  options.clip_grad_value = 0.5;
  assert_ok(accel_state_create(&settings, &accelerator));
  assert_ok(accel_optimizer_lomo(module, &options, &lomo));
  accel_tensor_t *loss = loss_of(weight);
  assert_fails(accel_lomo_backward(accelerator, loss, 1), ACCEL_ERROR_INVALID_STATE, "no LOMO optimizer");
  assert_ok(accel_prepare_optimizer(accelerator, lomo, &prepared));
  assert_ok(accel_lomo_backward(accelerator, loss, ACCEL_UNSET_DOUBLE));
  assert_near(element(weight, 0), 1 - 0.25 * 0.5);
  assert_ok(accel_optimizer_step(prepared));
  assert_near(element(weight, 0), 1 - 0.25 * 0.5);
  assert_ok(accel_tensor_grad(weight, &gradient));
  assert_null(gradient);
  accel_tensor_release(loss);
  loss = loss_of(weight);
  assert_ok(accel_lomo_backward(accelerator, loss, 1));
  assert_near(element(weight, 0), 1 - 1.25 * 0.5);
  assert_fails(accel_lomo_backward(accelerator, weight, 1), ACCEL_ERROR_SHAPE_MISMATCH, "one element");
  accel_tensor_release(loss);
  loss = loss_of(weight);
  assert_ok(accel_backward(accelerator, loss, NULL));
  assert_fails(accel_optimizer_step(prepared), ACCEL_ERROR_INVALID_STATE, "expected accel_lomo_backward() in place of");
  assert_near(element(weight, 0), 1 - 1.25 * 0.5);
  accel_tensor_release(loss);
  accel_optimizer_release(prepared);
  accel_optimizer_release(lomo);
  accel_module_release(module);
  accel_tensor_release(weight);
  accel_state_release(accelerator);
}

static void adalomo_updates_in_backward(void **state) {
  (void)state;
  accel_adalomo_options_t options = ACCEL_ADALOMO_OPTIONS_INIT;
  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *accelerator = NULL;
  accel_tensor_t *weight = NULL;
  accel_module_t *module = new_model(ACCEL_DTYPE_FLOAT32, &weight);
  accel_optimizer_t *adalomo = NULL, *prepared = NULL;
  settings.cpu = 1;
  options.lr = 0.25;
  assert_ok(accel_state_create(&settings, &accelerator));
  assert_ok(accel_optimizer_adalomo(module, &options, &adalomo));
  assert_ok(accel_prepare_optimizer(accelerator, adalomo, &prepared));
  accel_tensor_t *const loss = loss_of(weight);
  assert_ok(accel_lomo_backward(accelerator, loss, ACCEL_UNSET_DOUBLE));
  assert_near(element(weight, 0), 1 - 0.25); /* gradient and parameter are 1 throughout */
  assert_true(accel_optimizer_state_bytes(adalomo) < 64);
  options.decay_rate = 0.5;
  accel_optimizer_t *refused = NULL;
  assert_fails(accel_optimizer_adalomo(module, &options, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "decay_rate is 0.5");
  accel_tensor_release(loss);
  accel_optimizer_release(prepared);
  accel_optimizer_release(adalomo);
  accel_module_release(module);
  accel_tensor_release(weight);
  accel_state_release(accelerator);
}

/* With a momentum of 0.5, a rate of 0.5 and gradients of 1: z is 1, 0.5, 0, and the average 1, 0.5, 0.25. */
static void schedule_free_parameters_are_switched(void **state) {
  (void)state;
  accel_schedule_free_sgd_options_t options = ACCEL_SCHEDULE_FREE_SGD_OPTIONS_INIT;
  accel_tensor_t *weight = NULL;
  accel_module_t *module = new_model(ACCEL_DTYPE_FLOAT32, &weight);
  accel_optimizer_t *optimizer = NULL;
  options.lr = 0.5;
  options.momentum = 0.5;
  assert_ok(accel_optimizer_schedule_free_sgd(module, &options, &optimizer));
  for (int step = 0; step < 2; step++) {
    back_propagate(weight);
    assert_ok(accel_optimizer_step(optimizer));
    assert_ok(accel_optimizer_zero_grad(optimizer, 1));
  }
  assert_near(element(weight, 0), 0.125);
  assert_fails(accel_optimizer_train(optimizer, 2), ACCEL_ERROR_INVALID_ARGUMENT, "training is 2");
  assert_ok(accel_optimizer_train(optimizer, 0));
  assert_near(element(weight, 0), 0.25);
  back_propagate(weight);
  assert_fails(accel_optimizer_step(optimizer), ACCEL_ERROR_INVALID_STATE, "accel_optimizer_train");
  assert_ok(accel_optimizer_train(optimizer, 1));
  assert_near(element(weight, 0), 0.125);
  assert_ok(accel_optimizer_step(optimizer));
  accel_optimizer_release(optimizer);
  optimizer = NULL;
  options.momentum = 0;
  assert_fails(accel_optimizer_schedule_free_sgd(module, &options, &optimizer), ACCEL_ERROR_INVALID_ARGUMENT,
               "momentum is 0");
  accel_module_release(module);
  accel_tensor_release(weight);
}

typedef struct {
  accel_tensor_t *weight;
  accel_status_t status;
  int calls, destroyed, gives_loss;
} closure_record_t;

static accel_status_t evaluate(accel_tensor_t **out_loss, void *user_data) {
  closure_record_t *const record = user_data;
  record->calls++;
  if (record->status < 0) return record->status;
  if (!record->gives_loss) return ACCEL_OK;
  accel_tensor_t *const loss = loss_of(record->weight);
  assert_ok(accel_tensor_backward(loss, NULL));
  *out_loss = loss;
  return ACCEL_OK;
}

static void count_closure(void *user_data) { ((closure_record_t *)user_data)->destroyed++; }

static void closures_give_gradients(void **state) {
  (void)state;
  accel_sgd_options_t options = ACCEL_SGD_OPTIONS_INIT;
  closure_record_t record = {NULL, ACCEL_OK, 0, 0, 1};
  accel_module_t *module = new_model(ACCEL_DTYPE_FLOAT32, &record.weight);
  accel_optimizer_t *optimizer = NULL;
  accel_tensor_t *loss = NULL;
  accel_scope_t *no_grad = NULL;
  double number = 0;
  options.lr = 0.25;
  assert_ok(accel_optimizer_sgd(module, &options, &optimizer));
  assert_ok(accel_no_grad_begin(&no_grad)); /* the closure records gradients all the same */
  assert_ok(accel_optimizer_step_closure(optimizer, evaluate, &record, count_closure, &loss));
  assert_ok(accel_scope_end(no_grad));
  assert_near(element(record.weight, 0), 0.75);
  assert_ok(accel_tensor_item(loss, &number));
  assert_near(number, N_ELEMENTS);
  accel_tensor_release(loss);
  loss = NULL;
  record.status = ACCEL_ERROR_USER;
  assert_fails(accel_optimizer_step_closure(optimizer, evaluate, &record, count_closure, &loss), ACCEL_ERROR_USER,
               "closure");
  record.status = ACCEL_OK;
  record.gives_loss = 0;
  assert_fails(accel_optimizer_step_closure(optimizer, evaluate, &record, count_closure, &loss),
               ACCEL_ERROR_TYPE_MISMATCH, "did not write out_loss");
  assert_fails(accel_optimizer_step_closure(optimizer, NULL, &record, count_closure, &loss),
               ACCEL_ERROR_INVALID_ARGUMENT, "closure is NULL");
  assert_null(loss);
  assert_near(element(record.weight, 0), 0.75);
  assert_int_equal(record.calls, 3);
  assert_int_equal(record.destroyed, 4);
  accel_optimizer_release(optimizer);
  accel_module_release(module);
  accel_tensor_release(record.weight);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(each_kind_steps),
      capi_unit_test(muon_updates_matrices),
      capi_unit_test(settings_go_by_name),
      capi_unit_test(master_weights_keep_small_steps),
      capi_unit_test(program_updates),
      capi_unit_test(lomo_updates_in_backward),
      capi_unit_test(adalomo_updates_in_backward),
      capi_unit_test(schedule_free_parameters_are_switched),
      capi_unit_test(closures_give_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
