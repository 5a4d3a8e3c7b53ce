/* SPDX-License-Identifier: Apache-2.0 */
/* Section 8: optimizers. */
#include "optimizer_fixture.h"

static accel_tensor_t *new_leaf(float number) {
  const int64_t shape[] = {1};
  return new_test_tensor(&number, shape, 1, ACCEL_DTYPE_FLOAT32);
}

static void each_kind_steps(void **state) {
  (void)state;
  accel_tensor_t *weight = NULL;
  accel_module_t *module = new_model(ACCEL_DTYPE_FLOAT32, &weight);
  accel_optimizer_t *adamw = NULL, *adam = NULL, *sgd = NULL;
  accel_sgd_options_t options = ACCEL_SGD_OPTIONS_INIT;
  double lr = 0;
  options.lr = 0.5;
  assert_ok(accel_optimizer_adamw(module, NULL, &adamw));
  assert_ok(accel_optimizer_adam(module, NULL, &adam));
  assert_ok(accel_optimizer_sgd(module, &options, &sgd));
  back_propagate(weight);

  assert_ok(accel_optimizer_step(sgd));
  assert_near(element(weight, 0), 0.5);
  assert_ok(accel_optimizer_step(adam)); /* the first step goes by lr, whatever the gradient */
  assert_near(element(weight, 0), 0.499);
  assert_ok(accel_optimizer_step(adamw)); /* and before that decays by lr * 0.01 */
  assert_near(element(weight, 0), 0.499 * (1 - 1e-5) - 0.001);
  assert_int_equal(accel_optimizer_step_was_skipped(adamw), 0);
  assert_ok(accel_optimizer_lr(adamw, 0, &lr));
  assert_true(lr == 1e-3);

  accel_optimizer_release(accel_optimizer_retain(adamw));
  accel_optimizer_release(adamw);
  accel_optimizer_release(adam);
  accel_optimizer_release(sgd);
  accel_optimizer_release(NULL);
  accel_module_release(module);
  accel_tensor_release(weight);
}

static void zero_grad_clears(void **state) {
  (void)state;
  accel_tensor_t *weight = NULL, *gradient = NULL;
  accel_module_t *module = new_model(ACCEL_DTYPE_FLOAT32, &weight);
  accel_optimizer_t *optimizer = NULL;
  assert_ok(accel_optimizer_adamw(module, NULL, &optimizer));
  back_propagate(weight);
  assert_ok(accel_optimizer_zero_grad(optimizer, 1));
  assert_ok(accel_tensor_grad(weight, &gradient));
  assert_null(gradient); /* zeros would let momentum and weight decay go on */
  accel_optimizer_release(optimizer);
  accel_module_release(module);
  accel_tensor_release(weight);
}

static void frozen_parameters_are_left_out(void **state) {
  (void)state;
  accel_tensor_t *weight = NULL;
  accel_module_t *module = new_model(ACCEL_DTYPE_FLOAT32, &weight);
  accel_tensor_t *frozen = new_leaf(3);
  accel_optimizer_t *optimizer = NULL;
  accel_value_t dict = ACCEL_VALUE_INIT;
  assert_ok(accel_module_add_parameter(module, "frozen", frozen, 0));
  assert_ok(accel_optimizer_sgd(module, NULL, &optimizer));
  assert_ok(accel_optimizer_state_dict(optimizer, &dict));
  const accel_value_t *const group = accel_value_at(accel_value_get(&dict, "param_groups"), 0);
  assert_int_equal(accel_value_count(accel_value_get(group, "params")), 1);
  accel_value_dispose(&dict);
  accel_optimizer_release(optimizer);
  accel_tensor_release(frozen);
  accel_module_release(module);
  accel_tensor_release(weight);
}

static void groups_have_their_own_rates(void **state) {
  (void)state;
  accel_tensor_t *weight = NULL;
  accel_module_t *module = new_model(ACCEL_DTYPE_FLOAT32, &weight);
  accel_optimizer_t *optimizer = NULL;
  accel_tensor_t *extra = new_leaf(1);
  double lr = -7;
  assert_ok(accel_optimizer_adamw(NULL, NULL, &optimizer));
  assert_int_equal(accel_optimizer_num_groups(optimizer), 0);
  assert_ok(accel_optimizer_add_group(optimizer, &weight, 1, 0.25, ACCEL_UNSET_DOUBLE));
  assert_ok(accel_optimizer_add_group(optimizer, &extra, 1, ACCEL_UNSET_DOUBLE, 0));
  assert_int_equal(accel_optimizer_num_groups(optimizer), 2);
  assert_ok(accel_optimizer_set_lr(optimizer, 1, 0.125));
  assert_ok(accel_optimizer_lr(optimizer, 1, &lr));
  assert_true(lr == 0.125);
  assert_fails(accel_optimizer_add_group(optimizer, &extra, 1, 0.1, 0), ACCEL_ERROR_INVALID_ARGUMENT, "already");
  assert_fails(accel_optimizer_add_group(optimizer, &extra, 0, 0.1, 0), ACCEL_ERROR_INVALID_ARGUMENT, "0 parameters");
  assert_fails(accel_optimizer_add_group(optimizer, NULL, 1, 0.1, 0), ACCEL_ERROR_INVALID_ARGUMENT,
               "parameters is NULL");
  assert_fails(accel_optimizer_set_lr(optimizer, 0, -1), ACCEL_ERROR_INVALID_ARGUMENT, "lr is -1");
  assert_fails(accel_optimizer_set_lr(optimizer, 2, 1), ACCEL_ERROR_NOT_FOUND, "group 2");
  assert_fails(accel_optimizer_lr(optimizer, 2, &lr), ACCEL_ERROR_NOT_FOUND, "group 2");
  assert_fails(accel_optimizer_lr(optimizer, 0, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_true(lr == 0.125);
  accel_tensor_release(extra);
  accel_optimizer_release(optimizer);
  accel_module_release(module);
  accel_tensor_release(weight);
}

static void bad_options_are_refused(void **state) {
  (void)state;
  accel_optimizer_t *optimizer = NULL;
  accel_adam_options_t adam = ACCEL_ADAM_OPTIONS_INIT;
  accel_sgd_options_t sgd = ACCEL_SGD_OPTIONS_INIT;
  adam.beta2 = 1.5;
  assert_fails(accel_optimizer_adamw(NULL, &adam, &optimizer), ACCEL_ERROR_INVALID_ARGUMENT, "beta2 is 1.5");
  adam.beta2 = ACCEL_UNSET_DOUBLE;
  adam.amsgrad = 2;
  assert_fails(accel_optimizer_adam(NULL, &adam, &optimizer), ACCEL_ERROR_INVALID_ARGUMENT, "amsgrad is 2");
  adam.struct_size = 3;
  assert_fails(accel_optimizer_adam(NULL, &adam, &optimizer), ACCEL_ERROR_INVALID_ARGUMENT, "struct_size is 3");
  sgd.lr = -0.5;
  assert_fails(accel_optimizer_sgd(NULL, &sgd, &optimizer), ACCEL_ERROR_INVALID_ARGUMENT, "lr is -0.5");
  assert_fails(accel_optimizer_adamw(NULL, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_null(optimizer);
}

static void wrong_handles_are_refused(void **state) {
  (void)state;
  accel_tensor_t *tensor = new_leaf(1);
  accel_optimizer_t *const wrong = (accel_optimizer_t *)(void *)tensor;
  accel_scheduler_t *const wrong_scheduler = (accel_scheduler_t *)(void *)tensor;
  accel_optimizer_t *out = NULL;
  accel_scheduler_t *scheduler = NULL;
  accel_value_t value = ACCEL_VALUE_INIT;
  double lr = 0;
  assert_fails(accel_optimizer_adamw((accel_module_t *)(void *)tensor, NULL, &out), ACCEL_ERROR_INVALID_HANDLE,
               "module is a tensor");
  assert_fails(accel_optimizer_step(wrong), ACCEL_ERROR_INVALID_HANDLE, "optimizer is a tensor");
  assert_fails(accel_optimizer_step(NULL), ACCEL_ERROR_INVALID_ARGUMENT, "optimizer is NULL");
  assert_status(accel_optimizer_zero_grad(wrong, 1), ACCEL_ERROR_INVALID_HANDLE);
  assert_status(accel_optimizer_add_group(wrong, &tensor, 1, 1, 0), ACCEL_ERROR_INVALID_HANDLE);
  assert_status(accel_optimizer_lr(wrong, 0, &lr), ACCEL_ERROR_INVALID_HANDLE);
  assert_status(accel_optimizer_set_lr(wrong, 0, 1), ACCEL_ERROR_INVALID_HANDLE);
  assert_status(accel_optimizer_state_dict(wrong, &value), ACCEL_ERROR_INVALID_HANDLE);
  assert_status(accel_optimizer_load_state_dict(wrong, &value), ACCEL_ERROR_INVALID_HANDLE);
  assert_int_equal(accel_optimizer_num_groups(wrong), -1);
  assert_int_equal(accel_optimizer_step_was_skipped(wrong), -1);
  assert_status(accel_scheduler_step_lr(wrong, 1, 1, &scheduler), ACCEL_ERROR_INVALID_HANDLE);
  assert_status(accel_scheduler_cosine(wrong, 0, 1, 0, &scheduler), ACCEL_ERROR_INVALID_HANDLE);
  assert_status(accel_scheduler_linear_warmup(NULL, 0, 1, &scheduler), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_fails(accel_scheduler_step(wrong_scheduler), ACCEL_ERROR_INVALID_HANDLE, "scheduler is a tensor");
  assert_status(accel_scheduler_last_lr(wrong_scheduler, 0, &lr), ACCEL_ERROR_INVALID_HANDLE);
  assert_status(accel_scheduler_state_dict(wrong_scheduler, &value), ACCEL_ERROR_INVALID_HANDLE);
  assert_status(accel_scheduler_load_state_dict(wrong_scheduler, &value), ACCEL_ERROR_INVALID_HANDLE);
  assert_null(accel_optimizer_retain(NULL));
  assert_null(accel_scheduler_retain(NULL));
  accel_tensor_release(tensor);
}

static void state_dict_resumes(void **state) {
  (void)state;
  accel_tensor_t *weight = NULL, *other_weight = NULL;
  accel_module_t *module = new_model(ACCEL_DTYPE_FLOAT32, &weight),
                 *other_module = new_model(ACCEL_DTYPE_FLOAT32, &other_weight);
  accel_optimizer_t *optimizer = NULL, *other = NULL;
  accel_value_t dict = ACCEL_VALUE_INIT, broken = ACCEL_VALUE_INIT;
  assert_ok(accel_optimizer_adamw(module, NULL, &optimizer));
  assert_ok(accel_optimizer_adamw(other_module, NULL, &other));
  back_propagate(weight);
  back_propagate(other_weight);
  assert_ok(accel_optimizer_step(optimizer));
  assert_ok(accel_optimizer_step(other));
  assert_ok(accel_optimizer_state_dict(optimizer, &dict));
  const accel_value_t *const first = state_of_parameter(&dict, 0);
  assert_non_null(first);
  assert_non_null(accel_value_get(first, "step"));
  assert_non_null(accel_value_get(first, "exp_avg"));
  assert_non_null(accel_value_get(first, "exp_avg_sq"));
  assert_ok(accel_optimizer_load_state_dict(other, &dict));
  assert_ok(accel_optimizer_step(optimizer));
  assert_ok(accel_optimizer_step(other));
  assert_true(element(weight, 0) == element(other_weight, 0));

  assert_ok(accel_value_map(&broken));
  assert_fails(accel_optimizer_load_state_dict(other, &broken), ACCEL_ERROR_INVALID_ARGUMENT, "param_groups");
  assert_fails(accel_optimizer_load_state_dict(other, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "state_dict is NULL");
  assert_fails(accel_optimizer_state_dict(other, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  accel_value_dispose(&broken);
  accel_value_dispose(&dict);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(other);
  accel_module_release(module);
  accel_module_release(other_module);
  accel_tensor_release(weight);
  accel_tensor_release(other_weight);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(each_kind_steps),
      capi_unit_test(zero_grad_clears),
      capi_unit_test(frozen_parameters_are_left_out),
      capi_unit_test(groups_have_their_own_rates),
      capi_unit_test(bad_options_are_refused),
      capi_unit_test(wrong_handles_are_refused),
      capi_unit_test(state_dict_resumes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
