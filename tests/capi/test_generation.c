/* Section 7: tokens that a decoder adds. tests/engine/generation_test.cpp compares the tokens themselves. */
#include "capi_test.h"

static accel_module_t *new_decoder(void) {
  accel_module_t *model = NULL;
  assert_ok(accel_module_from_config(
      "{\"model_type\": \"llama\", \"vocab_size\": 11, \"hidden_size\": 8, \"intermediate_size\": 6, "
      "\"num_hidden_layers\": 2, \"num_attention_heads\": 2}",
      &model));
  assert_ok(accel_module_train(model, 0));
  return model;
}

static accel_tensor_t *new_tokens(void) {
  const int64_t tokens[] = {1, 5, 2, 7, 3, 4}, shape[] = {2, 3};
  return new_test_tensor(tokens, shape, 2, ACCEL_DTYPE_INT64);
}

static int64_t new_length(const accel_value_t *generated) {
  int64_t length = 0;
  accel_tensor_t *const tokens = accel_value_get(generated, "tokens")->as.tensor;
  assert_ok(accel_tensor_numel(tokens, &length));
  return length / 2 - 3;
}

struct listener {
  int heard, most, destroyed;
  accel_status_t status;
};

static accel_status_t hear(accel_tensor_t *tokens, accel_value_t *out_goes_on, void *user_data) {
  struct listener *const listener = user_data;
  int64_t count = 0;
  assert_ok(accel_tensor_numel(tokens, &count));
  assert_int_equal(count, 2);
  listener->heard++;
  if (listener->heard >= listener->most) *out_goes_on = accel_arg_bool(0);
  return listener->status;
}

static void end_listener(void *user_data) { ((struct listener *)user_data)->destroyed++; }

static void test_tokens_are_added(void **state) {
  (void)state;
  accel_module_t *const model = new_decoder();
  accel_tensor_t *const tokens = new_tokens();
  accel_generate_options_t options = ACCEL_GENERATE_OPTIONS_INIT;
  accel_value_t generated = ACCEL_VALUE_INIT;
  assert_ok(accel_module_generate(model, tokens, NULL, NULL, NULL, NULL, NULL, &generated));
  assert_int_equal(new_length(&generated), 20);
  accel_value_dispose(&generated);
  options.max_new_tokens = 5;
  options.sample = 1;
  options.seed = 3;
  assert_ok(accel_module_generate(model, tokens, NULL, &options, NULL, NULL, NULL, &generated));
  assert_int_equal(new_length(&generated), 5);
  accel_value_dispose(&generated);
  accel_tensor_release(tokens);
  accel_module_release(model);
}

static void test_listeners_hear_and_end(void **state) {
  (void)state;
  accel_module_t *const model = new_decoder();
  accel_tensor_t *const tokens = new_tokens();
  struct listener listener = {0, 3, 0, ACCEL_OK};
  accel_value_t generated = ACCEL_VALUE_INIT;
  assert_ok(accel_module_generate(model, tokens, NULL, NULL, hear, &listener, end_listener, &generated));
  assert_int_equal(new_length(&generated), 3);
  assert_int_equal(listener.heard, 3);
  assert_int_equal(listener.destroyed, 1);
  accel_value_dispose(&generated);
  listener.status = ACCEL_ERROR_NOT_FOUND;
  assert_status(accel_module_generate(model, tokens, NULL, NULL, hear, &listener, end_listener, &generated),
                ACCEL_ERROR_NOT_FOUND);
  assert_int_equal(listener.destroyed, 2);
  accel_tensor_release(tokens);
  accel_module_release(model);
}

static void test_wrong_arguments_are_errors(void **state) {
  (void)state;
  accel_module_t *const model = new_decoder();
  accel_tensor_t *const tokens = new_tokens();
  accel_generate_options_t options = ACCEL_GENERATE_OPTIONS_INIT;
  accel_value_t generated = ACCEL_VALUE_INIT, stops = from_json("[1, \"x\"]");
  options.stop_tokens = &stops;
  assert_fails(accel_module_generate(model, tokens, NULL, &options, NULL, NULL, NULL, &generated),
               ACCEL_ERROR_TYPE_MISMATCH, "options.stop_tokens has a");
  options.stop_tokens = NULL;
  options.temperature = 0;
  assert_fails(accel_module_generate(model, tokens, NULL, &options, NULL, NULL, NULL, &generated),
               ACCEL_ERROR_INVALID_ARGUMENT, "temperature");
  assert_ok(accel_module_train(model, 1));
  assert_fails(accel_module_generate(model, tokens, NULL, NULL, NULL, NULL, NULL, &generated),
               ACCEL_ERROR_INVALID_STATE, "accel_module_train(module, 0)");
  accel_value_dispose(&stops);
  accel_tensor_release(tokens);
  accel_module_release(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_tokens_are_added),
      capi_unit_test(test_listeners_hear_and_end),
      capi_unit_test(test_wrong_arguments_are_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
