/* SPDX-License-Identifier: Apache-2.0 */
/* Section 7: tokens that a decoder adds. tests/engine/generation_test.cpp compares the tokens themselves. */
#define _POSIX_C_SOURCE 200809L /* mkstemp */
#include <stdlib.h>
#include <unistd.h>

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

static int64_t counted(accel_generation_batch_t *batch, const char *name) {
  accel_value_t info = ACCEL_VALUE_INIT;
  assert_ok(accel_generation_batch_info(batch, &info));
  const int64_t count = accel_value_get(&info, name)->as.integer;
  accel_value_dispose(&info);
  return count;
}

static void test_batches_give_the_tokens_of_each_sequence(void **state) {
  (void)state;
  accel_module_t *const model = new_decoder();
  const int64_t prompt[] = {1, 5, 2}, shape[] = {3};
  accel_tensor_t *const tokens = new_test_tensor(prompt, shape, 1, ACCEL_DTYPE_INT64);
  accel_generation_batch_options_t limits = ACCEL_GENERATION_BATCH_OPTIONS_INIT;
  accel_generate_options_t options = ACCEL_GENERATE_OPTIONS_INIT;
  accel_generation_batch_t *batch = NULL;
  int64_t first = -1, second = -1, heard = 0, ended = 0;
  limits.max_sequences = 0;
  assert_fails(accel_generation_batch_create(model, &limits, &batch), ACCEL_ERROR_INVALID_ARGUMENT, "max_sequences");
  limits.max_sequences = 2;
  assert_ok(accel_generation_batch_create(model, &limits, &batch));
  options.max_new_tokens = 4;
  assert_ok(accel_generation_batch_add(batch, tokens, &options, &first));
  assert_ok(accel_generation_batch_add(batch, tokens, NULL, &second));
  assert_int_equal(first, 0);
  assert_int_equal(counted(batch, "waiting"), 2);
  for (int step = 0; step < 4; step++) {
    accel_value_t added = ACCEL_VALUE_INIT;
    assert_ok(accel_generation_batch_step(batch, &added));
    assert_int_equal(accel_value_count(&added), 2);
    for (size_t i = 0; i < 2; i++) {
      const accel_value_t *const token = accel_value_at(&added, i);
      heard += accel_value_get(token, "token")->as.integer < 11;
      ended += accel_value_get(token, "end")->as.string[0] != 0;
      assert_true(accel_value_get(token, "log_probability")->as.number <= 0);
    }
    accel_value_dispose(&added);
  }
  assert_int_equal(heard, 8);
  assert_int_equal(ended, 1);
  assert_int_equal(counted(batch, "running"), 1);
  assert_ok(accel_generation_batch_cancel(batch, second));
  assert_fails(accel_generation_batch_cancel(batch, second), ACCEL_ERROR_NOT_FOUND, "no sequence 1");
  options.load_prompt_cache = "prompt.safetensors";
  assert_fails(accel_generation_batch_add(batch, tokens, &options, &first), ACCEL_ERROR_UNSUPPORTED,
               "load_prompt_cache");
  accel_generation_batch_release(batch);
  accel_tensor_release(tokens);
  accel_module_release(model);
}

static void test_prompt_caches_are_files(void **state) {
  (void)state;
  accel_module_t *const model = new_decoder(), *const other = new_decoder();
  const int64_t prompt[] = {1, 5, 2}, shape[] = {1, 3};
  accel_tensor_t *const tokens = new_test_tensor(prompt, shape, 2, ACCEL_DTYPE_INT64);
  accel_generate_options_t options = ACCEL_GENERATE_OPTIONS_INIT;
  accel_value_t generated = ACCEL_VALUE_INIT, stops = from_json("[[3, \"x\"]]");
  char path[] = "/tmp/accel_prompt_XXXXXX";
  const int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
  options.save_prompt_cache = path;
  assert_ok(accel_module_generate(model, tokens, NULL, &options, NULL, NULL, NULL, &generated));
  accel_value_dispose(&generated);
  options.save_prompt_cache = NULL;
  options.load_prompt_cache = path;
  options.draft_model = other;
  assert_ok(accel_module_generate(model, tokens, NULL, &options, NULL, NULL, NULL, &generated));
  accel_value_dispose(&generated);
  options.draft_model = NULL;
  assert_fails(accel_module_generate(other, tokens, NULL, &options, NULL, NULL, NULL, &generated),
               ACCEL_ERROR_INVALID_ARGUMENT, "of another model");
  options.load_prompt_cache = NULL;
  options.stop_sequences = &stops;
  assert_fails(accel_module_generate(model, tokens, NULL, &options, NULL, NULL, NULL, &generated),
               ACCEL_ERROR_TYPE_MISMATCH, "options.stop_sequences has a");
  accel_value_dispose(&stops);
  unlink(path);
  accel_tensor_release(tokens);
  accel_module_release(other);
  accel_module_release(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_tokens_are_added),           capi_unit_test(test_listeners_hear_and_end),
      capi_unit_test(test_wrong_arguments_are_errors), capi_unit_test(test_batches_give_the_tokens_of_each_sequence),
      capi_unit_test(test_prompt_caches_are_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
