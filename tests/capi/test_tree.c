/* SPDX-License-Identifier: Apache-2.0 */
/* Section 2: functions on trees of tensors. */
#include "tree_fixture.h"

struct applied {
  int calls;
  int destroyed;
};

static accel_status_t give_back(accel_tensor_t *tensor, accel_tensor_t **out, void *user_data) {
  ((struct applied *)user_data)->calls++;
  *out = accel_tensor_retain(tensor);
  return ACCEL_OK;
}

static accel_status_t give_nothing(accel_tensor_t *tensor, accel_tensor_t **out, void *user_data) {
  (void)tensor, (void)out, (void)user_data;
  return ACCEL_OK;
}

static void count_destroyed(void *user_data) { ((struct applied *)user_data)->destroyed++; }

static void test_recursively_apply(void **state) {
  (void)state;
  accel_value_t tree = new_tree(), out = ACCEL_VALUE_INIT;
  struct applied applied = {0};
  const accel_value_t dtype = accel_arg_dtype(ACCEL_DTYPE_INT64);
  assert_ok(accel_value_set(&tree, "dtype", &dtype));
  assert_ok(accel_recursively_apply(&tree, 0, give_back, &applied, count_destroyed, &out));
  assert_int_equal(applied.calls, 2);
  assert_int_equal(applied.destroyed, 1);
  assert_int_equal(are_equal(&tree, &out), 1); /* the dtype stayed one */
  accel_value_dispose(&out);
  assert_fails(accel_recursively_apply(&tree, 1, give_back, &applied, count_destroyed, &out), ACCEL_ERROR_TYPE_MISMATCH,
               "string");
  assert_int_equal(applied.calls, 2);
  assert_fails(accel_recursively_apply(&tree, 0, NULL, &applied, count_destroyed, &out), ACCEL_ERROR_INVALID_ARGUMENT,
               "function is NULL");
  assert_fails(accel_recursively_apply(NULL, 0, give_back, &applied, count_destroyed, &out),
               ACCEL_ERROR_INVALID_ARGUMENT, "value is NULL");
  assert_int_equal(applied.destroyed, 4);
  assert_fails(accel_recursively_apply(&tree, 0, give_nothing, NULL, NULL, &out), ACCEL_ERROR_INVALID_ARGUMENT,
               "gave back");
  accel_value_dispose(&tree);
}

static void test_listify(void **state) {
  (void)state;
  accel_value_t tree = new_tree(), out = ACCEL_VALUE_INIT;
  assert_ok(accel_listify(&tree, &out));
  assert_json(&out, "{\"x\":[[1.0,2.0],[3.0,4.0],[5.0,6.0]],\"y\":[[1.0,2.0,3.0],\"text\",7]}");
  assert_int_equal(accel_value_get(&out, "x")->kind, ACCEL_VALUE_LIST);
  accel_value_dispose(&out);
  accel_value_dispose(&tree);
  const uint8_t truths[] = {1, 0};
  const int64_t integers[] = {INT64_MAX, -1}, two[] = {2};
  const uint16_t brain_floats[] = {0x3fc0, 0xc000};
  accel_tensor_t *const tensors[] = {new_test_tensor(truths, two, 1, ACCEL_DTYPE_BOOL),
                                     new_test_tensor(integers, two, 1, ACCEL_DTYPE_INT64),
                                     new_test_tensor(brain_floats, two, 1, ACCEL_DTYPE_BFLOAT16)};
  const char *const expected[] = {"[true,false]", "[9223372036854775807,-1]", "[1.5,-2.0]"};
  for (size_t i = 0; i < 3; i++) {
    const accel_value_t value = accel_arg_tensor(tensors[i]);
    assert_ok(accel_listify(&value, &out));
    assert_json(&out, expected[i]);
    accel_value_dispose(&out);
    accel_tensor_release(tensors[i]);
  }
  assert_fails(accel_listify(NULL, &out), ACCEL_ERROR_INVALID_ARGUMENT, "value is NULL");
  assert_fails(accel_listify(&tree, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
}

static void test_concatenate(void **state) {
  (void)state;
  accel_tensor_t *const tensor = new_test_tensor(kNumbers, kThreeByTwo, 2, ACCEL_DTYPE_FLOAT32);
  const int64_t two_by_three[] = {2, 3};
  accel_tensor_t *const other = new_test_tensor(kNumbers, two_by_three, 2, ACCEL_DTYPE_FLOAT32);
  const accel_value_t pair[] = {accel_arg_tensor(tensor), accel_arg_tensor(tensor)};
  const accel_value_t misfits[] = {accel_arg_tensor(tensor), accel_arg_tensor(other)};
  const accel_value_t mixed[] = {accel_arg_tensor(tensor), accel_arg_int(1)},
                      words[] = {accel_arg_string("a"), accel_arg_string("b")};
  accel_value_t items = ACCEL_VALUE_INIT, joined = ACCEL_VALUE_INIT;
  assert_ok(accel_value_list(pair, 2, &items));
  assert_ok(accel_concatenate(&items, -1, &joined));
  assert_json(&joined, "[[1.0,2.0,1.0,2.0],[3.0,4.0,3.0,4.0],[5.0,6.0,5.0,6.0]]");
  assert_fails(accel_concatenate(&items, 2, &items), ACCEL_ERROR_INVALID_ARGUMENT, "dim is 2; expected -2 to 1");
  assert_fails(accel_concatenate(&items, 0, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  accel_value_dispose(&joined);
  accel_value_dispose(&items);
  assert_ok(accel_value_list(misfits, 2, &items));
  assert_fails(accel_concatenate(&items, 0, &joined), ACCEL_ERROR_SHAPE_MISMATCH, "[3, 2] and [2, 3]");
  accel_value_dispose(&items);
  assert_ok(accel_value_list(mixed, 2, &items));
  assert_fails(accel_concatenate(&items, 0, &joined), ACCEL_ERROR_TYPE_MISMATCH, "a tensor and a int");
  accel_value_dispose(&items);
  assert_ok(accel_value_list(words, 2, &items));
  assert_fails(accel_concatenate(&items, 0, &joined), ACCEL_ERROR_TYPE_MISMATCH, "string");
  accel_value_dispose(&items);
  assert_ok(accel_value_list(NULL, 0, &items));
  assert_fails(accel_concatenate(&items, 0, &joined), ACCEL_ERROR_INVALID_ARGUMENT, "items is empty");
  accel_value_dispose(&items);
  assert_fails(accel_concatenate(&pair[0], 0, &joined), ACCEL_ERROR_TYPE_MISMATCH, "items is a tensor");
  assert_fails(accel_concatenate(NULL, 0, &joined), ACCEL_ERROR_INVALID_ARGUMENT, "items is NULL");
  accel_tensor_release(tensor);
  accel_tensor_release(other);
}

static void test_pad_input_tensors(void **state) {
  (void)state;
  accel_value_t tree = new_tree(), out = ACCEL_VALUE_INIT;
  assert_ok(accel_pad_input_tensors(&tree, 4, -1, &out));
  assert_json(accel_value_at(accel_value_get(&out, "y"), 0), "[1.0,2.0,3.0,0.0]");
  assert_int_equal(accel_value_at(accel_value_get(&out, "y"), 2)->as.integer, 7);
  accel_value_dispose(&out);
  assert_fails(accel_pad_input_tensors(&tree, 0, 0, &out), ACCEL_ERROR_INVALID_ARGUMENT, "num_processes is 0");
  assert_fails(accel_pad_input_tensors(&tree, 2, 5, &out), ACCEL_ERROR_SHAPE_MISMATCH, "dim is 5");
  assert_fails(accel_pad_input_tensors(NULL, 2, 0, &out), ACCEL_ERROR_INVALID_ARGUMENT, "value is NULL");
  assert_fails(accel_pad_input_tensors(&tree, 2, 0, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  accel_value_dispose(&tree);
}

static void test_slice_tensors(void **state) {
  (void)state;
  accel_value_t tree = new_tree(), out = ACCEL_VALUE_INIT;
  static const struct {
    int64_t begin, end;
    const char *row;
  } cases[] = {{0, 2, "[1.0,2.0]"},
               {-2, 100, "[2.0,3.0]"},
               {INT64_MIN, INT64_MAX, "[1.0,2.0,3.0]"},
               {2, 1, "[]"},
               {0, -2, "[1.0]"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_ok(accel_slice_tensors(&tree, cases[i].begin, cases[i].end, &out));
    assert_json(accel_value_at(accel_value_get(&out, "y"), 0), cases[i].row);
    assert_int_equal(accel_value_at(accel_value_get(&out, "y"), 2)->as.integer, 7);
    accel_value_dispose(&out);
  }
  accel_value_dispose(&tree);
  accel_tensor_t *const scalar = new_test_tensor(kNumbers, NULL, 0, ACCEL_DTYPE_FLOAT32);
  const accel_value_t value = accel_arg_tensor(scalar);
  assert_fails(accel_slice_tensors(&value, 0, 1, &out), ACCEL_ERROR_SHAPE_MISMATCH, "no rows");
  assert_fails(accel_slice_tensors(NULL, 0, 1, &out), ACCEL_ERROR_INVALID_ARGUMENT, "value is NULL");
  assert_fails(accel_slice_tensors(&value, 0, 1, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  accel_tensor_release(scalar);
}

static void test_send_to_device(void **state) {
  (void)state;
  accel_value_t tree = new_tree(), out = ACCEL_VALUE_INIT;
  const accel_device_t meta = {ACCEL_DEVICE_META, -1}, unknown = {99, 0};
  const char *const skip[] = {"y"};
  const char *const no_key[] = {NULL};
  accel_value_t listed = ACCEL_VALUE_INIT;
  assert_ok(accel_send_to_device(&tree, &meta, 0, skip, 1, &out));
  assert_int_equal(are_equal(accel_value_get(&out, "y"), accel_value_get(&tree, "y")), 1);
  assert_fails(accel_listify(accel_value_get(&out, "x"), &listed), ACCEL_ERROR_TYPE_MISMATCH, "meta");
  accel_value_dispose(&out);
  assert_ok(accel_send_to_device(&tree, &(accel_device_t){ACCEL_DEVICE_CPU, -1}, 1, NULL, 0, &out));
  assert_int_equal(are_equal(&out, &tree), 1);
  accel_value_dispose(&out);
  assert_fails(accel_send_to_device(&tree, &unknown, 0, NULL, 0, &out), ACCEL_ERROR_INVALID_ARGUMENT, "9");
  assert_fails(accel_send_to_device(&tree, &meta, 0, NULL, 1, &out), ACCEL_ERROR_INVALID_ARGUMENT, "skip_keys is NULL");
  assert_fails(accel_send_to_device(&tree, &meta, 0, no_key, 1, &out), ACCEL_ERROR_INVALID_ARGUMENT,
               "skip_keys is NULL");
  assert_fails(accel_send_to_device(NULL, &meta, 0, NULL, 0, &out), ACCEL_ERROR_INVALID_ARGUMENT, "value is NULL");
  assert_fails(accel_send_to_device(&tree, &meta, 0, NULL, 0, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  accel_value_dispose(&tree);
}

static void test_convert_to_fp32(void **state) {
  (void)state;
  const uint16_t halves[] = {0x3c00, 0xbc00};
  const double wide[] = {1, 2};
  const int64_t two[] = {2};
  accel_tensor_t *const tensors[] = {new_test_tensor(halves, two, 1, ACCEL_DTYPE_FLOAT16),
                                     new_test_tensor(halves, two, 1, ACCEL_DTYPE_BFLOAT16),
                                     new_test_tensor(wide, two, 1, ACCEL_DTYPE_FLOAT64)};
  const accel_dtype_t expected[] = {ACCEL_DTYPE_FLOAT32, ACCEL_DTYPE_FLOAT32, ACCEL_DTYPE_FLOAT64};
  for (size_t i = 0; i < 3; i++) {
    const accel_value_t value = accel_arg_tensor(tensors[i]);
    accel_value_t out = ACCEL_VALUE_INIT;
    accel_dtype_t dtype = 0;
    assert_ok(accel_convert_to_fp32(&value, &out));
    assert_ok(accel_tensor_dtype(out.as.tensor, &dtype));
    assert_int_equal(dtype, expected[i]);
    accel_value_dispose(&out);
    accel_tensor_release(tensors[i]);
  }
  accel_value_t out = ACCEL_VALUE_INIT;
  const accel_value_t text = accel_arg_string("stays");
  assert_ok(accel_convert_to_fp32(&text, &out));
  assert_string_equal(out.as.string, "stays");
  accel_value_dispose(&out);
  assert_fails(accel_convert_to_fp32(NULL, &out), ACCEL_ERROR_INVALID_ARGUMENT, "value is NULL");
  assert_fails(accel_convert_to_fp32(&text, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
}

static void test_find_batch_size(void **state) {
  (void)state;
  accel_value_t tree = new_tree(), empty = ACCEL_VALUE_INIT;
  int64_t size = -1;
  assert_ok(accel_find_batch_size(&tree, &size));
  assert_int_equal(size, 3);
  assert_ok(accel_value_map(&empty));
  assert_fails(accel_find_batch_size(&empty, &size), ACCEL_ERROR_INVALID_ARGUMENT, "empty map");
  const accel_value_t text = accel_arg_string("text");
  assert_fails(accel_find_batch_size(&text, &size), ACCEL_ERROR_TYPE_MISMATCH, "of kind string; expected a tensor");
  accel_tensor_t *const scalar = new_test_tensor(kNumbers, NULL, 0, ACCEL_DTYPE_FLOAT32);
  const accel_value_t no_rows = accel_arg_tensor(scalar);
  assert_fails(accel_find_batch_size(&no_rows, &size), ACCEL_ERROR_SHAPE_MISMATCH, "no dimensions");
  assert_fails(accel_find_batch_size(&tree, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_int_equal(size, 3);
  accel_tensor_release(scalar);
  accel_value_dispose(&empty);
  accel_value_dispose(&tree);
}

/* What rank 0 tells others of a batch, and what they make of it. */
static void test_data_structures(void **state) {
  (void)state;
  accel_value_t tree = new_tree(), device = ACCEL_VALUE_INIT, shapes = ACCEL_VALUE_INIT, structure = ACCEL_VALUE_INIT,
                made = ACCEL_VALUE_INIT, again = ACCEL_VALUE_INIT;
  assert_ok(accel_find_device(&tree, &device));
  assert_int_equal(device.kind, ACCEL_VALUE_DEVICE);
  assert_int_equal(device.as.device.type, ACCEL_DEVICE_CPU);
  const int64_t numbers[6] = {1, 2, 3, 4, 5, 6};
  accel_tensor_t *const tensor = new_test_tensor(numbers, (const int64_t[]){2, 3}, 2, ACCEL_DTYPE_INT64);
  const accel_value_t value = accel_arg_tensor(tensor);
  assert_ok(accel_get_shape(&value, &shapes));
  assert_int_equal(accel_value_at(&shapes, 0)->as.integer, 2);
  assert_int_equal(accel_value_at(&shapes, 1)->as.integer, 3);
  assert_ok(accel_get_data_structure(&value, &structure));
  accel_device_t meta = {0, 0};
  assert_ok(accel_find_device(&structure, &again));
  meta = again.as.device;
  assert_int_equal(meta.type, ACCEL_DEVICE_META);
  assert_ok(accel_initialize_tensors(&structure, &made));
  accel_dtype_t dtype = 0;
  int64_t elements = 0;
  assert_ok(accel_tensor_dtype(made.as.tensor, &dtype));
  assert_ok(accel_tensor_numel(made.as.tensor, &elements));
  assert_int_equal(dtype, ACCEL_DTYPE_INT64);
  assert_int_equal(elements, 6);

  accel_value_t none = ACCEL_VALUE_INIT;
  const accel_value_t text = accel_arg_string("text");
  assert_ok(accel_find_device(&text, &none));
  assert_int_equal(none.kind, ACCEL_VALUE_NONE);
  assert_fails(accel_get_shape(&text, &none), ACCEL_ERROR_TYPE_MISMATCH, "expected");
  assert_fails(accel_get_data_structure(&text, &none), ACCEL_ERROR_TYPE_MISMATCH, "expected");
  assert_fails(accel_initialize_tensors(&text, &none), ACCEL_ERROR_TYPE_MISMATCH, "expected");
  accel_value_t *const values[] = {&tree, &device, &shapes, &structure, &made, &again};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) accel_value_dispose(values[i]);
  accel_tensor_release(tensor);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_recursively_apply), capi_unit_test(test_listify),
      capi_unit_test(test_concatenate),       capi_unit_test(test_pad_input_tensors),
      capi_unit_test(test_slice_tensors),     capi_unit_test(test_send_to_device),
      capi_unit_test(test_convert_to_fp32),   capi_unit_test(test_find_batch_size),
      capi_unit_test(test_data_structures),
  };
  return cmocka_run_group_tests_name("tree", tests, NULL, NULL);
}
