/* SPDX-License-Identifier: Apache-2.0 */
/* Section 10: steps that a device records. On the CPU each is an ordinary one; tests/devices has the recordings. */
#include "capi_test.h"

enum { ROWS = 4, WIDTH = 3, STEPS = 6 };
static const int64_t kShape[] = {ROWS, WIDTH};

struct training {
  accel_state_t *state;
  accel_module_t *model, *prepared;
  accel_optimizer_t *optimizer, *prepared_optimizer;
  int calls, fails, destroyed;
};

static void begin_training(struct training *training) {
  accel_sgd_options_t sgd = ACCEL_SGD_OPTIONS_INIT;
  memset(training, 0, sizeof(*training));
  training->state = new_state();
  sgd.lr = 0.5;
  assert_ok(accel_set_seed(training->state, 3, 0, 0));
  assert_ok(accel_module_linear(WIDTH, 1, 1, &training->model));
  assert_ok(accel_prepare_model(training->state, training->model, NULL, &training->prepared));
  assert_ok(accel_optimizer_sgd(training->prepared, &sgd, &training->optimizer));
  assert_ok(accel_prepare_optimizer(training->state, training->optimizer, &training->prepared_optimizer));
}

static void end_training(struct training *training) {
  accel_optimizer_release(training->prepared_optimizer);
  accel_optimizer_release(training->optimizer);
  accel_module_release(training->prepared);
  accel_module_release(training->model);
  accel_state_release(training->state);
}

/* Forward, backward and update; the loss is the mean of the squares. */
static accel_status_t take_step(accel_module_t *module, const accel_value_t *inputs, size_t n_inputs,
                                accel_value_t *out_output, void *user_data) {
  struct training *const training = user_data;
  accel_value_t output = ACCEL_VALUE_INIT;
  accel_tensor_t *zeros = NULL, *loss = NULL;
  const int64_t shape[] = {ROWS, 1};
  (void)module;
  training->calls++;
  if (training->fails) {
    accel_error_set(ACCEL_ERROR_USER, "no step today");
    return ACCEL_ERROR_USER;
  }
  assert_int_equal(n_inputs, 1);
  assert_ok(accel_optimizer_zero_grad(training->prepared_optimizer, 1));
  assert_ok(accel_module_call(training->prepared, inputs, 1, &output));
  assert_ok(accel_tensor_full(shape, 2, 0, ACCEL_DTYPE_FLOAT32, &(accel_device_t){ACCEL_DEVICE_CPU, -1}, &zeros));
  assert_ok(accel_mse_loss(output.as.tensor, zeros, &loss));
  assert_ok(accel_backward(training->state, loss, NULL));
  assert_ok(accel_optimizer_step(training->prepared_optimizer));
  *out_output = accel_arg_tensor(loss); /* and its owner */
  accel_tensor_release(zeros);
  accel_value_dispose(&output);
  return ACCEL_OK;
}

static void count_destroy(void *user_data) { ((struct training *)user_data)->destroyed++; }

static accel_module_t *new_step(struct training *training) {
  accel_module_t *step = NULL;
  assert_ok(accel_module_create("Step", &step));
  assert_ok(accel_module_set_forward(step, take_step, training, count_destroy));
  return step;
}

static double loss_of(const accel_value_t *output) {
  double number = 0;
  assert_int_equal(output->kind, ACCEL_VALUE_TENSOR);
  assert_ok(accel_tensor_item(output->as.tensor, &number));
  return number;
}

static void steps_are_those_of_the_module(void **state) {
  static const float elements[] = {1, 0, -1, 2, 0.5f, 0.5f, 2, -1, 3, 1, 1, 1};
  struct training plain, training;
  begin_training(&plain);
  begin_training(&training);
  accel_tensor_t *const tensor = new_test_tensor(elements, kShape, 2, ACCEL_DTYPE_FLOAT32);
  const accel_value_t input = accel_arg_tensor(tensor);
  accel_capture_options_t options = ACCEL_CAPTURE_OPTIONS_INIT;
  accel_module_t *const step = new_step(&training), *const plain_step = new_step(&plain);
  accel_module_t *captured = NULL;
  int64_t steps = 0, captures = -1, replays = -1;
  int32_t requires_grad = -1;
  (void)state;
  options.warmup_steps = 1;
  assert_ok(accel_step_capture(training.state, step, &options, &captured));
  accel_module_release(step); /* which the captured one owns */
  for (int i = 0; i < STEPS; i++) {
    accel_value_t expected = ACCEL_VALUE_INIT, found = ACCEL_VALUE_INIT;
    assert_ok(accel_module_call(plain_step, &input, 1, &expected));
    assert_ok(accel_module_call(captured, &input, 1, &found));
    assert_true(loss_of(&found) == loss_of(&expected));
    assert_ok(accel_tensor_requires_grad(found.as.tensor, &requires_grad));
    assert_int_equal(requires_grad, 0);
    accel_value_dispose(&expected);
    accel_value_dispose(&found);
  }
  assert_ok(accel_step_capture_counts(captured, &steps, &captures, &replays));
  assert_int_equal(steps, STEPS);
  assert_int_equal(captures, 0);
  assert_int_equal(replays, 0);
  assert_int_equal(training.calls, STEPS);
  assert_int_equal(training.destroyed, 0);
  accel_module_release(captured);
  accel_module_release(plain_step);
  assert_int_equal(training.destroyed, 1);
  accel_tensor_release(tensor);
  end_training(&training);
  end_training(&plain);
}

static void wrong_arguments(void **state) {
  struct training training;
  accel_module_t *captured = NULL, *empty = NULL;
  accel_capture_options_t options = ACCEL_CAPTURE_OPTIONS_INIT;
  (void)state;
  begin_training(&training);
  accel_module_t *const step = new_step(&training);
  options.warmup_steps = 0;
  assert_fails(accel_step_capture(training.state, step, &options, &captured), ACCEL_ERROR_INVALID_ARGUMENT,
               "warmup_steps");
  options.warmup_steps = 1;
  options.max_captures = 0;
  assert_fails(accel_step_capture(training.state, step, &options, &captured), ACCEL_ERROR_INVALID_ARGUMENT,
               "max_captures");
  assert_ok(accel_module_create("Empty", &empty));
  assert_fails(accel_step_capture(training.state, empty, NULL, &captured), ACCEL_ERROR_UNSUPPORTED, "has no forward");
  assert_fails(accel_step_capture_counts(step, NULL, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT,
               "is not a captured step");
  assert_ok(accel_step_capture(training.state, step, NULL, &captured));
  training.fails = 1;
  accel_value_t output = ACCEL_VALUE_INIT;
  assert_fails(accel_module_call(captured, NULL, 0, &output), ACCEL_ERROR_USER, "no step today");
  assert_ok(accel_step_capture_counts(captured, NULL, NULL, NULL));
  accel_module_release(captured);
  accel_module_release(empty);
  accel_module_release(step);
  end_training(&training);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(steps_are_those_of_the_module),
      capi_unit_test(wrong_arguments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
