/* SPDX-License-Identifier: Apache-2.0 */
/* Section 2: nested values. */
#include "tree_fixture.h"

#include <pthread.h>

static void test_string(void **state) {
  (void)state;
  char text[] = "caf\xc3\xa9";
  accel_value_t value = ACCEL_VALUE_INIT;
  assert_ok(accel_value_string(text, &value));
  text[0] = 'X';
  assert_int_equal(value.kind, ACCEL_VALUE_STRING);
  assert_string_equal(value.as.string, "caf\xc3\xa9");
  accel_value_dispose(&value);
  assert_int_equal(value.kind, ACCEL_VALUE_NONE);
  accel_value_dispose(&value);
  accel_value_dispose(NULL);
  assert_fails(accel_value_string(NULL, &value), ACCEL_ERROR_INVALID_ARGUMENT, "text is NULL");
  assert_fails(accel_value_string("a", NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
}

static void test_tensor(void **state) {
  (void)state;
  accel_tensor_t *const tensor = new_test_tensor(kNumbers, kThreeByTwo, 2, ACCEL_DTYPE_FLOAT32);
  accel_value_t value = ACCEL_VALUE_INIT;
  assert_ok(accel_value_tensor(tensor, &value));
  accel_tensor_release(tensor);
  assert_int_equal(accel_debug_live_objects(), 1); /* the value is an owner */
  assert_fails(accel_value_tensor(value.as.tensor, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  accel_value_dispose(&value);
  assert_fails(accel_value_tensor(NULL, &value), ACCEL_ERROR_INVALID_ARGUMENT, "tensor is NULL");
  assert_int_equal(value.kind, ACCEL_VALUE_NONE);
}

static void test_list(void **state) {
  (void)state;
  const accel_value_t items[] = {accel_arg_none(), accel_arg_bool(7), accel_arg_double(2.5),
                                 accel_arg_dtype(ACCEL_DTYPE_BOOL),
                                 accel_arg_device(&(accel_device_t){ACCEL_DEVICE_CPU, -1})};
  accel_value_t list = ACCEL_VALUE_INIT;
  assert_ok(accel_value_list(items, 5, &list));
  assert_int_equal(list.kind, ACCEL_VALUE_LIST);
  assert_int_equal(accel_value_count(&list), 5);
  assert_int_equal(accel_value_at(&list, 0)->kind, ACCEL_VALUE_NONE);
  assert_int_equal(accel_value_at(&list, 1)->as.integer, 1);
  assert_true(accel_value_at(&list, 2)->as.number == 2.5);
  assert_int_equal(accel_value_at(&list, 3)->as.dtype, ACCEL_DTYPE_BOOL);
  assert_int_equal(accel_value_at(&list, 4)->as.device.index, -1);
  assert_null(accel_value_at(&list, 5));
  assert_null(accel_value_key(&list, 0));
  assert_null(accel_value_get(&list, "a"));
  accel_value_dispose(&list);
  assert_ok(accel_value_list(NULL, 0, &list));
  assert_int_equal(accel_value_count(&list), 0);
  accel_value_dispose(&list);
  assert_fails(accel_value_list(NULL, 1, &list), ACCEL_ERROR_INVALID_ARGUMENT, "items is NULL");
  assert_fails(accel_value_list(items, 1, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
}

static void test_contents(void **state) {
  (void)state;
  const accel_device_t device = {ACCEL_DEVICE_CPU, -1};
  const accel_bytes_t bytes = {"abc", 3, NULL};
  accel_tensor_t *const tensor = new_test_tensor(kNumbers, kThreeByTwo, 2, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *held = NULL;
  const accel_value_t truth = accel_arg_bool(7), integer = accel_arg_int(-5), number = accel_arg_double(2.5);
  const accel_value_t text = accel_arg_string("text"), data = accel_arg_bytes(&bytes);
  const accel_value_t matrix = accel_arg_tensor(tensor), dtype = accel_arg_dtype(ACCEL_DTYPE_BOOL);
  const accel_value_t place = accel_arg_device(&device);
  int32_t found_truth = 0;
  int64_t found_integer = 0;
  double found_number = 0;
  const char *found_text = NULL;
  const accel_bytes_t *found_bytes = NULL;
  accel_dtype_t found_dtype = 0;
  accel_device_t found_device = {0, 0};
  assert_ok(accel_value_as_bool(&truth, &found_truth));
  assert_int_equal(found_truth, 1);
  assert_ok(accel_value_as_int(&integer, &found_integer));
  assert_int_equal(found_integer, -5);
  assert_ok(accel_value_as_double(&number, &found_number));
  assert_true(found_number == 2.5);
  assert_ok(accel_value_as_string(&text, &found_text));
  assert_string_equal(found_text, "text");
  assert_ok(accel_value_as_bytes(&data, &found_bytes));
  assert_ptr_equal(found_bytes, &bytes);
  assert_ok(accel_value_as_tensor(&matrix, &held));
  assert_ptr_equal(held, tensor);
  assert_ok(accel_value_as_dtype(&dtype, &found_dtype));
  assert_int_equal(found_dtype, ACCEL_DTYPE_BOOL);
  assert_ok(accel_value_as_device(&place, &found_device));
  assert_int_equal(found_device.index, -1);
  assert_int_equal(accel_value_kind(&matrix), ACCEL_VALUE_TENSOR);
  assert_fails(accel_value_as_int(&truth, &found_integer), ACCEL_ERROR_TYPE_MISMATCH, "value is a BOOL");
  assert_fails(accel_value_as_bool(&integer, &found_truth), ACCEL_ERROR_TYPE_MISMATCH, "expected a BOOL");
  assert_int_equal(found_integer, -5);
  accel_tensor_release(tensor);
}

static void test_devices_are_pointers(void **state) {
  (void)state;
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1}, none = {99, 0};
  const int64_t shape[] = {2};
  accel_tensor_t *tensor = NULL;
  assert_ok(accel_tensor_full(shape, 1, 1.5, ACCEL_DTYPE_FLOAT32, &cpu, &tensor));
  accel_tensor_release(tensor);
  tensor = NULL;
  assert_fails(accel_tensor_full(shape, 1, 1.5, ACCEL_DTYPE_FLOAT32, &none, &tensor), ACCEL_ERROR_INVALID_ARGUMENT,
               "99");
  assert_fails(accel_tensor_full(shape, 1, 1.5, ACCEL_DTYPE_FLOAT32, NULL, &tensor), ACCEL_ERROR_INVALID_ARGUMENT,
               "device is NULL");
  assert_null(tensor);
}

static void test_plain_values(void **state) {
  (void)state;
  const accel_device_t meta = {ACCEL_DEVICE_META, -1}, none = {99, 0};
  accel_value_t value = ACCEL_VALUE_INIT;
  accel_device_t device = {0, 0};
  accel_dtype_t dtype = 0;
  int32_t truth = 0;
  int64_t integer = 0;
  double number = 0;
  assert_ok(accel_value_from_json("true", &value));
  assert_ok(accel_value_as_bool(&value, &truth));
  assert_int_equal(truth, 1);
  assert_ok(accel_value_int(INT64_MIN, &value));
  assert_ok(accel_value_as_int(&value, &integer));
  assert_true(integer == INT64_MIN);
  assert_ok(accel_value_double(2.5, &value));
  assert_ok(accel_value_as_double(&value, &number));
  assert_true(number == 2.5);
  assert_ok(accel_value_dtype(ACCEL_DTYPE_INT8, &value));
  assert_ok(accel_value_as_dtype(&value, &dtype));
  assert_int_equal(dtype, ACCEL_DTYPE_INT8);
  assert_ok(accel_value_device(&meta, &value));
  assert_ok(accel_value_as_device(&value, &device));
  assert_int_equal(device.type, ACCEL_DEVICE_META);
  accel_value_dispose(&value);

  value = accel_arg_int(3);
  assert_fails(accel_value_dtype(999, &value), ACCEL_ERROR_INVALID_ARGUMENT, "999");
  assert_fails(accel_value_device(&none, &value), ACCEL_ERROR_INVALID_ARGUMENT, "99");
  assert_fails(accel_value_device(NULL, &value), ACCEL_ERROR_INVALID_ARGUMENT, "device is NULL");
  assert_int_equal(value.as.integer, 3);
}

static void test_int_list(void **state) {
  (void)state;
  const int64_t items[] = {INT64_MIN, 0, INT64_MAX};
  accel_value_t list = ACCEL_VALUE_INIT;
  assert_ok(accel_value_int_list(items, 3, &list));
  assert_json(&list, "[-9223372036854775808,0,9223372036854775807]");
  accel_value_dispose(&list);
  assert_fails(accel_value_int_list(NULL, 2, &list), ACCEL_ERROR_INVALID_ARGUMENT, "items is NULL; expected 2 items");
}

static void test_map(void **state) {
  (void)state;
  accel_value_t map = ACCEL_VALUE_INIT;
  char key[16];
  assert_ok(accel_value_map(&map));
  for (int i = 0; i < 1000; i++) {
    const accel_value_t item = accel_arg_int(i);
    snprintf(key, sizeof key, "key %d", i);
    assert_ok(accel_value_set(&map, key, &item));
  }
  const accel_value_t other = accel_arg_string("replaced");
  assert_ok(accel_value_set(&map, "key 500", &other));
  assert_int_equal(accel_value_count(&map), 1000);
  assert_string_equal(accel_value_key(&map, 999), "key 999");
  assert_string_equal(accel_value_at(&map, 500)->as.string, "replaced");
  assert_ptr_equal(accel_value_get(&map, "key 500"), accel_value_at(&map, 500));
  assert_null(accel_value_get(&map, "key 1000"));
  assert_null(accel_value_get(&map, NULL));
  assert_null(accel_value_key(&map, 1000));
  assert_fails(accel_value_set(&map, NULL, &other), ACCEL_ERROR_INVALID_ARGUMENT, "key is NULL");
  assert_fails(accel_value_set(&map, "a", NULL), ACCEL_ERROR_INVALID_ARGUMENT, "item is NULL");
  assert_fails(accel_value_set(NULL, "a", &other), ACCEL_ERROR_INVALID_ARGUMENT, "map is NULL");
  assert_fails(accel_value_push(&map, &other), ACCEL_ERROR_TYPE_MISMATCH, "list is a MAP; expected a LIST or a TUPLE");
  accel_value_dispose(&map);
  assert_fails(accel_value_set(&map, "a", &other), ACCEL_ERROR_TYPE_MISMATCH, "map is a NONE; expected a MAP");
  assert_fails(accel_value_map(NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
}

static void test_tuple(void **state) {
  (void)state;
  const accel_value_t items[] = {accel_arg_int(1), accel_arg_string("two")};
  accel_value_t tuple = ACCEL_VALUE_INIT, list = ACCEL_VALUE_INIT, copy = ACCEL_VALUE_INIT;
  int32_t equal = -1;
  assert_ok(accel_value_tuple(items, 2, &tuple));
  assert_ok(accel_value_list(items, 2, &list));
  assert_int_equal(tuple.kind, ACCEL_VALUE_TUPLE);
  assert_int_equal(accel_value_count(&tuple), 2);
  assert_string_equal(accel_value_at(&tuple, 1)->as.string, "two");
  assert_ok(accel_value_equal(&tuple, &list, &equal));
  assert_int_equal(equal, 0);
  assert_ok(accel_value_push(&tuple, &list));
  assert_ok(accel_value_copy(&tuple, &copy));
  assert_ok(accel_value_equal(&tuple, &copy, &equal));
  assert_int_equal(equal, 1);
  assert_json(&copy, "[1,\"two\",[1,\"two\"]]");
  assert_fails(accel_value_tuple(NULL, 1, &copy), ACCEL_ERROR_INVALID_ARGUMENT, "items is NULL");
  accel_value_dispose(&copy);
  accel_value_dispose(&list);
  accel_value_dispose(&tuple);
}

static void test_bytes(void **state) {
  (void)state;
  const accel_bytes_t given = {"a\0b", 3, "python/pickle"}, hollow = {NULL, 3, NULL}, none = {NULL, 0, NULL};
  const accel_value_t by_hand = accel_arg_bytes(&given), broken = accel_arg_bytes(&hollow),
                      empty = accel_arg_bytes(&none);
  accel_value_t bytes = ACCEL_VALUE_INIT, copy = ACCEL_VALUE_INIT;
  accel_buffer_t json = ACCEL_BUFFER_INIT;
  int32_t equal = -1;
  assert_ok(accel_value_bytes("a\0b", 3, "python/pickle", &bytes));
  assert_int_equal(bytes.kind, ACCEL_VALUE_BYTES);
  assert_int_equal(bytes.as.bytes->size, 3);
  assert_memory_equal(bytes.as.bytes->data, "a\0b", 3);
  assert_string_equal(bytes.as.bytes->type, "python/pickle");
  assert_ok(accel_value_equal(&bytes, &by_hand, &equal));
  assert_int_equal(equal, 1);
  assert_ok(accel_value_equal(&bytes, &empty, &equal));
  assert_int_equal(equal, 0);
  assert_ok(accel_value_copy(&empty, &copy));
  assert_int_equal(copy.as.bytes->size, 0);
  assert_null(copy.as.bytes->type);
  accel_value_dispose(&copy);
  assert_fails(accel_value_copy(&broken, &copy), ACCEL_ERROR_INVALID_ARGUMENT, "BYTES whose data is NULL");
  assert_fails(accel_value_bytes(NULL, 3, NULL, &copy), ACCEL_ERROR_INVALID_ARGUMENT, "BYTES whose data is NULL");
  assert_fails(accel_value_to_json(&bytes, &json), ACCEL_ERROR_TYPE_MISMATCH, "a value of kind bytes");
  accel_value_dispose(&bytes);
}

static void test_integer_keys(void **state) {
  (void)state;
  const accel_value_t one = accel_arg_int(1), text = accel_arg_string("1"), half = accel_arg_double(0.5);
  accel_value_t map = ACCEL_VALUE_INIT, copy = ACCEL_VALUE_INIT;
  accel_buffer_t json = ACCEL_BUFFER_INIT;
  int32_t equal = 0;
  assert_ok(accel_value_map(&map));
  assert_ok(accel_value_put(&map, &one, &half));
  assert_ok(accel_value_put(&map, &text, &text));
  assert_int_equal(accel_value_count(&map), 2);
  assert_true(accel_value_find(&map, &one)->as.number == 0.5);
  assert_string_equal(accel_value_find(&map, &text)->as.string, "1");
  assert_ptr_equal(accel_value_get(&map, "1"), accel_value_at(&map, 1));
  assert_null(accel_value_key(&map, 0));
  assert_string_equal(accel_value_key(&map, 1), "1");
  assert_int_equal(accel_value_key_at(&map, 0)->kind, ACCEL_VALUE_INT);
  assert_int_equal(accel_value_key_at(&map, 0)->as.integer, 1);
  assert_null(accel_value_key_at(&map, 2));
  assert_ok(accel_value_copy(&map, &copy));
  assert_ok(accel_value_equal(&map, &copy, &equal));
  assert_int_equal(equal, 1);
  assert_fails(accel_value_put(&map, &half, &one), ACCEL_ERROR_TYPE_MISMATCH,
               "key is a DOUBLE; expected a STRING or an INT");
  assert_null(accel_value_find(&map, &half));
  assert_fails(accel_value_to_json(&map, &json), ACCEL_ERROR_TYPE_MISMATCH,
               "a map has a key of kind int; expected strings");
  accel_value_dispose(&copy);
  accel_value_dispose(&map);
}

static void test_getters_take_everything(void **state) {
  (void)state;
  const accel_value_t number = accel_arg_int(3), hollow = {ACCEL_VALUE_LIST, 0, {0}};
  assert_int_equal(accel_value_count(NULL), 0);
  assert_int_equal(accel_value_count(&number), 0);
  assert_int_equal(accel_value_count(&hollow), 0);
  assert_null(accel_value_at(NULL, 0));
  assert_null(accel_value_at(&number, 0));
  assert_null(accel_value_key(NULL, 0));
  assert_null(accel_value_get(NULL, "a"));
}

static void test_push_copies(void **state) {
  (void)state;
  accel_value_t list = ACCEL_VALUE_INIT;
  const accel_value_t one = accel_arg_int(1);
  assert_ok(accel_value_list(&one, 1, &list));
  assert_ok(accel_value_push(&list, &list)); /* a copy, so no cycle */
  assert_ok(accel_value_push(&list, accel_value_at(&list, 1)));
  assert_json(&list, "[1,[1],[1]]");
  assert_fails(accel_value_push(&list, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "item is NULL");
  accel_value_dispose(&list);
}

/* Values that share a container do not see what becomes of the others. */
static void test_shared_containers(void **state) {
  (void)state;
  const accel_value_t one = accel_arg_int(1), two = accel_arg_int(2);
  accel_value_t inner = ACCEL_VALUE_INIT, outer = ACCEL_VALUE_INIT, twin = ACCEL_VALUE_INIT, tuple = ACCEL_VALUE_INIT;
  assert_ok(accel_value_list(&one, 1, &inner));
  assert_ok(accel_value_list(&inner, 1, &outer));
  const accel_value_t *const item = accel_value_at(accel_value_at(&outer, 0), 0);
  assert_ok(accel_value_push(&inner, &two));
  assert_json(&inner, "[1,2]");
  assert_json(&outer, "[[1]]");
  assert_int_equal(item->as.integer, 1);
  assert_ok(accel_value_copy(accel_value_at(&outer, 0), &twin));
  assert_ok(accel_value_push(&twin, &inner));
  assert_ok(accel_value_push(&twin, &twin));
  assert_json(&twin, "[1,[1,2],[1,[1,2]]]");
  assert_json(&outer, "[[1]]");
  assert_ok(accel_value_tuple(&outer, 1, &tuple));
  accel_value_dispose(&outer);
  assert_int_equal(accel_value_count(accel_value_at(&tuple, 0)), 1);
  assert_ok(accel_value_push(&tuple, &two));
  assert_int_equal(accel_value_at(&tuple, 1)->as.integer, 2);
  assert_int_equal(tuple.kind, ACCEL_VALUE_TUPLE);
  accel_value_dispose(&inner);
  assert_json(&tuple, "[[[1]],2]");
  assert_json(&twin, "[1,[1,2],[1,[1,2]]]");
  accel_value_dispose(&twin);
  accel_value_dispose(&tuple);
}

/* Items that were read before a map or a list grew or changed are right afterwards, few or many. */
static void test_reading_between_changes(void **state) {
  (void)state;
  accel_value_t map = ACCEL_VALUE_INIT, list = ACCEL_VALUE_INIT, twin = ACCEL_VALUE_INIT, text = ACCEL_VALUE_INIT;
  assert_ok(accel_value_map(&map));
  assert_ok(accel_value_list(NULL, 0, &list));
  for (int64_t i = 0; i < 40; i++) {
    char name[24];
    snprintf(name, sizeof name, "key %d", (int)(i % 20));
    const accel_value_t number = accel_arg_int(i);
    assert_true((accel_value_get(&map, name) == NULL) == (i < 20));
    assert_ok(accel_value_string(name, &text));
    assert_ok(accel_value_set(&map, name, i % 3 == 0 ? &text : &number));
    const accel_value_t *const found = accel_value_get(&map, name);
    if (i % 3 == 0)
      assert_string_equal(found->as.string, name);
    else
      assert_int_equal(found->as.integer, i);
    accel_value_dispose(&text);
    assert_ok(accel_value_push(&list, i % 2 == 0 ? &map : &number));
    assert_int_equal(accel_value_at(&list, (size_t)i)->kind, i % 2 == 0 ? ACCEL_VALUE_MAP : ACCEL_VALUE_INT);
  }
  assert_int_equal(accel_value_count(&map), 20);
  assert_string_equal(accel_value_key(&map, 19), "key 19");
  assert_int_equal(accel_value_count(accel_value_at(&list, 4)), 5);
  assert_ok(accel_value_copy(&map, &twin));
  const accel_value_t key = accel_arg_int(7), none = accel_arg_none();
  assert_ok(accel_value_put(&twin, &key, &none));
  assert_int_equal(accel_value_key_at(&twin, 20)->as.integer, 7);
  assert_null(accel_value_key_at(&map, 20));
  accel_value_dispose(&map);
  assert_string_equal(accel_value_key(&twin, 3), "key 3");
  assert_non_null(accel_value_find(&twin, &key));
  accel_value_dispose(&twin);
  accel_value_dispose(&list);
}

static void *read_all(void *argument) {
  const accel_value_t *const tree = argument;
  for (size_t i = 0; i < accel_value_count(tree); i++) {
    const accel_value_t *const row = accel_value_at(tree, i);
    if (accel_value_get(row, "x")->as.tensor == NULL) return NULL;
    if (accel_value_get(row, "n")->as.integer != (int64_t)i) return NULL;
  }
  return argument;
}

/* The items of a container are made at the first reading, which several threads may do at once. */
static void test_threads_read_at_once(void **state) {
  (void)state;
  accel_tensor_t *const tensor = new_test_tensor(kNumbers, kThreeByTwo, 2, ACCEL_DTYPE_FLOAT32);
  const accel_value_t x = accel_arg_tensor(tensor);
  accel_value_t tree = ACCEL_VALUE_INIT, row = ACCEL_VALUE_INIT;
  assert_ok(accel_value_list(NULL, 0, &tree));
  for (int64_t i = 0; i < 64; i++) {
    const accel_value_t number = accel_arg_int(i);
    assert_ok(accel_value_map(&row));
    assert_ok(accel_value_set(&row, "x", &x));
    assert_ok(accel_value_set(&row, "n", &number));
    assert_ok(accel_value_push(&tree, &row));
    accel_value_dispose(&row);
  }
  accel_tensor_release(tensor);
  pthread_t threads[4];
  for (size_t i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, read_all, &tree), 0);
  for (size_t i = 0; i < 4; i++) {
    void *read = NULL;
    assert_int_equal(pthread_join(threads[i], &read), 0);
    assert_ptr_equal(read, &tree);
  }
  accel_value_dispose(&tree);
}

static void test_depth_is_limited(void **state) {
  (void)state;
  accel_value_t nested = ACCEL_VALUE_INIT, outer = ACCEL_VALUE_INIT;
  accel_status_t status = ACCEL_OK;
  int levels = 0;
  assert_ok(accel_value_list(NULL, 0, &nested));
  while (levels++ < 1000 && (status = accel_value_list(&nested, 1, &outer)) == ACCEL_OK) {
    accel_value_dispose(&nested);
    nested = outer;
  }
  assert_status(status, ACCEL_ERROR_INVALID_ARGUMENT);
  assert_message("nested 201 levels deep");
  assert_fails(accel_value_push(&nested, &nested), ACCEL_ERROR_INVALID_ARGUMENT, "levels deep");
  accel_value_t copy = ACCEL_VALUE_INIT;
  assert_ok(accel_value_copy(&nested, &copy));
  assert_int_equal(are_equal(&copy, &nested), 1);
  accel_value_dispose(&copy);
  accel_value_dispose(&nested);
}

static void test_copy(void **state) {
  (void)state;
  accel_value_t tree = new_tree(), copy = ACCEL_VALUE_INIT;
  assert_ok(accel_value_copy(&tree, &copy));
  assert_int_equal(are_equal(&tree, &copy), 1);
  assert_ptr_equal(accel_value_get(&tree, "x")->as.tensor, accel_value_get(&copy, "x")->as.tensor);
  const accel_value_t number = accel_arg_int(1);
  assert_ok(accel_value_set(&copy, "z", &number));
  assert_int_equal(are_equal(&tree, &copy), 0);
  accel_value_dispose(&tree);
  assert_json(accel_value_get(&copy, "y"), "[[1.0,2.0,3.0],\"text\",7]");
  accel_value_dispose(&copy);
  assert_fails(accel_value_copy(NULL, &copy), ACCEL_ERROR_INVALID_ARGUMENT, "value is NULL");
  assert_fails(accel_value_copy(&number, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
}

// Regression: `accel_value_copy()` answered another status than the header says.
static void test_copy_refuses(void **state) {
  (void)state;
  accel_value_t out = ACCEL_VALUE_INIT;
  const accel_value_t unknown = {77, 0, {0}}, no_text = accel_arg_string(NULL), hollow = {ACCEL_VALUE_MAP, 0, {0}},
                      no_tensor = accel_arg_tensor(NULL), no_dtype = accel_arg_dtype(99),
                      no_device = accel_arg_device(&(accel_device_t){99, 0});
  int32_t equal = 0;
  assert_fails(accel_value_copy(&unknown, &out), ACCEL_ERROR_INVALID_ARGUMENT, "value.kind is 77");
  assert_fails(accel_value_list(&unknown, 1, &out), ACCEL_ERROR_INVALID_ARGUMENT, "items.kind is 77");
  assert_fails(accel_value_equal(&unknown, &unknown, &equal), ACCEL_ERROR_INVALID_ARGUMENT, "a.kind is 77");
  assert_fails(accel_value_copy(&no_text, &out), ACCEL_ERROR_INVALID_ARGUMENT, "text is NULL");
  assert_fails(accel_value_copy(&hollow, &out), ACCEL_ERROR_INVALID_HANDLE, "not a container");
  assert_fails(accel_value_copy(&no_tensor, &out), ACCEL_ERROR_INVALID_ARGUMENT, "value is NULL");
  assert_fails(accel_value_copy(&no_dtype, &out), ACCEL_ERROR_INVALID_ARGUMENT, "99");
  assert_fails(accel_value_copy(&no_device, &out), ACCEL_ERROR_INVALID_ARGUMENT, "9");
  accel_value_t list = ACCEL_VALUE_INIT;
  assert_ok(accel_value_list(NULL, 0, &list));
  accel_value_t disguised = list;
  disguised.kind = ACCEL_VALUE_MAP;
  assert_fails(accel_value_copy(&disguised, &out), ACCEL_ERROR_INVALID_HANDLE, "not a container");
  accel_value_dispose(&list);
  assert_int_equal(out.kind, ACCEL_VALUE_NONE);
}

static accel_status_t give_bytes(int64_t index, accel_value_t *out, void *user_data) {
  const size_t size = strlen(user_data) + 1;
  char *const copy = malloc(size);
  (void)index;
  *out = accel_arg_string(memcpy(copy, user_data, size));
  return ACCEL_OK;
}

static int64_t one_item(void *user_data) {
  (void)user_data;
  return 1;
}

/* Bytes that are not UTF-8 enter no value, whichever way they come. */
// Regression: text that is not UTF-8 was taken, and written into JSON.
static void test_text_is_utf8(void **state) {
  (void)state;
  static char latin1[] = "caf\xe9", surrogate[] = "\xed\xa0\x80", overlong[] = "\xc0\xaf", cut[] = "\xe2\x82";
  char *const wrong[] = {latin1, surrogate, overlong, cut};
  accel_value_t out = ACCEL_VALUE_INIT, map = ACCEL_VALUE_INIT, number = accel_arg_int(1);
  assert_ok(accel_value_map(&map));
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const accel_value_t by_hand = accel_arg_string(wrong[i]);
    accel_buffer_t json = ACCEL_BUFFER_INIT;
    assert_fails(accel_value_string(wrong[i], &out), ACCEL_ERROR_INVALID_ARGUMENT, "text is not UTF-8: byte");
    assert_fails(accel_value_copy(&by_hand, &out), ACCEL_ERROR_INVALID_ARGUMENT, "value is not UTF-8");
    assert_fails(accel_value_list(&by_hand, 1, &out), ACCEL_ERROR_INVALID_ARGUMENT, "items is not UTF-8");
    assert_fails(accel_value_to_json(&by_hand, &json), ACCEL_ERROR_INVALID_ARGUMENT, "not UTF-8");
    assert_fails(accel_value_set(&map, wrong[i], &number), ACCEL_ERROR_INVALID_ARGUMENT, "key is not UTF-8");
    assert_fails(accel_value_set(&map, "key", &by_hand), ACCEL_ERROR_INVALID_ARGUMENT, "item is not UTF-8");
    accel_dataset_t *dataset = NULL;
    assert_ok(accel_dataset_create(one_item, give_bytes, NULL, NULL, wrong[i], NULL, &dataset));
    assert_fails(accel_dataset_item(dataset, 0, &out), ACCEL_ERROR_INVALID_ARGUMENT, "not UTF-8");
    accel_dataset_release(dataset);
  }
  assert_fails(accel_value_from_json("[\"caf\xe9\"]", &out), ACCEL_ERROR_INVALID_ARGUMENT, "json is not UTF-8: byte 5");
  assert_int_equal(accel_value_count(&map), 0);
  accel_value_dispose(&map);
  assert_ok(accel_value_string("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", &out));
  accel_value_dispose(&out);
}

static void test_equal(void **state) {
  (void)state;
  const accel_value_t one = accel_arg_int(1), one_double = accel_arg_double(1), truth = accel_arg_bool(1),
                      text = accel_arg_string("1"), type = accel_arg_dtype(1), none = accel_arg_none();
  const accel_value_t *const all[] = {&one, &one_double, &truth, &text, &type, &none};
  for (size_t i = 0; i < 6; i++)
    for (size_t j = 0; j < 6; j++) assert_int_equal(are_equal(all[i], all[j]), i == j);
  accel_value_t a = from_json("{\"a\": [1, 2], \"b\": {}}"), b = from_json("{\"b\": {}, \"a\": [1, 2]}"),
                c = from_json("{\"a\": [1, 2], \"c\": {}}");
  assert_int_equal(are_equal(&a, &b), 1); /* the order of keys does not count */
  assert_int_equal(are_equal(&a, &c), 0);
  int32_t out = 5;
  assert_fails(accel_value_equal(NULL, &b, &out), ACCEL_ERROR_INVALID_ARGUMENT, "a is NULL");
  assert_fails(accel_value_equal(&a, NULL, &out), ACCEL_ERROR_INVALID_ARGUMENT, "b is NULL");
  assert_fails(accel_value_equal(&a, &b, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_int_equal(out, 5);
  accel_value_dispose(&a);
  accel_value_dispose(&b);
  accel_value_dispose(&c);
}

static void test_json_round_trip(void **state) {
  (void)state;
  static const char *const documents[] = {"null",
                                          "true",
                                          "[]",
                                          "{}",
                                          "\"\\\"\\\\ \\n \xc3\xa9\"",
                                          "9007199254740993",
                                          "-9223372036854775808",
                                          "0.1",
                                          "1e+300",
                                          "[1,1.0,-0.0,\"12\",[34,{\"5\":6}],false]"};
  for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
    accel_value_t value = from_json(documents[i]);
    assert_json(&value, documents[i]);
    accel_value_dispose(&value);
  }
  accel_value_t spaced = from_json(" { \"a\\\"1\" : [ 1 , 2.5e1 ] } \n");
  assert_json(&spaced, "{\"a\\\"1\":[1,25.0]}");
  accel_value_dispose(&spaced);
}

static void test_json_refuses(void **state) {
  (void)state;
  accel_value_t out = accel_arg_int(42);
  assert_fails(accel_value_from_json("[1, 2", &out), ACCEL_ERROR_INVALID_ARGUMENT, "json is not valid JSON at byte");
  assert_fails(accel_value_from_json("[1] 2", &out), ACCEL_ERROR_INVALID_ARGUMENT, "byte 4");
  assert_fails(accel_value_from_json("", &out), ACCEL_ERROR_INVALID_ARGUMENT, "not valid JSON");
  assert_fails(accel_value_from_json("9223372036854775808", &out), ACCEL_ERROR_INVALID_ARGUMENT, "9223372036854775808");
  assert_fails(accel_value_from_json("[1e999]", &out), ACCEL_ERROR_INVALID_ARGUMENT, "1e999");
  assert_fails(accel_value_from_json("[007]", &out), ACCEL_ERROR_INVALID_ARGUMENT, "leading zero");
  assert_fails(accel_value_from_json("[1.]", &out), ACCEL_ERROR_INVALID_ARGUMENT, "byte 3");
  assert_fails(accel_value_from_json("\"a\\u0000b\"", &out), ACCEL_ERROR_INVALID_ARGUMENT, "\\u0000");
  assert_fails(accel_value_from_json("\"\xff\"", &out), ACCEL_ERROR_INVALID_ARGUMENT, "UTF-8");
  assert_fails(accel_value_from_json(NULL, &out), ACCEL_ERROR_INVALID_ARGUMENT, "json is NULL");
  assert_fails(accel_value_from_json("1", NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  char deep[700];
  memset(deep, '[', 300);
  memset(deep + 300, ']', 300);
  deep[600] = '\0';
  assert_fails(accel_value_from_json(deep, &out), ACCEL_ERROR_INVALID_ARGUMENT, "levels deep");
  assert_int_equal(out.as.integer, 42);
  accel_buffer_t json = ACCEL_BUFFER_INIT;
  const accel_value_t infinite = accel_arg_double(1e308 * 10);
  assert_fails(accel_value_to_json(&infinite, &json), ACCEL_ERROR_TYPE_MISMATCH, "inf");
  assert_fails(accel_value_to_json(NULL, &json), ACCEL_ERROR_INVALID_ARGUMENT, "value is NULL");
  assert_fails(accel_value_to_json(&infinite, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_null(json.data);
}

static void test_json_of_everything(void **state) {
  (void)state;
  accel_value_t tree = new_tree();
  const accel_value_t dtype = accel_arg_dtype(ACCEL_DTYPE_BFLOAT16),
                      device = accel_arg_device(&(accel_device_t){ACCEL_DEVICE_CPU, -1});
  assert_ok(accel_value_set(&tree, "dtype", &dtype));
  assert_ok(accel_value_set(&tree, "device", &device));
  assert_json(&tree,
              "{\"x\":[[1.0,2.0],[3.0,4.0],[5.0,6.0]],\"y\":[[1.0,2.0,3.0],\"text\",7],\"dtype\":\"bfloat16\","
              "\"device\":\"cpu\"}");
  accel_value_dispose(&tree);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_string),
      capi_unit_test(test_tensor),
      capi_unit_test(test_list),
      capi_unit_test(test_contents),
      capi_unit_test(test_devices_are_pointers),
      capi_unit_test(test_plain_values),
      capi_unit_test(test_int_list),
      capi_unit_test(test_map),
      capi_unit_test(test_getters_take_everything),
      capi_unit_test(test_tuple),
      capi_unit_test(test_bytes),
      capi_unit_test(test_integer_keys),
      capi_unit_test(test_push_copies),
      capi_unit_test(test_shared_containers),
      capi_unit_test(test_reading_between_changes),
      capi_unit_test(test_threads_read_at_once),
      capi_unit_test(test_depth_is_limited),
      capi_unit_test(test_copy),
      capi_unit_test(test_copy_refuses),
      capi_unit_test(test_text_is_utf8),
      capi_unit_test(test_equal),
      capi_unit_test(test_json_round_trip),
      capi_unit_test(test_json_refuses),
      capi_unit_test(test_json_of_everything),
  };
  return cmocka_run_group_tests_name("value", tests, NULL, NULL);
}
