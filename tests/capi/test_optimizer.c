/* Section 8: optimizers. */
#include "capi_test.h"

#include <math.h>

/* A module of one parameter "weight" with two elements of 1. */
static accel_module_t *new_model(accel_tensor_t **weight) {
  const float ones[] = {1, 1};
  const int64_t shape[] = {2};
  accel_module_t *module = NULL;
  *weight = new_test_tensor(ones, shape, 1, ACCEL_DTYPE_FLOAT32);
  assert_ok(accel_module_create("Weights", &module));
  assert_ok(accel_module_add_parameter(module, "weight", *weight, 1));
  return module;
}

static accel_tensor_t *new_leaf(float number) {
  const int64_t shape[] = {1};
  return new_test_tensor(&number, shape, 1, ACCEL_DTYPE_FLOAT32);
}

/* Gives every element of the weight the gradient 1: the loss is their sum. */
static void back_propagate(accel_tensor_t *weight) {
  const accel_op_t *sum = NULL;
  const accel_value_t argument = accel_arg_tensor(weight);
  accel_value_t loss = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  assert_ok(accel_op_find("aten::sum", "", &sum));
  assert_ok(accel_op_call(sum, &argument, 1, &loss, 1, &n_results));
  assert_ok(accel_tensor_backward(loss.as.tensor, NULL));
  accel_value_dispose(&loss);
}

static float element(const accel_tensor_t *tensor, size_t index) {
  void *data = NULL;
  assert_ok(accel_tensor_data(tensor, &data));
  return ((const float *)data)[index];
}

static void assert_near(double number, double expected) {
  if (fabs(number - expected) <= 1e-6) return;
  fail_msg("%.9g is not %.9g", number, expected);
}

static void options_are_unset(void **state) {
  (void)state;
  const accel_adam_options_t adam = ACCEL_ADAM_OPTIONS_INIT;
  const accel_sgd_options_t sgd = ACCEL_SGD_OPTIONS_INIT;
  accel_adam_options_t adam_made;
  accel_sgd_options_t sgd_made;
  memset(&adam_made, 0, sizeof adam_made);
  memset(&sgd_made, 0, sizeof sgd_made);
  accel_adam_options_init(&adam_made);
  accel_sgd_options_init(&sgd_made);
  assert_memory_equal(&adam, &adam_made, sizeof adam);
  assert_memory_equal(&sgd, &sgd_made, sizeof sgd);
  accel_adam_options_init(NULL);
  accel_sgd_options_init(NULL);
}

static void each_kind_steps(void **state) {
  (void)state;
  accel_tensor_t *weight = NULL;
  accel_module_t *module = new_model(&weight);
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
  accel_module_t *module = new_model(&weight);
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
  accel_module_t *module = new_model(&weight);
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
  accel_module_t *module = new_model(&weight);
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
  accel_module_t *module = new_model(&weight), *other_module = new_model(&other_weight);
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
      capi_unit_test(options_are_unset),
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
