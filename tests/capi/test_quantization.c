/* SPDX-License-Identifier: Apache-2.0 */
/* Section 7: quantized models. tests/engine/quantized_models_test.cpp compares their tensors with those of
 * bitsandbytes. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include "data_fixture.h"
#include "folder_fixture.h"

#include <sys/stat.h>

#define folder_test(function) cmocka_unit_test_setup_teardown(function, make_folder, remove_folder_and_files)

static const char *const config =
    "{\"model_type\": \"llama\", \"vocab_size\": 11, \"hidden_size\": 64, \"intermediate_size\": 32, "
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 2}";

static accel_module_t *new_decoder(void) {
  accel_module_t *model = NULL;
  assert_ok(accel_module_from_config(config, &model));
  assert_ok(accel_module_train(model, 0));
  return model;
}

/* A folder that accel_module_from_folder() opens. */
static void save(accel_state_t *job, accel_module_t *model, const char *name) {
  char source[512], copy[512];
  snprintf(source, sizeof source, "%s", path_of("source"));
  snprintf(copy, sizeof copy, "%s", path_of(name));
  if (mkdir(source, 0700) == 0) write_text(path_of("source/config.json"), config);
  assert_ok(accel_save_model_folder(job, model, source, copy, NULL));
}

static accel_value_t state_of(const accel_module_t *model) {
  accel_value_t tensors = ACCEL_VALUE_INIT;
  assert_ok(accel_module_state_dict(model, &tensors));
  return tensors;
}

static void assert_same_state(const accel_module_t *model, const accel_value_t *expected) {
  accel_value_t tensors = state_of(model);
  int32_t equal = 0;
  assert_ok(accel_value_equal(&tensors, expected, &equal));
  assert_int_equal(equal, 1);
  accel_value_dispose(&tensors);
}

static void test_models_in_memory_are_quantized(void **state) {
  (void)state;
  accel_module_t *const model = new_decoder();
  accel_quantization_options_t options = ACCEL_QUANTIZATION_OPTIONS_INIT;
  accel_value_t names = ACCEL_VALUE_INIT, none = from_json("[]"), kept = from_json("[\"mlp\"]");
  options.keep_in_fp32_modules = &kept;
  options.dtype = ACCEL_DTYPE_BFLOAT16;
  assert_ok(accel_module_quantize(model, &options, &names));
  assert_json(&names,
              "[\"model.layers.0.self_attn.q_proj\",\"model.layers.0.self_attn.k_proj\","
              "\"model.layers.0.self_attn.v_proj\",\"model.layers.0.self_attn.o_proj\"]");
  accel_value_t tensors = state_of(model);
  accel_dtype_t dtype = 0;
  assert_ok(accel_tensor_dtype(accel_value_get(&tensors, "model.layers.0.self_attn.q_proj.weight")->as.tensor, &dtype));
  assert_int_equal(dtype, ACCEL_DTYPE_INT8);
  assert_ok(accel_tensor_dtype(accel_value_get(&tensors, "model.layers.0.mlp.up_proj.weight")->as.tensor, &dtype));
  assert_int_equal(dtype, ACCEL_DTYPE_FLOAT32);
  assert_ok(accel_tensor_dtype(accel_value_get(&tensors, "lm_head.weight")->as.tensor, &dtype));
  assert_int_equal(dtype, ACCEL_DTYPE_BFLOAT16);
  accel_value_dispose(&tensors);
  accel_value_dispose(&names);
  assert_fails(accel_module_quantize(model, NULL, &names), ACCEL_ERROR_INVALID_STATE, "quantized already");
  accel_module_release(model);

  /* An empty list leaves nothing out, not the head either. */
  accel_module_t *const whole = new_decoder();
  options = (accel_quantization_options_t)ACCEL_QUANTIZATION_OPTIONS_INIT;
  options.skip_modules = &none;
  assert_ok(accel_module_quantize(whole, &options, &names));
  assert_int_equal(accel_value_count(&names), 8);
  accel_value_dispose(&names);
  accel_module_release(whole);
  accel_value_dispose(&none);
  accel_value_dispose(&kept);
}

static void test_folders_are_quantized_as_they_are_read(void **state) {
  (void)state;
  static const struct {
    accel_quantization_kind_t kind;
    const char *tensor; /* that the kind has */
  } kinds[] = {
      {ACCEL_QUANTIZATION_KIND_INT8, "SCB"},
      {ACCEL_QUANTIZATION_KIND_INT8_DYNAMIC, "SCB"},
      {ACCEL_QUANTIZATION_KIND_LLM_INT8, "SCB"},
      {ACCEL_QUANTIZATION_KIND_NF4, "weight_absmax"},
      {ACCEL_QUANTIZATION_KIND_FP4, "weight_absmax"},
      {ACCEL_QUANTIZATION_KIND_INT4, "weight_scales"},
      {ACCEL_QUANTIZATION_KIND_INT8_GROUPED, "weight_scales"},
      {ACCEL_QUANTIZATION_KIND_FLOAT8_E4M3, "weight_scales"},
      {ACCEL_QUANTIZATION_KIND_FLOAT8_E5M2, "weight_scales"},
  };
  accel_state_t *const job = new_state();
  accel_module_t *const plain = new_decoder();
  save(job, plain, "plain");
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    accel_quantization_options_t options = ACCEL_QUANTIZATION_OPTIONS_INIT;
    accel_module_t *opened = NULL, *copy = NULL;
    accel_value_t names = ACCEL_VALUE_INIT;
    char name[96];
    options.kind = kinds[i].kind;
    assert_ok(accel_module_from_folder(path_of("plain"), &options, &opened));
    accel_value_t tensors = state_of(opened);
    snprintf(name, sizeof name, "model.layers.0.mlp.up_proj.%s", kinds[i].tensor);
    assert_non_null(accel_value_get(&tensors, name));
    assert_ok(accel_module_from_folder(path_of("plain"), NULL, &copy));
    assert_ok(accel_module_quantize(copy, &options, &names));
    assert_int_equal(accel_value_count(&names), 7);
    assert_same_state(copy, &tensors);
    accel_value_dispose(&names);
    accel_value_dispose(&tensors);
    accel_module_release(copy);
    accel_module_release(opened);
  }
  accel_module_release(plain);
  accel_state_release(job);
}

static void test_quantized_folders_stay_so(void **state) {
  (void)state;
  accel_state_t *const job = new_state();
  accel_module_t *const model = new_decoder();
  accel_module_t *opened = NULL, *refused = NULL;
  accel_quantization_options_t options = ACCEL_QUANTIZATION_OPTIONS_INIT;
  accel_value_t names = ACCEL_VALUE_INIT;
  options.kind = ACCEL_QUANTIZATION_KIND_NF4;
  options.has_double_quantization = 1;
  assert_ok(accel_module_quantize(model, &options, &names));
  save(job, model, "copy");
  accel_value_t tensors = state_of(model);
  assert_non_null(accel_value_get(&tensors, "model.layers.0.mlp.up_proj.weight_nested_absmax"));
  assert_ok(accel_module_from_folder(path_of("copy"), NULL, &opened));
  assert_same_state(opened, &tensors);
  assert_fails(accel_module_from_folder(path_of("copy"), &options, &refused), ACCEL_ERROR_INVALID_ARGUMENT,
               "quantization_config");
  accel_value_dispose(&tensors);
  accel_value_dispose(&names);
  accel_module_release(opened);
  accel_module_release(model);
  accel_state_release(job);
}

static void test_wrong_options_are_refused(void **state) {
  (void)state;
  accel_state_t *const job = new_state();
  accel_module_t *const model = new_decoder();
  accel_module_t *opened = NULL, *prepared = NULL;
  accel_value_t out = ACCEL_VALUE_INIT, names = from_json("[\"nowhere\"]"), text = from_json("\"mlp\""),
                number = from_json("[1]");
  accel_quantization_options_t options = ACCEL_QUANTIZATION_OPTIONS_INIT;
  const accel_quantization_options_t unset = options;
  accel_value_t before = state_of(model);
  options.kind = 9;
  assert_fails(accel_module_quantize(model, &options, &out), ACCEL_ERROR_INVALID_ARGUMENT, "options.kind is 9");
  options = unset;
  options.group = 64;
  assert_fails(accel_module_quantize(model, &options, &out), ACCEL_ERROR_INVALID_ARGUMENT, "group is 64");
  assert_fails(accel_module_from_folder("nowhere", &options, &opened), ACCEL_ERROR_INVALID_ARGUMENT, "has no kind");
  options.kind = ACCEL_QUANTIZATION_KIND_INT4;
  options.group = 48;
  assert_fails(accel_module_quantize(model, &options, &out), ACCEL_ERROR_INVALID_ARGUMENT, "group is 48");
  options.group = -1;
  assert_fails(accel_module_quantize(model, &options, &out), ACCEL_ERROR_INVALID_ARGUMENT, "options.group is -1");
  options = unset;
  options.has_double_quantization = 1;
  assert_fails(accel_module_quantize(model, &options, &out), ACCEL_ERROR_INVALID_ARGUMENT, "double quantization");
  options = unset;
  options.compute_dtype = ACCEL_DTYPE_INT8;
  assert_fails(accel_module_quantize(model, &options, &out), ACCEL_ERROR_INVALID_ARGUMENT, "compute dtype is int8");
  options = unset;
  options.dtype = ACCEL_DTYPE_INT64;
  assert_fails(accel_module_quantize(model, &options, &out), ACCEL_ERROR_INVALID_ARGUMENT, "options.dtype is int64");
  options = unset;
  options.skip_modules = &names;
  assert_fails(accel_module_quantize(model, &options, &out), ACCEL_ERROR_NOT_FOUND, "skip_modules has 'nowhere'");
  options.skip_modules = &text;
  assert_fails(accel_module_quantize(model, &options, &out), ACCEL_ERROR_TYPE_MISMATCH, "skip_modules is a string");
  options.skip_modules = NULL;
  options.keep_in_fp32_modules = &number;
  assert_fails(accel_module_quantize(model, &options, &out), ACCEL_ERROR_TYPE_MISMATCH, "keep_in_fp32_modules has");
  assert_same_state(model, &before);

  assert_ok(accel_prepare_model(job, model, NULL, &prepared));
  assert_fails(accel_module_quantize(prepared, NULL, &out), ACCEL_ERROR_INVALID_STATE, "prepared");
  accel_value_dispose(&before);
  accel_value_dispose(&names);
  accel_value_dispose(&text);
  accel_value_dispose(&number);
  accel_module_release(prepared);
  accel_module_release(model);
  accel_state_release(job);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_models_in_memory_are_quantized, assert_nothing_left),
      folder_test(test_folders_are_quantized_as_they_are_read),
      folder_test(test_quantized_folders_stay_so),
      cmocka_unit_test_teardown(test_wrong_options_are_refused, assert_nothing_left),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
