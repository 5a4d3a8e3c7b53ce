/* SPDX-License-Identifier: Apache-2.0 */
/* Section 10: parameters whose gradients the program computes itself. */
#include "capi_test.h"

struct fixture {
  accel_state_t *state;
  accel_module_t *module;
  accel_parameters_t *parameters;
};

static float weight[6];

static int begin(void **state) {
  struct fixture *const f = calloc(1, sizeof *f);
  const int64_t shape[] = {2, 3}, one[] = {1};
  const float bias = 0.5f;
  accel_state_options_t options = one_process_options();
  accel_tensor_t *tensor = NULL;
  int i;
  options.gradient_accumulation_steps = 2;
  assert_ok(accel_state_create(&options, &f->state));
  assert_ok(accel_module_create("Own", &f->module));
  for (i = 0; i < 6; i++) weight[i] = (float)i;
  assert_ok(accel_tensor_from_blob(weight, shape, 2, NULL, ACCEL_DTYPE_FLOAT32, &(accel_device_t){ACCEL_DEVICE_CPU, -1},
                                   NULL, NULL, &tensor));
  assert_ok(accel_module_add_parameter(f->module, "weight", tensor, 1));
  accel_tensor_release(tensor);
  tensor = new_test_tensor(&bias, one, 1, ACCEL_DTYPE_FLOAT32);
  assert_ok(accel_module_add_parameter(f->module, "bias", tensor, 1));
  accel_tensor_release(tensor);
  assert_ok(accel_parameters_create(f->state, f->module, NULL, &f->parameters));
  *state = f;
  return 0;
}

static int end(void **state) {
  struct fixture *const f = *state;
  accel_parameters_release(f->parameters);
  accel_module_release(f->module);
  accel_state_release(f->state);
  free(f);
  return assert_nothing_left(state);
}

static float *data_of_gradient(struct fixture *f, size_t index) {
  accel_tensor_t *gradient = NULL;
  void *data = NULL;
  assert_ok(accel_parameters_gradient(f->parameters, index, &gradient));
  assert_ok(accel_tensor_data(gradient, &data));
  accel_tensor_release(gradient);
  return data;
}

/* The step goes over memory of the program, with the mean over the micro-batches. */
static void an_optimizer_steps_over_own_gradients(void **state) {
  struct fixture *const f = *state;
  accel_sgd_options_t options = ACCEL_SGD_OPTIONS_INIT;
  accel_optimizer_t *plain = NULL, *optimizer = NULL;
  const int64_t one[] = {1};
  int micro, i;
  options.lr = 1.0;
  assert_ok(accel_optimizer_sgd(f->module, &options, &plain));
  assert_ok(accel_prepare_optimizer(f->state, plain, &optimizer));
  for (micro = 0; micro < 2; micro++) {
    accel_scope_t *scope = NULL;
    accel_work_t *work = NULL;
    const float bias_gradient = 3.0f + (float)micro;
    accel_tensor_t *given = new_test_tensor(&bias_gradient, one, 1, ACCEL_DTYPE_FLOAT32);
    assert_ok(accel_accumulate_begin(f->state, NULL, 0, &scope));
    assert_ok(accel_parameters_grad_ready(f->parameters, 1, given));
    for (i = 0; i < 6; i++) data_of_gradient(f, 0)[i] += 1.0f + (float)micro;
    assert_ok(accel_parameters_grad_ready(f->parameters, 0, NULL));
    assert_ok(accel_parameters_synchronize_async(f->parameters, &work));
    assert_ok(accel_work_wait(work, 60000));
    accel_work_release(work);
    assert_status(accel_optimizer_step(optimizer), micro == 0 ? ACCEL_STEP_SKIPPED : ACCEL_OK);
    assert_ok(accel_scope_end(scope));
    accel_tensor_release(given);
  }
  for (i = 0; i < 6; i++) assert_true(weight[i] == (float)i - 1.5f);
  assert_true(data_of_gradient(f, 1)[0] == 3.5f);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(plain);
}

static void mistakes_say_what_was_expected(void **state) {
  struct fixture *const f = *state;
  accel_tensor_t *gradient = NULL;
  accel_parameters_options_t options = ACCEL_PARAMETERS_OPTIONS_INIT;
  accel_parameters_t *other = NULL;
  const int64_t one[] = {1};
  const float number = 1;
  assert_fails(accel_parameters_gradient(f->parameters, 2, &gradient), ACCEL_ERROR_INVALID_ARGUMENT,
               "index is 2; expected 0 to 1");
  gradient = new_test_tensor(&number, one, 1, ACCEL_DTYPE_FLOAT32);
  assert_fails(accel_parameters_grad_ready(f->parameters, 0, gradient), ACCEL_ERROR_SHAPE_MISMATCH,
               "the gradient of 'weight' has shape [1]; expected [2, 3]");
  assert_ok(accel_parameters_grad_ready(f->parameters, 1, gradient));
  assert_fails(accel_parameters_grad_ready(f->parameters, 1, gradient), ACCEL_ERROR_INVALID_STATE,
               "'bias' is ready already");
  assert_fails(accel_parameters_synchronize(f->parameters), ACCEL_ERROR_INVALID_STATE, "not ready: 'weight'");
  assert_ok(accel_parameters_grad_ready(f->parameters, 0, NULL));
  assert_ok(accel_parameters_synchronize(f->parameters));
  accel_tensor_release(gradient);

  options.bucket_cap_mb = -1;
  assert_fails(accel_parameters_create(f->state, f->module, &options, &other), ACCEL_ERROR_INVALID_ARGUMENT,
               "bucket_cap_mb is -1");
  options.struct_size = 1;
  assert_fails(accel_parameters_create(f->state, f->module, &options, &other), ACCEL_ERROR_INVALID_ARGUMENT,
               "struct_size is 1");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(an_optimizer_steps_over_own_gradients, begin, end),
      cmocka_unit_test_setup_teardown(mistakes_say_what_was_expected, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
