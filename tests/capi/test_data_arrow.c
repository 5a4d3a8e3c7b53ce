/* SPDX-License-Identifier: Apache-2.0 */
/* Section 9: record batches that come over Arrow's C data interface, whose structs a program declares itself. */
#include "data_fixture.h"

struct ArrowSchema {
  const char *format, *name, *metadata;
  int64_t flags, n_children;
  struct ArrowSchema **children, *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};

struct ArrowArray {
  int64_t length, null_count, offset, n_buffers, n_children;
  const void **buffers;
  struct ArrowArray **children, *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};

static int live; /* structs that were not released */

static void release_schema(struct ArrowSchema *schema) {
  schema->release = NULL;
  live--;
}

static void release_array(struct ArrowArray *array) {
  array->release = NULL;
  live--;
}

static const int32_t numbers[] = {1, 2, 3};
static const unsigned char valid[] = {5}; /* the second one is null */
static const void *number_buffers[] = {NULL, numbers}, *null_buffers[] = {valid, numbers}, *no_buffers[] = {NULL};
static struct ArrowSchema number_schema = {.format = "i", .name = "x"}, *schemas[] = {&number_schema};
static struct ArrowArray number_array = {.length = 3, .n_buffers = 2}, *arrays[] = {&number_array};

static struct ArrowSchema new_schema(void) {
  number_schema.release = release_schema; /* a child of a live one; its parent's release stands for both here */
  live++;
  return (struct ArrowSchema){
      .format = "+s", .name = "", .n_children = 1, .children = schemas, .release = release_schema};
}

static struct ArrowArray new_array(const void **buffers) {
  number_array.buffers = buffers;
  number_array.null_count = buffers == null_buffers ? 1 : 0;
  number_array.release = release_array;
  live++;
  return (struct ArrowArray){.length = 3,
                             .n_buffers = 1,
                             .buffers = no_buffers,
                             .n_children = 1,
                             .children = arrays,
                             .release = release_array};
}

static void numbers_where_they_are(void **state) {
  (void)state;
  struct ArrowSchema schema = new_schema();
  struct ArrowArray array = new_array(number_buffers);
  accel_dataset_t *dataset = NULL;
  accel_value_t item = ACCEL_VALUE_INIT;
  void *data = NULL;
  assert_ok(accel_dataset_arrow(&schema, &array, ACCEL_UNSET_DOUBLE, &dataset));
  assert_null(schema.release);
  assert_null(array.release);
  assert_int_equal(live, 1);
  assert_int_equal(accel_dataset_length(dataset), 3);
  assert_ok(accel_dataset_item(dataset, 1, &item));
  accel_dataset_release(dataset);
  assert_int_equal(live, 1); /* the item uses its memory */
  assert_ok(accel_tensor_data(accel_value_get(&item, "x")->as.tensor, &data));
  assert_ptr_equal(data, numbers + 1);
  accel_value_dispose(&item);
  assert_int_equal(live, 0);
}

static void nulls(void **state) {
  (void)state;
  struct ArrowSchema schema = new_schema();
  struct ArrowArray array = new_array(null_buffers);
  accel_dataset_t *dataset = NULL;
  assert_fails(accel_dataset_arrow(&schema, &array, ACCEL_UNSET_DOUBLE, &dataset), ACCEL_ERROR_INVALID_ARGUMENT,
               "column 'x' of the Arrow array has a null in row 1");
  assert_int_equal(live, 0); /* consumed in any case */
  schema = new_schema();
  array = new_array(null_buffers);
  assert_ok(accel_dataset_arrow(&schema, &array, -7, &dataset));
  expect_item(dataset, 1, "{\"x\":-7}");
  accel_dataset_release(dataset);
  schema = new_schema();
  array = new_array(number_buffers);
  assert_fails(accel_dataset_arrow(&schema, &array, -7, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_int_equal(live, 0);
  dataset = NULL;
  assert_fails(accel_dataset_arrow(&schema, &array, -7, &dataset), ACCEL_ERROR_INVALID_ARGUMENT, "released already");
  assert_null(dataset);
}

static int give_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
  (void)stream;
  *out = new_schema();
  return 0;
}

static int give_array(struct ArrowArrayStream *stream, struct ArrowArray *out) {
  int *const left = stream->private_data;
  if (*left < 0) return 5;
  *out = *left == 0 ? (struct ArrowArray){.release = NULL} : new_array(number_buffers);
  (*left)--;
  return 0;
}

static const char *say_error(struct ArrowArrayStream *stream) {
  (void)stream;
  return "the file ends here";
}

static void release_stream(struct ArrowArrayStream *stream) {
  stream->release = NULL;
  live--;
}

static void streams_of_batches(void **state) {
  (void)state;
  int left = 2;
  struct ArrowArrayStream stream = {give_schema, give_array, say_error, release_stream, &left};
  accel_dataset_t *dataset = NULL;
  live++;
  assert_ok(accel_dataset_arrow_stream(&stream, ACCEL_UNSET_DOUBLE, &dataset));
  assert_int_equal(live, 2);
  assert_int_equal(accel_dataset_length(dataset), 6);
  expect_item(dataset, 5, "{\"x\":3}");
  accel_dataset_release(dataset);
  assert_int_equal(live, 0);
  stream = (struct ArrowArrayStream){give_schema, give_array, say_error, release_stream, &left};
  live++;
  dataset = NULL;
  assert_fails(accel_dataset_arrow_stream(&stream, ACCEL_UNSET_DOUBLE, &dataset), ACCEL_ERROR_IO, "the file ends here");
  assert_null(dataset);
  assert_int_equal(live, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(numbers_where_they_are),
      capi_unit_test(nulls),
      capi_unit_test(streams_of_batches),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
