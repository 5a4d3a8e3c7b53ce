/* SPDX-License-Identifier: Apache-2.0 */
/* Section 9: datasets of tensors and files. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include "data_fixture.h"
#include "folder_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

static const char *path;

static const char *file_path(const char *name) {
  path = path_of(name);
  return path;
}

static int remove_folder(void **state) {
  (void)state;
  return rmdir(folder) != 0 || assert_nothing_left(state) != 0 ? -1 : 0;
}

#define files_test(function) cmocka_unit_test_setup_teardown(function, make_folder, remove_folder)

static void rows_with_names(void **state) {
  (void)state;
  const int64_t numbers[] = {1, 2, 3}, shape[] = {3}, shorter[] = {2};
  accel_value_t columns = ACCEL_VALUE_INIT, short_column = ACCEL_VALUE_INIT;
  accel_dataset_t *dataset = NULL, *refused = NULL;
  accel_tensor_t *tensor = new_test_tensor(numbers, shape, 1, ACCEL_DTYPE_INT64);
  accel_tensor_t *two = new_test_tensor(numbers, shorter, 1, ACCEL_DTYPE_INT64);
  assert_ok(accel_value_map(&columns));
  set_member(&columns, "x", accel_arg_tensor(tensor));
  assert_ok(accel_dataset_named_tensors(&columns, &dataset));
  assert_int_equal(accel_dataset_length(dataset), 3);
  expect_item(dataset, 2, "{\"x\":3}");
  accel_dataset_release(dataset);

  assert_ok(accel_save(&columns, NULL, file_path("a.safetensors"), NULL));
  assert_ok(accel_dataset_safetensors(path, &dataset));
  assert_int_equal(unlink(path), 0); /* it stays mapped */
  expect_item(dataset, 0, "{\"x\":1}");
  assert_int_equal(accel_dataset_num_skipped(dataset), 0);
  accel_dataset_release(dataset);

  set_member(&columns, "y", accel_arg_tensor(two));
  assert_fails(accel_dataset_named_tensors(&columns, &refused), ACCEL_ERROR_SHAPE_MISMATCH, "column 'y'");
  set_member(&columns, "y", accel_arg_int(1));
  assert_fails(accel_dataset_named_tensors(&columns, &refused), ACCEL_ERROR_TYPE_MISMATCH, "tensors['y']");
  short_column = accel_arg_tensor(two);
  assert_fails(accel_dataset_named_tensors(&short_column, &refused), ACCEL_ERROR_TYPE_MISMATCH, "not a map");
  assert_fails(accel_dataset_safetensors("/nowhere", &refused), ACCEL_ERROR_NOT_FOUND, "/nowhere");
  write_text(file_path("b.safetensors"), "not one");
  assert_fails(accel_dataset_safetensors(path, &refused), ACCEL_ERROR_CORRUPT, "b.safetensors");
  assert_int_equal(unlink(path), 0);
  assert_null(refused);
  accel_value_dispose(&columns);
  accel_tensor_release(tensor);
  accel_tensor_release(two);
}

static void rows_of_different_lengths(void **state) {
  (void)state;
  const int64_t numbers[] = {1, 2, 3, 4, 5, 6}, shape[] = {6};
  const int64_t offsets[] = {0, 2, 2, 6}, falling[] = {0, 2, 1, 6}, rows[] = {4};
  accel_dataset_t *dataset = NULL, *refused = NULL;
  accel_tensor_t *values = new_test_tensor(numbers, shape, 1, ACCEL_DTYPE_INT64);
  accel_tensor_t *ends = new_test_tensor(offsets, rows, 1, ACCEL_DTYPE_INT64);
  accel_tensor_t *wrong = new_test_tensor(falling, rows, 1, ACCEL_DTYPE_INT64);
  assert_ok(accel_dataset_ragged(&values, 1, ends, &dataset));
  assert_int_equal(accel_dataset_length(dataset), 3);
  expect_item(dataset, 2, "[[3,4,5,6]]");
  expect_item(dataset, 1, "[[]]");
  assert_fails(accel_dataset_ragged(&values, 1, wrong, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "row 1");
  assert_fails(accel_dataset_ragged(&values, 0, ends, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "0 tensors");
  assert_null(refused);
  accel_dataset_release(dataset);
  accel_tensor_release(values);
  accel_tensor_release(ends);
  accel_tensor_release(wrong);
}

static void tokens_of_files(void **state) {
  (void)state;
  const uint16_t numbers[] = {1, 2, 0, 3, 4, 5, 0, 65535};
  accel_tensor_t *tokens = NULL, *refused = NULL;
  accel_dataset_t *dataset = NULL, *none = NULL;
  write_file(file_path("a.bin"), numbers, sizeof numbers);
  assert_fails(accel_tensor_map_file(path, ACCEL_UNSET, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "expected a dtype");
  assert_fails(accel_tensor_map_file(path, 99, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "99");
  assert_ok(accel_tensor_map_file(path, ACCEL_DTYPE_UINT16, &tokens));
  assert_int_equal(truncate(path, 15), 0);
  assert_fails(accel_tensor_map_file(path, ACCEL_DTYPE_UINT16, &refused), ACCEL_ERROR_CORRUPT, "15 bytes");
  assert_int_equal(truncate(path, 16), 0);
  assert_int_equal(unlink(path), 0);
  assert_null(refused);
  accel_tensor_release(tokens);

  write_file(file_path("a.bin"), numbers, sizeof numbers);
  assert_ok(accel_tensor_map_file(path, ACCEL_DTYPE_UINT16, &tokens));
  assert_ok(accel_dataset_windows(tokens, 3, ACCEL_UNSET_INT64, &dataset));
  assert_int_equal(accel_dataset_length(dataset), 2);
  expect_item(dataset, 1, "[[3,4,5],[4,5,0]]");
  accel_dataset_release(dataset);
  assert_ok(accel_dataset_windows(tokens, 3, 2, &dataset));
  assert_int_equal(accel_dataset_length(dataset), 3);
  expect_item(dataset, 2, "[[4,5,0],[5,0,65535]]");
  accel_dataset_release(dataset);
  assert_fails(accel_dataset_windows(tokens, 8, 1, &none), ACCEL_ERROR_INVALID_ARGUMENT, "8 tokens");
  assert_fails(accel_dataset_windows(tokens, 3, 0, &none), ACCEL_ERROR_INVALID_ARGUMENT, "stride is 0");

  accel_packing_options_t options = ACCEL_PACKING_OPTIONS_INIT;
  assert_fails(accel_dataset_packed(tokens, &options, &none), ACCEL_ERROR_INVALID_ARGUMENT, "sequence_length is unset");
  options.sequence_length = 5;
  assert_fails(accel_dataset_packed(tokens, &options, &none), ACCEL_ERROR_INVALID_ARGUMENT, "are not given");
  options.end_of_document = 0;
  options.pad_token = 9;
  assert_ok(accel_dataset_packed(tokens, &options, &dataset));
  expect_item(dataset, 1, "[[5,0,65535,9,9],[0,-100,-100,-100,-100],[0,1,0,0,0],[1,1,2,-1,-1]]");
  accel_dataset_release(dataset);
  options.packing = ACCEL_PACKING_BEST_FIT;
  assert_ok(accel_dataset_packed(tokens, &options, &dataset));
  expect_item(dataset, 1, "[[3,4,5,0,65535],[4,5,0,-100,-100],[0,1,2,3,0],[1,1,1,1,2]]");
  accel_dataset_release(dataset);
  options.packing = 2;
  assert_fails(accel_dataset_packed(tokens, &options, &none), ACCEL_ERROR_INVALID_ARGUMENT, "packing is 2");
  options.packing = ACCEL_UNSET;
  options.document_offsets = tokens;
  assert_fails(accel_dataset_packed(tokens, &options, &none), ACCEL_ERROR_INVALID_ARGUMENT, "both");
  options.end_of_document = ACCEL_UNSET_INT64;
  assert_fails(accel_dataset_packed(tokens, &options, &none), ACCEL_ERROR_TYPE_MISMATCH, "offsets");
  assert_null(none);
  assert_int_equal(unlink(path), 0);
  accel_tensor_release(tokens);
}

static void npy_files(void **state) {
  (void)state;
  const char header[] = "\x93NUMPY\x01\x00\x3d\x00{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2), }   \n";
  char file[sizeof header - 1 + 16];
  const int32_t numbers[] = {1, 2, 3, 4};
  accel_tensor_t *tensor = NULL, *refused = NULL;
  accel_dataset_t *dataset = NULL;
  memcpy(file, header, sizeof header - 1);
  file[8] = (char)(sizeof header - 1 - 10);
  memcpy(file + sizeof header - 1, numbers, sizeof numbers);
  write_file(file_path("a.npy"), file, sizeof file);
  assert_ok(accel_tensor_map_file(path, ACCEL_UNSET, &tensor));
  assert_fails(accel_tensor_map_file(path, ACCEL_DTYPE_INT64, &refused), ACCEL_ERROR_TYPE_MISMATCH, "holds int32");
  assert_ok(accel_dataset_tensors(&tensor, 1, &dataset));
  expect_item(dataset, 1, "[[3,4]]");
  accel_dataset_release(dataset);
  accel_tensor_release(tensor);
  write_file(path, file, sizeof file - 1);
  assert_fails(accel_tensor_map_file(path, ACCEL_UNSET, &refused), ACCEL_ERROR_CORRUPT, "cut short");
  assert_null(refused);
  assert_int_equal(unlink(path), 0);
}

static void rows_of_text(void **state) {
  (void)state;
  accel_dataset_t *dataset = NULL, *refused = NULL;
  write_text(file_path("a.txt"), "one\ntwo\r\n");
  assert_ok(accel_dataset_lines(folder, ".txt", 0, &dataset));
  assert_int_equal(accel_dataset_length(dataset), 2);
  expect_item(dataset, 1, "\"two\"");
  accel_dataset_release(dataset);
  assert_fails(accel_dataset_lines(path, NULL, 2, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "skip_malformed is 2");
  assert_int_equal(unlink(path), 0);
  assert_fails(accel_dataset_lines(path, NULL, 0, &refused), ACCEL_ERROR_NOT_FOUND, "a.txt");

  write_text(file_path("a.jsonl"), "{\"x\": [1, 2]}\n{\"x\"\n{\"x\": [3]}\n");
  assert_ok(accel_dataset_json_lines(path, NULL, 0, &dataset));
  expect_item(dataset, 0, "{\"x\":[1,2]}");
  expect_no_item(dataset, 1, ACCEL_ERROR_CORRUPT, "a.jsonl', row 2");
  expect_no_item(dataset, 3, ACCEL_ERROR_NOT_FOUND, "index 3");
  accel_dataset_release(dataset);
  assert_ok(accel_dataset_json_lines(path, NULL, 1, &dataset));
  assert_int_equal(accel_dataset_length(dataset), 2);
  assert_int_equal(accel_dataset_num_skipped(dataset), 1);
  expect_item(dataset, 1, "{\"x\":[3]}");
  accel_dataset_release(dataset);
  assert_int_equal(unlink(path), 0);
  assert_null(refused);
}

static void csv_files(void **state) {
  (void)state;
  accel_csv_options_t options = ACCEL_CSV_OPTIONS_INIT;
  accel_dataset_t *dataset = NULL, *refused = NULL;
  accel_value_t types = ACCEL_VALUE_INIT;
  write_text(file_path("a.csv"), "id;name\n1;\"a\nb\"\n2\n;c\n");
  options.delimiter = ';';
  options.skip_malformed = 1;
  options.missing = -1;
  assert_ok(accel_dataset_csv(path, NULL, &options, &dataset));
  assert_int_equal(accel_dataset_length(dataset), 2);
  assert_int_equal(accel_dataset_num_skipped(dataset), 1);
  expect_item(dataset, 0, "{\"id\":1,\"name\":\"a\\nb\"}");
  expect_item(dataset, 1, "{\"id\":-1,\"name\":\"c\"}");
  accel_dataset_release(dataset);

  assert_ok(accel_value_map(&types));
  set_member(&types, "id", accel_arg_string("text"));
  options.types = &types;
  options.skip_malformed = ACCEL_UNSET;
  assert_ok(accel_dataset_csv(path, NULL, &options, &dataset));
  expect_item(dataset, 0, "{\"id\":\"1\",\"name\":\"a\\nb\"}");
  expect_no_item(dataset, 1, ACCEL_ERROR_CORRUPT, "a.csv', row 3 has 1 cells; expected 2");
  accel_dataset_release(dataset);
  set_member(&types, "id", accel_arg_string("decimal"));
  assert_fails(accel_dataset_csv(path, NULL, &options, &refused), ACCEL_ERROR_NOT_FOUND, "decimal");
  set_member(&types, "id", accel_arg_int(1));
  assert_fails(accel_dataset_csv(path, NULL, &options, &refused), ACCEL_ERROR_TYPE_MISMATCH, "types['id']");
  options.types = NULL;
  options.delimiter = 300;
  assert_fails(accel_dataset_csv(path, NULL, &options, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "delimiter is 300");
  assert_null(refused);
  accel_value_dispose(&types);
  assert_int_equal(unlink(path), 0);
}

static void images_in_folders(void **state) {
  (void)state;
  accel_image_options_t options = ACCEL_IMAGE_OPTIONS_INIT;
  accel_dataset_t *dataset = NULL;
  write_text(file_path("a.jpg"), "no picture");
  const accel_status_t status = accel_dataset_images(folder, NULL, &dataset);
  if (status == ACCEL_ERROR_UNSUPPORTED) {
    assert_message("-Dimages=enabled");
  } else {
    assert_ok(status);
    assert_int_equal(accel_dataset_length(dataset), 1);
    expect_no_item(dataset, 0, ACCEL_ERROR_CORRUPT, "a.jpg");
    accel_dataset_release(dataset);
    dataset = NULL;
    options.height = 4;
    assert_fails(accel_dataset_images(folder, &options, &dataset), ACCEL_ERROR_INVALID_ARGUMENT, "only height");
    options.width = 0;
    assert_fails(accel_dataset_images(folder, &options, &dataset), ACCEL_ERROR_INVALID_ARGUMENT, "at least 1");
    options.width = 4;
    options.channels = 4;
    assert_fails(accel_dataset_images(folder, &options, &dataset), ACCEL_ERROR_INVALID_ARGUMENT, "channels is 4");
  }
  assert_null(dataset);
  assert_int_equal(unlink(path), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      files_test(rows_with_names),   files_test(rows_of_different_lengths),
      files_test(tokens_of_files),   files_test(npy_files),
      files_test(rows_of_text),      files_test(csv_files),
      files_test(images_in_folders),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
