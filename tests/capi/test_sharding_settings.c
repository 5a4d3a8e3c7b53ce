/* SPDX-License-Identifier: Apache-2.0 */
/* Section 10: settings of sharding, and of DeepSpeed, whose clipping and accumulation hold for one process as well. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "data_fixture.h"

enum { WIDTH = 3, CLASSES = 2 };

/* What the settings of sharding are refused with. */
static void refused(accel_state_t *state, const accel_fsdp_options_t *fsdp, accel_status_t status, const char *part) {
  accel_prepare_model_options_t options = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  accel_module_t *model = NULL, *prepared = NULL;
  assert_ok(accel_module_linear(WIDTH, CLASSES, 0, &model));
  options.fsdp = fsdp;
  assert_fails(accel_prepare_model(state, model, &options, &prepared), status, part);
  accel_module_release(model);
}

static void test_what_does_not_go_together_is_refused(void **unused) {
  accel_state_t *state = new_state();
  accel_fsdp_options_t fsdp = ACCEL_FSDP_OPTIONS_INIT;
  (void)unused;
  fsdp.enabled = 1;
  fsdp.fsdp_version = 3;
  refused(state, &fsdp, ACCEL_ERROR_INVALID_ARGUMENT, "options.fsdp.fsdp_version is 3");
  fsdp.fsdp_version = 1;
  fsdp.activation_checkpointing = fsdp.activation_checkpointing_offload = 1;
  refused(state, &fsdp, ACCEL_ERROR_INVALID_ARGUMENT, "activation_checkpointing_offload is yes and fsdp_version is 1");
  fsdp.fsdp_version = 2;
  fsdp.state_dict_type = ACCEL_STATE_DICT_TYPE_LOCAL_STATE_DICT;
  refused(state, &fsdp, ACCEL_ERROR_INVALID_ARGUMENT, "state_dict_type is local_state_dict and fsdp_version is 2");
  fsdp.state_dict_type = ACCEL_UNSET;
  fsdp.offload_folder = "/fast";
  refused(state, &fsdp, ACCEL_ERROR_INVALID_ARGUMENT, "offload_folder is /fast, and nothing is offloaded");
  accel_state_release(state);
}

static void test_the_environment_and_its_version_decide(void **unused) {
  accel_state_t *state = new_state();
  accel_fsdp_options_t fsdp = ACCEL_FSDP_OPTIONS_INIT;
  (void)unused;
  setenv("ACCELERATE_USE_FSDP", "true", 1);
  setenv("FSDP_RESHARD_AFTER_FORWARD", "most", 1);
  refused(state, NULL, ACCEL_ERROR_INVALID_ARGUMENT,
          "reshard_after_forward is 'most' (from FSDP_RESHARD_AFTER_FORWARD)");
  setenv("FSDP_RESHARD_AFTER_FORWARD", "SHARD_GRAD_OP", 1);
  fsdp.param_dtype = "int8";
  refused(state, &fsdp, ACCEL_ERROR_INVALID_ARGUMENT, "param_dtype is 'int8'");
  setenv("FSDP_VERSION", "2", 1);
  refused(state, &fsdp, ACCEL_ERROR_INVALID_ARGUMENT, "fsdp_version is 2; expected yes or no");
  unsetenv("FSDP_VERSION");
  unsetenv("FSDP_RESHARD_AFTER_FORWARD");
  unsetenv("ACCELERATE_USE_FSDP");
  accel_state_release(state);
}

static void collect(int32_t level, const char *message, void *user_data) {
  if (level >= ACCEL_LOG_WARNING) strncat(user_data, message, 1023 - strlen(user_data));
}

/* The largest part of a step is DeepSpeed's gradient_clipping, and it comes after as many micro-batches as it says. */
static void test_deepspeed_clips_and_accumulates(void **unused) {
  const float inputs[] = {100, -200, 300}, zeros[WIDTH * CLASSES] = {0};
  const int64_t label[] = {1}, input_shape[] = {1, WIDTH}, label_shape[] = {1}, weight_shape[] = {CLASSES, WIDTH};
  accel_state_t *state = new_state();
  accel_prepare_model_options_t options = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  accel_deepspeed_options_t deepspeed = ACCEL_DEEPSPEED_OPTIONS_INIT;
  accel_sgd_options_t sgd = ACCEL_SGD_OPTIONS_INIT;
  accel_module_t *model = NULL, *prepared = NULL;
  accel_optimizer_t *plain = NULL, *optimizer = NULL;
  accel_tensor_t *weight = NULL, *input, *target;
  accel_value_t argument;
  char logged[1024] = "";
  double norm = 0;
  size_t i;
  int step;
  (void)unused;
  deepspeed.enabled = 1;
  deepspeed.hf_ds_config =
      "{\"gradient_clipping\": 0.5, \"gradient_accumulation_steps\": 2, \"steps_per_print\": 10, "
      "\"zero_optimization\": {\"stage\": \"auto\"}}";
  options.deepspeed = &deepspeed;
  sgd.lr = 1;
  assert_ok(accel_set_log_callback(collect, logged, NULL));
  assert_ok(accel_module_linear(WIDTH, CLASSES, 0, &model));
  weight = new_test_tensor(zeros, weight_shape, 2, ACCEL_DTYPE_FLOAT32);
  assert_ok(accel_tensor_set_requires_grad(weight, 1));
  assert_ok(accel_module_replace_tensor(model, "weight", weight));
  assert_ok(accel_optimizer_sgd(model, &sgd, &plain));
  assert_ok(accel_prepare_model(state, model, &options, &prepared));
  assert_ok(accel_prepare_optimizer(state, plain, &optimizer));
  assert_int_equal(accel_gradient_accumulation_steps(state), 2);
  assert_non_null(strstr(logged, "steps_per_print: nothing is printed"));
  assert_non_null(strstr(logged, "gradient_accumulation_steps of the state is 1"));
  input = new_test_tensor(inputs, input_shape, 2, ACCEL_DTYPE_FLOAT32);
  target = new_test_tensor(label, label_shape, 1, ACCEL_DTYPE_INT64);
  argument = accel_arg_tensor(input);
  for (step = 0; step < 2; step++) {
    accel_value_t logits = ACCEL_VALUE_INIT;
    accel_tensor_t *loss = NULL;
    accel_scope_t *scope = NULL;
    assert_ok(accel_accumulate_begin(state, &prepared, 1, &scope));
    assert_ok(accel_module_call(prepared, &argument, 1, &logits));
    assert_ok(accel_cross_entropy(logits.as.tensor, target, &loss));
    assert_ok(accel_backward(state, loss, NULL));
    assert_status(accel_optimizer_step(optimizer), step == 1 ? ACCEL_OK : ACCEL_STEP_SKIPPED);
    assert_ok(accel_scope_end(scope));
    accel_tensor_release(loss);
    accel_value_dispose(&logits);
  }
  {
    void *data = NULL;
    const float *values;
    assert_ok(accel_tensor_data(weight, &data));
    values = data;
    for (i = 0; i < WIDTH * CLASSES; i++) norm += (double)values[i] * values[i];
  }
  assert_true(fabs(sqrt(norm) - 0.5) < 1e-4);
  assert_ok(accel_set_log_callback(NULL, NULL, NULL));
  accel_tensor_release(target);
  accel_tensor_release(input);
  accel_tensor_release(weight);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(plain);
  accel_module_release(prepared);
  accel_module_release(model);
  accel_state_release(state);
}

static void test_wrong_settings_of_deepspeed(void **unused) {
  accel_state_t *state = new_state();
  accel_prepare_model_options_t options = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  accel_deepspeed_options_t deepspeed = ACCEL_DEEPSPEED_OPTIONS_INIT;
  accel_fsdp_options_t fsdp = ACCEL_FSDP_OPTIONS_INIT;
  accel_module_t *model = NULL, *prepared = NULL;
  (void)unused;
  assert_ok(accel_module_linear(WIDTH, CLASSES, 0, &model));
  options.deepspeed = &deepspeed;
  deepspeed.zero_stage = 4;
  assert_fails(accel_prepare_model(state, model, &options, &prepared), ACCEL_ERROR_INVALID_ARGUMENT,
               "options.deepspeed.zero_stage is 4");
  deepspeed.zero_stage = 3;
  deepspeed.enabled = 1;
  deepspeed.hf_ds_config = "{\"gradient_accumulation_steps\": 4}";
  assert_fails(accel_prepare_model(state, model, &options, &prepared), ACCEL_ERROR_INVALID_ARGUMENT,
               "has no zero_optimization");
  deepspeed.hf_ds_config = "{\"zero_optimization\": {\"stage\": 2}}";
  assert_fails(accel_prepare_model(state, model, &options, &prepared), ACCEL_ERROR_INVALID_ARGUMENT,
               "zero_optimization.stage is 2 and zero_stage is 3; expected the same");
  deepspeed.hf_ds_config = "/no/such/ds.json";
  assert_fails(accel_prepare_model(state, model, &options, &prepared), ACCEL_ERROR_NOT_FOUND, "/no/such/ds.json");
  deepspeed.hf_ds_config = NULL;
  options.fsdp = &fsdp;
  fsdp.enabled = 1;
  assert_fails(accel_prepare_model(state, model, &options, &prepared), ACCEL_ERROR_INVALID_ARGUMENT,
               "fsdp.enabled and deepspeed.enabled are both 1");
  assert_int_equal(accel_gradient_accumulation_steps(state), 1);
  accel_module_release(model);
  accel_state_release(state);
}

static accel_status_t prepare_by(accel_state_t *state, const accel_deepspeed_options_t *deepspeed) {
  accel_prepare_model_options_t options = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  accel_module_t *model = NULL, *prepared = NULL;
  assert_ok(accel_module_linear(WIDTH, CLASSES, 0, &model));
  options.deepspeed = deepspeed;
  const accel_status_t status = accel_prepare_model(state, model, &options, &prepared);
  accel_module_release(prepared);
  accel_module_release(model);
  return status;
}

static void test_deepspeed_plugins_have_names(void **unused) {
  accel_state_t *state = new_state();
  accel_deepspeed_options_t student = ACCEL_DEEPSPEED_OPTIONS_INIT, teacher = ACCEL_DEEPSPEED_OPTIONS_INIT,
                            name = ACCEL_DEEPSPEED_OPTIONS_INIT;
  accel_prepare_model_options_t options = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  accel_estimate_memory_options_t estimate = ACCEL_ESTIMATE_MEMORY_OPTIONS_INIT;
  accel_module_t *model = NULL;
  accel_value_t bytes = ACCEL_VALUE_INIT;
  accel_buffer_t described = ACCEL_BUFFER_INIT;
  (void)unused;
  student.enabled = teacher.enabled = 1;
  student.plugin_name = "student";
  student.zero_stage = 2;
  teacher.plugin_name = "teacher";
  teacher.zero_stage = 3;
  name.plugin_name = "teacher";
  assert_fails(prepare_by(state, &name), ACCEL_ERROR_NOT_FOUND, "'teacher'; expected its settings with the name");
  assert_ok(prepare_by(state, &student));
  assert_fails(prepare_by(state, &name), ACCEL_ERROR_NOT_FOUND, "'teacher'; expected 'student', or settings with");
  assert_ok(prepare_by(state, &teacher));
  assert_ok(prepare_by(state, &name));
  assert_ok(prepare_by(state, &teacher)); /* the same again */
  teacher.zero_stage = 1;
  assert_fails(prepare_by(state, &teacher), ACCEL_ERROR_INVALID_ARGUMENT, "'teacher' has other settings already");
  name.plugin_name = "third";
  name.zero_stage = 2;
  assert_fails(prepare_by(state, &name), ACCEL_ERROR_INVALID_ARGUMENT, "deepspeed.enabled is 0; expected 1");
  assert_ok(accel_describe(state, &described));
  assert_non_null(strstr(described.data, "DeepSpeed of model 0 = plugin 'student', zero_stage 2"));
  assert_non_null(strstr(described.data, "DeepSpeed of model 2 = plugin 'teacher', zero_stage 3"));
  accel_buffer_dispose(&described);
  name.zero_stage = ACCEL_UNSET_INT64;
  options.deepspeed = &name;
  estimate.model_options = &options;
  assert_ok(accel_module_linear(WIDTH, CLASSES, 0, &model));
  assert_fails(accel_estimate_memory(model, NULL, &estimate, &bytes), ACCEL_ERROR_NOT_FOUND, "'third'");
  accel_module_release(model);
  accel_state_release(state);
}

static accel_dataloader_t *new_loader(int64_t batch_size) {
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  accel_dataset_t *const numbers = new_numbers(16);
  accel_dataloader_t *loader = NULL;
  options.batch_size = batch_size;
  assert_ok(accel_dataloader_create(numbers, &options, &loader));
  accel_dataset_release(numbers);
  return loader;
}

/* A model between its two loaders, of 8 and of 4 rows. */
static accel_status_t prepare_with_loaders(accel_state_t *state, const accel_deepspeed_options_t *deepspeed) {
  accel_prepare_model_options_t options = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  accel_prepare_item_t items[] = {ACCEL_PREPARE_ITEM_INIT, ACCEL_PREPARE_ITEM_INIT, ACCEL_PREPARE_ITEM_INIT}, out[3];
  options.deepspeed = deepspeed;
  items[0].loader = new_loader(8);
  assert_ok(accel_module_linear(WIDTH, CLASSES, 0, &items[1].module));
  items[1].model_options = &options;
  items[2].loader = new_loader(4);
  const accel_status_t status = accel_prepare(state, items, 3, out);
  if (status == ACCEL_OK) {
    accel_dataloader_release(out[0].loader);
    accel_module_release(out[1].module);
    accel_dataloader_release(out[2].loader);
  }
  accel_dataloader_release(items[0].loader);
  accel_module_release(items[1].module);
  accel_dataloader_release(items[2].loader);
  return status;
}

// Regression: `is_train_batch_min` was read by nothing, and batch sizes that are "auto" were never filled in C.
static void test_loaders_say_deepspeeds_batch_size(void **unused) {
  (void)unused;
  for (int is_min = 0; is_min < 2; is_min++) {
    accel_state_t *const state = new_state();
    accel_deepspeed_options_t deepspeed = ACCEL_DEEPSPEED_OPTIONS_INIT;
    accel_buffer_t described = ACCEL_BUFFER_INIT;
    deepspeed.enabled = 1;
    deepspeed.is_train_batch_min = is_min;
    deepspeed.hf_ds_config =
        "{\"train_micro_batch_size_per_gpu\": \"auto\", \"gradient_accumulation_steps\": 2, "
        "\"zero_optimization\": {\"stage\": 2}}";
    assert_ok(prepare_with_loaders(state, &deepspeed));
    assert_ok(accel_describe(state, &described));
    assert_non_null(strstr(described.data,
                           "DeepSpeed of model 0 = zero_stage 2, gradient_accumulation_steps 2, gradient_clipping "));
    assert_non_null(strstr(described.data, is_min ? "train_micro_batch_size_per_gpu 4, train_batch_size 8"
                                                  : "train_micro_batch_size_per_gpu 8, train_batch_size 16"));
    accel_buffer_dispose(&described);
    deepspeed.hf_ds_config =
        "{\"train_micro_batch_size_per_gpu\": \"auto\", \"train_batch_size\": 8, \"gradient_accumulation_steps\": 2, "
        "\"zero_optimization\": {\"stage\": 2}}";
    if (is_min)
      assert_ok(prepare_with_loaders(state, &deepspeed));
    else
      assert_fails(prepare_with_loaders(state, &deepspeed), ACCEL_ERROR_INVALID_ARGUMENT,
                   "train_batch_size is 8 and the batch size of the loaders is 8");
    accel_state_release(state);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_what_does_not_go_together_is_refused),
      capi_unit_test(test_the_environment_and_its_version_decide),
      capi_unit_test(test_deepspeed_clips_and_accumulates),
      capi_unit_test(test_deepspeed_plugins_have_names),
      capi_unit_test(test_wrong_settings_of_deepspeed),
      capi_unit_test(test_loaders_say_deepspeeds_batch_size),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
