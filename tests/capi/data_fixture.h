/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs about data share: files, items as JSON, and a dataset of numbers. */
#ifndef ACCEL_DATA_FIXTURE_H
#define ACCEL_DATA_FIXTURE_H

#include "capi_test.h"

/* A file with these bytes; who writes it removes it. */
static inline void write_file(const char *path, const void *bytes, size_t size) {
  FILE *const file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *path, const char *text) { write_file(path, text, strlen(text)); }

static inline void set_member(accel_value_t *map, const char *key, accel_value_t item) {
  assert_ok(accel_value_set(map, key, &item));
}

static inline void push_item(accel_value_t *list, accel_value_t item) { assert_ok(accel_value_push(list, &item)); }

static inline void expect_item(const accel_dataset_t *dataset, int64_t index, const char *json) {
  accel_value_t item = ACCEL_VALUE_INIT;
  assert_ok(accel_dataset_item(dataset, index, &item));
  assert_json(&item, json);
  accel_value_dispose(&item);
}

static inline void expect_no_item(const accel_dataset_t *dataset, int64_t index, accel_status_t status,
                                  const char *part) {
  accel_value_t item = ACCEL_VALUE_INIT;
  assert_fails(accel_dataset_item(dataset, index, &item), status, part);
  assert_int_equal(item.kind, ACCEL_VALUE_NONE);
}

/* 0, 1, 2, ... as the one tensor of a dataset. */
static inline accel_dataset_t *new_numbers(int64_t length) {
  int64_t numbers[64];
  accel_dataset_t *dataset = NULL;
  for (int64_t i = 0; i < length; i++) numbers[i] = i;
  accel_tensor_t *tensor = new_test_tensor(numbers, &length, 1, ACCEL_DTYPE_INT64);
  assert_ok(accel_dataset_tensors(&tensor, 1, &dataset));
  accel_tensor_release(tensor);
  return dataset;
}

#endif
