/* SPDX-License-Identifier: Apache-2.0 */
/* Section 10: operators at the ends of split regions, plans, and split sequences, of one process. Several ranks are the
 * matter of tests/distributed and tests/engine. */
#include "capi_test.h"

static const accel_device_t kCpu = {ACCEL_DEVICE_CPU, -1};

static int set_up(void **state) {
  accel_state_options_t options = one_process_options();
  return accel_state_create(&options, (accel_state_t **)state) == ACCEL_OK ? 0 : -1;
}

static int tear_down(void **state) {
  accel_state_release(*state);
  return assert_nothing_left(state);
}

static accel_tensor_t *full(accel_dtype_t dtype) {
  const int64_t shape[] = {2, 3};
  accel_tensor_t *tensor = NULL;
  assert_ok(accel_tensor_full(shape, 2, 2, dtype, &kCpu, &tensor));
  return tensor;
}

static void test_one_rank_returns_its_input(void **state) {
  accel_tensor_t *input = full(ACCEL_DTYPE_FLOAT32), *results[7] = {NULL};
  assert_ok(accel_parallel_copy(*state, input, &results[0]));
  assert_ok(accel_parallel_reduce(*state, input, &results[1]));
  assert_ok(accel_parallel_gather(*state, input, -1, -1, 1, &results[2]));
  assert_ok(accel_parallel_scatter(*state, input, 0, &results[3]));
  assert_ok(accel_parallel_reduce_scatter(*state, input, 1, &results[4]));
  assert_ok(accel_parallel_all_to_all(*state, input, 0, 1, 3, &results[5]));
  assert_ok(accel_parallel_class_scores(*state, input, 3, &results[6]));
  for (size_t i = 0; i < 7; i++) {
    int32_t same = 0;
    const accel_value_t left = accel_arg_tensor(input), right = accel_arg_tensor(results[i]);
    assert_ok(accel_value_equal(&left, &right, &same));
    assert_int_equal(same, 1);
    accel_tensor_release(results[i]);
  }
  accel_tensor_release(input);
}

static void test_wrong_arguments(void **state) {
  accel_tensor_t *input = full(ACCEL_DTYPE_FLOAT32), *numbers = full(ACCEL_DTYPE_INT64), *out = NULL;
  assert_fails(accel_parallel_copy(*state, numbers, &out), ACCEL_ERROR_TYPE_MISMATCH, "input has dtype int64");
  assert_fails(accel_parallel_reduce(NULL, input, &out), ACCEL_ERROR_INVALID_ARGUMENT, "state is NULL");
  assert_fails(accel_parallel_reduce(*state, NULL, &out), ACCEL_ERROR_INVALID_ARGUMENT, "input is NULL");
  assert_fails(accel_parallel_gather(*state, input, 2, -1, 1, &out), ACCEL_ERROR_INVALID_ARGUMENT,
               "2 of a tensor with 2");
  assert_fails(accel_parallel_gather(*state, input, 0, -2, 1, &out), ACCEL_ERROR_INVALID_ARGUMENT, "whole is -2");
  assert_fails(accel_parallel_gather(*state, input, 0, 5, 1, &out), ACCEL_ERROR_SHAPE_MISMATCH, "5");
  assert_fails(accel_parallel_scatter(*state, input, -3, &out), ACCEL_ERROR_INVALID_ARGUMENT, "-3 of a tensor with 2");
  assert_fails(accel_parallel_all_to_all(*state, input, 1, -1, -1, &out), ACCEL_ERROR_INVALID_ARGUMENT,
               "both dimension");
  assert_fails(accel_parallel_class_scores(*state, input, 4, &out), ACCEL_ERROR_SHAPE_MISMATCH,
               "expected 4 of 4 classes");
  assert_fails(accel_parallel_class_scores(*state, input, 0, &out), ACCEL_ERROR_INVALID_ARGUMENT,
               "is 0; expected at least 1");
  assert_fails(accel_parallel_class_scores(*state, numbers, 3, &out), ACCEL_ERROR_TYPE_MISMATCH,
               "scores has dtype int64");
  assert_null(out);
  accel_tensor_release(numbers);
  accel_tensor_release(input);
}

/* A plan is read on one rank too, where nothing is split. */
static void test_plans(void **state) {
  accel_module_t *linear = NULL, *model = NULL;
  accel_tensor_parallel_options_t splitting = ACCEL_TENSOR_PARALLEL_OPTIONS_INIT;
  accel_prepare_model_options_t options = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  options.tensor_parallel = &splitting;
  assert_ok(accel_module_linear(3, 2, 1, &linear));
  splitting.plan = "layer diagonal";
  assert_fails(accel_prepare_model(*state, linear, &options, &model), ACCEL_ERROR_INVALID_ARGUMENT,
               "style 'diagonal'; expected one of colwise");
  splitting.plan = "layer colwise";
  splitting.overlap = 3;
  assert_fails(accel_prepare_model(*state, linear, &options, &model), ACCEL_ERROR_INVALID_ARGUMENT, "overlap");
  splitting.overlap = ACCEL_OVERLAP_YES;
  splitting.overlap_chunks = -2;
  assert_fails(accel_prepare_model(*state, linear, &options, &model), ACCEL_ERROR_INVALID_ARGUMENT, "overlap_chunks");
  splitting.overlap_chunks = 4;
  assert_ok(accel_prepare_model(*state, linear, &options, &model));
  accel_module_release(model);
  accel_module_release(linear);
}

static void test_layers_are_split_ahead(void **state) {
  accel_module_t *linear = NULL, *model = NULL;
  accel_scope_t *empty = NULL;
  accel_tensor_parallel_options_t splitting = ACCEL_TENSOR_PARALLEL_OPTIONS_INIT;
  assert_ok(accel_init_empty_weights_begin(0, &empty));
  assert_ok(accel_module_linear(3, 2, 1, &linear));
  assert_ok(accel_scope_end(empty));
  splitting.plan = "layer";
  assert_fails(accel_split_layers(*state, linear, &splitting), ACCEL_ERROR_INVALID_ARGUMENT, "has one part");
  assert_fails(accel_split_layers(*state, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "module is NULL");
  assert_ok(accel_split_layers(*state, linear, NULL));
  assert_ok(accel_prepare_model(*state, linear, NULL, &model));
  assert_fails(accel_split_layers(*state, model, NULL), ACCEL_ERROR_INVALID_STATE, "prepared already");
  accel_module_release(model);
  accel_module_release(linear);
}

/* On one rank sequences are whole, in a scope too. */
static void test_sequences_of_one_rank(void **state) {
  const int64_t shape[] = {2, 6}, dims[] = {1};
  accel_tensor_t *tokens = NULL, *positions = NULL, *whole = NULL;
  accel_scope_t *scope = NULL;
  const int64_t *sizes = NULL;
  int32_t same = 0;
  assert_ok(accel_tensor_full(shape, 2, 2, ACCEL_DTYPE_INT64, &kCpu, &tokens));
  assert_ok(accel_context_parallel_begin(*state, &tokens, dims, 1, NULL, 0, &scope));
  assert_ok(accel_tensor_shape(tokens, &sizes));
  assert_int_equal(sizes[1], 6);
  assert_ok(accel_scope_end(scope));
  assert_ok(accel_context_parallel_begin(*state, NULL, NULL, 0, NULL, 0, &scope));
  assert_ok(accel_scope_end(scope));
  assert_ok(accel_context_parallel_gather(*state, tokens, 1, &whole));
  const accel_value_t left = accel_arg_tensor(tokens), right = accel_arg_tensor(whole);
  assert_ok(accel_value_equal(&left, &right, &same));
  assert_int_equal(same, 1);
  assert_ok(accel_context_parallel_positions(*state, 5, &positions));
  assert_ok(accel_tensor_shape(positions, &sizes));
  assert_int_equal(sizes[0], 5);
  accel_tensor_release(positions);
  accel_tensor_release(whole);
  accel_tensor_release(tokens);
}

/* Options of sequences are read on one rank too. */
static void test_options_of_sequences(void **state) {
  accel_module_t *linear = NULL, *model = NULL;
  accel_context_parallel_options_t split = ACCEL_CONTEXT_PARALLEL_OPTIONS_INIT;
  accel_prepare_model_options_t options = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  const int64_t shape[] = {2, 6}, dims[] = {1, -3};
  accel_tensor_t *tokens = NULL;
  accel_scope_t *scope = NULL;
  options.context_parallel = &split;
  assert_ok(accel_module_linear(3, 2, 1, &linear));
  split.method = 3;
  assert_fails(accel_prepare_model(*state, linear, &options, &model), ACCEL_ERROR_INVALID_ARGUMENT, "method is 3");
  split.method = ACCEL_CONTEXT_METHOD_RING;
  split.variable_length = 0;
  assert_fails(accel_prepare_model(*state, linear, &options, &model), ACCEL_ERROR_INVALID_ARGUMENT,
               "variable_length is 0 and sequence_length is 0");
  split.sequence_length = 8;
  assert_ok(accel_prepare_model(*state, linear, &options, &model));
  assert_ok(accel_tensor_full(shape, 2, 2, ACCEL_DTYPE_INT64, &kCpu, &tokens));
  assert_fails(accel_context_parallel_begin(*state, &tokens, dims, 1, NULL, 0, &scope), ACCEL_ERROR_INVALID_ARGUMENT,
               "a sequence has 6 positions, sequence_length is 8");
  assert_fails(accel_context_parallel_begin(*state, &tokens, &dims[1], 1, NULL, 0, &scope),
               ACCEL_ERROR_INVALID_ARGUMENT, "dim: -3 of a tensor with 2 dimensions");
  assert_fails(accel_context_parallel_begin(*state, NULL, dims, 1, NULL, 0, &scope), ACCEL_ERROR_INVALID_ARGUMENT,
               "buffers is NULL");
  assert_null(scope);
  accel_tensor_release(tokens);
  accel_module_release(model);
  accel_module_release(linear);
}

/* An expert takes half of the mean of tokens; what it does not take is 0. */
static void test_options_of_experts(void **state) {
  accel_module_t *experts = NULL, *model = NULL;
  accel_expert_parallel_options_t sharing = ACCEL_EXPERT_PARALLEL_OPTIONS_INIT;
  accel_prepare_model_options_t options = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  const int64_t shape[] = {8, 4};
  accel_tensor_t *tokens = NULL;
  accel_value_t output = ACCEL_VALUE_INIT;
  void *data = NULL;
  options.expert_parallel = &sharing;
  assert_ok(accel_module_mixture_of_experts(4, 3, 1, 1, 0, &experts));
  sharing.capacity_factor = -1;
  assert_fails(accel_prepare_model(*state, experts, &options, &model), ACCEL_ERROR_INVALID_ARGUMENT,
               "capacity_factor is -1");
  sharing.capacity_factor = 0.5;
  assert_ok(accel_prepare_model(*state, experts, &options, &model));
  assert_ok(accel_tensor_full(shape, 2, 1, ACCEL_DTYPE_FLOAT32, &kCpu, &tokens));
  const accel_value_t input = accel_arg_tensor(tokens);
  assert_ok(accel_module_call(model, &input, 1, &output));
  assert_ok(accel_tensor_data(output.as.tensor, &data));
  const float *const values = data;
  assert_true(values[15] != 0);
  for (size_t i = 16; i < 32; i++) assert_true(values[i] == 0);
  accel_value_dispose(&output);
  accel_tensor_release(tokens);
  accel_module_release(model);
  accel_module_release(experts);
}

/* A model without memory gets the initial values that it would have had. */
static void test_empty_models_are_filled(void **state) {
  accel_module_t *whole = NULL, *empty = NULL, *model = NULL;
  accel_scope_t *scope = NULL;
  static const char *const names[] = {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"};
  assert_ok(accel_set_seed(*state, 3, 0, 0));
  assert_ok(accel_module_attention(8, 2, 1, 1, 0, &whole));
  assert_ok(accel_init_empty_weights_begin(0, &scope));
  assert_ok(accel_module_attention(8, 2, 1, 1, 0, &empty));
  assert_ok(accel_scope_end(scope));
  assert_ok(accel_set_seed(*state, 3, 0, 0));
  assert_ok(accel_prepare_model(*state, empty, NULL, &model));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    accel_tensor_t *expected = NULL, *found = NULL;
    int32_t same = 0;
    assert_ok(accel_module_tensor(whole, names[i], &expected));
    assert_ok(accel_module_tensor(empty, names[i], &found));
    const accel_value_t left = accel_arg_tensor(expected), right = accel_arg_tensor(found);
    assert_ok(accel_value_equal(&left, &right, &same));
    assert_int_equal(same, 1);
    accel_tensor_release(found);
    accel_tensor_release(expected);
  }
  accel_module_release(model);
  accel_module_release(empty);
  accel_module_release(whole);
}

/* On one rank a pipeline has one stage, which gets the chunks one after the other. */
static void test_a_pipeline_of_one_stage(void **state) {
  accel_tensor_t *batch = full(ACCEL_DTYPE_FLOAT32);
  const accel_value_t given = accel_arg_tensor(batch), none = accel_arg_none();
  accel_value_t out = accel_arg_none(), whole = accel_arg_none();
  accel_module_t *stage = NULL;
  int32_t same = 0;
  assert_ok(accel_module_activation("tanh", &stage));
  assert_ok(accel_module_call(stage, &given, 1, &whole));
  assert_ok(accel_pipeline_forward(*state, stage, &given, 2, 0, 1, &out));
  assert_ok(accel_value_equal(&out, &whole, &same));
  assert_int_equal(same, 1);
  accel_value_dispose(&out);
  assert_ok(accel_pipeline_forward(*state, stage, &given, 1, 3, 2, &out));
  assert_ok(accel_value_equal(&out, &whole, &same));
  assert_int_equal(same, 0); /* tanh of tanh */
  accel_value_dispose(&out);
  assert_fails(accel_pipeline_forward(*state, stage, NULL, 2, 0, 1, &out), ACCEL_ERROR_INVALID_ARGUMENT,
               "Could not find batch size");
  assert_fails(accel_pipeline_forward(*state, stage, &none, 2, 0, 1, &out), ACCEL_ERROR_INVALID_ARGUMENT,
               "Could not find batch size");
  assert_fails(accel_pipeline_forward(*state, stage, &given, 0, 0, 1, &out), ACCEL_ERROR_INVALID_ARGUMENT,
               "chunks is 0");
  assert_fails(accel_pipeline_forward(*state, stage, &given, 2, 0, 0, &out), ACCEL_ERROR_INVALID_ARGUMENT, "rounds 0");
  assert_fails(accel_pipeline_forward(*state, NULL, &given, 2, 0, 1, &out), ACCEL_ERROR_INVALID_ARGUMENT,
               "stage is NULL");
  accel_value_dispose(&whole);
  accel_module_release(stage);
  accel_tensor_release(batch);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_one_rank_returns_its_input, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_wrong_arguments, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_plans, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_layers_are_split_ahead, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_empty_models_are_filled, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_sequences_of_one_rank, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_options_of_sequences, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_options_of_experts, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_a_pipeline_of_one_stage, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
