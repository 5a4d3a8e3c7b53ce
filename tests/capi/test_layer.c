/* SPDX-License-Identifier: Apache-2.0 */
/* Layers: shapes that go in and out, names of parameters, and refused arguments. */
#include "capi_test.h"

#define UNSET ACCEL_UNSET_DOUBLE

/* Calls a layer and compares the shape of its output; takes the layer's owner over. */
static void check_layer(accel_module_t *layer, const int64_t *in, size_t in_ndim, accel_dtype_t dtype,
                        const int64_t *out, size_t out_ndim, const char *parameters) {
  accel_tensor_t *input = NULL;
  accel_value_t output = ACCEL_VALUE_INIT, map = ACCEL_VALUE_INIT;
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  assert_ok(accel_tensor_full(in, in_ndim, 1, dtype, &cpu, &input));
  const accel_value_t argument = accel_arg_tensor(input);
  assert_ok(accel_module_call(layer, &argument, 1, &output));
  size_t ndim = 0;
  const int64_t *shape = NULL;
  assert_ok(accel_tensor_ndim(output.as.tensor, &ndim));
  assert_int_equal(ndim, out_ndim);
  assert_ok(accel_tensor_shape(output.as.tensor, &shape));
  for (size_t i = 0; i < ndim; i++) assert_int_equal(shape[i], out[i]);
  char names[256] = "";
  assert_ok(accel_module_named_parameters(layer, &map));
  for (size_t i = 0; i < accel_value_count(&map); i++) {
    strcat(names, accel_value_key(&map, i));
    strcat(names, " ");
  }
  assert_string_equal(names, parameters);
  accel_value_dispose(&map);
  accel_value_dispose(&output);
  accel_tensor_release(input);
  accel_module_release(layer);
}

static void test_layers(void **state) {
  (void)state;
  accel_module_t *layer = NULL;
  const int64_t pair[2] = {2, 4}, wide[2] = {2, 3}, tokens[3] = {2, 3, 4}, image[4] = {1, 4, 5, 5},
                half[4] = {1, 6, 3, 3};
  assert_ok(accel_module_linear(4, 3, 1, &layer));
  check_layer(layer, pair, 2, ACCEL_DTYPE_FLOAT32, wide, 2, "weight bias ");
  assert_ok(accel_module_linear(4, 3, 0, &layer));
  check_layer(layer, pair, 2, ACCEL_DTYPE_FLOAT32, wide, 2, "weight ");
  assert_ok(accel_module_embedding(9, 4, &layer));
  check_layer(layer, wide, 2, ACCEL_DTYPE_INT64, tokens, 3, "weight ");
  assert_ok(accel_module_layer_norm(4, UNSET, &layer));
  check_layer(layer, pair, 2, ACCEL_DTYPE_FLOAT32, pair, 2, "weight bias ");
  assert_ok(accel_module_rms_norm(4, UNSET, &layer));
  check_layer(layer, pair, 2, ACCEL_DTYPE_FLOAT32, pair, 2, "weight ");
  assert_ok(accel_module_dropout(0.5, &layer));
  check_layer(layer, pair, 2, ACCEL_DTYPE_FLOAT32, pair, 2, "");
  assert_ok(accel_module_activation("gelu_new", &layer));
  check_layer(layer, pair, 2, ACCEL_DTYPE_FLOAT32, pair, 2, "");
  assert_ok(accel_module_attention(4, 2, 1, 1, 0.1, &layer));
  check_layer(layer, tokens, 3, ACCEL_DTYPE_FLOAT32, tokens, 3,
              "in_proj_weight in_proj_bias out_proj.weight out_proj.bias ");
  assert_ok(accel_module_mixture_of_experts(4, 3, 5, 2, 0, &layer));
  check_layer(layer, tokens, 3, ACCEL_DTYPE_FLOAT32, tokens, 3, "gate.weight experts.gate_up_proj experts.down_proj ");
  assert_ok(accel_module_conv2d(4, 6, 3, 2, 1, 2, 0, &layer));
  check_layer(layer, image, 4, ACCEL_DTYPE_FLOAT32, half, 4, "weight ");
  assert_ok(accel_module_batch_norm(4, UNSET, UNSET, &layer));
  check_layer(layer, image, 4, ACCEL_DTYPE_FLOAT32, image, 4, "weight bias ");
}

static void test_sequential(void **state) {
  (void)state;
  accel_module_t *parts[2] = {NULL, NULL}, *model = NULL;
  const int64_t pair[2] = {2, 4}, wide[2] = {2, 3};
  assert_ok(accel_module_linear(4, 3, 0, &parts[0]));
  assert_ok(accel_module_activation("relu", &parts[1]));
  assert_ok(accel_module_sequential(parts, 2, &model));
  accel_module_release(parts[0]);
  check_layer(model, pair, 2, ACCEL_DTYPE_FLOAT32, wide, 2, "0.weight ");
  assert_ok(accel_module_sequential(NULL, 0, &model));
  accel_module_release(model);
  parts[0] = NULL;
  assert_fails(accel_module_sequential(parts, 2, &model), ACCEL_ERROR_INVALID_ARGUMENT, "modules");
  assert_fails(accel_module_sequential(NULL, 2, &model), ACCEL_ERROR_INVALID_ARGUMENT, "modules");
  assert_status(accel_module_sequential(parts, 0, NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  accel_module_release(parts[1]);
}

static void test_refused_arguments(void **state) {
  (void)state;
  accel_module_t *layer = NULL;
  assert_fails(accel_module_linear(0, 3, 1, &layer), ACCEL_ERROR_INVALID_ARGUMENT, "in_features is 0");
  assert_fails(accel_module_embedding(3, -2, &layer), ACCEL_ERROR_INVALID_ARGUMENT, "embedding_dim is -2");
  assert_fails(accel_module_layer_norm(0, UNSET, &layer), ACCEL_ERROR_INVALID_ARGUMENT, "normalized_size is 0");
  assert_fails(accel_module_rms_norm(4, -1, &layer), ACCEL_ERROR_INVALID_ARGUMENT, "eps is -1");
  assert_fails(accel_module_dropout(2, &layer), ACCEL_ERROR_INVALID_ARGUMENT, "probability is 2");
  assert_fails(accel_module_activation("swoosh", &layer), ACCEL_ERROR_NOT_FOUND, "'swoosh'");
  assert_fails(accel_module_attention(5, 2, 0, 1, 0, &layer), ACCEL_ERROR_INVALID_ARGUMENT, "embed_dim 5");
  assert_fails(accel_module_attention(4, 2, 0, 1, -1, &layer), ACCEL_ERROR_INVALID_ARGUMENT, "dropout is -1");
  assert_fails(accel_module_mixture_of_experts(4, 3, 5, 6, 0, &layer), ACCEL_ERROR_INVALID_ARGUMENT,
               "experts_per_token is 6; expected 1 to 5");
  assert_fails(accel_module_mixture_of_experts(4, 3, 5, 2, -1, &layer), ACCEL_ERROR_INVALID_ARGUMENT,
               "balance_rate is -1");
  assert_status(accel_module_mixture_of_experts(4, 3, 5, 2, 0, NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_fails(accel_module_conv2d(4, 6, 3, 0, 0, 1, 1, &layer), ACCEL_ERROR_INVALID_ARGUMENT, "stride is 0");
  assert_fails(accel_module_batch_norm(4, UNSET, 3, &layer), ACCEL_ERROR_INVALID_ARGUMENT, "momentum is 3");
  assert_status(accel_module_linear(1, 1, 1, NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_embedding(1, 1, NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_layer_norm(1, UNSET, NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_rms_norm(1, UNSET, NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_dropout(0, NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_activation("relu", NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_activation(NULL, &layer), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_attention(4, 2, 0, 1, 0, NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_conv2d(1, 1, 1, 1, 0, 1, 1, NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_batch_norm(1, UNSET, UNSET, NULL), ACCEL_ERROR_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_layers),
      capi_unit_test(test_sequential),
      capi_unit_test(test_refused_arguments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
