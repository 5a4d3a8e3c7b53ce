/* SPDX-License-Identifier: Apache-2.0 */
/* Section 9: datasets and loaders. */
#define _POSIX_C_SOURCE 200809L /* mkstemp */
#include "data_fixture.h"

#include <unistd.h>

static accel_dataloader_t *new_loader(int64_t length, int64_t batch_size) {
  accel_dataset_t *dataset = new_numbers(length);
  accel_dataloader_t *loader = NULL;
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  options.batch_size = batch_size;
  assert_ok(accel_dataloader_create(dataset, &options, &loader));
  accel_dataset_release(dataset);
  return loader;
}

/* The next batch begins with `first` and has `rows` numbers. */
static void expect_batch(accel_dataloader_t *loader, int64_t first, size_t rows) {
  accel_value_t batch = ACCEL_VALUE_INIT;
  assert_ok(accel_dataloader_next(loader, &batch));
  assert_int_equal(batch.kind, ACCEL_VALUE_LIST);
  assert_int_equal(accel_value_count(&batch), 1);
  assert_int_equal(elements(accel_value_at(&batch, 0)->as.tensor, rows)[0], first);
  accel_value_dispose(&batch);
}

static void expect_end(accel_dataloader_t *loader) {
  accel_value_t batch = ACCEL_VALUE_INIT;
  assert_status(accel_dataloader_next(loader, &batch), ACCEL_ITER_END);
  assert_int_equal(batch.kind, ACCEL_VALUE_NONE);
}

static void rows_of_tensors(void **state) {
  (void)state;
  const float rows[] = {1, 2, 3, 4, 5, 6};
  const int64_t labels[] = {7, 8, 9};
  const int64_t rows_shape[] = {3, 2}, labels_shape[] = {3}, too_short[] = {2};
  accel_tensor_t *tensors[2] = {new_test_tensor(rows, rows_shape, 2, ACCEL_DTYPE_FLOAT32),
                                new_test_tensor(labels, labels_shape, 1, ACCEL_DTYPE_INT64)};
  accel_tensor_t *unequal[2] = {tensors[0], new_test_tensor(labels, too_short, 1, ACCEL_DTYPE_INT64)};
  accel_dataset_t *dataset = NULL, *refused = NULL;
  accel_value_t item = ACCEL_VALUE_INIT;
  assert_ok(accel_dataset_tensors(tensors, 2, &dataset));
  assert_int_equal(accel_dataset_length(dataset), 3);
  assert_ok(accel_dataset_item(dataset, 2, &item));
  assert_int_equal(accel_value_count(&item), 2);
  assert_int_equal(elements(accel_value_at(&item, 1)->as.tensor, 1)[0], 9);
  accel_value_dispose(&item);

  assert_fails(accel_dataset_item(dataset, 3, &item), ACCEL_ERROR_NOT_FOUND, "index 3");
  assert_fails(accel_dataset_item(dataset, 0, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_fails(accel_dataset_tensors(unequal, 2, &refused), ACCEL_ERROR_SHAPE_MISMATCH, "has 2 rows; expected 3");
  assert_fails(accel_dataset_tensors(tensors, 0, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "0 tensors");
  assert_fails(accel_dataset_tensors(NULL, 2, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "tensors is NULL");
  assert_fails(accel_dataset_tensors(tensors, 2, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_null(refused);
  accel_dataset_release(accel_dataset_retain(dataset));
  accel_dataset_release(dataset);
  accel_dataset_release(NULL);
  accel_tensor_release(unequal[1]);
  accel_tensor_release(tensors[0]);
  accel_tensor_release(tensors[1]);
}

static void windows_of_text(void **state) {
  (void)state;
  char path[] = "/tmp/accel-text-XXXXXX";
  accel_dataset_t *dataset = NULL;
  accel_value_t item = ACCEL_VALUE_INIT;
  const int file = mkstemp(path);
  assert_true(file >= 0);
  assert_int_equal(write(file, "ABCDEFG", 7), 7);
  close(file);
  assert_ok(accel_dataset_text(path, NULL, 3, &dataset));
  assert_int_equal(accel_dataset_length(dataset), 2);
  assert_ok(accel_dataset_item(dataset, 1, &item));
  assert_int_equal(elements(accel_value_at(&item, 0)->as.tensor, 3)[0], 'D');
  assert_int_equal(elements(accel_value_at(&item, 1)->as.tensor, 3)[2], 'G');
  accel_value_dispose(&item);
  accel_dataset_release(dataset);

  dataset = NULL;
  assert_fails(accel_dataset_text(path, NULL, 7, &dataset), ACCEL_ERROR_INVALID_ARGUMENT,
               "has 7 bytes; expected at least 8");
  assert_fails(accel_dataset_text(path, NULL, 0, &dataset), ACCEL_ERROR_INVALID_ARGUMENT, "sequence_length is 0");
  assert_fails(accel_dataset_text(NULL, NULL, 3, &dataset), ACCEL_ERROR_INVALID_ARGUMENT, "path is NULL");
  assert_fails(accel_dataset_text(path, NULL, 3, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_int_equal(unlink(path), 0);
  assert_fails(accel_dataset_text(path, ".py", 3, &dataset), ACCEL_ERROR_NOT_FOUND, path);
  assert_null(dataset);
}

static void subset_is_a_range(void **state) {
  (void)state;
  accel_dataset_t *numbers = new_numbers(10), *part = NULL, *refused = NULL;
  accel_value_t item = ACCEL_VALUE_INIT;
  assert_ok(accel_dataset_subset(numbers, 4, 7, &part));
  accel_dataset_release(numbers); /* the part keeps it alive */
  assert_int_equal(accel_dataset_length(part), 3);
  assert_ok(accel_dataset_item(part, 0, &item));
  assert_int_equal(elements(accel_value_at(&item, 0)->as.tensor, 1)[0], 4);
  accel_value_dispose(&item);
  assert_fails(accel_dataset_subset(part, 1, 4, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "[1, 4)");
  assert_fails(accel_dataset_subset(NULL, 0, 1, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "dataset is NULL");
  assert_fails(accel_dataset_subset(part, 0, 1, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  accel_dataset_release(part);
}

static void loader_gives_epochs(void **state) {
  (void)state;
  accel_dataloader_t *loader = new_loader(5, 2);
  assert_int_equal(accel_dataloader_length(loader), 3);
  for (int epoch = 0; epoch < 2; epoch++) {
    expect_batch(loader, 0, 2);
    expect_batch(loader, 2, 2);
    expect_batch(loader, 4, 1);
    expect_end(loader);
  }
  expect_batch(loader, 0, 2);
  assert_ok(accel_dataloader_set_epoch(loader, 9));
  expect_batch(loader, 0, 2);
  assert_fails(accel_dataloader_set_epoch(loader, -1), ACCEL_ERROR_INVALID_ARGUMENT, "epoch is -1");
  assert_fails(accel_dataloader_next(loader, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  expect_batch(loader, 2, 2);
  accel_dataloader_release(accel_dataloader_retain(loader));
  accel_dataloader_release(loader);
  accel_dataloader_release(NULL);
}

static void loader_options(void **state) {
  (void)state;
  accel_dataset_t *numbers = new_numbers(32);
  accel_sampler_t *sampler = NULL;
  accel_dataloader_t *loader = NULL, *refused = NULL;
  const accel_dataloader_options_t unset = ACCEL_DATALOADER_OPTIONS_INIT;
  accel_dataloader_options_t options;
  memset(&options, 0, sizeof options);
  assert_ok(accel_options_init(ACCEL_OPTIONS_DATALOADER, &options, sizeof options));
  assert_memory_equal(&options, &unset, sizeof options);
  assert_fails(accel_options_init(ACCEL_OPTIONS_DATALOADER, NULL, 8), ACCEL_ERROR_INVALID_ARGUMENT, "options is NULL");

  options.shuffle = 1;
  options.seed = 7;
  options.batch_size = 5;
  options.drop_last = 1;
  options.prefetch = 0;
  assert_ok(accel_dataloader_create(numbers, &options, &loader));
  assert_int_equal(accel_dataloader_length(loader), 6);
  expect_batch(loader, 15, 5);
  accel_dataloader_release(loader);

  assert_ok(accel_sampler_sequential(3, &sampler));
  options.sampler = sampler;
  assert_fails(accel_dataloader_create(numbers, &options, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "shuffle is 1");
  options.shuffle = ACCEL_UNSET;
  options.drop_last = ACCEL_UNSET;
  assert_ok(accel_dataloader_create(numbers, &options, &loader));
  accel_sampler_release(sampler);
  assert_int_equal(accel_dataloader_length(loader), 1);
  expect_batch(loader, 0, 3);
  accel_dataloader_release(loader);

  options = unset;
  options.batch_size = 0;
  assert_fails(accel_dataloader_create(numbers, &options, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "batch_size is 0");
  options = unset;
  options.prefetch = -2;
  assert_fails(accel_dataloader_create(numbers, &options, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "prefetch is -2");
  options = unset;
  options.drop_last = 3;
  assert_fails(accel_dataloader_create(numbers, &options, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "drop_last is 3");
  options.struct_size = 1;
  assert_fails(accel_dataloader_create(numbers, &options, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "struct_size is 1");
  assert_fails(accel_dataloader_create(numbers, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_fails(accel_dataloader_create(NULL, NULL, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "dataset is NULL");
  assert_null(refused);
  accel_dataset_release(numbers);
}

static void loader_state_resumes(void **state) {
  (void)state;
  accel_dataloader_t *loader = new_loader(6, 2), *resumed = new_loader(6, 2);
  accel_value_t dict = ACCEL_VALUE_INIT;
  const accel_value_t number = accel_arg_int(1);
  expect_batch(loader, 0, 2);
  assert_ok(accel_dataloader_state_dict(loader, &dict));
  assert_int_equal(accel_value_get(&dict, "batches")->as.integer, 1);
  assert_int_equal(accel_value_get(&dict, "epoch")->as.integer, 0);
  assert_ok(accel_dataloader_load_state_dict(resumed, &dict));
  expect_batch(resumed, 2, 2);
  assert_fails(accel_dataloader_load_state_dict(resumed, &number), ACCEL_ERROR_INVALID_ARGUMENT, "expected a map");
  assert_fails(accel_dataloader_load_state_dict(resumed, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "state_dict is NULL");
  assert_fails(accel_dataloader_state_dict(resumed, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  expect_batch(resumed, 4, 2);
  accel_value_dispose(&dict);
  accel_dataloader_release(loader);
  accel_dataloader_release(resumed);
}

static void first_batches_can_be_skipped(void **state) {
  (void)state;
  accel_dataloader_t *loader = new_loader(6, 2), *skipping = NULL, *refused = NULL;
  assert_ok(accel_skip_first_batches(loader, 2, &skipping));
  assert_int_equal(accel_dataloader_length(skipping), 1);
  expect_batch(skipping, 4, 2);
  expect_end(skipping);
  expect_batch(skipping, 0, 2);
  expect_batch(loader, 0, 2);
  assert_fails(accel_skip_first_batches(loader, -1, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "num_batches is -1");
  assert_fails(accel_skip_first_batches(loader, 1, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_null(refused);
  accel_dataloader_release(loader);
  accel_dataloader_release(skipping);
}

static void wrong_handles_are_refused(void **state) {
  (void)state;
  accel_sampler_t *sampler = NULL, *no_sampler = NULL;
  accel_value_t value = ACCEL_VALUE_INIT;
  accel_tensor_t *order = NULL;
  assert_ok(accel_sampler_sequential(1, &sampler));
  accel_dataset_t *const dataset = (accel_dataset_t *)(void *)sampler;
  accel_dataloader_t *const loader = (accel_dataloader_t *)(void *)sampler;
  accel_dataset_t *no_dataset = NULL;
  accel_dataloader_t *no_loader = NULL;
  assert_int_equal(accel_dataset_length(dataset), -1);
  assert_fails(accel_dataset_item(dataset, 0, &value), ACCEL_ERROR_INVALID_HANDLE, "dataset is a sampler");
  assert_status(accel_dataset_subset(dataset, 0, 1, &no_dataset), ACCEL_ERROR_INVALID_HANDLE);
  assert_status(accel_dataset_tensors((accel_tensor_t *const *)(void *)&sampler, 1, &no_dataset),
                ACCEL_ERROR_INVALID_HANDLE);
  assert_status(accel_dataloader_create(dataset, NULL, &no_loader), ACCEL_ERROR_INVALID_HANDLE);
  assert_fails(accel_dataloader_next(loader, &value), ACCEL_ERROR_INVALID_HANDLE, "loader is a sampler");
  assert_int_equal(accel_dataloader_length(loader), -1);
  assert_status(accel_dataloader_set_epoch(loader, 0), ACCEL_ERROR_INVALID_HANDLE);
  assert_status(accel_dataloader_state_dict(loader, &value), ACCEL_ERROR_INVALID_HANDLE);
  assert_status(accel_dataloader_load_state_dict(loader, &value), ACCEL_ERROR_INVALID_HANDLE);
  assert_status(accel_skip_first_batches(loader, 0, &no_loader), ACCEL_ERROR_INVALID_HANDLE);
  accel_dataset_t *numbers = new_numbers(2);
  assert_status(accel_sampler_indices((accel_sampler_t *)(void *)numbers, 0, &order), ACCEL_ERROR_INVALID_HANDLE);
  assert_null(accel_dataset_retain(NULL));
  assert_null(accel_sampler_retain(no_sampler));
  assert_null(accel_dataloader_retain(NULL));
  accel_dataset_release(numbers);
  accel_sampler_release(sampler);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(rows_of_tensors),
      capi_unit_test(windows_of_text),
      capi_unit_test(subset_is_a_range),
      capi_unit_test(loader_gives_epochs),
      capi_unit_test(loader_options),
      capi_unit_test(loader_state_resumes),
      capi_unit_test(first_batches_can_be_skipped),
      capi_unit_test(wrong_handles_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
