/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: building, running, hooks, names, state. */
#define _POSIX_C_SOURCE 200809L
#include "capi_test.h"

#include <pthread.h>

static const accel_device_t kCpu = {ACCEL_DEVICE_CPU, -1};

static accel_tensor_t *row(double a, double b) {
  const float data[2] = {(float)a, (float)b};
  const int64_t shape[2] = {1, 2};
  return new_test_tensor(data, shape, 2, ACCEL_DTYPE_FLOAT32);
}

static accel_module_t *new_linear(int64_t in_features, int64_t out_features) {
  accel_module_t *module = NULL;
  assert_ok(accel_module_linear(in_features, out_features, 1, &module));
  return module;
}

/* Calls a module with one tensor and gives back the sum of the first two elements. */
static accel_status_t call_with(accel_module_t *module, accel_tensor_t *tensor, double *out_sum) {
  const accel_value_t input = accel_arg_tensor(tensor);
  accel_value_t output = ACCEL_VALUE_INIT;
  const accel_status_t status = accel_module_call(module, &input, 1, &output);
  if (status != ACCEL_OK) {
    assert_int_equal(output.kind, ACCEL_VALUE_NONE);
    return status;
  }
  void *data = NULL;
  assert_ok(accel_tensor_data(output.as.tensor, &data));
  *out_sum = ((float *)data)[0] + ((float *)data)[1];
  accel_value_dispose(&output);
  return status;
}

typedef struct {
  int calls;
  int destroyed;
  accel_status_t status; /* that the callback returns */
  accel_module_t *kept;  /* a handle that the callback kept */
} Record;

static void count_destroy(void *user_data) { ((Record *)user_data)->destroyed++; }

/* y = x * gain, with the parameter asked for by name. */
static accel_status_t scale_forward(accel_module_t *module, const accel_value_t *inputs, size_t n_inputs,
                                    accel_value_t *out, void *user_data) {
  Record *const record = user_data;
  record->calls++;
  assert_int_equal(n_inputs, 1);
  if (record->status < 0) {
    accel_error_set(record->status, "the host said no");
    return record->status;
  }
  if (record->kept == NULL && record->calls == 3) record->kept = accel_module_retain(module);
  accel_tensor_t *gain = NULL;
  assert_ok(accel_module_tensor(module, "gain", &gain));
  const accel_op_t *mul = NULL;
  assert_ok(accel_op_find("aten::mul", "Tensor", &mul));
  const accel_value_t arguments[2] = {inputs[0], accel_arg_tensor(gain)};
  size_t n_results = 0;
  const accel_status_t status = accel_op_call(mul, arguments, 2, out, 1, &n_results);
  accel_tensor_release(gain);
  return status;
}

static accel_module_t *new_scale(Record *record) {
  accel_module_t *module = NULL;
  accel_tensor_t *gain = row(2, 10);
  assert_ok(accel_module_create("Scale", &module));
  assert_ok(accel_module_add_parameter(module, "gain", gain, 1));
  assert_ok(accel_module_set_forward(module, scale_forward, record, count_destroy));
  accel_tensor_release(gain);
  return module;
}

static void test_foreign_forward(void **state) {
  (void)state;
  Record record = {0, 0, ACCEL_OK, NULL};
  accel_module_t *module = new_scale(&record);
  assert_string_equal(accel_module_kind(module), "Scale");
  accel_tensor_t *input = row(1, 1);
  double sum = 0;
  assert_ok(call_with(module, input, &sum));
  assert_true(sum == 12);

  record.status = ACCEL_ERROR_USER;
  assert_fails(call_with(module, input, &sum), ACCEL_ERROR_USER, "the host said no");
  record.status = -1234;
  assert_fails(call_with(module, input, &sum), -1234, "the host said no");
  record.status = ACCEL_OK;
  record.calls = 2;
  assert_ok(call_with(module, input, &sum)); /* still usable; keeps the handle of the module */
  assert_true(sum == 12);

  accel_module_release(module);
  assert_int_equal(record.destroyed, 0);
  assert_ok(call_with(record.kept, input, &sum)); /* the kept handle owns the module */
  accel_module_release(record.kept);
  assert_int_equal(record.destroyed, 1);
  accel_tensor_release(input);
}

static void test_forward_is_replaced(void **state) {
  (void)state;
  Record first = {0, 0, ACCEL_OK, NULL}, second = {0, 0, ACCEL_OK, NULL};
  accel_module_t *module = new_scale(&first);
  assert_ok(accel_module_set_forward(module, scale_forward, &second, count_destroy));
  assert_int_equal(first.destroyed, 1);
  accel_module_release(module);
  assert_int_equal(second.destroyed, 1);

  Record refused = {0, 0, ACCEL_OK, NULL};
  accel_module_t *linear = new_linear(2, 2);
  assert_fails(accel_module_set_forward(linear, scale_forward, &refused, count_destroy), ACCEL_ERROR_INVALID_STATE,
               "'Linear'");
  assert_int_equal(refused.destroyed, 1);
  assert_fails(accel_module_set_forward(linear, NULL, &refused, count_destroy), ACCEL_ERROR_INVALID_ARGUMENT,
               "forward");
  assert_int_equal(refused.destroyed, 2);
  assert_status(accel_module_set_forward(NULL, scale_forward, &refused, count_destroy), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_int_equal(refused.destroyed, 3);
  accel_module_release(linear);
}

/* A chain of forwards of the program: what a part returns is the input of the next. */
static void test_pipeline_of_forwards(void **state) {
  (void)state;
  Record first = {0, 0, ACCEL_OK, NULL}, second = {0, 0, ACCEL_OK, NULL};
  accel_module_t *parts[2] = {new_scale(&first), new_scale(&second)}, *pipeline = NULL;
  assert_ok(accel_pipeline_create(parts, 2, &pipeline));
  for (int i = 0; i < 2; i++) accel_module_release(parts[i]);
  assert_string_equal(accel_module_kind(pipeline), "Pipeline");
  accel_tensor_t *input = row(1, 1), *gain = NULL;
  double sum = 0;
  assert_ok(call_with(pipeline, input, &sum));
  assert_true(sum == 104);
  assert_ok(accel_module_tensor(pipeline, "1.gain", &gain));
  accel_tensor_release(gain);
  second.status = ACCEL_ERROR_USER;
  assert_fails(call_with(pipeline, input, &sum), ACCEL_ERROR_USER, "the host said no");
  accel_module_release(pipeline);
  assert_int_equal(first.destroyed + second.destroyed, 2);
  accel_tensor_release(input);

  pipeline = NULL;
  accel_module_t *missing = NULL;
  assert_fails(accel_pipeline_create(NULL, 0, &pipeline), ACCEL_ERROR_INVALID_ARGUMENT, "n_parts is 0");
  assert_fails(accel_pipeline_create(NULL, 2, &pipeline), ACCEL_ERROR_INVALID_ARGUMENT, "parts");
  assert_fails(accel_pipeline_create(&missing, 1, &pipeline), ACCEL_ERROR_INVALID_ARGUMENT, "parts");
  assert_null(pipeline);
}

// A run of the parts of a model is a stage of it.
static void test_parts_of_a_model(void **state) {
  (void)state;
  accel_module_t *model = NULL, *chain = NULL, *parts[4] = {NULL}, *stage = NULL;
  accel_value_t passed = ACCEL_VALUE_INIT, output = ACCEL_VALUE_INIT, whole = ACCEL_VALUE_INIT;
  accel_tensor_t *tokens = NULL;
  const int64_t shape[] = {1, 3};
  const char *const names[] = {"0", "1", "2", "3"};
  assert_ok(accel_module_from_config(
      "{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_layer\": 2, \"n_head\": 2, \"vocab_size\": 5}", &model));
  assert_ok(accel_module_train(model, 0));
  assert_ok(accel_pipeline_create(&model, 1, &chain));
  for (int i = 0; i < 4; i++) {
    assert_ok(accel_module_child(chain, names[i], &parts[i]));
    assert_string_equal(accel_module_kind(parts[i]), "ChainPart");
  }
  assert_ok(accel_tensor_randint(0, 5, shape, 2, &tokens));
  const accel_value_t input = accel_arg_tensor(tokens);
  assert_ok(accel_module_call(model, &input, 1, &whole));
  assert_ok(accel_pipeline_create(parts, 2, &stage));
  assert_ok(accel_module_call(stage, &input, 1, &passed));
  accel_module_release(stage);
  assert_ok(accel_pipeline_create(parts + 2, 2, &stage));
  assert_ok(accel_module_call(stage, &passed, 1, &output));
  void *expected = NULL, *found = NULL;
  assert_ok(accel_tensor_data(whole.as.tensor, &expected));
  assert_ok(accel_tensor_data(output.as.tensor, &found));
  assert_memory_equal(found, expected, (size_t)3 * 5 * sizeof(float));
  accel_value_dispose(&passed);
  accel_value_dispose(&output);
  accel_value_dispose(&whole);
  accel_tensor_release(tokens);
  accel_module_release(stage);
  for (int i = 0; i < 4; i++) accel_module_release(parts[i]);
  accel_module_release(chain);
  accel_module_release(model);
}

static accel_status_t no_output(accel_module_t *module, const accel_value_t *inputs, size_t n_inputs,
                                accel_value_t *out, void *user_data) {
  (void)module;
  (void)inputs;
  (void)n_inputs;
  (void)out;
  (void)user_data;
  return ACCEL_OK;
}

static accel_status_t none_output(accel_module_t *module, const accel_value_t *inputs, size_t n_inputs,
                                  accel_value_t *out, void *user_data) {
  (void)module;
  (void)inputs;
  (void)n_inputs;
  (void)user_data;
  *out = accel_arg_none();
  return ACCEL_OK;
}

// Regression: a forward without an output was a success.
static void test_call(void **state) {
  (void)state;
  accel_module_t *module = NULL;
  accel_value_t out = ACCEL_VALUE_INIT;
  assert_ok(accel_module_create("Empty", &module));
  assert_fails(accel_module_call(module, NULL, 0, &out), ACCEL_ERROR_INVALID_STATE, "'Empty' has no forward");
  assert_ok(accel_module_set_forward(module, no_output, NULL, NULL));
  assert_fails(accel_module_call(module, NULL, 0, &out), ACCEL_ERROR_TYPE_MISMATCH, "did not write out_output");
  assert_ok(accel_module_set_forward(module, none_output, NULL, NULL));
  assert_ok(accel_module_call(module, NULL, 0, &out));
  assert_int_equal(out.kind, ACCEL_VALUE_NONE);
  assert_fails(accel_module_call(module, NULL, 1, &out), ACCEL_ERROR_INVALID_ARGUMENT, "inputs");
  assert_status(accel_module_call(module, NULL, 0, NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_call(NULL, NULL, 0, &out), ACCEL_ERROR_INVALID_ARGUMENT);
  accel_tensor_t *tensor = row(1, 2);
  assert_status(accel_module_call((accel_module_t *)tensor, NULL, 0, &out), ACCEL_ERROR_INVALID_HANDLE);
  accel_tensor_release(tensor);
  accel_module_release(module);
}

/* Appends two to the number in the list. */
static accel_status_t add_two(accel_module_t *module, const accel_value_t *values, accel_value_t *out,
                              void *user_data) {
  Record *const record = user_data;
  record->calls++;
  assert_non_null(accel_module_kind(module));
  assert_int_equal(values->kind, ACCEL_VALUE_LIST);
  assert_int_equal(accel_value_count(values), 1);
  if (record->status < 0) return record->status;
  const int64_t sum = accel_value_at(values, 0)->as.integer + 2;
  const accel_value_t item = accel_arg_int(sum);
  return accel_value_list(&item, 1, out);
}

static accel_status_t keep(accel_module_t *module, const accel_value_t *values, accel_value_t *out, void *user_data) {
  (void)module;
  (void)values;
  (void)out;
  ((Record *)user_data)->calls++;
  return ACCEL_OK;
}

static accel_status_t give_number(accel_module_t *module, const accel_value_t *values, accel_value_t *out,
                                  void *user_data) {
  (void)module;
  (void)values;
  (void)user_data;
  *out = accel_arg_int(1);
  return ACCEL_OK;
}

static accel_status_t times_ten(accel_module_t *module, const accel_value_t *inputs, size_t n_inputs,
                                accel_value_t *out, void *user_data) {
  (void)module;
  (void)n_inputs;
  (void)user_data;
  *out = accel_arg_int(inputs[0].as.integer * 10);
  return ACCEL_OK;
}

static void test_hooks(void **state) {
  (void)state;
  Record before = {0, 0, ACCEL_OK, NULL}, after = {0, 0, ACCEL_OK, NULL}, kept = {0, 0, ACCEL_OK, NULL};
  accel_module_t *module = NULL;
  assert_ok(accel_module_create("Ten", &module));
  assert_ok(accel_module_set_forward(module, times_ten, NULL, NULL));
  assert_ok(accel_module_add_hook(module, ACCEL_HOOK_FORWARD_PRE, add_two, &before, count_destroy, NULL));
  assert_ok(accel_module_add_hook(module, ACCEL_HOOK_FORWARD_PRE, keep, &kept, count_destroy, NULL));
  assert_ok(accel_module_add_hook(module, ACCEL_HOOK_FORWARD, add_two, &after, count_destroy, NULL));
  const accel_value_t input = accel_arg_int(1);
  accel_value_t out = ACCEL_VALUE_INIT;
  assert_ok(accel_module_call(module, &input, 1, &out));
  assert_int_equal(out.as.integer, 32);
  assert_int_equal(kept.calls, 1);

  before.status = ACCEL_ERROR_USER;
  assert_fails(accel_module_call(module, &input, 1, &out), ACCEL_ERROR_USER, "hook");
  before.status = ACCEL_OK;
  assert_ok(accel_module_call(module, &input, 1, &out));

  Record refused = {0, 0, ACCEL_OK, NULL};
  assert_fails(accel_module_add_hook(module, 7, keep, &refused, count_destroy, NULL), ACCEL_ERROR_INVALID_ARGUMENT,
               "when is 7");
  assert_fails(accel_module_add_hook(module, 0, NULL, &refused, count_destroy, NULL), ACCEL_ERROR_INVALID_ARGUMENT,
               "hook");
  assert_int_equal(refused.destroyed, 2);

  assert_ok(accel_module_add_hook(module, ACCEL_HOOK_FORWARD, give_number, NULL, NULL, NULL));
  assert_fails(accel_module_call(module, &input, 1, &out), ACCEL_ERROR_TYPE_MISMATCH, "not a list");
  accel_module_release(module);
  assert_int_equal(before.destroyed + kept.destroyed + after.destroyed, 3);
}

static void test_hooks_are_removed(void **state) {
  (void)state;
  Record before = {0, 0, ACCEL_OK, NULL}, after = {0, 0, ACCEL_OK, NULL};
  accel_module_t *module = NULL, *other = NULL;
  int64_t ids[2] = {-1, -1};
  const accel_value_t input = accel_arg_int(1);
  accel_value_t out = ACCEL_VALUE_INIT;
  assert_ok(accel_module_create("Ten", &module));
  assert_ok(accel_module_create("Other", &other));
  assert_ok(accel_module_set_forward(module, times_ten, NULL, NULL));
  assert_ok(accel_module_add_hook(module, ACCEL_HOOK_FORWARD_PRE, add_two, &before, count_destroy, &ids[0]));
  assert_ok(accel_module_add_hook(module, ACCEL_HOOK_FORWARD, add_two, &after, count_destroy, &ids[1]));
  assert_int_not_equal(ids[0], ids[1]);
  assert_fails(accel_module_remove_hook(other, ids[0]), ACCEL_ERROR_NOT_FOUND, "is not there");
  assert_ok(accel_module_remove_hook(module, ids[0]));
  assert_int_equal(before.destroyed, 1);
  assert_ok(accel_module_call(module, &input, 1, &out));
  assert_int_equal(out.as.integer, 12);
  assert_fails(accel_module_remove_hook(module, ids[0]), ACCEL_ERROR_NOT_FOUND, "is not there");
  assert_ok(accel_module_remove_hook(module, ids[1]));
  assert_ok(accel_module_call(module, &input, 1, &out));
  assert_int_equal(out.as.integer, 10);
  assert_int_equal(before.calls + after.calls, 1);
  assert_int_equal(after.destroyed, 1);
  accel_module_release(other);
  accel_module_release(module);
}

static void test_no_grad(void **state) {
  (void)state;
  accel_module_t *module = NULL;
  accel_tensor_t *const input = row(1, 2);
  const accel_value_t given = accel_arg_tensor(input);
  assert_ok(accel_module_linear(2, 1, 1, &module));
  assert_fails(accel_module_set_no_grad(module, 2), ACCEL_ERROR_INVALID_ARGUMENT, "no_grad is 2");
  for (int32_t no_grad = 0; no_grad < 2; no_grad++) {
    accel_value_t out = ACCEL_VALUE_INIT;
    int32_t requires_grad = -1;
    assert_ok(accel_module_set_no_grad(module, no_grad));
    assert_ok(accel_module_call(module, &given, 1, &out));
    assert_ok(accel_tensor_requires_grad(out.as.tensor, &requires_grad));
    assert_int_equal(requires_grad, !no_grad);
    accel_value_dispose(&out);
  }
  accel_tensor_release(input);
  accel_module_release(module);
}

/* Accelerate gives for {a: {b, c}, d: {e}, and a again as f below d} the paths a.b, a.c, a, d.e, d.f.b, d.f.c, d.f,
 * d, "". */
static void test_bottom_up(void **state) {
  (void)state;
  static const char *const names[] = {"top", "a", "b", "c", "d", "e"};
  static const char *const expected[] = {"a.b", "a.c", "a", "d.e", "d.f.b", "d.f.c", "d.f", "d", ""};
  accel_module_t *modules[6] = {NULL};
  for (int i = 0; i < 6; i++) assert_ok(accel_module_create(names[i], &modules[i]));
  assert_ok(accel_module_add_child(modules[1], "b", modules[2]));
  assert_ok(accel_module_add_child(modules[1], "c", modules[3]));
  assert_ok(accel_module_add_child(modules[1], "again", modules[3]));
  assert_ok(accel_module_add_child(modules[4], "e", modules[5]));
  assert_ok(accel_module_add_child(modules[4], "f", modules[1]));
  assert_ok(accel_module_add_child(modules[0], "a", modules[1]));
  assert_ok(accel_module_add_child(modules[0], "d", modules[4]));
  accel_value_t found = ACCEL_VALUE_INIT;
  assert_ok(accel_module_children_bottom_up(modules[0], &found));
  assert_int_equal(accel_value_count(&found), 9);
  for (size_t i = 0; i < 9; i++) assert_string_equal(accel_value_key(&found, i), expected[i]);
  assert_string_equal(accel_value_get(&found, "d.f.c")->as.string, "c");
  accel_value_dispose(&found);
  for (int i = 0; i < 6; i++) accel_module_release(modules[i]);
}

static void expect_number(accel_module_t *module, const char *path, double expected) {
  accel_tensor_t *found = NULL;
  double number = -1;
  assert_ok(accel_module_tensor(module, path, &found));
  assert_ok(accel_tensor_item(found, &number));
  assert_true(number == expected);
  accel_tensor_release(found);
}

static accel_status_t end_thread(accel_module_t *module, const accel_value_t *inputs, size_t n_inputs,
                                 accel_value_t *out, void *user_data) {
  (void)module;
  (void)inputs;
  (void)n_inputs;
  (void)out;
  pthread_exit(user_data);
}

static void *call_module(void *module) {
  accel_value_t output = ACCEL_VALUE_INIT;
  return accel_module_call(module, NULL, 0, &output) == ACCEL_OK ? module : NULL;
}

/* As a runtime does that ends while its threads are in callbacks. */
static void test_a_thread_ends_in_a_callback(void **state) {
  accel_module_t *module = NULL;
  pthread_t thread;
  void *ended = NULL;
  (void)state;
  assert_ok(accel_module_create("Ends", &module));
  assert_ok(accel_module_set_forward(module, end_thread, &ended, NULL));
  assert_int_equal(pthread_create(&thread, NULL, call_module, module), 0);
  assert_int_equal(pthread_join(thread, &ended), 0);
  assert_ptr_equal(ended, &ended);
  accel_module_release(module);
}

static void test_exchanging(void **state) {
  (void)state;
  accel_module_t *top = NULL, *first = NULL, *second = NULL, *layer = NULL;
  accel_tensor_t *one = NULL, *two = NULL;
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  assert_ok(accel_tensor_full(NULL, 0, 1, ACCEL_DTYPE_FLOAT32, &cpu, &one));
  assert_ok(accel_tensor_full(NULL, 0, 2, ACCEL_DTYPE_FLOAT32, &cpu, &two));
  assert_ok(accel_module_create("Top", &top));
  assert_ok(accel_module_create("First", &first));
  assert_ok(accel_module_create("Second", &second));
  assert_ok(accel_module_linear(2, 2, 1, &layer));
  assert_ok(accel_module_add_child(top, "part", first));
  assert_ok(accel_module_add_child(top, "last", layer));
  assert_ok(accel_module_add_buffer(first, "number", one, 1));
  assert_ok(accel_module_add_buffer(second, "number", two, 1));

  assert_ok(accel_module_replace_child(top, "part", second)); /* keeps its place: before "last" */
  expect_number(top, "part.number", 2);
  accel_value_t names = ACCEL_VALUE_INIT;
  assert_ok(accel_module_state_dict(top, &names));
  assert_string_equal(accel_value_key(&names, 0), "part.number");
  accel_value_dispose(&names);
  assert_fails(accel_module_replace_child(top, "gone", second), ACCEL_ERROR_NOT_FOUND, "'gone'");
  assert_fails(accel_module_replace_child(second, "part", top), ACCEL_ERROR_INVALID_ARGUMENT, "'part'");

  assert_ok(accel_module_replace_tensor(second, "number", one));
  expect_number(top, "part.number", 1);
  assert_fails(accel_module_replace_tensor(top, "number", one), ACCEL_ERROR_NOT_FOUND, "'number'");
  assert_ok(accel_module_replace_tensor(layer, "bias", two)); /* of a layer of the library, too */

  assert_ok(accel_module_remove(top, "part"));
  assert_fails(accel_module_remove(top, "part"), ACCEL_ERROR_NOT_FOUND, "'part'");
  assert_fails(accel_module_remove(layer, "bias"), ACCEL_ERROR_UNSUPPORTED, "as a whole");
  accel_module_release(layer);
  accel_module_release(second);
  accel_module_release(first);
  accel_module_release(top);
  accel_tensor_release(two);
  accel_tensor_release(one);
}

static void test_building(void **state) {
  (void)state;
  accel_module_t *top = NULL, *inner = NULL, *found = NULL;
  accel_tensor_t *tensor = row(1, 2);
  assert_ok(accel_module_create("Top", &top));
  assert_ok(accel_module_create("Inner", &inner));
  assert_ok(accel_module_add_parameter(top, "weight", tensor, 1));
  assert_fails(accel_module_add_parameter(top, "weight", tensor, 1), ACCEL_ERROR_ALREADY_EXISTS, "'weight'");
  assert_fails(accel_module_add_parameter(top, "a.b", tensor, 1), ACCEL_ERROR_INVALID_ARGUMENT, "'a.b'");
  assert_fails(accel_module_add_parameter(top, "", tensor, 1), ACCEL_ERROR_INVALID_ARGUMENT, "''");
  assert_status(accel_module_add_parameter(NULL, "w", tensor, 1), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_add_parameter(top, NULL, tensor, 1), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_add_parameter(top, "w", NULL, 1), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_ok(accel_module_add_child(top, "inner", inner));
  assert_fails(accel_module_add_child(inner, "back", top), ACCEL_ERROR_INVALID_ARGUMENT, "'back'");
  assert_status(accel_module_add_child(top, "x", NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_add_child(top, NULL, inner), ACCEL_ERROR_INVALID_ARGUMENT);
  accel_tensor_t *copy = NULL;
  assert_ok(accel_tensor_clone(tensor, &copy));
  accel_tensor_t *state_tensor = NULL;
  assert_ok(accel_tensor_detach(copy, &state_tensor));
  assert_ok(accel_module_add_buffer(inner, "kept", state_tensor, 1));
  assert_ok(accel_module_add_buffer(inner, "scratch", tensor, 0));
  assert_fails(accel_module_add_buffer(inner, "kept", tensor, 0), ACCEL_ERROR_ALREADY_EXISTS, "'kept'");
  assert_status(accel_module_add_buffer(inner, "x", NULL, 0), ACCEL_ERROR_INVALID_ARGUMENT);

  assert_ok(accel_module_child(top, "inner", &found));
  assert_string_equal(accel_module_kind(found), "Inner");
  accel_module_release(found);
  assert_fails(accel_module_child(top, "outer", &found), ACCEL_ERROR_NOT_FOUND, "'outer'");
  assert_status(accel_module_child(top, NULL, &found), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_child(top, "", NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  accel_tensor_t *reached = NULL;
  assert_ok(accel_module_tensor(top, "inner.kept", &reached));
  accel_tensor_release(reached);
  assert_fails(accel_module_tensor(top, "inner.gone", &reached), ACCEL_ERROR_NOT_FOUND, "'inner.gone'");
  assert_status(accel_module_tensor(top, "weight", NULL), ACCEL_ERROR_INVALID_ARGUMENT);

  accel_value_t map = ACCEL_VALUE_INIT;
  assert_ok(accel_module_named_modules(top, &map));
  assert_int_equal(accel_value_count(&map), 2);
  assert_string_equal(accel_value_key(&map, 0), "");
  assert_string_equal(accel_value_get(&map, "inner")->as.string, "Inner");
  accel_value_dispose(&map);
  assert_ok(accel_module_named_buffers(top, &map));
  assert_int_equal(accel_value_count(&map), 2);
  assert_string_equal(accel_value_key(&map, 1), "inner.scratch");
  accel_value_dispose(&map);
  assert_ok(accel_module_state_dict(top, &map));
  assert_int_equal(accel_value_count(&map), 2);
  assert_string_equal(accel_value_key(&map, 0), "weight");
  assert_string_equal(accel_value_key(&map, 1), "inner.kept");
  accel_value_dispose(&map);
  assert_status(accel_module_named_modules(top, NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_named_buffers(NULL, &map), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_state_dict(NULL, &map), ACCEL_ERROR_INVALID_ARGUMENT);

  accel_tensor_release(state_tensor);
  accel_tensor_release(copy);
  accel_tensor_release(tensor);
  accel_module_release(inner);
  accel_module_release(top);
}

static void test_state_dict(void **state) {
  (void)state;
  accel_module_t *a = new_linear(2, 2), *b = new_linear(2, 2), *wide = new_linear(3, 2);
  accel_value_t map = ACCEL_VALUE_INIT, again = ACCEL_VALUE_INIT;
  int32_t equal = 0;
  assert_ok(accel_module_state_dict(a, &map));
  assert_ok(accel_module_load_state_dict(b, &map, 1));
  assert_ok(accel_module_state_dict(b, &again));
  assert_ok(accel_value_equal(&map, &again, &equal));
  assert_int_equal(equal, 1);
  assert_fails(accel_module_load_state_dict(wide, &map, 0), ACCEL_ERROR_SHAPE_MISMATCH,
               "weight [2, 2] instead of [2, 3]");
  accel_value_dispose(&again);

  const accel_value_t number = accel_arg_int(3);
  assert_ok(accel_value_map(&again));
  assert_fails(accel_module_load_state_dict(a, &again, 1), ACCEL_ERROR_NOT_FOUND, "missing 'weight', 'bias'");
  assert_ok(accel_module_load_state_dict(a, &again, 0));
  assert_ok(accel_value_set(&again, "weight", &number));
  assert_fails(accel_module_load_state_dict(a, &again, 0), ACCEL_ERROR_TYPE_MISMATCH, "'weight'");
  assert_fails(accel_module_load_state_dict(a, &number, 0), ACCEL_ERROR_TYPE_MISMATCH, "map");
  assert_status(accel_module_load_state_dict(a, NULL, 0), ACCEL_ERROR_INVALID_ARGUMENT);
  accel_value_dispose(&again);
  accel_value_dispose(&map);
  accel_module_release(a);
  accel_module_release(b);
  accel_module_release(wide);
}

static void test_parameters(void **state) {
  (void)state;
  accel_module_t *parts[2] = {new_linear(2, 2), new_linear(2, 2)};
  accel_module_t *model = NULL;
  assert_ok(accel_module_sequential(parts, 2, &model));
  accel_value_t map = ACCEL_VALUE_INIT;
  int64_t count = 0;
  assert_ok(accel_module_named_parameters(model, &map));
  assert_int_equal(accel_value_count(&map), 4);
  accel_value_dispose(&map);
  assert_ok(accel_module_num_parameters(model, &count));
  assert_int_equal(count, 12);
  assert_ok(accel_module_tie(model, "1.weight", "0.weight"));
  assert_ok(accel_module_num_parameters(model, &count));
  assert_int_equal(count, 8);
  assert_ok(accel_module_state_dict(model, &map));
  assert_int_equal(accel_value_count(&map), 4);
  accel_value_dispose(&map);
  assert_fails(accel_module_tie(model, "1.gone", "0.weight"), ACCEL_ERROR_NOT_FOUND, "'1.gone'");
  assert_fails(accel_module_tie(model, "1.bias", "0.weight"), ACCEL_ERROR_SHAPE_MISMATCH, "'1.bias'");
  assert_status(accel_module_tie(model, NULL, "0.weight"), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_tie(model, "0.weight", NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_num_parameters(model, NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_named_parameters(model, NULL), ACCEL_ERROR_INVALID_ARGUMENT);

  accel_tensor_t *weight = NULL;
  accel_dtype_t dtype = 0;
  assert_ok(accel_module_tensor(model, "0.weight", &weight));
  assert_ok(accel_module_to(model, ACCEL_DTYPE_FLOAT64, &kCpu));
  assert_ok(accel_tensor_dtype(weight, &dtype)); /* the handle from before follows */
  assert_int_equal(dtype, ACCEL_DTYPE_FLOAT64);
  assert_ok(accel_module_to(model, ACCEL_UNSET, &kCpu));
  assert_fails(accel_module_to(model, ACCEL_DTYPE_INT64, &kCpu), ACCEL_ERROR_INVALID_ARGUMENT, "int64");
  assert_status(accel_module_to(model, 99, &kCpu), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_to(NULL, ACCEL_UNSET, &kCpu), ACCEL_ERROR_INVALID_ARGUMENT);
  accel_tensor_release(weight);
  accel_module_release(model);
  accel_module_release(parts[0]);
  accel_module_release(parts[1]);
}

static void test_train(void **state) {
  (void)state;
  accel_module_t *dropout = NULL;
  accel_tensor_t *input = row(1, 1);
  double sum = 0;
  assert_ok(accel_module_dropout(1, &dropout));
  assert_ok(call_with(dropout, input, &sum));
  assert_true(sum == 0);
  int32_t training = 0;
  assert_ok(accel_module_is_training(dropout, &training));
  assert_int_equal(training, 1);
  assert_ok(accel_module_train(dropout, 0));
  assert_ok(accel_module_is_training(dropout, &training));
  assert_int_equal(training, 0);
  assert_ok(call_with(dropout, input, &sum));
  assert_true(sum == 2);
  assert_status(accel_module_train(NULL, 1), ACCEL_ERROR_INVALID_ARGUMENT);
  accel_tensor_release(input);
  accel_module_release(dropout);
}

static void test_from_config(void **state) {
  (void)state;
  accel_module_t *model = NULL;
  assert_ok(accel_module_from_config(
      "{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2, \"vocab_size\": 5}", &model));
  assert_string_equal(accel_module_kind(model), "GPT2LMHeadModel");
  const int64_t tokens[3] = {0, 4, 2}, shape[2] = {1, 3};
  accel_tensor_t *input = new_test_tensor(tokens, shape, 2, ACCEL_DTYPE_INT64);
  const accel_value_t argument = accel_arg_tensor(input);
  accel_value_t output = ACCEL_VALUE_INIT;
  assert_ok(accel_module_call(model, &argument, 1, &output));
  const int64_t *sizes = NULL;
  assert_ok(accel_tensor_shape(output.as.tensor, &sizes));
  assert_int_equal(sizes[2], 5);
  accel_value_dispose(&output);
  accel_tensor_release(input);
  accel_module_release(model);
  assert_fails(accel_module_from_config("{\"model_type\": \"xlnet\"}", &model), ACCEL_ERROR_UNSUPPORTED, "'xlnet'");
  assert_fails(accel_module_from_config("nowhere/config.json", &model), ACCEL_ERROR_NOT_FOUND, "nowhere/config.json");
  assert_status(accel_module_from_config(NULL, &model), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_from_config("{}", NULL), ACCEL_ERROR_INVALID_ARGUMENT);
}

/* y = exp(x) * gain, and counts that it came to its end. */
static accel_status_t exponential_forward(accel_module_t *module, const accel_value_t *inputs, size_t n_inputs,
                                          accel_value_t *out, void *user_data) {
  const accel_op_t *exponential = NULL;
  accel_value_t result = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  assert_int_equal(n_inputs, 1);
  accel_status_t status = accel_op_find("aten::exp", "", &exponential);
  if (status == ACCEL_OK) status = accel_op_call(exponential, inputs, 1, &result, 1, &n_results);
  assert_ok(status); /* no error for this code when all is saved */
  Record record = {0, 0, ACCEL_OK, NULL};
  assert_ok(scale_forward(module, &result, 1, out, &record));
  accel_value_dispose(&result);
  ++*(int *)user_data;
  return ACCEL_OK;
}

/* The gradient of the input of a module of two numbers. */
static double gradient_of_input(accel_module_t *module) {
  accel_tensor_t *input = row(1, 2), *gradient = NULL, *sum = NULL;
  const accel_op_t *op = NULL;
  accel_value_t output = ACCEL_VALUE_INIT, total = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  void *data = NULL;
  assert_ok(accel_tensor_set_requires_grad(input, 1));
  const accel_value_t argument = accel_arg_tensor(input);
  assert_ok(accel_module_call(module, &argument, 1, &output));
  assert_ok(accel_op_find("aten::sum", "", &op));
  assert_ok(accel_op_call(op, &output, 1, &total, 1, &n_results));
  sum = total.as.tensor;
  assert_ok(accel_tensor_backward(sum, NULL));
  assert_ok(accel_tensor_grad(input, &gradient));
  assert_ok(accel_tensor_data(gradient, &data));
  const double number = ((const float *)data)[1];
  accel_value_dispose(&total);
  accel_value_dispose(&output);
  accel_tensor_release(gradient);
  accel_tensor_release(input);
  return number;
}

static void test_activation_checkpointing(void **state) {
  (void)state;
  int calls = 0;
  accel_module_t *module = NULL;
  accel_tensor_t *gain = row(2, 10);
  assert_ok(accel_module_create("Exponential", &module));
  assert_ok(accel_module_add_parameter(module, "gain", gain, 1));
  assert_ok(accel_module_set_forward(module, exponential_forward, &calls, NULL));
  const double expected = gradient_of_input(module);
  assert_int_equal(calls, 1);
  assert_ok(accel_checkpoint_activations(module, NULL));
  assert_true(gradient_of_input(module) == expected);
  assert_int_equal(calls, 3);

  accel_activation_checkpointing_options_t options = ACCEL_ACTIVATION_CHECKPOINTING_OPTIONS_INIT;
  options.recompute = ACCEL_RECOMPUTE_KEEP_MATMULS;
  assert_ok(accel_checkpoint_activations(module, &options));
  assert_true(gradient_of_input(module) == expected);
  assert_int_equal(calls, 5);
  options.recompute = ACCEL_RECOMPUTE_NOTHING;
  assert_ok(accel_checkpoint_activations(module, &options));
  assert_true(gradient_of_input(module) == expected);
  assert_int_equal(calls, 6);

  options.recompute = 3;
  assert_fails(accel_checkpoint_activations(module, &options), ACCEL_ERROR_INVALID_ARGUMENT, "recompute is 3");
  options.recompute = ACCEL_RECOMPUTE_ALL;
  options.class_names = "Linear";
  assert_fails(accel_checkpoint_activations(module, &options), ACCEL_ERROR_NOT_FOUND,
               "'Linear', and no module is of this kind; the kinds are Exponential");
  options.class_names = "Exponential";
  options.modules = "(";
  assert_fails(accel_checkpoint_activations(module, &options), ACCEL_ERROR_INVALID_ARGUMENT,
               "not a regular expression");
  assert_true(gradient_of_input(module) == expected);
  assert_int_equal(calls, 7); /* errors changed nothing */
  accel_tensor_release(gain);
  accel_module_release(module);
}

static void test_parts_of_scripts_are_not_checkpointed(void **state) {
  (void)state;
  accel_module_t *model = NULL;
  accel_activation_checkpointing_options_t options = ACCEL_ACTIVATION_CHECKPOINTING_OPTIONS_INIT;
  options.modules = ".+";
  assert_ok(accel_module_load_torchscript("../engine/fixtures/scripted.pt", NULL, &model));
  assert_fails(accel_checkpoint_activations(model, &options), ACCEL_ERROR_UNSUPPORTED,
               "inside of a TorchScript module");
  assert_ok(accel_checkpoint_activations(model, NULL));
  accel_module_release(model);
}

static void test_torchscript(void **state) {
  (void)state;
  accel_module_t *model = NULL;
  assert_ok(accel_module_load_torchscript("../engine/fixtures/scripted.pt", NULL, &model));
  assert_ok(accel_module_train(model, 0));
  const int64_t tokens[2] = {1, 4}, shape[1] = {2};
  accel_tensor_t *input = new_test_tensor(tokens, shape, 1, ACCEL_DTYPE_INT64);
  const accel_value_t factors[2] = {accel_arg_double(2), accel_arg_double(0.5)};
  accel_value_t list = ACCEL_VALUE_INIT, output = ACCEL_VALUE_INIT;
  assert_ok(accel_value_list(factors, 2, &list));
  const accel_value_t arguments[3] = {accel_arg_tensor(input), list, accel_arg_double(1)};
  assert_ok(accel_module_call(model, arguments, 3, &output));
  void *data = NULL;
  assert_ok(accel_tensor_data(output.as.tensor, &data));
  assert_true(((float *)data)[0] > 1.47 && ((float *)data)[0] < 1.471);
  accel_value_dispose(&output);
  assert_status(accel_module_call(model, arguments, 1, &output), ACCEL_ERROR_TORCH); /* `scales` is missing */
  accel_value_dispose(&list);
  accel_tensor_release(input);
  accel_module_release(model);
  assert_fails(accel_module_load_torchscript("no.pt", NULL, &model), ACCEL_ERROR_NOT_FOUND, "'no.pt'");
  assert_fails(accel_module_load_torchscript("meson.build", NULL, &model), ACCEL_ERROR_CORRUPT, "meson.build");
  assert_status(accel_module_load_torchscript(NULL, NULL, &model), ACCEL_ERROR_INVALID_ARGUMENT);
}

static void test_handles(void **state) {
  (void)state;
  accel_module_t *module = NULL;
  assert_status(accel_module_create(NULL, &module), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_create("Kind", NULL), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_null(accel_module_kind(NULL));
  assert_ok(accel_module_create("Kind", &module));
  assert_ptr_equal(accel_module_retain(module), module);
  accel_module_release(module);
  assert_string_equal(accel_module_kind(module), "Kind");
  accel_module_release(module);
  accel_module_release(NULL);
}

static accel_status_t return_inputs(accel_module_t *module, const accel_value_t *inputs, size_t n_inputs,
                                    accel_value_t *out_output, void *user_data) {
  (void)module, (void)user_data;
  return accel_value_list(inputs, n_inputs, out_output);
}

static void test_named_inputs(void **unused) {
  (void)unused;
  const accel_value_t x = accel_arg_int(7), scale = accel_arg_double(0.5);
  accel_module_t *module = NULL, *linear = NULL;
  accel_value_t named = ACCEL_VALUE_INIT, out = ACCEL_VALUE_INIT;
  assert_ok(accel_module_create("Host", &module));
  assert_ok(accel_module_set_forward(module, return_inputs, NULL, NULL));
  assert_ok(accel_value_map(&named));
  assert_ok(accel_value_set(&named, "scale", &scale));
  assert_fails(accel_module_call_kw(module, &x, 1, &named, &out), ACCEL_ERROR_NOT_FOUND, "its inputs have no names");
  assert_ok(accel_module_set_input_names(module, "x,mask,scale"));
  assert_ok(accel_module_call_kw(module, &x, 1, &named, &out));
  assert_int_equal(accel_value_count(&out), 3);
  assert_int_equal(accel_value_at(&out, 0)->as.integer, 7);
  assert_int_equal(accel_value_at(&out, 1)->kind, ACCEL_VALUE_NONE);
  assert_true(accel_value_at(&out, 2)->as.number == 0.5);
  accel_value_dispose(&out);
  assert_ok(accel_module_call_kw(module, &x, 1, NULL, &out));
  assert_int_equal(accel_value_count(&out), 1);
  accel_value_dispose(&out);
  assert_ok(accel_value_set(&named, "x", &x));
  assert_fails(accel_module_call_kw(module, &x, 1, &named, &out), ACCEL_ERROR_INVALID_ARGUMENT, "'x'");
  assert_fails(accel_module_call_kw(module, &x, 1, &x, &out), ACCEL_ERROR_TYPE_MISMATCH, "named_inputs is not a map");
  accel_value_dispose(&named);
  assert_ok(accel_module_linear(1, 1, 0, &linear));
  assert_fails(accel_module_set_input_names(linear, "x"), ACCEL_ERROR_INVALID_STATE, "names of its own");
  accel_module_release(linear);
  accel_module_release(module);
}

/* Doubles the gradients that it is given. */
static accel_status_t twice(accel_module_t *module, const accel_value_t *values, accel_value_t *out_values,
                            void *user_data) {
  (void)module;
  accel_tensor_t *const given = accel_value_at(values, 0)->as.tensor;
  accel_tensor_t *doubled = NULL;
  const accel_value_t args[] = {accel_arg_tensor(given), accel_arg_int(2)};
  const accel_op_t *multiply = NULL;
  accel_value_t result = ACCEL_VALUE_INIT;
  size_t count = 0;
  ++*(int *)user_data;
  accel_status_t status = accel_op_find("aten::mul", "Scalar", &multiply);
  if (status == ACCEL_OK) status = accel_op_call(multiply, args, 2, &result, 1, &count);
  doubled = status == ACCEL_OK ? result.as.tensor : NULL;
  const accel_value_t value = accel_arg_tensor(doubled);
  if (status == ACCEL_OK) status = accel_value_list(&value, 1, out_values);
  accel_value_dispose(&result);
  return status;
}

static void test_backward_hooks(void **unused) {
  (void)unused;
  const int64_t shape[] = {1, 1};
  int before = 0, after = 0;
  double number = 0;
  int64_t id = -1;
  accel_module_t *linear = NULL;
  accel_tensor_t *input = NULL, *gradient = NULL, *weight = NULL;
  accel_value_t argument, output = ACCEL_VALUE_INIT;
  assert_ok(accel_module_linear(1, 1, 0, &linear));
  assert_ok(accel_module_add_hook(linear, ACCEL_HOOK_BACKWARD_PRE, twice, &before, NULL, NULL));
  assert_ok(accel_module_add_hook(linear, ACCEL_HOOK_BACKWARD, twice, &after, NULL, &id));
  assert_fails(accel_module_add_hook(linear, 4, twice, &after, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "when is 4");
  assert_ok(accel_tensor_full(shape, 2, 5, ACCEL_DTYPE_FLOAT32, &(accel_device_t){ACCEL_DEVICE_CPU, -1}, &input));
  assert_ok(accel_tensor_set_requires_grad(input, 1));
  argument = accel_arg_tensor(input);
  assert_ok(accel_module_call(linear, &argument, 1, &output));
  assert_ok(accel_tensor_backward(output.as.tensor, NULL));
  assert_int_equal(before, 1);
  assert_int_equal(after, 1);
  assert_ok(accel_module_tensor(linear, "weight", &weight));
  assert_ok(accel_tensor_grad(weight, &gradient));
  assert_ok(accel_tensor_item(gradient, &number));
  assert_true(number == 10); /* the input by the gradient of the output, which was doubled */
  accel_tensor_release(gradient);
  double parameter = 0;
  assert_ok(accel_tensor_item(weight, &parameter));
  assert_ok(accel_tensor_grad(input, &gradient));
  assert_ok(accel_tensor_item(gradient, &number));
  assert_true(number == 4 * parameter);
  accel_tensor_release(gradient);
  accel_tensor_release(weight);
  accel_value_dispose(&output);
  assert_ok(accel_module_remove_hook(linear, id));
  accel_tensor_release(input);
  accel_module_release(linear);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_foreign_forward),
      capi_unit_test(test_forward_is_replaced),
      capi_unit_test(test_pipeline_of_forwards),
      capi_unit_test(test_parts_of_a_model),
      capi_unit_test(test_call),
      capi_unit_test(test_hooks),
      capi_unit_test(test_hooks_are_removed),
      capi_unit_test(test_no_grad),
      capi_unit_test(test_named_inputs),
      capi_unit_test(test_backward_hooks),
      capi_unit_test(test_bottom_up),
      capi_unit_test(test_building),
      capi_unit_test(test_exchanging),
      capi_unit_test(test_a_thread_ends_in_a_callback),
      capi_unit_test(test_state_dict),
      capi_unit_test(test_parameters),
      capi_unit_test(test_train),
      capi_unit_test(test_from_config),
      capi_unit_test(test_activation_checkpointing),
      capi_unit_test(test_parts_of_scripts_are_not_checkpointed),
      capi_unit_test(test_torchscript),
      capi_unit_test(test_handles),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
