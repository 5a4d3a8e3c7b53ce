/* SPDX-License-Identifier: Apache-2.0 */
/* Section 10: a training loop, accumulated, clipped, saved and resumed bit for bit. */
#define _POSIX_C_SOURCE 200809L
#include "folder_fixture.h"

#include <unistd.h>

enum { ROWS = 12, WIDTH = 4, BATCH = 2, ACCUMULATE = 3 };

struct training {
  accel_state_t *state;
  accel_module_t *model, *prepared;
  accel_optimizer_t *optimizer;
  accel_scheduler_t *scheduler;
  accel_dataloader_t *loader;
  int64_t counter;
};

static accel_status_t save_counter(accel_value_t *out, void *user_data) {
  *out = accel_arg_int(*(int64_t *)user_data);
  return ACCEL_OK;
}

static accel_status_t load_counter(const accel_value_t *saved, void *user_data) {
  if (saved->kind != ACCEL_VALUE_INT) return ACCEL_ERROR_USER;
  *(int64_t *)user_data = saved->as.integer;
  return ACCEL_OK;
}

static accel_dataset_t *new_dataset(void) {
  float inputs[ROWS * WIDTH];
  int64_t labels[ROWS];
  const int64_t input_shape[] = {ROWS, WIDTH}, label_shape[] = {ROWS};
  accel_tensor_t *tensors[2];
  accel_dataset_t *dataset = NULL;
  int i;
  for (i = 0; i < ROWS * WIDTH; i++) inputs[i] = (float)((i * 37) % 11) / 11.0f - 0.5f;
  for (i = 0; i < ROWS; i++) labels[i] = i % 3;
  tensors[0] = new_test_tensor(inputs, input_shape, 2, ACCEL_DTYPE_FLOAT32);
  tensors[1] = new_test_tensor(labels, label_shape, 1, ACCEL_DTYPE_INT64);
  assert_ok(accel_dataset_tensors(tensors, 2, &dataset));
  accel_tensor_release(tensors[0]);
  accel_tensor_release(tensors[1]);
  return dataset;
}

static struct training *begin(void) {
  struct training *t = calloc(1, sizeof *t);
  accel_state_options_t options = one_process_options();
  accel_dataloader_options_t loading = ACCEL_DATALOADER_OPTIONS_INIT;
  accel_adam_options_t adam = ACCEL_ADAM_OPTIONS_INIT;
  accel_module_t *layers[3];
  accel_optimizer_t *adamw = NULL;
  accel_scheduler_t *cosine = NULL;
  accel_dataset_t *dataset = new_dataset();
  accel_dataloader_t *plain = NULL;
  int i;
  options.gradient_accumulation_steps = ACCUMULATE;
  assert_ok(accel_state_create(&options, &t->state));
  assert_ok(accel_set_seed(t->state, 3, 0, 0));
  assert_ok(accel_module_linear(WIDTH, 8, 1, &layers[0]));
  assert_ok(accel_module_activation("gelu", &layers[1]));
  assert_ok(accel_module_linear(8, 3, 1, &layers[2]));
  assert_ok(accel_module_sequential(layers, 3, &t->model));
  for (i = 0; i < 3; i++) accel_module_release(layers[i]);
  adam.lr = 0.05;
  assert_ok(accel_optimizer_adamw(t->model, &adam, &adamw));
  assert_ok(accel_scheduler_cosine(adamw, 2, 50, 0.1, &cosine));
  loading.batch_size = BATCH;
  loading.shuffle = 1;
  loading.seed = 5;
  assert_ok(accel_dataloader_create(dataset, &loading, &plain));
  assert_ok(accel_prepare_model(t->state, t->model, NULL, &t->prepared));
  assert_ok(accel_prepare_optimizer(t->state, adamw, &t->optimizer));
  assert_ok(accel_prepare_scheduler(t->state, cosine, &t->scheduler));
  assert_ok(accel_prepare_data_loader(t->state, plain, NULL, &t->loader));
  assert_ok(accel_register_for_checkpointing(t->state, "counter", save_counter, load_counter, &t->counter, NULL));
  accel_optimizer_release(adamw);
  accel_scheduler_release(cosine);
  accel_dataset_release(dataset);
  accel_dataloader_release(plain);
  return t;
}

static void end(struct training *t) {
  accel_module_release(t->model);
  accel_module_release(t->prepared);
  accel_optimizer_release(t->optimizer);
  accel_scheduler_release(t->scheduler);
  accel_dataloader_release(t->loader);
  accel_state_release(t->state);
  free(t);
}

/* One micro-batch; the loss. */
static double train(struct training *t) {
  accel_value_t batch = ACCEL_VALUE_INIT, logits = ACCEL_VALUE_INIT;
  accel_tensor_t *loss = NULL;
  accel_scope_t *scope = NULL;
  accel_status_t status = accel_dataloader_next(t->loader, &batch), clipped;
  double result = 0, norm = -1;
  if (status == ACCEL_ITER_END) status = accel_dataloader_next(t->loader, &batch);
  assert_status(status, ACCEL_OK);
  assert_ok(accel_accumulate_begin(t->state, &t->prepared, 1, &scope));
  assert_ok(accel_module_call(t->prepared, accel_value_at(&batch, 0), 1, &logits));
  assert_ok(accel_cross_entropy(logits.as.tensor, accel_value_at(&batch, 1)->as.tensor, &loss));
  assert_ok(accel_backward(t->state, loss, NULL));
  clipped = accel_clip_grad_norm(t->state, t->model, 1.0, 2.0, &norm);
  assert_int_equal(clipped, accel_sync_gradients(t->state) ? ACCEL_OK : ACCEL_STEP_SKIPPED);
  assert_true((norm >= 0) == (accel_sync_gradients(t->state) == 1));
  assert_int_equal(accel_clip_grad_value(t->state, t->model, 0.5), clipped);
  assert_status(accel_optimizer_step(t->optimizer), clipped);
  assert_int_equal(accel_any_optimizer_step_was_skipped(t->state), 0);
  assert_int_equal(accel_optimizer_step_was_skipped(t->optimizer),
                   0); /* accumulating is not an update that was skipped */
  assert_ok(accel_scheduler_step(t->scheduler));
  assert_ok(accel_optimizer_zero_grad(t->optimizer, 1));
  assert_ok(accel_scope_end(scope));
  assert_ok(accel_tensor_item(loss, &result));
  t->counter++;
  accel_tensor_release(loss);
  accel_value_dispose(&logits);
  accel_value_dispose(&batch);
  return result;
}

static void test_a_resumed_run_equals_an_uninterrupted_one(void **unused) {
  double whole[40];
  struct training *t;
  int i;
  (void)unused;
  t = begin();
  for (i = 0; i < 17; i++) whole[i] = train(t);
  assert_ok(accel_save_state(t->state, path_of("state"), NULL));
  for (; i < 40; i++) whole[i] = train(t);
  assert_true(whole[35] + whole[36] + whole[37] + whole[38] + whole[39] <
              whole[0] + whole[1] + whole[2] + whole[3] + whole[4]);
  end(t);

  t = begin();
  train(t); /* whatever was before is replaced */
  assert_ok(accel_load_state(t->state, path_of("state"), NULL));
  assert_int_equal(t->counter, 17);
  for (i = 17; i < 40; i++) assert_true(train(t) == whole[i]);
  assert_ok(accel_save_state(t->state, path_of("state"), NULL)); /* over the former one */
  assert_ok(accel_save_model(t->state, t->prepared, folder, NULL));
  end(t);
}

static void test_missing_checkpoints_change_nothing(void **unused) {
  struct training *t = begin();
  (void)unused;
  train(t);
  assert_fails(accel_load_state(t->state, "/nonexistent/checkpoint", NULL), ACCEL_ERROR_NOT_FOUND,
               "/nonexistent/checkpoint");
  assert_int_equal(t->counter, 1);
  assert_fails(accel_save_state(t->state, "/dev/null/checkpoint", NULL), ACCEL_ERROR_IO, "/dev/null");
  assert_fails(accel_save_state(t->state, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "no folder is given");
  assert_fails(accel_load_state(t->state, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "no folder is given");
  assert_status(accel_register_for_checkpointing(t->state, "counter", save_counter, load_counter, NULL, NULL),
                ACCEL_ERROR_ALREADY_EXISTS);
  end(t);
}

// Regression: where a prepared model is a part of a layer, whose parts stay, those beside it were unwrapped all the
// same.
static void test_parts_that_cannot_be_unwrapped_change_nothing(void **unused) {
  struct training *t = begin();
  accel_module_t *pair = NULL, *fixed = NULL, *adapter = NULL, *prepared = NULL, *first = NULL, *inner = NULL;
  accel_unwrap_model_options_t options = ACCEL_UNWRAP_MODEL_OPTIONS_INIT;
  (void)unused;
  assert_ok(accel_module_create("Pair", &pair));
  assert_ok(accel_module_linear(WIDTH, 8, 1, &fixed));
  assert_ok(accel_module_linear(8, 8, 1, &adapter));
  assert_ok(accel_prepare_model(t->state, adapter, NULL, &prepared));
  assert_ok(accel_module_add_child(pair, "first", t->prepared));
  assert_ok(accel_module_add_child(pair, "second", fixed));
  assert_ok(accel_module_add_child(fixed, "adapter", prepared));
  options.recursive = 1;
  assert_fails(accel_unwrap_model(t->state, pair, &options, &inner), ACCEL_ERROR_UNSUPPORTED,
               "a module of kind 'Linear' knows its parts by their places");
  assert_ok(accel_module_child(pair, "first", &first));
  assert_string_equal(accel_module_kind(first), "PreparedModel");
  accel_module_release(first);

  assert_ok(accel_module_remove(pair, "second"));
  options.keep_fp32_wrapper = 0;
  assert_ok(accel_unwrap_model(t->state, pair, &options, &inner));
  assert_ok(accel_module_child(inner, "first", &first));
  assert_string_equal(accel_module_kind(first), "Sequential");
  accel_module_release(first);
  accel_module_release(inner);
  accel_module_release(prepared);
  accel_module_release(adapter);
  accel_module_release(fixed);
  accel_module_release(pair);
  end(t);
}

static int destroyed = 0;
static void count_destroy(void *user_data) {
  (void)user_data;
  destroyed++;
}

static void test_wrong_arguments(void **unused) {
  struct training *t = begin();
  accel_module_t *again = NULL, *inner = NULL;
  accel_dataloader_t *loader = NULL;
  accel_scope_t *scope = NULL;
  accel_tensor_t *constant = NULL;
  accel_ddp_options_t ddp = ACCEL_DDP_OPTIONS_INIT, ddp_by_function;
  accel_unwrap_model_options_t as_before = ACCEL_UNWRAP_MODEL_OPTIONS_INIT;
  accel_prepare_model_options_t preparation = ACCEL_PREPARE_MODEL_OPTIONS_INIT, preparation_by_function;
  accel_dataloader_config_t config = ACCEL_DATALOADER_CONFIG_INIT, config_by_function;
  (void)unused;
  assert_ok(accel_options_init(ACCEL_OPTIONS_DDP, &ddp_by_function, sizeof ddp_by_function));
  assert_memory_equal(&ddp, &ddp_by_function, sizeof ddp);
  assert_ok(accel_options_init(ACCEL_OPTIONS_PREPARE_MODEL, &preparation_by_function, sizeof preparation_by_function));
  assert_memory_equal(&preparation, &preparation_by_function, sizeof preparation);
  assert_ok(accel_options_init(ACCEL_OPTIONS_DATALOADER_CONFIG, &config_by_function, sizeof config_by_function));
  assert_memory_equal(&config, &config_by_function, sizeof config);
  assert_fails(accel_prepare_model(t->state, t->prepared, NULL, &again), ACCEL_ERROR_INVALID_STATE, "prepared already");
  accel_optimizer_t *twice = NULL;
  assert_fails(accel_prepare_optimizer(t->state, t->optimizer, &twice), ACCEL_ERROR_INVALID_STATE, "prepared already");
  assert_null(twice);
  preparation.evaluation_mode = 3;
  assert_fails(accel_prepare_model(t->state, t->model, &preparation, &again), ACCEL_ERROR_INVALID_ARGUMENT,
               "options.evaluation_mode is 3");
  preparation.evaluation_mode = 1;
  preparation.ddp = &ddp;
  ddp.static_graph = 5;
  assert_fails(accel_prepare_model(t->state, t->model, &preparation, &again), ACCEL_ERROR_INVALID_ARGUMENT,
               "options.ddp.static_graph is 5");
  assert_status(accel_prepare_data_loader(t->state, t->loader, NULL, &loader), ACCEL_ERROR_INVALID_STATE);
  as_before.keep_fp32_wrapper = 0;
  assert_ok(accel_unwrap_model(t->state, t->prepared, &as_before, &inner));
  assert_string_equal(accel_module_kind(inner), "Sequential");
  accel_module_release(inner);
  assert_ok(accel_tensor_full(NULL, 0, 1.0, ACCEL_DTYPE_FLOAT32, accel_device(t->state), &constant));
  assert_fails(accel_backward(t->state, constant, NULL), ACCEL_ERROR_INVALID_STATE, "no gradient history");
  accel_tensor_release(constant);
  assert_fails(accel_backward(t->state, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "loss is NULL");
  assert_fails(accel_accumulate_begin(t->state, NULL, 1, &scope), ACCEL_ERROR_INVALID_ARGUMENT, "modules is NULL");
  assert_fails(accel_set_seed(t->state, -1, 0, 0), ACCEL_ERROR_INVALID_ARGUMENT, "seed is -1");
  assert_status(accel_register_for_checkpointing(t->state, "x", NULL, NULL, &destroyed, count_destroy),
                ACCEL_ERROR_INVALID_ARGUMENT);
  assert_int_equal(destroyed, 1);
  assert_ok(accel_no_sync_begin(t->state, t->prepared, &scope));
  assert_ok(accel_scope_end(scope));
  assert_ok(accel_autocast_begin(t->state, NULL, &scope));
  assert_ok(accel_scope_end(scope));
  assert_ok(accel_free_memory(t->state));
  end(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_a_resumed_run_equals_an_uninterrupted_one, make_folder,
                                      remove_folder_and_files),
      capi_unit_test(test_missing_checkpoints_change_nothing),
      capi_unit_test(test_parts_that_cannot_be_unwrapped_change_nothing),
      capi_unit_test(test_wrong_arguments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
