/* SPDX-License-Identifier: Apache-2.0 */
/* Section 10: memory of an application that is registered as parameters, and one call a step. */
#include <math.h>

#include "capi_test.h"

#define ROWS 2
#define COLUMNS 3

struct fixture {
  accel_state_t *state;
  accel_parameters_t *parameters;
  accel_module_t *module;
  accel_optimizer_t *plain, *optimizer;
};

static const int64_t weight_shape[] = {ROWS, COLUMNS}, bias_shape[] = {COLUMNS};
static float weight[ROWS * COLUMNS], bias[COLUMNS];

static accel_tensor_t *tensor_over(void *data, const int64_t *shape, size_t ndim, accel_dtype_t dtype) {
  accel_tensor_t *tensor = NULL;
  /* "cpu:0" is the CPU, too. */
  assert_ok(accel_tensor_from_blob(data, shape, ndim, NULL, dtype, &(accel_device_t){ACCEL_DEVICE_CPU, 0}, NULL, NULL,
                                   &tensor));
  return tensor;
}

static void put(accel_value_t *map, const char *name, accel_tensor_t *tensor) {
  const accel_value_t item = accel_arg_tensor(tensor);
  assert_ok(accel_value_set(map, name, &item));
  accel_tensor_release(tensor);
}

static accel_value_t new_map(void) {
  accel_value_t map = ACCEL_VALUE_INIT;
  assert_ok(accel_value_map(&map));
  return map;
}

/* The weight is below a level and the bias is not. */
static accel_value_t two_tensors(void *of_weight, void *of_bias) {
  accel_value_t map = new_map();
  put(&map, "layer.weight", tensor_over(of_weight, weight_shape, 2, ACCEL_DTYPE_FLOAT32));
  put(&map, "bias", tensor_over(of_bias, bias_shape, 1, ACCEL_DTYPE_FLOAT32));
  return map;
}

static int begin_with(void **state, int64_t accumulation) {
  struct fixture *const f = calloc(1, sizeof *f);
  accel_state_options_t options = one_process_options();
  accel_sgd_options_t sgd = ACCEL_SGD_OPTIONS_INIT;
  accel_value_t tensors;
  int i;
  options.gradient_accumulation_steps = accumulation;
  assert_ok(accel_state_create(&options, &f->state));
  for (i = 0; i < ROWS * COLUMNS; i++) weight[i] = (float)i;
  for (i = 0; i < COLUMNS; i++) bias[i] = 10.0f;
  tensors = two_tensors(weight, bias);
  assert_ok(accel_parameters_register(f->state, &tensors, NULL, &f->parameters));
  accel_value_dispose(&tensors);
  assert_ok(accel_parameters_module(f->parameters, &f->module));
  sgd.lr = 1.0;
  assert_ok(accel_optimizer_sgd(f->module, &sgd, &f->plain));
  assert_ok(accel_prepare_optimizer(f->state, f->plain, &f->optimizer));
  *state = f;
  return 0;
}

static int begin(void **state) { return begin_with(state, 1); }
static int begin_accumulating(void **state) { return begin_with(state, 2); }

static int end(void **state) {
  struct fixture *const f = *state;
  accel_optimizer_release(f->optimizer);
  accel_optimizer_release(f->plain);
  accel_module_release(f->module);
  accel_parameters_release(f->parameters);
  accel_state_release(f->state);
  free(f);
  return assert_nothing_left(state);
}

static accel_status_t step_with(struct fixture *f, accel_value_t gradients,
                                const accel_parameters_step_options_t *options, double *out_norm) {
  const accel_status_t status = accel_parameters_step(f->parameters, f->optimizer, &gradients, options, out_norm);
  accel_value_dispose(&gradients);
  return status;
}

static void assert_values(float of_weight, float of_bias) {
  int i;
  for (i = 0; i < ROWS * COLUMNS; i++) assert_float_equal(weight[i], (float)i + of_weight, 1e-6);
  for (i = 0; i < COLUMNS; i++) assert_float_equal(bias[i], 10.0f + of_bias, 1e-6);
}

static void a_step_updates_the_registered_memory(void **state) {
  struct fixture *const f = *state;
  float weight_gradient[ROWS * COLUMNS], bias_gradient[COLUMNS] = {3, 3, 3};
  accel_tensor_t *parameter = NULL;
  void *data = NULL;
  int i;
  for (i = 0; i < ROWS * COLUMNS; i++) weight_gradient[i] = 2;
  assert_ok(step_with(f, two_tensors(weight_gradient, bias_gradient), NULL, NULL));
  assert_values(-2, -3);
  bias[1] = 7.0f; /* the memory is the application's: what it writes are the weights of the next step */
  assert_ok(step_with(f, two_tensors(weight_gradient, bias_gradient), NULL, NULL));
  assert_float_equal(bias[1], 4.0f, 1e-6);
  assert_ok(accel_module_tensor(f->module, "layer.weight", &parameter));
  assert_ok(accel_tensor_data(parameter, &data));
  assert_ptr_equal(data, weight);
  accel_tensor_release(parameter);
  assert_float_equal(weight_gradient[0], 2, 0);
}

static void micro_batches_are_added_up_and_averaged(void **state) {
  struct fixture *const f = *state;
  float weight_gradient[ROWS * COLUMNS] = {0}, bias_gradient[COLUMNS] = {3, 3, 3};
  double norm = 0;
  int step;
  for (step = 0; step < 2; step++) {
    assert_ok(step_with(f, two_tensors(weight_gradient, bias_gradient), NULL, &norm));
    assert_true(isnan(norm));
    assert_values(0, step == 0 ? 0.0f : -4.0f);
    bias_gradient[0] = bias_gradient[1] = bias_gradient[2] = 5;
    assert_ok(step_with(f, two_tensors(weight_gradient, bias_gradient), NULL, &norm));
    assert_float_equal(norm, 4 * sqrt(3), 1e-5);
    assert_values(0, step == 0 ? -4.0f : -8.0f);
    bias_gradient[0] = bias_gradient[1] = bias_gradient[2] = 3;
  }
}

static void gradients_are_clipped_by_their_joint_norm(void **state) {
  struct fixture *const f = *state;
  float weight_gradient[ROWS * COLUMNS] = {3}, bias_gradient[COLUMNS] = {0, 4, 0};
  accel_parameters_step_options_t options = ACCEL_PARAMETERS_STEP_OPTIONS_INIT;
  double norm = 0;
  options.max_grad_norm = 1.0;
  assert_ok(step_with(f, two_tensors(weight_gradient, bias_gradient), &options, &norm));
  assert_float_equal(norm, 5.0, 1e-6);
  assert_float_equal(weight[0], -0.6, 1e-5);
  assert_float_equal(bias[1], 10 - 0.8, 1e-5);
  options.grad_norm_type = HUGE_VAL;
  assert_ok(step_with(f, two_tensors(weight_gradient, bias_gradient), &options, &norm));
  assert_float_equal(norm, 4.0, 1e-6);
  assert_float_equal(weight[0], -0.6 - 0.75, 1e-5);
  options.max_grad_norm = -1.0;
  assert_fails(step_with(f, two_tensors(weight_gradient, bias_gradient), &options, &norm), ACCEL_ERROR_INVALID_ARGUMENT,
               "max_grad_norm is -1");
}

static void gradients_of_other_dtypes_and_strides_are_converted(void **state) {
  struct fixture *const f = *state;
  const int64_t columns_first[] = {1, ROWS};
  double transposed[COLUMNS * ROWS] = {0, 3, 1, 4, 2, 5}; /* the element (r, c) is r * COLUMNS + c */
  float bias_gradient[COLUMNS] = {1, 1, 1};
  accel_tensor_t *tensor = NULL;
  accel_value_t gradients = new_map();
  int i;
  assert_ok(accel_tensor_from_blob(transposed, weight_shape, 2, columns_first, ACCEL_DTYPE_FLOAT64,
                                   &(accel_device_t){ACCEL_DEVICE_CPU, -1}, NULL, NULL, &tensor));
  put(&gradients, "layer.weight", tensor);
  put(&gradients, "bias", tensor_over(bias_gradient, bias_shape, 1, ACCEL_DTYPE_FLOAT32));
  assert_ok(step_with(f, gradients, NULL, NULL));
  for (i = 0; i < ROWS * COLUMNS; i++) assert_float_equal(weight[i], 0, 0);
}

/* In accel_parameters_gradient()'s memory the gradient is computed where the exchange wants it. */
static void gradients_may_be_in_the_memory_of_the_exchange(void **state) {
  struct fixture *const f = *state;
  accel_value_t gradients = new_map();
  accel_tensor_t *memory = NULL;
  float *data[2] = {NULL, NULL};
  size_t i;
  for (i = 0; i < 2; i++) { /* the parameters of the module itself come before those of its parts */
    void *place = NULL;
    assert_ok(accel_parameters_gradient(f->parameters, i, &memory));
    assert_ok(accel_tensor_data(memory, &place));
    data[i] = place;
    put(&gradients, i == 0 ? "bias" : "layer.weight", memory);
  }
  for (i = 0; i < ROWS * COLUMNS; i++) data[1][i] = 4;
  for (i = 0; i < COLUMNS; i++) data[0][i] = 2;
  assert_ok(accel_parameters_step(f->parameters, f->optimizer, &gradients, NULL, NULL));
  assert_values(-4, -2);
  accel_value_dispose(&gradients);
}

static void missing_gradients_are_named_or_zeros(void **state) {
  struct fixture *const f = *state;
  float bias_gradient[COLUMNS] = {1, 1, 1};
  accel_parameters_step_options_t options = ACCEL_PARAMETERS_STEP_OPTIONS_INIT;
  accel_value_t gradients = new_map();
  assert_fails(step_with(f, gradients, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT,
               "gradients lacks 'bias', 'layer.weight'; expected one for each trainable parameter, or allow_missing");
  assert_values(0, 0);
  options.allow_missing = 1;
  gradients = new_map();
  put(&gradients, "bias", tensor_over(bias_gradient, bias_shape, 1, ACCEL_DTYPE_FLOAT32));
  assert_ok(step_with(f, gradients, &options, NULL));
  assert_values(0, -1);
}

/* Frozen after it was registered, a parameter needs no gradient. */
static void frozen_parameters_need_no_gradient(void **state) {
  struct fixture *const f = *state;
  float bias_gradient[COLUMNS] = {1, 1, 1};
  accel_value_t gradients = new_map();
  accel_tensor_t *parameter = NULL;
  assert_ok(accel_module_tensor(f->module, "layer.weight", &parameter));
  assert_ok(accel_tensor_set_requires_grad(parameter, 0));
  accel_tensor_release(parameter);
  put(&gradients, "bias", tensor_over(bias_gradient, bias_shape, 1, ACCEL_DTYPE_FLOAT32));
  assert_ok(step_with(f, gradients, NULL, NULL));
  assert_values(0, -1);
}

static void wrong_gradients_are_named_and_change_nothing(void **state) {
  struct fixture *const f = *state;
  float numbers[ROWS * COLUMNS] = {1, 1, 1, 1, 1, 1};
  int64_t integers[COLUMNS] = {1, 1, 1};
  const accel_value_t number = accel_arg_int(3);
  accel_value_t gradients = two_tensors(numbers, numbers);
  put(&gradients, "layer.wieght", tensor_over(numbers, weight_shape, 2, ACCEL_DTYPE_FLOAT32));
  assert_fails(
      step_with(f, gradients, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT,
      "gradients has 'layer.wieght', which is not a trainable parameter; expected names such as 'layer.weight'");
  gradients = two_tensors(numbers, numbers);
  put(&gradients, "layer.weight", tensor_over(numbers, bias_shape, 1, ACCEL_DTYPE_FLOAT32));
  assert_fails(step_with(f, gradients, NULL, NULL), ACCEL_ERROR_SHAPE_MISMATCH,
               "the gradient of 'layer.weight' has shape [3]; expected [2, 3]");
  gradients = two_tensors(numbers, numbers);
  put(&gradients, "bias", tensor_over(integers, bias_shape, 1, ACCEL_DTYPE_INT64));
  assert_fails(step_with(f, gradients, NULL, NULL), ACCEL_ERROR_TYPE_MISMATCH,
               "the gradient of 'bias' is of dtype int64; expected a floating dtype");
  gradients = two_tensors(numbers, numbers);
  assert_ok(accel_value_set(&gradients, "bias", &number));
  assert_fails(step_with(f, gradients, NULL, NULL), ACCEL_ERROR_TYPE_MISMATCH, "gradients['bias'] is a");
  assert_fails(accel_parameters_step(f->parameters, f->optimizer, &number, NULL, NULL), ACCEL_ERROR_TYPE_MISMATCH,
               "expected a map");
  assert_values(0, 0);
  assert_ok(step_with(f, two_tensors(numbers, numbers), NULL, NULL)); /* none of them has left a trace */
  assert_values(-1, -1);
}

static void the_optimizer_must_be_one_of_the_parameters(void **state) {
  struct fixture *const f = *state;
  float numbers[ROWS * COLUMNS] = {0};
  accel_value_t gradients = two_tensors(numbers, numbers);
  accel_optimizer_t *plain = NULL, *other = NULL;
  accel_sgd_options_t sgd = ACCEL_SGD_OPTIONS_INIT;
  accel_scope_t *scope = NULL;
  sgd.lr = 1.0;
  assert_fails(accel_parameters_step(f->parameters, f->plain, &gradients, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT,
               "optimizer is not prepared by the state of the parameters");
  assert_ok(accel_optimizer_sgd(NULL, &sgd, &plain));
  assert_ok(accel_prepare_optimizer(f->state, plain, &other));
  assert_fails(accel_parameters_step(f->parameters, other, &gradients, NULL, NULL), ACCEL_ERROR_INVALID_STATE,
               "optimizer has none of the parameters");
  assert_ok(accel_accumulate_begin(f->state, NULL, 0, &scope));
  assert_fails(accel_parameters_step(f->parameters, f->optimizer, &gradients, NULL, NULL), ACCEL_ERROR_INVALID_STATE,
               "accel_accumulate_begin() has done already");
  assert_ok(accel_scope_end(scope));
  assert_ok(accel_parameters_step(f->parameters, f->optimizer, &gradients, NULL, NULL));
  accel_state_release(f->state);
  f->state = NULL;
  assert_fails(accel_parameters_step(f->parameters, f->optimizer, &gradients, NULL, NULL), ACCEL_ERROR_INVALID_STATE,
               "the state of the parameters is released");
  accel_value_dispose(&gradients);
  accel_optimizer_release(other);
  accel_optimizer_release(plain);
}

static void register_fails(struct fixture *f, accel_value_t tensors, accel_status_t status, const char *part) {
  accel_parameters_t *parameters = NULL;
  assert_fails(accel_parameters_register(f->state, &tensors, NULL, &parameters), status, part);
  assert_null(parameters);
  accel_value_dispose(&tensors);
}

static accel_value_t one_tensor(const char *name, accel_tensor_t *tensor) {
  accel_value_t map = new_map();
  put(&map, name, tensor);
  return map;
}

static void what_cannot_be_registered_is_named(void **state) {
  struct fixture *const f = *state;
  static float memory[12];
  static int64_t integers[COLUMNS];
  const int64_t columns_first[] = {1, ROWS};
  const accel_value_t number = accel_arg_int(3);
  accel_tensor_t *tensor = NULL;
  accel_parameters_t *parameters = NULL;
  accel_value_t tensors;
  register_fails(f, new_map(), ACCEL_ERROR_INVALID_ARGUMENT, "tensors is empty");
  assert_fails(accel_parameters_register(f->state, &number, NULL, &parameters), ACCEL_ERROR_TYPE_MISMATCH,
               "expected a map");
  tensors = new_map();
  assert_ok(accel_value_set(&tensors, "w", &number));
  register_fails(f, tensors, ACCEL_ERROR_TYPE_MISMATCH, "tensors['w'] is a");
  register_fails(f, one_tensor("w", tensor_over(integers, bias_shape, 1, ACCEL_DTYPE_INT64)), ACCEL_ERROR_TYPE_MISMATCH,
                 "parameter 'w' is of dtype int64; expected float16, bfloat16, float32 or float64");
  assert_ok(accel_tensor_from_blob(memory, weight_shape, 2, columns_first, ACCEL_DTYPE_FLOAT32,
                                   &(accel_device_t){ACCEL_DEVICE_CPU, -1}, NULL, NULL, &tensor));
  register_fails(f, one_tensor("w", tensor), ACCEL_ERROR_UNSUPPORTED,
                 "parameter 'w' of shape [2, 3] is not contiguous");
  register_fails(f, one_tensor("layer..w", tensor_over(memory, bias_shape, 1, ACCEL_DTYPE_FLOAT32)),
                 ACCEL_ERROR_INVALID_ARGUMENT, "name 'layer..w' has an empty level");
  register_fails(f, one_tensor("", tensor_over(memory, bias_shape, 1, ACCEL_DTYPE_FLOAT32)),
                 ACCEL_ERROR_INVALID_ARGUMENT, "name '' has an empty level");
  tensors = one_tensor("layer", tensor_over(memory, bias_shape, 1, ACCEL_DTYPE_FLOAT32));
  put(&tensors, "layer-1", tensor_over(memory + 3, bias_shape, 1, ACCEL_DTYPE_FLOAT32));
  put(&tensors, "layer.w", tensor_over(memory + 6, bias_shape, 1, ACCEL_DTYPE_FLOAT32));
  register_fails(f, tensors, ACCEL_ERROR_INVALID_ARGUMENT,
                 "parameter 'layer' has the name of the level that 'layer.w'");
  tensors = one_tensor("b", tensor_over(memory, bias_shape, 1, ACCEL_DTYPE_FLOAT32));
  put(&tensors, "a", tensor_over(memory + 2, bias_shape, 1, ACCEL_DTYPE_FLOAT32));
  register_fails(f, tensors, ACCEL_ERROR_INVALID_ARGUMENT, "parameters 'b' and 'a' share memory");
  tensors = one_tensor("whole", tensor_over(memory, weight_shape, 2, ACCEL_DTYPE_FLOAT32));
  put(&tensors, "again", tensor_over(memory, weight_shape, 2, ACCEL_DTYPE_FLOAT32));
  register_fails(f, tensors, ACCEL_ERROR_INVALID_ARGUMENT, "share memory");
  register_fails(f, one_tensor("w", tensor_over(weight + 1, bias_shape, 1, ACCEL_DTYPE_FLOAT32)),
                 ACCEL_ERROR_INVALID_ARGUMENT,
                 "parameter 'w' is in memory that is registered already, as 'layer.weight'");
}

static void memory_may_be_registered_again_after_it_was_freed(void **state) {
  struct fixture *const f = *state;
  accel_value_t tensors = two_tensors(weight, bias);
  accel_parameters_release(f->parameters);
  f->parameters = NULL;
  assert_fails(accel_parameters_register(f->state, &tensors, NULL, &f->parameters), ACCEL_ERROR_INVALID_ARGUMENT,
               "registered already");
  assert_ok(accel_free_memory(f->state));
  assert_ok(accel_parameters_register(f->state, &tensors, NULL, &f->parameters));
  accel_value_dispose(&tensors);
}

/* Scaled losses are the application's own affair: it computes them. */
static void a_state_that_scales_losses_is_refused(void **state) {
  accel_grad_scaler_options_t scaler = ACCEL_GRAD_SCALER_OPTIONS_INIT;
  struct fixture f = {NULL, NULL, NULL, NULL, NULL};
  (void)state;
  f.state = new_state();
  scaler.enabled = 1;
  assert_ok(accel_set_grad_scaler(f.state, &scaler));
  register_fails(&f, two_tensors(weight, bias), ACCEL_ERROR_UNSUPPORTED, "the state scales losses");
  accel_state_release(f.state);
}

/* Memory of half the precision, and of twice as much. */
static void every_floating_dtype_is_trained_in_place(void **state) {
  struct fixture *const f = *state;
  static uint16_t half[COLUMNS] = {0x3c00, 0x3c00, 0x3c00}, brain[COLUMNS] = {0x3f80, 0x3f80, 0x3f80}; /* 1.0 */
  static double twice[COLUMNS] = {1, 1, 1};
  float ones[COLUMNS] = {1, 1, 1};
  const char *const names[] = {"half", "brain", "twice"};
  accel_value_t tensors = new_map(), gradients = new_map();
  accel_parameters_t *parameters = NULL;
  accel_module_t *module = NULL;
  accel_optimizer_t *plain = NULL, *optimizer = NULL;
  accel_sgd_options_t sgd = ACCEL_SGD_OPTIONS_INIT;
  int i;
  put(&tensors, "half", tensor_over(half, bias_shape, 1, ACCEL_DTYPE_FLOAT16));
  put(&tensors, "brain", tensor_over(brain, bias_shape, 1, ACCEL_DTYPE_BFLOAT16));
  put(&tensors, "twice", tensor_over(twice, bias_shape, 1, ACCEL_DTYPE_FLOAT64));
  for (i = 0; i < 3; i++) put(&gradients, names[i], tensor_over(ones, bias_shape, 1, ACCEL_DTYPE_FLOAT32));
  assert_ok(accel_parameters_register(f->state, &tensors, NULL, &parameters));
  assert_ok(accel_parameters_module(parameters, &module));
  sgd.lr = 0.5;
  assert_ok(accel_optimizer_sgd(module, &sgd, &plain));
  assert_ok(accel_prepare_optimizer(f->state, plain, &optimizer));
  assert_ok(accel_parameters_step(parameters, optimizer, &gradients, NULL, NULL));
  for (i = 0; i < COLUMNS; i++) {
    assert_int_equal(half[i], 0x3800); /* 0.5 */
    assert_int_equal(brain[i], 0x3f00);
    assert_float_equal(twice[i], 0.5, 0);
  }
  accel_optimizer_release(optimizer);
  accel_optimizer_release(plain);
  accel_module_release(module);
  accel_parameters_release(parameters);
  accel_value_dispose(&tensors);
  accel_value_dispose(&gradients);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_step_updates_the_registered_memory, begin, end),
      cmocka_unit_test_setup_teardown(micro_batches_are_added_up_and_averaged, begin_accumulating, end),
      cmocka_unit_test_setup_teardown(gradients_are_clipped_by_their_joint_norm, begin, end),
      cmocka_unit_test_setup_teardown(gradients_of_other_dtypes_and_strides_are_converted, begin, end),
      cmocka_unit_test_setup_teardown(gradients_may_be_in_the_memory_of_the_exchange, begin, end),
      cmocka_unit_test_setup_teardown(missing_gradients_are_named_or_zeros, begin, end),
      cmocka_unit_test_setup_teardown(frozen_parameters_need_no_gradient, begin, end),
      cmocka_unit_test_setup_teardown(wrong_gradients_are_named_and_change_nothing, begin, end),
      cmocka_unit_test_setup_teardown(the_optimizer_must_be_one_of_the_parameters, begin, end),
      cmocka_unit_test_setup_teardown(what_cannot_be_registered_is_named, begin, end),
      cmocka_unit_test_setup_teardown(memory_may_be_registered_again_after_it_was_freed, begin, end),
      cmocka_unit_test_setup_teardown(every_floating_dtype_is_trained_in_place, begin, end),
      capi_unit_test(a_state_that_scales_losses_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
