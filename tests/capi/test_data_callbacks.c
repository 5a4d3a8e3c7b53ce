/* SPDX-License-Identifier: Apache-2.0 */
/* Section 9: the program's own datasets and streams, and datasets that are made of others. */
#include "data_fixture.h"

/* Squares, until something shall go wrong. */
struct squares {
  int64_t length;
  int64_t failing;       /* index, or -1 */
  int64_t without_value; /* index, or -1 */
  int destroyed;
};

static void destroy_squares(void *user_data) { ((struct squares *)user_data)->destroyed++; }

static int64_t square_length(void *user_data) {
  const struct squares *const squares = user_data;
  if (squares->length < 0) accel_error_set(ACCEL_ERROR_IO, "the shelf is empty");
  return squares->length < 0 ? ACCEL_ERROR_IO : squares->length;
}

static accel_status_t square(int64_t index, accel_value_t *out_item, void *user_data) {
  const struct squares *const squares = user_data;
  if (index == squares->failing) {
    accel_error_set(ACCEL_ERROR_USER, "this one is broken");
    return ACCEL_ERROR_USER;
  }
  *out_item = index == squares->without_value ? accel_arg_none() : accel_arg_int(index * index);
  return ACCEL_OK;
}

static accel_status_t squares_of(const int64_t *indices, size_t n_indices, accel_value_t *out_items, void *user_data) {
  const struct squares *const squares = user_data;
  accel_status_t status = accel_value_list(NULL, 0, out_items);
  for (size_t i = 0; i < n_indices && status == ACCEL_OK; i++) {
    const accel_value_t item = accel_arg_int(indices[i] * indices[i]);
    if (indices[i] != squares->failing) status = accel_value_push(out_items, &item);
  }
  return status;
}

static accel_dataloader_t *new_loader(accel_dataset_t *dataset, int64_t batch_size) {
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  accel_dataloader_t *loader = NULL;
  options.batch_size = batch_size;
  assert_ok(accel_dataloader_create(dataset, &options, &loader));
  return loader;
}

static void items_of_the_program(void **state) {
  (void)state;
  struct squares squares = {5, -1, -1, 0};
  accel_dataset_t *dataset = NULL;
  accel_value_t batch = ACCEL_VALUE_INIT;
  assert_ok(accel_dataset_create(square_length, square, NULL, NULL, &squares, destroy_squares, &dataset));
  assert_int_equal(accel_dataset_length(dataset), 5);
  expect_item(dataset, 3, "9");
  expect_no_item(dataset, 5, ACCEL_ERROR_NOT_FOUND, "index 5");
  accel_dataloader_t *loader = new_loader(dataset, 5);
  assert_ok(accel_dataloader_next(loader, &batch));
  assert_json(&batch, "[0,1,4,9,16]");
  accel_value_dispose(&batch);
  accel_dataloader_release(loader);

  squares.failing = 2;
  expect_no_item(dataset, 2, ACCEL_ERROR_USER, "this one is broken");
  loader = new_loader(dataset, 5);
  assert_fails(accel_dataloader_next(loader, &batch), ACCEL_ERROR_USER, "this one is broken");
  squares.failing = -1;
  squares.without_value = 4;
  assert_fails(accel_dataloader_next(loader, &batch), ACCEL_ERROR_TYPE_MISMATCH, "item 4 of the batch (index 4)");
  squares.length = 3; /* the dataset shrank */
  assert_fails(accel_dataloader_next(loader, &batch), ACCEL_ERROR_NOT_FOUND, "index 3");
  squares.length = -1;
  assert_int_equal(accel_dataset_length(dataset), -1);
  assert_message("the shelf is empty");
  expect_no_item(dataset, 0, ACCEL_ERROR_IO, "the shelf is empty");
  accel_dataloader_release(loader);
  assert_int_equal(squares.destroyed, 0);
  accel_dataset_release(dataset);
  assert_int_equal(squares.destroyed, 1);
}

static void items_of_a_batch_together(void **state) {
  (void)state;
  struct squares squares = {3, -1, -1, 0};
  accel_dataset_t *dataset = NULL;
  accel_value_t batch = ACCEL_VALUE_INIT;
  assert_ok(accel_dataset_create(square_length, square, squares_of, NULL, &squares, destroy_squares, &dataset));
  accel_dataloader_t *loader = new_loader(dataset, 3);
  accel_dataset_release(dataset);
  assert_ok(accel_dataloader_next(loader, &batch));
  assert_json(&batch, "[0,1,4]");
  accel_value_dispose(&batch);
  assert_status(accel_dataloader_next(loader, &batch), ACCEL_ITER_END);
  squares.failing = 1;
  assert_fails(accel_dataloader_next(loader, &batch), ACCEL_ERROR_SHAPE_MISMATCH, "gave 2 items for 3 indices");
  accel_dataloader_release(loader);
  assert_int_equal(squares.destroyed, 1);
}

/* Items that say their epoch. */
struct epochs {
  int64_t epoch, begun;
  accel_status_t status;
};

static int64_t two_items(void *user_data) {
  (void)user_data;
  return 2;
}

static accel_status_t item_of_epoch(int64_t index, accel_value_t *out, void *user_data) {
  *out = accel_arg_int(10 * ((const struct epochs *)user_data)->epoch + index);
  return ACCEL_OK;
}

static accel_status_t begin_epoch(int64_t epoch, void *user_data) {
  struct epochs *const epochs = user_data;
  epochs->begun++;
  epochs->epoch = epoch;
  return epochs->status;
}

static void expect_epoch(accel_dataloader_t *loader, int64_t epoch, int32_t parts) {
  accel_value_t batch = ACCEL_VALUE_INIT;
  for (int32_t part = 0; part < parts; part++) {
    assert_ok(accel_dataloader_next(loader, &batch));
    assert_int_equal(elements(batch.as.tensor, 2)[0], 10 * epoch);
    assert_int_equal(elements(batch.as.tensor, 2)[1], 10 * epoch + 1);
    accel_value_dispose(&batch);
  }
  assert_status(accel_dataloader_next(loader, &batch), ACCEL_ITER_END);
}

static void items_hear_of_the_epoch(void **state) {
  (void)state;
  struct epochs epochs = {-1, 0, ACCEL_OK};
  accel_dataset_t *dataset = NULL, *joined = NULL, *part = NULL;
  accel_value_t batch = ACCEL_VALUE_INIT;
  assert_ok(accel_dataset_create(two_items, item_of_epoch, NULL, begin_epoch, &epochs, NULL, &dataset));
  accel_dataloader_t *loader = new_loader(dataset, 2);
  assert_int_equal(epochs.begun, 0);
  expect_epoch(loader, 0, 1);
  expect_epoch(loader, 1, 1);
  assert_int_equal(epochs.begun, 2);
  assert_ok(accel_dataloader_set_epoch(loader, 7));
  expect_epoch(loader, 7, 1);
  epochs.status = ACCEL_ERROR_USER;
  assert_status(accel_dataloader_next(loader, &batch), ACCEL_ERROR_USER);
  epochs.status = ACCEL_OK;
  expect_epoch(loader, 8, 1);
  accel_dataloader_release(loader);
  /* Through datasets that are made of it. */
  accel_dataset_t *const twice[] = {dataset, dataset};
  assert_ok(accel_dataset_concatenate(twice, 2, &joined));
  assert_ok(accel_dataset_subset(joined, 0, 4, &part));
  loader = new_loader(part, 2);
  assert_ok(accel_dataloader_set_epoch(loader, 3));
  expect_epoch(loader, 3, 2);
  accel_dataloader_release(loader);
  accel_dataset_release(joined);
  accel_dataset_release(part);
  accel_dataset_release(dataset);
}

static void registrations_that_are_refused(void **state) {
  (void)state;
  struct squares squares = {5, -1, -1, 0};
  accel_dataset_t *dataset = NULL;
  assert_fails(accel_dataset_create(square_length, NULL, NULL, NULL, &squares, destroy_squares, &dataset),
               ACCEL_ERROR_INVALID_ARGUMENT, "item is NULL");
  assert_int_equal(squares.destroyed, 1);
  assert_null(dataset);
}

/* Two epochs of numbers. */
static int64_t begin_numbers(int64_t epoch, int64_t shard, int64_t num_readers, void *user_data) {
  (void)shard;
  (void)num_readers;
  (void)user_data;
  return epoch > 1 ? ACCEL_ERROR_USER : epoch;
}

static accel_status_t next_number(int64_t reader, accel_value_t *out_item, void *user_data) {
  int64_t *const next = user_data;
  *out_item = accel_arg_int(reader * 100 + (*next)++);
  return *next > 3 ? ACCEL_ITER_END : ACCEL_OK;
}

static void streams_have_no_numbers(void **state) {
  (void)state;
  int64_t next = 0;
  accel_dataset_t *stream = NULL, *counted = NULL, *refused = NULL;
  accel_dataloader_t *loader = NULL;
  assert_ok(
      accel_dataset_create_stream(begin_numbers, next_number, NULL, NULL, &next, NULL, ACCEL_UNSET_INT64, 1, &stream));
  assert_ok(accel_dataset_create_stream(begin_numbers, next_number, NULL, NULL, &next, NULL, 7, 1, &counted));
  assert_int_equal(accel_dataset_length(counted), 7);
  assert_int_equal(accel_dataset_length(stream), -1);
  assert_message("the dataset is iterable and its length is not known");
  expect_no_item(stream, 0, ACCEL_ERROR_UNSUPPORTED, "is iterable");
  assert_fails(accel_dataset_subset(stream, 0, 1, &refused), ACCEL_ERROR_UNSUPPORTED, "dataset is iterable");
  assert_fails(accel_dataset_concatenate(&stream, 1, &refused), ACCEL_ERROR_UNSUPPORTED, "datasets[i] is iterable");
  assert_fails(accel_dataset_as_stream(stream, 1, &refused), ACCEL_ERROR_UNSUPPORTED, "dataset is iterable");
  assert_fails(accel_dataset_create_stream(begin_numbers, next_number, NULL, NULL, &next, NULL, -2, 1, &refused),
               ACCEL_ERROR_INVALID_ARGUMENT, "length is -2");
  assert_fails(accel_dataset_create_stream(begin_numbers, next_number, NULL, NULL, &next, NULL, 3, 0, &refused),
               ACCEL_ERROR_INVALID_ARGUMENT, "num_shards is 0");
  assert_null(refused);
  assert_null(loader);
  accel_dataset_release(counted);
  accel_dataset_release(stream);
}

static void merged_and_joined(void **state) {
  (void)state;
  struct squares squares = {4, -1, -1, 0};
  accel_dataset_t *sources[2] = {NULL, NULL}, *merged = NULL, *joined = NULL, *refused = NULL;
  accel_value_t weights = ACCEL_VALUE_INIT;
  const accel_value_t number = accel_arg_int(1);
  assert_ok(accel_dataset_create(square_length, square, NULL, NULL, &squares, NULL, &sources[0]));
  assert_ok(accel_dataset_as_stream(sources[0], 3, &sources[1]));
  assert_int_equal(accel_dataset_length(sources[1]), 4);
  assert_ok(accel_value_list(NULL, 0, &weights));
  push_item(&weights, accel_arg_int(3));
  assert_fails(accel_dataset_merge(sources, 2, &weights, 0, ACCEL_MERGE_END_ALL, &refused),
               ACCEL_ERROR_INVALID_ARGUMENT, "1 weights are given for 2 sources");
  push_item(&weights, accel_arg_double(0.5));
  assert_ok(accel_dataset_merge(sources, 2, &weights, 0, ACCEL_MERGE_END_ALL, &merged));
  assert_int_equal(accel_dataset_length(merged), 8);
  accel_dataset_release(merged);
  assert_ok(accel_dataset_merge(sources, 2, NULL, 0, ACCEL_MERGE_END_FIRST, &merged));
  assert_int_equal(accel_dataset_length(merged), -1);
  assert_message("length is not known");
  assert_fails(accel_dataset_merge(sources, 2, NULL, 0, 2, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "end is 2");
  assert_fails(accel_dataset_merge(sources, 2, &number, 0, 0, &refused), ACCEL_ERROR_TYPE_MISMATCH, "not a list");
  assert_fails(accel_dataset_merge(sources, 0, NULL, 0, 0, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "0 sources");
  accel_dataset_release(merged);

  accel_dataset_t *const twice[2] = {sources[0], sources[0]};
  assert_ok(accel_dataset_concatenate(twice, 2, &joined));
  assert_int_equal(accel_dataset_length(joined), 8);
  expect_item(joined, 7, "9");
  accel_dataset_release(joined);
  assert_null(refused);
  accel_value_dispose(&weights);
  accel_dataset_release(sources[1]);
  accel_dataset_release(sources[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(items_of_the_program),    capi_unit_test(items_of_a_batch_together),
      capi_unit_test(items_hear_of_the_epoch), capi_unit_test(registrations_that_are_refused),
      capi_unit_test(streams_have_no_numbers), capi_unit_test(merged_and_joined),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
