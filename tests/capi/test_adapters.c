/* SPDX-License-Identifier: Apache-2.0 */
/* Section 7: adapters of models. tests/engine/adapters_test.cpp compares their numbers with PEFT's. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include "folder_fixture.h"

#include <sys/stat.h>

#define folder_test(function) cmocka_unit_test_setup_teardown(function, make_folder, remove_folder_and_files)

static const char *const config =
    "{\"model_type\": \"llama\", \"vocab_size\": 11, \"hidden_size\": 8, \"intermediate_size\": 6, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 2}";

static accel_module_t *new_decoder(void) {
  accel_module_t *model = NULL;
  assert_ok(accel_module_from_config(config, &model));
  assert_ok(accel_module_train(model, 0));
  return model;
}

/* An adapter that changes the model from the beginning. */
static void add(accel_module_t *model, const char *name, const char *targets) {
  accel_lora_options_t options = ACCEL_LORA_OPTIONS_INIT;
  accel_value_t names = from_json(targets);
  options.rank = 2;
  options.init = ACCEL_LORA_INIT_RANDOM;
  options.target_modules = &names;
  assert_ok(accel_module_add_adapter(model, name, &options));
  accel_value_dispose(&names);
}

static accel_value_t logits_of(accel_module_t *model) {
  const int64_t tokens[] = {1, 5, 2, 7, 3, 4}, shape[] = {2, 3};
  accel_value_t output = ACCEL_VALUE_INIT, logits = ACCEL_VALUE_INIT;
  accel_tensor_t *const input = new_test_tensor(tokens, shape, 2, ACCEL_DTYPE_INT64);
  const accel_value_t argument = accel_arg_tensor(input);
  accel_scope_t *scope = NULL;
  assert_ok(accel_no_grad_begin(&scope));
  assert_ok(accel_module_call(model, &argument, 1, &output));
  assert_ok(accel_scope_end(scope));
  assert_ok(accel_value_copy(accel_value_get(&output, "logits") != NULL ? accel_value_get(&output, "logits") : &output,
                             &logits));
  accel_value_dispose(&output);
  accel_tensor_release(input);
  return logits;
}

/* Up to the rounding of kernels for other memory. */
static int gives(accel_module_t *model, const accel_value_t *expected) {
  accel_value_t found = logits_of(model);
  void *numbers = NULL, *expected_numbers = NULL;
  int64_t count = 0;
  int is_close = 1;
  assert_ok(accel_tensor_numel(found.as.tensor, &count));
  assert_ok(accel_tensor_data(found.as.tensor, &numbers));
  assert_ok(accel_tensor_data(expected->as.tensor, &expected_numbers));
  for (int64_t i = 0; i < count; i++) {
    const float difference = ((const float *)numbers)[i] - ((const float *)expected_numbers)[i];
    if (!(difference < 1e-6F && difference > -1e-6F)) is_close = 0;
  }
  accel_value_dispose(&found);
  return is_close;
}

/* What accel_module_adapters() has of all adapters under these keys. */
static void assert_adapters(const accel_module_t *model, const char *name, const char *key, const char *expected) {
  accel_value_t adapters = ACCEL_VALUE_INIT;
  assert_ok(accel_module_adapters(model, &adapters));
  assert_json(accel_value_get(accel_value_get(&adapters, name), key), expected);
  accel_value_dispose(&adapters);
}

static int64_t count_trainable(const accel_module_t *model) {
  accel_value_t parameters = ACCEL_VALUE_INIT;
  int64_t count = 0;
  assert_ok(accel_module_named_parameters(model, &parameters));
  for (size_t i = 0; i < accel_value_count(&parameters); i++) {
    int32_t requires_grad = 0;
    assert_ok(accel_tensor_requires_grad(accel_value_at(&parameters, i)->as.tensor, &requires_grad));
    count += requires_grad;
  }
  accel_value_dispose(&parameters);
  return count;
}

static void test_adapters_are_added_and_chosen(void **state) {
  (void)state;
  static const char *const one[] = {"one"}, *const two[] = {"two"};
  accel_module_t *const model = new_decoder();
  accel_scope_t *scope = NULL;
  accel_value_t plain = logits_of(model);
  add(model, "one", "[\"q_proj\", \"v_proj\"]");
  assert_int_equal(count_trainable(model), 8);
  accel_value_t first = logits_of(model);
  assert_false(gives(model, &plain));
  add(model, "two", "\"model.layers.1.mlp.(up|down)_proj\"");
  assert_int_equal(count_trainable(model), 4);
  accel_value_t second = logits_of(model);
  assert_adapters(model, "one", "active", "false");
  assert_adapters(model, "two", "active", "true");
  assert_adapters(model, "two", "layers", "[\"model.layers.1.mlp.up_proj\",\"model.layers.1.mlp.down_proj\"]");

  assert_ok(accel_module_activate_adapters(model, one, 1));
  assert_true(gives(model, &first));
  assert_ok(accel_use_adapters_begin(two, 1, &scope));
  assert_true(gives(model, &second));
  assert_ok(accel_scope_end(scope));
  assert_ok(accel_use_adapters_begin(NULL, 0, &scope));
  assert_true(gives(model, &plain));
  assert_ok(accel_scope_end(scope));
  assert_true(gives(model, &first));
  assert_ok(accel_module_activate_adapters(model, NULL, 0));
  assert_true(gives(model, &plain));
  assert_ok(accel_module_remove_adapter(model, "one"));
  assert_ok(accel_module_remove_adapter(model, "two"));
  accel_value_t adapters = ACCEL_VALUE_INIT;
  assert_ok(accel_module_adapters(model, &adapters));
  assert_json(&adapters, "{}");
  accel_value_dispose(&adapters);
  accel_value_dispose(&plain);
  accel_value_dispose(&first);
  accel_value_dispose(&second);
  accel_module_release(model);
}

static void test_defaults_take_all_linear_layers(void **state) {
  (void)state;
  accel_module_t *const model = new_decoder();
  accel_value_t plain = logits_of(model);
  assert_ok(accel_module_add_adapter(model, "one", NULL));
  assert_true(gives(model, &plain));
  assert_int_equal(count_trainable(model), 2 * 7 * 2);
  accel_optimizer_t *optimizer = NULL;
  accel_value_t saved = ACCEL_VALUE_INIT;
  assert_ok(accel_optimizer_adamw(model, NULL, &optimizer));
  assert_ok(accel_optimizer_state_dict(optimizer, &saved));
  const accel_value_t *const group = accel_value_at(accel_value_get(&saved, "param_groups"), 0);
  assert_int_equal(accel_value_count(accel_value_get(group, "params")), 2 * 7 * 2);
  accel_value_dispose(&saved);
  accel_optimizer_release(optimizer);
  accel_value_dispose(&plain);
  accel_module_release(model);
}

static void test_options_are_those_of_peft(void **state) {
  (void)state;
  accel_module_t *const model = new_decoder();
  accel_lora_options_t options = ACCEL_LORA_OPTIONS_INIT;
  accel_value_t targets = from_json("[\"q_proj\", \"k_proj\"]"),
                excluded = from_json("[\"layers.0.self_attn.k_proj\"]");
  accel_value_t layers = from_json("[0]"), patterns = from_json("[\"layers\"]"), ranks = from_json("{\"q_proj\": 3}");
  accel_value_t alphas = from_json("{\"q_proj\": 6.5}"), whole = from_json("[\"lm_head\"]");
  options.rank = 4;
  options.alpha = 16;
  options.dropout = 0.25;
  options.use_rslora = 1;
  options.use_dora = 1;
  options.init = ACCEL_LORA_INIT_GAUSSIAN;
  options.bias = ACCEL_LORA_BIAS_LORA_ONLY;
  options.target_modules = &targets;
  options.exclude_modules = &excluded;
  options.layers_to_transform = &layers;
  options.layers_pattern = &patterns;
  options.rank_pattern = &ranks;
  options.alpha_pattern = &alphas;
  options.modules_to_save = &whole;
  assert_ok(accel_module_add_adapter(model, "one", &options));
  assert_int_equal(count_trainable(model), 3 + 1); /* lora_A, lora_B and a magnitude; lm_head */
  assert_adapters(model, "one", "layers", "[\"model.layers.0.self_attn.q_proj\"]");
  assert_adapters(
      model, "one", "config",
      "{\"peft_type\":\"LORA\",\"task_type\":null,\"base_model_name_or_path\":null,\"inference_mode\":true,\"r\":4,"
      "\"lora_alpha\":16.0,\"lora_dropout\":0.25,\"target_modules\":[\"q_proj\",\"k_proj\"],"
      "\"exclude_modules\":[\"layers.0.self_attn.k_proj\"],\"fan_in_fan_out\":false,\"bias\":\"lora_only\","
      "\"use_rslora\":true,\"use_dora\":true,\"init_lora_weights\":\"gaussian\",\"modules_to_save\":[\"lm_head\"],"
      "\"layers_to_transform\":[0],\"layers_pattern\":[\"layers\"],\"rank_pattern\":{\"q_proj\":3},"
      "\"alpha_pattern\":{\"q_proj\":6.5}}");
  accel_value_t *const values[] = {&targets, &excluded, &layers, &patterns, &ranks, &alphas, &whole};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) accel_value_dispose(values[i]);
  accel_module_release(model);
}

static void test_folders_come_back(void **state) {
  (void)state;
  accel_state_t *const job = new_state();
  accel_module_t *const model = new_decoder(), *const other = new_decoder();
  accel_module_t *prepared = NULL;
  accel_value_t weights = ACCEL_VALUE_INIT;
  char saved[512];
  snprintf(saved, sizeof saved, "%s", path_of("adapter"));
  assert_ok(accel_module_state_dict(model, &weights));
  assert_ok(accel_module_load_state_dict(other, &weights, 1));
  add(model, "one", "[\"q_proj\"]");
  accel_value_t expected = logits_of(model);
  assert_ok(accel_prepare_model(job, model, NULL, &prepared));
  assert_ok(accel_save_adapter(job, prepared, "one", saved));
  assert_ok(accel_module_load_adapter(other, "again", saved));
  assert_true(gives(other, &expected));
  assert_adapters(other, "again", "active", "true");

  assert_fails(accel_module_load_adapter(other, "again", saved), ACCEL_ERROR_ALREADY_EXISTS, "again");
  assert_fails(accel_module_load_adapter(other, "more", path_of("none")), ACCEL_ERROR_NOT_FOUND, "none");
  assert_fails(accel_save_adapter(job, model, "two", saved), ACCEL_ERROR_NOT_FOUND, "has no adapter 'two'");
  accel_value_dispose(&expected);
  accel_value_dispose(&weights);
  accel_module_release(prepared);
  accel_module_release(other);
  accel_module_release(model);
  accel_state_release(job);
}

static void write_text(const char *path, const char *text) {
  FILE *const file = fopen(path, "w");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

static void test_merged_models_are_saved_as_such(void **state) {
  (void)state;
  accel_state_t *const job = new_state();
  accel_module_t *const model = new_decoder();
  accel_module_t *opened = NULL, *prepared = NULL;
  accel_value_t weights = ACCEL_VALUE_INIT;
  char source[512], copy[512];
  snprintf(source, sizeof source, "%s", path_of("source"));
  snprintf(copy, sizeof copy, "%s", path_of("copy"));
  assert_int_equal(mkdir(source, 0700), 0);
  write_text(path_of("source/config.json"), config);
  accel_value_t plain = logits_of(model);
  add(model, "one", "[\"q_proj\", \"down_proj\"]");
  assert_ok(accel_prepare_model(job, model, NULL, &prepared));
  assert_ok(accel_module_merge_adapters(prepared));
  assert_adapters(prepared, "one", "merged", "true");
  accel_value_t merged = logits_of(prepared);
  assert_ok(accel_save_model_folder(job, prepared, source, copy, NULL));
  assert_ok(accel_module_from_folder(copy, NULL, &opened));
  assert_ok(accel_module_train(opened, 0));
  assert_true(gives(opened, &merged));
  assert_ok(accel_load_state_dict(copy, NULL, &weights));
  for (size_t i = 0; i < accel_value_count(&weights); i++) assert_null(strstr(accel_value_key(&weights, i), "lora"));
  assert_fails(accel_module_remove_adapter(model, "one"), ACCEL_ERROR_INVALID_STATE, "is merged");
  assert_ok(accel_module_unmerge_adapters(model));
  assert_false(gives(opened, &plain));
  assert_ok(accel_module_remove_adapter(model, "one"));
  accel_value_dispose(&weights);
  accel_value_dispose(&merged);
  accel_value_dispose(&plain);
  accel_module_release(opened);
  accel_module_release(prepared);
  accel_module_release(model);
  accel_state_release(job);
}

static void test_wrong_calls_are_refused(void **state) {
  (void)state;
  static const char *const missing[] = {"none"}, *const null[] = {NULL};
  accel_state_t *const job = new_state();
  accel_module_t *const model = new_decoder();
  accel_module_t *prepared = NULL;
  accel_scope_t *scope = NULL;
  accel_lora_options_t options = ACCEL_LORA_OPTIONS_INIT;
  accel_value_t names = from_json("[1]");
  options.target_modules = &names;
  assert_fails(accel_module_add_adapter(model, "one", &options), ACCEL_ERROR_INVALID_ARGUMENT, "target_modules has 1");
  accel_value_dispose(&names);
  names = from_json("[\"other_proj\"]");
  assert_fails(accel_module_add_adapter(model, "one", &options), ACCEL_ERROR_NOT_FOUND, "other_proj");
  options.target_modules = NULL;
  options.rank_pattern = &names;
  assert_fails(accel_module_add_adapter(model, "one", &options), ACCEL_ERROR_INVALID_ARGUMENT, "rank_pattern");
  options.rank_pattern = NULL;
  options.rank = 0;
  assert_fails(accel_module_add_adapter(model, "one", &options), ACCEL_ERROR_INVALID_ARGUMENT, "options.rank is 0");
  options.rank = ACCEL_UNSET_INT64;
  options.dropout = 1;
  assert_fails(accel_module_add_adapter(model, "one", &options), ACCEL_ERROR_INVALID_ARGUMENT, "options.dropout is 1");
  options.dropout = ACCEL_UNSET_DOUBLE;
  options.bias = 3;
  assert_fails(accel_module_add_adapter(model, "one", &options), ACCEL_ERROR_INVALID_ARGUMENT, "options.bias is 3");
  assert_fails(accel_module_add_adapter(model, "a.b", NULL), ACCEL_ERROR_INVALID_ARGUMENT, "without a dot");
  assert_fails(accel_module_activate_adapters(model, missing, 1), ACCEL_ERROR_NOT_FOUND, "has no adapter 'none'");
  assert_fails(accel_module_activate_adapters(model, null, 1), ACCEL_ERROR_INVALID_ARGUMENT, "names");
  assert_fails(accel_module_remove_adapter(model, "none"), ACCEL_ERROR_NOT_FOUND, "has no adapter 'none'");
  assert_fails(accel_use_adapters_begin(NULL, 1, &scope), ACCEL_ERROR_INVALID_ARGUMENT, "names");

  assert_ok(accel_prepare_model(job, model, NULL, &prepared));
  assert_fails(accel_module_add_adapter(prepared, "one", NULL), ACCEL_ERROR_INVALID_STATE, "prepared");
  assert_fails(accel_module_load_adapter(prepared, "one", "none"), ACCEL_ERROR_INVALID_STATE, "prepared");
  assert_fails(accel_module_activate_adapters(prepared, NULL, 0), ACCEL_ERROR_INVALID_STATE,
               "accel_use_adapters_begin");
  assert_fails(accel_module_remove_adapter(prepared, "one"), ACCEL_ERROR_INVALID_STATE, "prepared");
  accel_value_dispose(&names);
  accel_module_release(prepared);
  accel_module_release(model);
  accel_state_release(job);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_adapters_are_added_and_chosen), capi_unit_test(test_defaults_take_all_linear_layers),
      capi_unit_test(test_options_are_those_of_peft),     folder_test(test_folders_come_back),
      folder_test(test_merged_models_are_saved_as_such),  capi_unit_test(test_wrong_calls_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
