/* SPDX-License-Identifier: Apache-2.0 */
/* Models whose weights come later, and the generation of tokens. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "capi_test.h"

static const accel_device_t kCpu = {ACCEL_DEVICE_CPU, -1};

static accel_module_t *new_linear(void) {
  accel_module_t *module = NULL;
  assert_ok(accel_module_linear(2, 2, 1, &module));
  return module;
}

static int is_on_meta(accel_module_t *module, const char *path) {
  accel_tensor_t *tensor = NULL;
  accel_device_t device = {0, 0};
  assert_ok(accel_module_tensor(module, path, &tensor));
  assert_ok(accel_tensor_device(tensor, &device));
  accel_tensor_release(tensor);
  return device.type == ACCEL_DEVICE_META;
}

static void test_empty_weights(void **state) {
  (void)state;
  accel_scope_t *outer = NULL, *inner = NULL;
  accel_module_t *empty = NULL, *filled = NULL, *foreign = NULL;
  const float data[] = {1, 2};
  const int64_t shape[] = {1, 2};
  accel_tensor_t *weight = new_test_tensor(data, shape, 2, ACCEL_DTYPE_FLOAT32);
  assert_ok(accel_init_empty_weights_begin(0, &outer));
  assert_ok(accel_module_batch_norm(2, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, &empty));
  assert_ok(accel_module_create("Foreign", &foreign));
  assert_ok(accel_module_add_parameter(foreign, "weight", weight, 1));
  assert_ok(accel_module_add_buffer(foreign, "buffer", weight, 1));
  assert_ok(accel_init_on_device_begin(&kCpu, 0, &inner));
  filled = new_linear();
  assert_fails(accel_scope_end(outer), ACCEL_ERROR_INVALID_STATE, "innermost");
  assert_ok(accel_scope_end(inner));
  assert_true(is_on_meta(empty, "weight"));
  assert_false(is_on_meta(empty, "running_mean"));
  assert_false(is_on_meta(filled, "weight"));
  assert_true(is_on_meta(foreign, "weight"));
  assert_false(is_on_meta(foreign, "buffer"));
  accel_module_release(filled);
  filled = new_linear();
  assert_true(is_on_meta(filled, "weight"));
  accel_module_release(filled);
  assert_ok(accel_scope_end(outer));
  filled = new_linear();
  assert_false(is_on_meta(filled, "weight"));
  accel_module_release(filled);
  accel_module_release(foreign);
  accel_module_release(empty);
  accel_tensor_release(weight);
}

static void test_buffers_of_empty_models(void **state) {
  (void)state;
  static const struct {
    const char *variable;
    int32_t include_buffers;
    int expected;
  } cases[] = {{NULL, ACCEL_UNSET, 0}, {"yes", ACCEL_UNSET, 1}, {"yes", 0, 0}, {"no", 1, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    accel_scope_t *scope = NULL;
    accel_module_t *module = NULL;
    if (cases[i].variable != NULL) setenv("ACCELERATE_INIT_INCLUDE_BUFFERS", cases[i].variable, 1);
    assert_ok(accel_init_empty_weights_begin(cases[i].include_buffers, &scope));
    unsetenv("ACCELERATE_INIT_INCLUDE_BUFFERS");
    assert_ok(accel_module_batch_norm(2, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, &module));
    assert_ok(accel_scope_end(scope));
    assert_int_equal(is_on_meta(module, "running_mean"), cases[i].expected);
    accel_module_release(module);
  }
  accel_scope_t *scope = NULL;
  assert_fails(accel_init_empty_weights_begin(2, &scope), ACCEL_ERROR_INVALID_ARGUMENT, "include_buffers is 2");
  setenv("ACCELERATE_INIT_INCLUDE_BUFFERS", "perhaps", 1);
  assert_fails(accel_init_empty_weights_begin(ACCEL_UNSET, &scope), ACCEL_ERROR_INVALID_ARGUMENT,
               "ACCELERATE_INIT_INCLUDE_BUFFERS");
  unsetenv("ACCELERATE_INIT_INCLUDE_BUFFERS");
  assert_fails(accel_init_on_device_begin(&(accel_device_t){ACCEL_DEVICE_HPU, 0}, 0, &scope), ACCEL_ERROR_UNSUPPORTED,
               "hpu");
  assert_null(scope);
}

static const float *float_data(const accel_tensor_t *tensor) {
  void *data = NULL;
  assert_ok(accel_tensor_data(tensor, &data));
  return data;
}

static accel_tensor_t *token(int64_t number) {
  const int64_t shape[] = {1, 1};
  return new_test_tensor(&number, shape, 2, ACCEL_DTYPE_INT64);
}

/* One token after the other is the same as all at once. */
static void test_generation(void **state) {
  (void)state;
  static const char config[] =
      "{\"model_type\": \"llama\", \"vocab_size\": 5, \"hidden_size\": 8, \"intermediate_size\": 6, "
      "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1}";
  const int64_t numbers[] = {3, 1, 4}, shape[] = {1, 3};
  accel_module_t *model = NULL;
  accel_scope_t *no_grad = NULL;
  accel_tensor_t *tokens = new_test_tensor(numbers, shape, 2, ACCEL_DTYPE_INT64);
  accel_value_t whole = ACCEL_VALUE_INIT, past = ACCEL_VALUE_INIT;
  assert_ok(accel_module_from_config(config, &model));
  assert_ok(accel_no_grad_begin(&no_grad));
  const accel_value_t input = accel_arg_tensor(tokens);
  assert_ok(accel_module_call(model, &input, 1, &whole));
  const float *const expected = float_data(whole.as.tensor);
  assert_ok(accel_value_list(NULL, 0, &past));
  for (size_t i = 0; i < 3; i++) {
    accel_tensor_t *next = token(numbers[i]);
    accel_value_t named = ACCEL_VALUE_INIT, output = ACCEL_VALUE_INIT;
    const accel_value_t argument = accel_arg_tensor(next);
    assert_ok(accel_value_map(&named));
    assert_ok(accel_value_set(&named, "past_key_values", &past));
    assert_ok(accel_module_call_kw(model, &argument, 1, &named, &output));
    assert_int_equal(accel_value_count(&output), 2);
    const float *const logits = float_data(accel_value_at(&output, 0)->as.tensor);
    for (size_t class = 0; class < 5; class ++) assert_float_equal(logits[class], expected[i * 5 + class], 1e-5);
    accel_value_dispose(&past);
    assert_ok(accel_value_copy(accel_value_at(&output, 1), &past));
    assert_int_equal(accel_value_count(&past), 2);
    accel_value_dispose(&output);
    accel_value_dispose(&named);
    accel_tensor_release(next);
  }
  accel_value_dispose(&past);
  accel_value_dispose(&whole);
  assert_ok(accel_scope_end(no_grad));
  accel_tensor_release(tokens);
  accel_module_release(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_empty_weights),
      capi_unit_test(test_buffers_of_empty_models),
      capi_unit_test(test_generation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
