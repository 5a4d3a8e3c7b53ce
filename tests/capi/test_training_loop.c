/* SPDX-License-Identifier: Apache-2.0 */
/* Section 10: what a loop can ask for besides the plain one: precision, loss scale, counted losses, seeds, searches. */
#include "capi_test.h"

#include <math.h>
#include <pthread.h>

struct loop {
  accel_state_t *state;
  accel_module_t *inner, *model;
  accel_optimizer_t *optimizer;
};

static accel_state_t *state_with(accel_precision_t precision, int64_t steps) {
  accel_state_options_t options = one_process_options();
  accel_state_t *state = NULL;
  options.mixed_precision = precision;
  options.gradient_accumulation_steps = steps;
  assert_ok(accel_state_create(&options, &state));
  return state;
}

/* A linear layer 2 -> 1 without bias, and SGD with rate 1. */
static struct loop prepare(accel_state_t *state) {
  struct loop loop = {state, NULL, NULL, NULL};
  accel_sgd_options_t sgd = ACCEL_SGD_OPTIONS_INIT;
  accel_optimizer_t *plain = NULL;
  accel_prepare_item_t items[2] = {ACCEL_PREPARE_ITEM_INIT, ACCEL_PREPARE_ITEM_INIT}, prepared[2];
  sgd.lr = 1;
  assert_ok(accel_module_linear(2, 1, 0, &loop.inner));
  assert_ok(accel_optimizer_sgd(loop.inner, &sgd, &plain));
  items[0].optimizer = plain;
  items[1].module = loop.inner;
  assert_ok(accel_prepare(state, items, 2, prepared));
  assert_null(prepared[0].module);
  loop.optimizer = prepared[0].optimizer;
  loop.model = prepared[1].module;
  accel_optimizer_release(plain);
  return loop;
}

static void release(struct loop *loop) {
  accel_optimizer_release(loop->optimizer);
  accel_module_release(loop->model);
  accel_module_release(loop->inner);
  accel_state_release(loop->state);
}

static accel_tensor_t *sum_of_output(const struct loop *loop, float first, float second) {
  const float numbers[] = {first, second};
  const int64_t shape[] = {1, 2};
  const accel_op_t *sum = NULL;
  accel_value_t output = ACCEL_VALUE_INIT, loss = ACCEL_VALUE_INIT;
  accel_value_t input = accel_arg_tensor(new_test_tensor(numbers, shape, 2, ACCEL_DTYPE_FLOAT32));
  size_t count = 0;
  assert_ok(accel_module_call(loop->model, &input, 1, &output));
  assert_ok(accel_op_find("aten::sum", "", &sum));
  assert_ok(accel_op_call(sum, &output, 1, &loss, 1, &count));
  accel_value_dispose(&output);
  accel_tensor_release(input.as.tensor);
  return loss.as.tensor;
}

static void backward(const struct loop *loop, float first, float second) {
  accel_tensor_t *loss = sum_of_output(loop, first, second);
  assert_ok(accel_backward(loop->state, loss, NULL));
  accel_tensor_release(loss);
}

/* Of the layer's weight; zeros when it has none. */
static void read_gradient(const struct loop *loop, float numbers[2]) {
  accel_tensor_t *weight = NULL, *gradient = NULL;
  void *data = NULL;
  numbers[0] = numbers[1] = 0;
  assert_ok(accel_module_tensor(loop->inner, "weight", &weight));
  assert_ok(accel_tensor_grad(weight, &gradient));
  if (gradient != NULL) {
    assert_ok(accel_tensor_data(gradient, &data));
    memcpy(numbers, data, 2 * sizeof(float));
  }
  accel_tensor_release(gradient);
  accel_tensor_release(weight);
}

static void assert_gradient(const struct loop *loop, float first, float second) {
  float numbers[2];
  read_gradient(loop, numbers);
  assert_float_equal(numbers[0], first, 1e-6);
  assert_float_equal(numbers[1], second, 1e-6);
}

static void test_the_loss_scale(void **unused) {
  struct loop loop = {0};
  accel_grad_scaler_options_t options = ACCEL_GRAD_SCALER_OPTIONS_INIT;
  accel_state_t *state = state_with(ACCEL_PRECISION_NO, 1);
  double norm = 0;
  (void)unused;
  assert_true(accel_loss_scale(state) == 1);
  options.growth_factor = 1;
  assert_fails(accel_set_grad_scaler(state, &options), ACCEL_ERROR_INVALID_ARGUMENT, "growth_factor is 1");
  options.growth_factor = ACCEL_UNSET_DOUBLE;
  options.enabled = 2;
  assert_fails(accel_set_grad_scaler(state, &options), ACCEL_ERROR_INVALID_ARGUMENT, "options.enabled is 2");
  options.enabled = 1;
  options.init_scale = 64;
  options.growth_interval = 1;
  assert_ok(accel_set_grad_scaler(state, &options));
  assert_true(accel_loss_scale(state) == 64);

  loop = prepare(state);
  backward(&loop, 3, 4);
  assert_gradient(&loop, 192, 256);
  assert_ok(accel_clip_grad_norm(state, loop.model, 1.0, 2.0, &norm));
  assert_float_equal(norm, 5, 1e-5);
  assert_gradient(&loop, 0.6f, 0.8f);
  assert_ok(accel_unscale_gradients(state, NULL));
  assert_ok(accel_unscale_gradients(state, loop.optimizer));
  assert_gradient(&loop, 0.6f, 0.8f);
  assert_ok(accel_optimizer_step(loop.optimizer));
  assert_true(accel_loss_scale(state) == 128);
  assert_fails(accel_optimizer_step(loop.optimizer), ACCEL_ERROR_INVALID_STATE, "expected a backward before each step");
  assert_ok(accel_optimizer_zero_grad(loop.optimizer, 1));

  backward(&loop, INFINITY, 1);
  assert_int_equal(accel_optimizer_step(loop.optimizer), ACCEL_STEP_SKIPPED);
  assert_int_equal(accel_optimizer_step_was_skipped(loop.optimizer), 1);
  assert_int_equal(accel_any_optimizer_step_was_skipped(state), 1);
  assert_true(accel_loss_scale(state) == 64);
  assert_ok(accel_optimizer_zero_grad(loop.optimizer, 1));
  backward(&loop, NAN, 1);
  assert_int_equal(accel_optimizer_step(loop.optimizer), ACCEL_STEP_SKIPPED);
  assert_fails(accel_set_grad_scaler(state, NULL), ACCEL_ERROR_INVALID_STATE, "cannot change after a model");
  release(&loop);
}

static void test_the_state_of_the_gradient_scaler(void **unused) {
  accel_grad_scaler_options_t options = ACCEL_GRAD_SCALER_OPTIONS_INIT;
  accel_state_t *state = state_with(ACCEL_PRECISION_NO, 1);
  accel_value_t saved = ACCEL_VALUE_INIT, wrong = ACCEL_VALUE_INIT;
  (void)unused;
  assert_ok(accel_grad_scaler_state(state, &saved));
  assert_json(&saved, "{}");
  assert_fails(accel_load_grad_scaler_state(state, &saved), ACCEL_ERROR_INVALID_STATE, "losses are not scaled");
  accel_value_dispose(&saved);
  options.enabled = 1;
  options.init_scale = 64;
  assert_ok(accel_set_grad_scaler(state, &options));
  assert_ok(accel_grad_scaler_state(state, &saved));
  assert_json(
      &saved,
      "{\"scale\":64.0,\"growth_factor\":2.0,\"backoff_factor\":0.5,\"growth_interval\":2000,\"_growth_tracker\":0}");
  assert_fails(accel_load_grad_scaler_state(state, &wrong), ACCEL_ERROR_INVALID_ARGUMENT, "expected a map");
  options.init_scale = 8;
  assert_ok(accel_set_grad_scaler(state, &options));
  assert_true(accel_loss_scale(state) == 8);
  assert_ok(accel_load_grad_scaler_state(state, &saved));
  assert_true(accel_loss_scale(state) == 64);
  accel_value_dispose(&saved);
  accel_state_release(state);
}

static void test_float16_is_refused_on_the_cpu(void **unused) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *state = NULL;
  (void)unused;
  options.cpu = 1;
  options.mixed_precision = ACCEL_PRECISION_FP16;
  assert_fails(accel_state_create(&options, &state), ACCEL_ERROR_UNSUPPORTED, "mixed_precision is fp16");
  assert_message("use bf16");
}

static accel_dtype_t dtype_of_output(const struct loop *loop) {
  accel_tensor_t *loss = sum_of_output(loop, 1, 1);
  accel_dtype_t dtype = 0;
  assert_ok(accel_tensor_dtype(loss, &dtype));
  accel_tensor_release(loss);
  return dtype;
}

static accel_dtype_t dtype_of_product(void) {
  const int64_t shape[] = {2, 2};
  const float ones[] = {1, 1, 1, 1};
  const accel_op_t *mm = NULL;
  accel_tensor_t *matrix = new_test_tensor(ones, shape, 2, ACCEL_DTYPE_FLOAT32);
  const accel_value_t factors[] = {accel_arg_tensor(matrix), accel_arg_tensor(matrix)};
  accel_value_t product = ACCEL_VALUE_INIT;
  accel_dtype_t dtype = 0;
  size_t count = 0;
  assert_ok(accel_op_find("aten::mm", "", &mm));
  assert_ok(accel_op_call(mm, factors, 2, &product, 1, &count));
  assert_ok(accel_tensor_dtype(product.as.tensor, &dtype));
  accel_value_dispose(&product);
  accel_tensor_release(matrix);
  return dtype;
}

static void test_regions_of_autocast(void **unused) {
  struct loop loop = {0};
  accel_state_t *state = state_with(ACCEL_PRECISION_BF16, 1);
  accel_autocast_options_t options = ACCEL_AUTOCAST_OPTIONS_INIT;
  accel_scope_t *outer = NULL, *inner = NULL;
  (void)unused;
  assert_ok(accel_autocast_begin(state, NULL, &outer));
  assert_int_equal(dtype_of_product(), ACCEL_DTYPE_BFLOAT16);
  options.enabled = 0;
  assert_ok(accel_autocast_begin(state, &options, &inner));
  assert_int_equal(dtype_of_product(), ACCEL_DTYPE_FLOAT32);
  assert_fails(accel_scope_end(outer), ACCEL_ERROR_INVALID_STATE, "innermost");
  assert_ok(accel_scope_end(inner));
  assert_int_equal(dtype_of_product(), ACCEL_DTYPE_BFLOAT16);
  assert_ok(accel_scope_end(outer));
  assert_int_equal(dtype_of_product(), ACCEL_DTYPE_FLOAT32);

  options.enabled = 7;
  assert_fails(accel_autocast_begin(state, &options, &outer), ACCEL_ERROR_INVALID_ARGUMENT, "options.enabled is 7");
  options.enabled = 1;
  options.struct_size = 4;
  assert_fails(accel_set_autocast(state, &options), ACCEL_ERROR_INVALID_ARGUMENT, "struct_size is 4");
  struct {
    accel_autocast_options_t options;
    int64_t added;
  } newer = {ACCEL_AUTOCAST_OPTIONS_INIT, 1};
  newer.options.struct_size = sizeof newer;
  assert_fails(accel_set_autocast(state, &newer.options), ACCEL_ERROR_UNSUPPORTED, "newer than this library's");
  assert_ok(accel_options_init(ACCEL_OPTIONS_AUTOCAST, &options, sizeof options));
  options.cache_enabled = 0;
  assert_ok(accel_set_autocast(state, &options));

  loop = prepare(state);
  assert_int_equal(dtype_of_output(&loop), ACCEL_DTYPE_FLOAT32);
  assert_fails(accel_set_autocast(state, NULL), ACCEL_ERROR_INVALID_STATE, "autocast cannot change after a model");
  release(&loop);
}

static void test_outputs_keep_their_dtype(void **unused) {
  accel_state_options_t options = one_process_options();
  accel_state_t *state = NULL;
  accel_unwrap_model_options_t unwrapping = ACCEL_UNWRAP_MODEL_OPTIONS_INIT;
  accel_module_t *kept = NULL;
  struct loop loop = {0};
  (void)unused;
  options.mixed_precision = ACCEL_PRECISION_BF16;
  options.keep_output_dtype = 1;
  assert_ok(accel_state_create(&options, &state));
  loop = prepare(state);
  assert_int_equal(dtype_of_output(&loop), ACCEL_DTYPE_BFLOAT16);
  assert_ok(accel_unwrap_model(state, loop.model, NULL, &kept));
  accel_module_release(loop.model);
  loop.model = kept;
  assert_int_equal(dtype_of_output(&loop), ACCEL_DTYPE_BFLOAT16);
  unwrapping.keep_fp32_wrapper = 0;
  assert_ok(accel_unwrap_model(state, kept, &unwrapping, &loop.model));
  accel_module_release(kept);
  assert_int_equal(dtype_of_output(&loop), ACCEL_DTYPE_FLOAT32);
  kept = NULL;
  unwrapping.keep_fp32_wrapper = 2;
  assert_fails(accel_unwrap_model(state, loop.model, &unwrapping, &kept), ACCEL_ERROR_INVALID_ARGUMENT,
               "options.keep_fp32_wrapper is 2");
  release(&loop);
}

static void test_losses_that_are_sums(void **unused) {
  struct loop loop = prepare(state_with(ACCEL_PRECISION_NO, 2));
  const float inputs[2][2] = {{1, 2}, {5, 4}};
  const int64_t counts[2] = {1, 3};
  int i;
  (void)unused;
  for (i = 0; i < 2; i++) {
    accel_scope_t *scope = NULL;
    accel_tensor_t *loss = NULL;
    assert_ok(accel_accumulate_begin(loop.state, &loop.model, 1, &scope));
    loss = sum_of_output(&loop, inputs[i][0], inputs[i][1]);
    assert_ok(accel_backward_sum(loop.state, loss, counts[i], NULL));
    accel_tensor_release(loss);
    assert_ok(accel_scope_end(scope));
  }
  assert_gradient(&loop, 6.0f / 4, 6.0f / 4);
  {
    accel_tensor_t *loss = sum_of_output(&loop, 1, 1);
    assert_fails(accel_backward_sum(loop.state, loss, -2, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "count is -2");
    accel_tensor_release(loss);
  }
  release(&loop);
}

static void test_loops_that_count_for_themselves(void **unused) {
  struct loop loop = prepare(state_with(ACCEL_PRECISION_NO, 1));
  (void)unused;
  assert_ok(accel_set_sync_gradients(loop.state, 0));
  backward(&loop, 1, 1);
  assert_int_equal(accel_optimizer_step(loop.optimizer), ACCEL_STEP_SKIPPED);
  assert_int_equal(accel_unscale_gradients(loop.state, NULL), ACCEL_STEP_SKIPPED);
  assert_ok(accel_optimizer_zero_grad(loop.optimizer, 1));
  assert_gradient(&loop, 1, 1); /* kept: gradients accumulate */
  assert_ok(accel_set_sync_gradients(loop.state, 1));
  assert_ok(accel_optimizer_step(loop.optimizer));
  assert_ok(accel_optimizer_zero_grad(loop.optimizer, 1));
  assert_gradient(&loop, 0, 0);
  assert_fails(accel_set_sync_gradients(loop.state, 5), ACCEL_ERROR_INVALID_ARGUMENT, "sync is 5");
  release(&loop);
}

static void test_scopes_without_other_ranks(void **unused) {
  struct loop loop = prepare(state_with(ACCEL_PRECISION_NO, 1));
  accel_scope_t *scope = NULL;
  (void)unused;
  assert_ok(accel_trigger_sync_in_backward_begin(loop.state, loop.model, &scope));
  backward(&loop, 1, 1);
  assert_ok(accel_scope_end(scope));
  assert_ok(accel_join_uneven_inputs_begin(loop.state, &loop.model, 1, 0, &scope));
  backward(&loop, 1, 1);
  assert_ok(accel_scope_end(scope));
  assert_fails(accel_join_uneven_inputs_begin(loop.state, &loop.model, 1, 3, &scope), ACCEL_ERROR_INVALID_ARGUMENT,
               "even_batches is 3");
  assert_gradient(&loop, 2, 2);
  release(&loop);
}

static void *end_elsewhere(void *scope) {
  assert_fails(accel_scope_end(scope), ACCEL_ERROR_INVALID_STATE, "opened by another thread");
  return NULL;
}

static void test_scopes_end_where_they_began(void **unused) {
  struct loop loop = prepare(state_with(ACCEL_PRECISION_NO, 2));
  accel_scope_t *accumulate = NULL, *no_sync = NULL;
  pthread_t thread;
  (void)unused;
  assert_ok(accel_accumulate_begin(loop.state, &loop.model, 1, &accumulate));
  assert_ok(accel_no_sync_begin(loop.state, loop.model, &no_sync));
  assert_fails(accel_scope_end(accumulate), ACCEL_ERROR_INVALID_STATE, "innermost");
  assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, no_sync), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(accel_sync_gradients(loop.state), 0);
  assert_ok(accel_scope_end(no_sync)); /* still open, and in order */
  assert_ok(accel_scope_end(accumulate));
  release(&loop);
}

static void test_frozen_models(void **unused) {
  accel_state_t *state = state_with(ACCEL_PRECISION_NO, 1);
  accel_optimizer_t *optimizer = NULL;
  accel_tensor_t *weight = NULL, *loss = NULL;
  struct loop loop = {state, NULL, NULL, NULL};
  (void)unused;
  assert_ok(accel_module_linear(2, 1, 0, &loop.inner));
  assert_ok(accel_module_tensor(loop.inner, "weight", &weight));
  assert_ok(accel_tensor_set_requires_grad(weight, 0));
  assert_fails(accel_optimizer_sgd(loop.inner, NULL, &optimizer), ACCEL_ERROR_INVALID_ARGUMENT, "0 parameters");
  assert_ok(accel_prepare_model(state, loop.inner, NULL, &loop.model));
  loss = sum_of_output(&loop, 1, 1);
  assert_fails(accel_backward(state, loss, NULL), ACCEL_ERROR_INVALID_STATE, "no gradient history");
  assert_fails(accel_backward_sum(state, loss, 1, NULL), ACCEL_ERROR_INVALID_STATE, "no gradient history");
  accel_tensor_release(loss);
  accel_tensor_release(weight);
  release(&loop);
}

/* Items of a newer version, which have a field that this one does not know. */
static void test_preparing_items_of_a_newer_program(void **unused) {
  accel_state_t *state = state_with(ACCEL_PRECISION_NO, 1);
  struct {
    accel_prepare_item_t known;
    int64_t next;
  } items[2], prepared[2];
  accel_module_t *model = NULL;
  (void)unused;
  assert_ok(accel_module_linear(2, 1, 0, &model));
  for (int i = 0; i < 2; i++) {
    assert_ok(accel_options_init(ACCEL_OPTIONS_PREPARE_ITEM, &items[i].known, sizeof items[i].known));
    items[i].known.struct_size = sizeof items[i];
    items[i].next = ACCEL_UNSET_INT64;
  }
  items[0].known.module = model;
  assert_ok(accel_optimizer_sgd(model, NULL, &items[1].known.optimizer));
  assert_ok(accel_prepare(state, &items[0].known, 2, &prepared[0].known));
  assert_non_null(prepared[0].known.module);
  assert_non_null(prepared[1].known.optimizer);
  assert_int_equal(prepared[1].known.struct_size, sizeof prepared[1]);
  assert_true(prepared[1].next == ACCEL_UNSET_INT64);
  accel_optimizer_release(prepared[1].known.optimizer);
  accel_module_release(prepared[0].known.module);
  items[1].next = 3;
  assert_fails(accel_prepare(state, &items[0].known, 2, &prepared[0].known), ACCEL_ERROR_UNSUPPORTED,
               "newer than this library's");
  items[1].next = ACCEL_UNSET_INT64;
  items[1].known.struct_size = sizeof(accel_prepare_item_t);
  assert_fails(accel_prepare(state, &items[0].known, 2, &prepared[0].known), ACCEL_ERROR_INVALID_ARGUMENT,
               "items[1].struct_size is 56; expected that of the first, 64");
  accel_optimizer_release(items[1].known.optimizer);
  accel_module_release(model);
  accel_state_release(state);
}

static void test_preparing_many(void **unused) {
  accel_state_t *state = state_with(ACCEL_PRECISION_NO, 1);
  accel_prepare_item_t items[2] = {ACCEL_PREPARE_ITEM_INIT, ACCEL_PREPARE_ITEM_INIT}, prepared[2];
  accel_prepare_model_options_t preparation = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  accel_ddp_options_t ddp = ACCEL_DDP_OPTIONS_INIT;
  accel_module_t *model = NULL;
  accel_optimizer_t *sgd = NULL;
  accel_scheduler_t *schedule = NULL;
  (void)unused;
  preparation.ddp = &ddp;
  assert_ok(accel_module_linear(2, 1, 0, &model));
  assert_ok(accel_optimizer_sgd(model, NULL, &sgd));
  assert_ok(accel_scheduler_step_lr(sgd, 1, 0.5, &schedule));
  items[0].scheduler = schedule; /* before the optimizer that it follows */
  assert_fails(accel_prepare(state, items, 2, prepared), ACCEL_ERROR_INVALID_ARGUMENT, "items[1] has 0 handles");
  items[1].optimizer = sgd;
  items[1].module = model;
  assert_fails(accel_prepare(state, items, 2, prepared), ACCEL_ERROR_INVALID_ARGUMENT, "items[1] has 2 handles");
  items[1].module = NULL;
  items[1].model_options = &preparation;
  assert_fails(accel_prepare(state, items, 2, prepared), ACCEL_ERROR_INVALID_ARGUMENT,
               "items[1] has model_options and no module");
  items[1].model_options = NULL;
  items[1].device_placement = 4;
  assert_fails(accel_prepare(state, items, 2, prepared), ACCEL_ERROR_INVALID_ARGUMENT, "device_placement is 4");
  items[1].device_placement = 1;
  assert_ok(accel_prepare(state, items, 2, prepared));
  assert_non_null(prepared[0].scheduler);
  assert_non_null(prepared[1].optimizer);
  accel_scheduler_release(prepared[0].scheduler);
  accel_optimizer_release(prepared[1].optimizer);
  items[0].scheduler = NULL;
  items[0].module = model;
  items[0].model_options = &preparation;
  ddp.comm_wrapper = ACCEL_DDP_COMM_HOOK_POWER_SGD;
  assert_fails(accel_prepare(state, items, 2, prepared), ACCEL_ERROR_INVALID_ARGUMENT,
               "items[0].model_options.ddp.comm_wrapper is 3");
  ddp.comm_wrapper = ACCEL_DDP_COMM_HOOK_BF16;
  assert_ok(accel_prepare(state, items, 2, prepared));
  assert_non_null(prepared[0].module);
  assert_ptr_equal(prepared[0].model_options, &preparation);
  accel_module_release(prepared[0].module);
  accel_optimizer_release(prepared[1].optimizer);
  accel_scheduler_release(schedule);
  accel_optimizer_release(sgd);
  accel_module_release(model);
  accel_state_release(state);
}

static void test_the_description(void **unused) {
  struct loop loop = prepare(state_with(ACCEL_PRECISION_BF16, 4));
  accel_buffer_t text = ACCEL_BUFFER_INIT;
  (void)unused;
  assert_ok(accel_describe(loop.state, &text));
  assert_non_null(strstr(text.data, "precision = bf16, autocast to bfloat16\n"));
  assert_non_null(strstr(text.data, "loss scale = none\n"));
  assert_non_null(strstr(text.data, "accumulation = 4 micro-batches a step"));
  assert_non_null(
      strstr(text.data, "model 0 = Linear: 2 parameters of float32 on cpu, 2 trainable; autocast to bfloat16"));
  assert_non_null(strstr(text.data, "gradients stay on this rank"));
  accel_buffer_dispose(&text);
  assert_ok(accel_free_memory(loop.state));
  assert_ok(accel_describe(loop.state, &text));
  assert_null(strstr(text.data, "model 0"));
  accel_buffer_dispose(&text);
  release(&loop);
}

static accel_status_t keep_seed(int64_t seed, void *user_data) {
  *(int64_t *)user_data = seed;
  return seed == 13 ? ACCEL_ERROR_USER : ACCEL_OK;
}

static int destroyed;
static void count_destroy(void *user_data) {
  (void)user_data;
  destroyed++;
}

static float draw(void) {
  const int64_t shape[] = {1};
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  accel_tensor_t *tensor = NULL;
  double number = 0;
  assert_ok(accel_tensor_randn(shape, 1, ACCEL_DTYPE_FLOAT32, &cpu, &tensor));
  assert_ok(accel_tensor_item(tensor, &number));
  accel_tensor_release(tensor);
  return (float)number;
}

static void test_seeds(void **unused) {
  accel_state_t *state = state_with(ACCEL_PRECISION_NO, 1);
  accel_tensor_t *stand = NULL;
  int64_t seen = 0;
  float first, second;
  (void)unused;
  destroyed = 0;
  assert_ok(accel_add_seed_callback(state, keep_seed, &seen, count_destroy));
  assert_ok(accel_set_seed(state, 5, 1, 0));
  assert_int_equal(seen, 5);
  assert_ok(accel_generator_state(NULL, &stand));
  first = draw();
  second = draw();
  assert_true(first != second);
  assert_ok(accel_set_seed(state, 5, 0, 0));
  assert_true(draw() == first);
  assert_ok(accel_generator_set_state(NULL, stand));
  assert_true(draw() == first);
  assert_ok(accel_synchronize_rng_states(state, "torch", NULL));
  assert_true(draw() == second);
  assert_status(accel_set_seed(state, 13, 0, 0), ACCEL_ERROR_USER);
  assert_fails(accel_set_seed(state, 1, 2, 0), ACCEL_ERROR_INVALID_ARGUMENT, "device_specific is 2");
  assert_fails(accel_add_seed_callback(state, NULL, NULL, count_destroy), ACCEL_ERROR_INVALID_ARGUMENT, "seed is NULL");
  assert_int_equal(destroyed, 1);
  accel_tensor_release(stand);
  accel_state_release(state);
  assert_int_equal(destroyed, 2);
}

static void test_generators(void **unused) {
  accel_state_t *state = state_with(ACCEL_PRECISION_NO, 1);
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1}, meta = {ACCEL_DEVICE_META, -1};
  accel_generator_t *one = NULL, *other = NULL;
  accel_tensor_t *state_of_one = NULL, *state_of_other = NULL, *wrong = NULL;
  const float zero[] = {0};
  const int64_t shape[] = {1};
  void *data[2] = {NULL, NULL};
  size_t bytes = 0;
  (void)unused;
  assert_ok(accel_generator_create(3, &cpu, &one));
  assert_ok(accel_generator_create(4, &cpu, &other));
  assert_ok(accel_generator_set_seed(other, 3));
  assert_ok(accel_generator_state(one, &state_of_one));
  assert_ok(accel_generator_state(other, &state_of_other));
  assert_ok(accel_tensor_data(state_of_one, &data[0]));
  assert_ok(accel_tensor_data(state_of_other, &data[1]));
  assert_ok(accel_tensor_nbytes(state_of_one, &bytes));
  assert_memory_equal(data[0], data[1], bytes);
  assert_ok(accel_generator_set_state(other, state_of_one));
  assert_ok(accel_synchronize_rng_states(state, "torch,generator", one));
  assert_fails(accel_synchronize_rng_states(state, "generator", NULL), ACCEL_ERROR_INVALID_ARGUMENT, "none was given");
  assert_fails(accel_synchronize_rng_states(state, "numpy", NULL), ACCEL_ERROR_INVALID_ARGUMENT, "has 'numpy'");
  assert_fails(accel_synchronize_rng_states(state, "cuda", NULL), ACCEL_ERROR_UNSUPPORTED, "has 'cuda'");
  const char *const foreign[] = {"mlu", "sdaa", "musa", "npu", "xla", "xpu", "hpu", "neuron"};
  for (size_t i = 0; i < 8; i++)
    assert_fails(accel_synchronize_rng_states(state, foreign[i], NULL), ACCEL_ERROR_UNSUPPORTED, foreign[i]);
  wrong = new_test_tensor(zero, shape, 1, ACCEL_DTYPE_FLOAT32);
  assert_fails(accel_generator_set_state(one, wrong), ACCEL_ERROR_TYPE_MISMATCH, "expected bytes on the CPU");
  assert_fails(accel_generator_create(-1, &cpu, &one), ACCEL_ERROR_INVALID_ARGUMENT, "seed is -1");
  assert_fails(accel_generator_create(1, &meta, &one), ACCEL_ERROR_UNSUPPORTED, "device meta");
  accel_tensor_release(wrong);
  accel_tensor_release(state_of_one);
  accel_tensor_release(state_of_other);
  accel_generator_release(one);
  accel_generator_release(other);
  accel_state_release(state);
}

static void test_rng_types_of_a_state(void **unused) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *state = NULL;
  (void)unused;
  options.cpu = 1;
  options.rng_types = "torch,numpy";
  assert_fails(accel_state_create(&options, &state), ACCEL_ERROR_INVALID_ARGUMENT, "rng_types has 'numpy'");
  options.rng_types = "generator";
  assert_fails(accel_state_create(&options, &state), ACCEL_ERROR_INVALID_ARGUMENT, "rng_types has 'generator'");
}

struct search {
  int64_t tried[8];
  int64_t reported[8];
  size_t n_tried, n_reported;
  int64_t fits;
};

/* Takes real memory: more than any machine has for sizes above `fits`. */
static accel_status_t take_memory(int64_t batch_size, void *user_data) {
  struct search *search = user_data;
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  const int64_t shape[] = {batch_size <= search->fits ? 4 : (int64_t)1 << 52};
  accel_tensor_t *tensor = NULL;
  accel_status_t status;
  search->tried[search->n_tried++] = batch_size;
  status = accel_tensor_empty(shape, 1, ACCEL_DTYPE_FLOAT32, &cpu, &tensor);
  accel_tensor_release(tensor);
  return status;
}

static int64_t report(int64_t batch_size, int64_t next_batch_size, const char *reason, void *user_data) {
  struct search *search = user_data;
  assert_int_equal(next_batch_size, (int64_t)(batch_size * 0.9));
  assert_non_null(strstr(reason, "can't allocate memory"));
  search->reported[search->n_reported++] = batch_size;
  return batch_size == 7 ? 7 : next_batch_size / 2;
}

static accel_status_t fail_otherwise(int64_t batch_size, void *user_data) {
  (void)batch_size;
  (void)user_data;
  accel_error_set(ACCEL_ERROR_USER, "no data");
  return ACCEL_ERROR_USER;
}

static accel_status_t say_out_of_memory(int64_t batch_size, void *user_data) {
  ++*(int *)user_data;
  accel_error_set(ACCEL_ERROR_USER, "CUDA out of memory. Tried to allocate 2 GiB");
  return batch_size < 6 ? ACCEL_OK : ACCEL_ERROR_USER;
}

static void test_batch_sizes(void **unused) {
  accel_state_t *state = state_with(ACCEL_PRECISION_NO, 1);
  struct search search = {{0}, {0}, 0, 0, 80};
  int64_t found = -1;
  int calls = 0;
  (void)unused;
  destroyed = 0;
  assert_ok(accel_find_executable_batch_size(state, take_memory, NULL, &search, count_destroy, 100, &found));
  assert_int_equal(found, 72);
  assert_int_equal(destroyed, 1);
  assert_int_equal(search.n_tried, 4);
  assert_int_equal(search.tried[2], 81);

  search = (struct search){{0}, {0}, 0, 0, 9};
  assert_ok(accel_find_executable_batch_size(state, take_memory, report, &search, NULL, 20, NULL));
  assert_int_equal(search.n_reported, 1);
  assert_int_equal(search.tried[1], 9);
  search.fits = 0;
  found = -1;
  assert_fails(accel_find_executable_batch_size(state, take_memory, report, &search, NULL, 7, &found),
               ACCEL_ERROR_INVALID_ARGUMENT, "the next batch size after 7 is 7");
  assert_fails(accel_find_executable_batch_size(state, take_memory, NULL, &search, NULL, 1, &found),
               ACCEL_ERROR_OUT_OF_MEMORY, "no batch size fits into memory, down to 0 from 1");
  assert_fails(accel_find_executable_batch_size(state, take_memory, NULL, &search, NULL, -4, &found),
               ACCEL_ERROR_INVALID_ARGUMENT, "starting_batch_size is -4");
  assert_fails(accel_find_executable_batch_size(state, fail_otherwise, NULL, NULL, NULL, 4, &found), ACCEL_ERROR_USER,
               "no data");
  assert_int_equal(found, -1);
  assert_ok(accel_find_executable_batch_size(state, say_out_of_memory, NULL, &calls, NULL, 7, &found));
  assert_int_equal(found, 5);
  assert_int_equal(calls, 3);
  accel_state_release(state);
}

static accel_status_t leave_out(const char *name, accel_tensor_t *weight, accel_value_t *out_covered, void *left_out) {
  accel_tensor_release(weight);
  if (strcmp(name, left_out) == 0) *out_covered = accel_arg_bool(0);
  return ACCEL_OK;
}

/* The recipe of a state, its filter, and the layers that a prepared model has by them. */
static void test_fp8(void **unused) {
  accel_state_t *state = state_with(ACCEL_PRECISION_FP8, 1);
  accel_fp8_options_t options = ACCEL_FP8_OPTIONS_INIT;
  accel_prepare_model_options_t preparation = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  accel_module_t *layers[4] = {NULL, NULL, NULL, NULL}, *model = NULL, *prepared = NULL;
  accel_value_t described = ACCEL_VALUE_INIT;
  const int64_t sizes[] = {32, 48, 16, 9, 16};
  (void)unused;
  options.margin = 40;
  assert_fails(accel_set_fp8(state, &options), ACCEL_ERROR_INVALID_ARGUMENT, "margin is 40");
  options.margin = 1;
  options.skip_first_and_last = 0;
  options.scaling = ACCEL_FP8_SCALING_DELAYED;
  assert_ok(accel_set_fp8(state, &options));
  assert_ok(accel_set_fp8_filter(state, leave_out, "1", NULL));
  for (int i = 0; i < 4; i++) assert_ok(accel_module_linear(sizes[i], sizes[i + 1], 1, &layers[i]));
  assert_ok(accel_module_sequential(layers, 4, &model));
  assert_fails(accel_fp8_describe(model, &described), ACCEL_ERROR_INVALID_ARGUMENT, "not prepared");
  assert_ok(accel_prepare_model(state, model, &preparation, &prepared));
  assert_ok(accel_fp8_describe(prepared, &described));
  assert_json(
      &described,
      "{\"scaling\":\"DELAYED\",\"format\":\"HYBRID\",\"layers\":[\"0\",\"3\"],\"skipped\":{\"1\":\"the filter leaves "
      "it out\",\"2\":\"its weight is [9, 16], whose sizes are no multiples of 16\"},\"overflows\":0}");
  accel_value_dispose(&described);
  assert_fails(accel_set_fp8(state, NULL), ACCEL_ERROR_INVALID_STATE, "the recipe of fp8 cannot change after a model");
  accel_module_release(prepared);
  accel_module_release(model);
  for (int i = 0; i < 4; i++) accel_module_release(layers[i]);
  accel_state_release(state);
}

/* The whole process is deterministic from here on, which shows in memory that nobody wrote: the last test. */
static void test_deterministic_algorithms(void **unused) {
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  accel_state_t *state = state_with(ACCEL_PRECISION_NO, 1);
  accel_tensor_t *empty = NULL;
  double number = 0;
  (void)unused;
  assert_fails(accel_set_seed(state, 1, 0, 9), ACCEL_ERROR_INVALID_ARGUMENT, "deterministic is 9");
  assert_ok(accel_set_seed(state, 1, 0, 1));
  assert_ok(accel_tensor_empty(NULL, 0, ACCEL_DTYPE_FLOAT32, &cpu, &empty));
  assert_ok(accel_tensor_item(empty, &number));
  assert_true(isnan(number));
  accel_tensor_release(empty);
  accel_state_release(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_the_loss_scale),
      capi_unit_test(test_the_state_of_the_gradient_scaler),
      capi_unit_test(test_float16_is_refused_on_the_cpu),
      capi_unit_test(test_regions_of_autocast),
      capi_unit_test(test_outputs_keep_their_dtype),
      capi_unit_test(test_losses_that_are_sums),
      capi_unit_test(test_loops_that_count_for_themselves),
      capi_unit_test(test_scopes_without_other_ranks),
      capi_unit_test(test_scopes_end_where_they_began),
      capi_unit_test(test_frozen_models),
      capi_unit_test(test_preparing_items_of_a_newer_program),
      capi_unit_test(test_preparing_many),
      capi_unit_test(test_the_description),
      capi_unit_test(test_seeds),
      capi_unit_test(test_generators),
      capi_unit_test(test_rng_types_of_a_state),
      capi_unit_test(test_batch_sizes),
      capi_unit_test(test_fp8),
      capi_unit_test(test_deterministic_algorithms),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
