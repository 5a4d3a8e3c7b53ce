/* SPDX-License-Identifier: Apache-2.0 */
/* Section 10: steps of a model in one stage. Several ranks are the matter of tests/engine. */
#include <math.h>

#include "capi_test.h"

enum { ROWS = 4, CLASSES = 3, WIDTH = 2 };
static const int64_t kInputShape[] = {ROWS, WIDTH}, kLabelShape[] = {ROWS}, kFewShape[] = {1, WIDTH};

struct fixture {
  accel_state_t *state;
  accel_module_t *model, *prepared;
  accel_optimizer_t *optimizer;
  accel_tensor_t *input, *labels, *few;
};

static const float kInput[] = {1, 0, -1, 2, 0.5f, 0.5f, 2, -1};
static const int64_t kLabels[] = {0, 2, -100, 1};

static int set_up(void **state) {
  struct fixture *const fixture = calloc(1, sizeof(struct fixture));
  accel_prepare_model_options_t options = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  accel_pipeline_options_t pipeline = ACCEL_PIPELINE_OPTIONS_INIT;
  accel_sgd_options_t sgd = ACCEL_SGD_OPTIONS_INIT;
  if (fixture == NULL) return -1;
  fixture->state = new_state();
  options.pipeline = &pipeline;
  pipeline.micro_batches = 2;
  sgd.lr = 1;
  assert_ok(accel_module_linear(WIDTH, CLASSES, 1, &fixture->model));
  assert_ok(accel_prepare_model(fixture->state, fixture->model, &options, &fixture->prepared));
  assert_ok(accel_optimizer_sgd(fixture->model, &sgd, &fixture->optimizer));
  fixture->input = new_test_tensor(kInput, kInputShape, 2, ACCEL_DTYPE_FLOAT32);
  fixture->few = new_test_tensor(kInput, kFewShape, 2, ACCEL_DTYPE_FLOAT32);
  fixture->labels = new_test_tensor(kLabels, kLabelShape, 1, ACCEL_DTYPE_INT64);
  *state = fixture;
  return 0;
}

static int tear_down(void **state) {
  struct fixture *const fixture = *state;
  accel_tensor_release(fixture->labels);
  accel_tensor_release(fixture->few);
  accel_tensor_release(fixture->input);
  accel_optimizer_release(fixture->optimizer);
  accel_module_release(fixture->prepared);
  accel_module_release(fixture->model);
  accel_state_release(fixture->state);
  free(fixture);
  return assert_nothing_left(state);
}

/* The loss of all rows at once, after its backward. */
static double loss_of_all_rows(struct fixture *fixture) {
  const accel_value_t input = accel_arg_tensor(fixture->input);
  accel_value_t output = ACCEL_VALUE_INIT;
  accel_tensor_t *loss = NULL;
  double number = 0;
  assert_ok(accel_module_call(fixture->prepared, &input, 1, &output));
  assert_ok(accel_cross_entropy(output.as.tensor, fixture->labels, &loss));
  assert_ok(accel_backward(fixture->state, loss, NULL));
  assert_ok(accel_tensor_item(loss, &number));
  accel_tensor_release(loss);
  accel_value_dispose(&output);
  return number;
}

static void assert_bias_gradient(struct fixture *fixture, float *expected, int is_expected) {
  accel_value_t parameters = ACCEL_VALUE_INIT;
  accel_tensor_t *gradient = NULL;
  void *elements = NULL;
  int64_t count = 0;
  assert_ok(accel_module_named_parameters(fixture->model, &parameters));
  accel_tensor_t *const bias = accel_value_get(&parameters, "bias")->as.tensor;
  assert_ok(accel_tensor_grad(bias, &gradient));
  assert_ok(accel_tensor_elements(gradient, ACCEL_DTYPE_FLOAT32, &elements, &count));
  assert_int_equal(count, CLASSES);
  for (int i = 0; i < CLASSES; i++) {
    if (is_expected)
      assert_true(fabsf(((const float *)elements)[i] - expected[i]) < 1e-6f);
    else
      expected[i] = ((const float *)elements)[i];
  }
  accel_tensor_release(gradient);
  accel_value_dispose(&parameters);
  assert_ok(accel_optimizer_zero_grad(fixture->optimizer, 1));
}

static void test_a_step_is_a_forward_and_a_backward(void **state) {
  struct fixture *const fixture = *state;
  const accel_value_t inputs = accel_arg_tensor(fixture->input), targets = accel_arg_tensor(fixture->labels);
  float gradient[CLASSES] = {0};
  double loss = 0;
  const double expected = loss_of_all_rows(fixture);
  assert_bias_gradient(fixture, gradient, 0);
  assert_ok(accel_pipeline_step(fixture->state, fixture->prepared, &inputs, &targets, "cross_entropy", NULL, NULL, NULL,
                                &loss));
  assert_true(fabs(loss - expected) < 1e-6);
  assert_bias_gradient(fixture, gradient, 1);
  assert_ok(accel_pipeline_step(fixture->state, fixture->prepared, &inputs, &targets, "cross_entropy_sum", NULL, NULL,
                                NULL, &loss));
  assert_true(fabs(loss - 3 * expected) < 1e-6); /* one of four labels is left out */
  assert_bias_gradient(fixture, gradient, 1);
}

struct calls {
  int count, fails, destroyed;
};

static accel_status_t mean_square(const accel_value_t *output, const accel_value_t *targets, accel_tensor_t **out_loss,
                                  void *user_data) {
  struct calls *const calls = user_data;
  calls->count++;
  if (calls->fails) {
    accel_error_set(ACCEL_ERROR_TORCH, "the loss is no number");
    return ACCEL_ERROR_TORCH;
  }
  return accel_mse_loss(output->as.tensor, targets->as.tensor, out_loss);
}

static void count_destroy(void *user_data) { ((struct calls *)user_data)->destroyed++; }

static void test_losses_of_programs(void **state) {
  struct fixture *const fixture = *state;
  const int64_t shape[] = {ROWS, CLASSES};
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  const accel_value_t inputs = accel_arg_tensor(fixture->input);
  struct calls calls = {0, 0, 0};
  accel_tensor_t *zeros = NULL;
  double loss = 0;
  assert_ok(accel_tensor_full(shape, 2, 0, ACCEL_DTYPE_FLOAT32, &cpu, &zeros));
  const accel_value_t targets = accel_arg_tensor(zeros);
  assert_ok(accel_pipeline_step(fixture->state, fixture->prepared, &inputs, &targets, NULL, mean_square, &calls,
                                count_destroy, &loss));
  assert_int_equal(calls.count, 2);
  assert_int_equal(calls.destroyed, 1);
  assert_true(loss > 0);
  calls.fails = 1;
  assert_fails(accel_pipeline_step(fixture->state, fixture->prepared, &inputs, &targets, NULL, mean_square, &calls,
                                   count_destroy, &loss),
               ACCEL_ERROR_TORCH, "the loss is no number");
  assert_int_equal(calls.destroyed, 2);
  assert_ok(accel_optimizer_zero_grad(fixture->optimizer, 1));
  accel_tensor_release(zeros);
}

static void test_wrong_arguments(void **state) {
  struct fixture *const fixture = *state;
  const accel_value_t inputs = accel_arg_tensor(fixture->input), targets = accel_arg_tensor(fixture->labels),
                      few = accel_arg_tensor(fixture->few);
  accel_state_t *const seat = fixture->state;
  accel_module_t *const model = fixture->prepared;
  double loss = 0;
  assert_fails(accel_pipeline_step(seat, fixture->model, &inputs, &targets, "cross_entropy", NULL, NULL, NULL, &loss),
               ACCEL_ERROR_INVALID_ARGUMENT, "module is not prepared");
  assert_fails(accel_pipeline_step(seat, model, &inputs, &targets, "mse", NULL, NULL, NULL, &loss),
               ACCEL_ERROR_INVALID_ARGUMENT, "loss_name is 'mse'");
  assert_fails(accel_pipeline_step(seat, model, NULL, &targets, "cross_entropy", NULL, NULL, NULL, &loss),
               ACCEL_ERROR_INVALID_ARGUMENT, "there are no inputs");
  assert_fails(accel_pipeline_step(seat, model, &inputs, NULL, "cross_entropy", NULL, NULL, NULL, &loss),
               ACCEL_ERROR_INVALID_ARGUMENT, "there are no targets");
  assert_fails(accel_pipeline_step(seat, model, &inputs, NULL, "cross_entropy_sum", NULL, NULL, NULL, &loss),
               ACCEL_ERROR_INVALID_ARGUMENT, "no int64 labels");
  assert_fails(accel_pipeline_step(seat, model, &few, &targets, "cross_entropy", NULL, NULL, NULL, &loss),
               ACCEL_ERROR_INVALID_ARGUMENT, "1 rows for 2 micro-batches");
  assert_fails(accel_pipeline_step(seat, model, &inputs, &targets, NULL, NULL, NULL, NULL, &loss),
               ACCEL_ERROR_SHAPE_MISMATCH, "the loss of a micro-batch has shape [2, 3]");
  assert_fails(accel_pipeline_step(seat, model, &inputs, &targets, "cross_entropy", NULL, NULL, NULL, NULL),
               ACCEL_ERROR_INVALID_ARGUMENT, "out_loss is NULL");
  accel_value_t listed = ACCEL_VALUE_INIT;
  assert_ok(accel_value_list(&targets, 1, &listed));
  assert_fails(accel_pipeline_step(seat, model, &inputs, &listed, "cross_entropy", NULL, NULL, NULL, &loss),
               ACCEL_ERROR_TYPE_MISMATCH, "the targets are a list; expected the labels of a cross entropy");
  accel_value_dispose(&listed);
  accel_module_t *chain = NULL;
  assert_fails(accel_pipeline_create(&model, 0, &chain), ACCEL_ERROR_INVALID_ARGUMENT, "n_parts is 0; expected");
}

static void test_one_stage_is_described(void **state) {
  struct fixture *const fixture = *state;
  accel_buffer_t text = {0};
  assert_ok(accel_pipeline_describe(fixture->prepared, &text));
  assert_non_null(strstr(text.data, "one stage"));
  accel_buffer_dispose(&text);
  assert_fails(accel_pipeline_describe(fixture->model, &text), ACCEL_ERROR_INVALID_ARGUMENT, "module is not prepared");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_a_step_is_a_forward_and_a_backward, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_losses_of_programs, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_wrong_arguments, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_one_stage_is_described, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
