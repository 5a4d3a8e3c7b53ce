/* SPDX-License-Identifier: Apache-2.0 */
/* Section 13: files of tensors. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <unistd.h>

#include "folder_fixture.h"

static void write_bytes(const char *path, const void *bytes, size_t size) {
  FILE *const file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
}

static void put_tensor(accel_value_t *map, const char *key, const float *numbers, int64_t count) {
  accel_tensor_t *tensor = NULL;
  assert_ok(accel_tensor_from_data(numbers, &count, 1, ACCEL_DTYPE_FLOAT32, &tensor));
  const accel_value_t item = accel_arg_tensor(tensor);
  assert_ok(accel_value_set(map, key, &item));
  accel_tensor_release(tensor);
}

/* Fails when a file is left, a temporary one included. */
static int tear_down(void **state) {
  (void)state;
  unlink(path_of("t.safetensors"));
  if (rmdir(folder) != 0) {
    fprintf(stderr, "%s: %s\n", folder, strerror(errno));
    return -1;
  }
  return assert_nothing_left(state);
}

static void test_save_and_load(void **state) {
  (void)state;
  const float numbers[3] = {1, -2.5F, 1e30F};
  accel_value_t tensors = ACCEL_VALUE_INIT, metadata = ACCEL_VALUE_INIT, loaded = ACCEL_VALUE_INIT;
  assert_ok(accel_value_map(&tensors));
  assert_ok(accel_value_map(&metadata));
  put_tensor(&tensors, "layer.weight", numbers, 3);
  put_tensor(&tensors, "layer.bias", numbers, 1);
  put_tensor(&tensors, "empty", numbers, 0);
  const accel_value_t format = accel_arg_string("pt");
  assert_ok(accel_value_set(&metadata, "format", &format));
  assert_ok(accel_save(&tensors, &metadata, path_of("t.safetensors"), NULL));
  assert_ok(accel_save(&tensors, NULL, path_of("t.safetensors"), NULL)); /* replaces it */
  assert_ok(accel_load(path_of("t.safetensors"), NULL, &loaded));
  assert_int_equal(loaded.kind, ACCEL_VALUE_MAP);
  assert_int_equal(accel_value_count(&loaded), 3);
  for (size_t i = 0; i < accel_value_count(&tensors); i++) {
    const accel_value_t *const back = accel_value_get(&loaded, accel_value_key(&tensors, i));
    int32_t equal = 0;
    assert_non_null(back);
    assert_ok(accel_value_equal(accel_value_at(&tensors, i), back, &equal));
    assert_int_equal(equal, 1);
  }
  /* The tensors outlive the file. */
  assert_int_equal(unlink(path_of("t.safetensors")), 0);
  void *data = NULL;
  assert_ok(accel_tensor_data(accel_value_get(&loaded, "layer.weight")->as.tensor, &data));
  assert_memory_equal(data, numbers, sizeof numbers);
  accel_value_dispose(&loaded);
  accel_value_dispose(&metadata);
  accel_value_dispose(&tensors);
}

static void test_map_location(void **state) {
  (void)state;
  const float numbers[3] = {1, 2, 3};
  accel_load_options_t options = ACCEL_LOAD_OPTIONS_INIT;
  accel_value_t tensors = ACCEL_VALUE_INIT, loaded = ACCEL_VALUE_INIT;
  accel_device_t device = {0, 0};
  void *data = NULL;
  assert_ok(accel_value_map(&tensors));
  put_tensor(&tensors, "weight", numbers, 3);
  assert_ok(accel_save(&tensors, NULL, path_of("t.safetensors"), NULL));
  options.map_location = "cpu";
  assert_ok(accel_load(path_of("t.safetensors"), &options, &loaded));
  assert_ok(accel_tensor_data(accel_value_get(&loaded, "weight")->as.tensor, &data));
  assert_memory_equal(data, numbers, sizeof numbers);
  accel_value_dispose(&loaded);
  options.map_location = "meta"; /* on every machine */
  assert_ok(accel_load(path_of("t.safetensors"), &options, &loaded));
  assert_ok(accel_tensor_device(accel_value_get(&loaded, "weight")->as.tensor, &device));
  assert_string_equal(accel_device_type_name(device.type), "meta");
  accel_value_dispose(&loaded);
  options.map_location = "gpu";
  assert_fails(accel_load(path_of("t.safetensors"), &options, &loaded), ACCEL_ERROR_INVALID_ARGUMENT, "'gpu'");
  options.map_location = "cuda:100"; /* no such device, or no such kind of devices */
  assert_true(accel_load(path_of("t.safetensors"), &options, &loaded) < 0);
  assert_message("cuda:100 is not there");
  accel_value_dispose(&tensors);
}

/* As Accelerate's save_model: one tensor, and {second name: first name} in the metadata. */
static void test_ties_and_metadata(void **unused) {
  (void)unused;
  const float numbers[2] = {1, 2};
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *state = NULL;
  accel_value_t tensors = ACCEL_VALUE_INIT, metadata = ACCEL_VALUE_INIT, loaded = ACCEL_VALUE_INIT;
  options.cpu = 1;
  assert_ok(accel_state_create(&options, &state));
  assert_ok(accel_value_map(&tensors));
  assert_ok(accel_value_map(&metadata));
  put_tensor(&tensors, "first", numbers, 2);
  put_tensor(&tensors, "other", numbers, 2); /* equal, and not the same */
  assert_ok(accel_value_set(&tensors, "second", accel_value_get(&tensors, "first")));
  const accel_value_t format = accel_arg_string("pt");
  assert_ok(accel_value_set(&metadata, "format", &format));
  for (int32_t each_node = 0; each_node < 2; each_node++) {
    accel_save_options_t save = ACCEL_SAVE_OPTIONS_INIT;
    save.save_on_each_node = each_node;
    assert_ok(accel_save_on_main_process(state, &tensors, &metadata, path_of("t.safetensors"), &save));
    assert_ok(accel_load_metadata(path_of("t.safetensors"), &loaded));
    assert_int_equal(accel_value_count(&loaded), 2);
    assert_string_equal(accel_value_get(&loaded, "format")->as.string, "pt");
    assert_string_equal(accel_value_get(&loaded, "second")->as.string, "first");
    accel_value_dispose(&loaded);
    assert_ok(accel_load(path_of("t.safetensors"), NULL, &loaded));
    assert_int_equal(accel_value_count(&loaded), 3);
    void *first = NULL, *second = NULL, *other = NULL;
    assert_ok(accel_tensor_data(accel_value_get(&loaded, "first")->as.tensor, &first));
    assert_ok(accel_tensor_data(accel_value_get(&loaded, "second")->as.tensor, &second));
    assert_ok(accel_tensor_data(accel_value_get(&loaded, "other")->as.tensor, &other));
    assert_ptr_equal(first, second);
    assert_ptr_not_equal(first, other);
    assert_memory_equal(other, numbers, sizeof numbers);
    accel_value_dispose(&loaded);
    assert_int_equal(unlink(path_of("t.safetensors")), 0);
  }
  assert_ok(accel_value_set(&metadata, "second", &format));
  assert_fails(accel_save(&tensors, &metadata, path_of("t.safetensors"), NULL), ACCEL_ERROR_INVALID_ARGUMENT,
               "metadata has 'second'");
  accel_save_options_t wrong = ACCEL_SAVE_OPTIONS_INIT;
  wrong.save_on_each_node = 2;
  assert_fails(accel_save_on_main_process(state, &tensors, NULL, path_of("t.safetensors"), &wrong),
               ACCEL_ERROR_INVALID_ARGUMENT, "options.save_on_each_node is 2");
  assert_fails(accel_load_metadata(path_of("t.safetensors"), &loaded), ACCEL_ERROR_NOT_FOUND, "t.safetensors");
  accel_value_dispose(&metadata);
  accel_value_dispose(&tensors);
  accel_state_release(state);
}

static void count_warnings(int32_t level, const char *message, void *counter) {
  if (level == ACCEL_LOG_WARNING && strstr(message, "has no metadata") != NULL) ++*(int *)counter;
}

/* By the metadata, as in Accelerate. */
// Regression: `accel_load_state_dict()` did not look at the metadata, and had no device map.
static void test_whose_weights(void **state) {
  (void)state;
  const float numbers[2] = {1, 2};
  const struct {
    const char *key, *text, *error;
    accel_status_t status;
    int warnings;
  } cases[] = {
      {"format", "pt", NULL, ACCEL_OK, 0},
      {NULL, NULL, NULL, ACCEL_OK, 1},
      {"format", "tf", "was saved by tf", ACCEL_ERROR_INVALID_ARGUMENT, 0},
      {"format", "flax", "was saved by flax", ACCEL_ERROR_INVALID_ARGUMENT, 0},
      {"format", "mlx", "do not have the format 'pt'", ACCEL_ERROR_CORRUPT, 0},
      {"author", "me", "do not have the format 'pt'", ACCEL_ERROR_CORRUPT, 0},
  };
  accel_value_t tensors = ACCEL_VALUE_INIT, loaded = ACCEL_VALUE_INIT;
  int warnings = 0;
  assert_ok(accel_value_map(&tensors));
  put_tensor(&tensors, "a.weight", numbers, 2);
  assert_ok(accel_value_set(&tensors, "b.weight", accel_value_get(&tensors, "a.weight"))); /* tied: in the metadata */
  assert_ok(accel_set_log_callback(count_warnings, &warnings, NULL));
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    accel_value_t metadata = ACCEL_VALUE_INIT;
    assert_ok(accel_value_map(&metadata));
    if (cases[i].key != NULL) {
      const accel_value_t text = accel_arg_string(cases[i].text);
      assert_ok(accel_value_set(&metadata, cases[i].key, &text));
    }
    warnings = 0;
    assert_ok(accel_save(&tensors, &metadata, path_of("t.safetensors"), NULL));
    if (cases[i].status == ACCEL_OK) {
      assert_ok(accel_load_state_dict(path_of("t.safetensors"), NULL, &loaded));
      assert_int_equal(accel_value_count(&loaded), 2);
      accel_value_dispose(&loaded);
    } else {
      assert_fails(accel_load_state_dict(path_of("t.safetensors"), NULL, &loaded), cases[i].status, cases[i].error);
      assert_ok(accel_load(path_of("t.safetensors"), NULL, &loaded)); /* any tensors */
      accel_value_dispose(&loaded);
      accel_module_t *shapes = NULL;
      assert_ok(accel_module_shapes_from_weights(path_of("t.safetensors"), &shapes));
      accel_module_release(shapes);
    }
    assert_int_equal(warnings, cases[i].warnings);
    accel_value_dispose(&metadata);
  }
  assert_ok(accel_set_log_callback(NULL, NULL, NULL));
  accel_value_dispose(&tensors);
}

/* With accelerators: StreamedOffload in tests/devices. */
static void test_weights_come_to_the_devices_of_a_map(void **state) {
  (void)state;
  const float numbers[2] = {1, 2};
  accel_value_t tensors = ACCEL_VALUE_INIT, map = ACCEL_VALUE_INIT, loaded = ACCEL_VALUE_INIT;
  accel_device_t device = {-1, -1};
  assert_ok(accel_value_map(&tensors));
  put_tensor(&tensors, "a.weight", numbers, 2);
  put_tensor(&tensors, "b.weight", numbers, 2);
  assert_ok(accel_value_set(&tensors, "a.tied", accel_value_get(&tensors, "a.weight")));
  assert_ok(accel_save(&tensors, NULL, path_of("t.safetensors"), NULL));
  assert_ok(accel_value_from_json("{\"a\": \"cpu\", \"c\": \"disk\"}", &map));
  assert_ok(accel_load_state_dict(path_of("t.safetensors"), &map, &loaded));
  assert_int_equal(accel_value_count(&loaded), 3);
  for (size_t i = 0; i < 3; i++) {
    assert_ok(accel_tensor_device(accel_value_at(&loaded, i)->as.tensor, &device));
    assert_int_equal(device.type, ACCEL_DEVICE_CPU);
  }
  void *first = NULL, *second = NULL;
  assert_ok(accel_tensor_data(accel_value_get(&loaded, "a.weight")->as.tensor, &first));
  assert_ok(accel_tensor_data(accel_value_get(&loaded, "a.tied")->as.tensor, &second));
  assert_ptr_equal(first, second);
  accel_value_dispose(&loaded);
  accel_value_dispose(&map);
  assert_ok(accel_value_from_json("{\"a\": \"lake\"}", &map));
  assert_fails(accel_load_state_dict(path_of("t.safetensors"), &map, &loaded), ACCEL_ERROR_INVALID_ARGUMENT, "lake");
  accel_value_dispose(&map);
  const accel_value_t number = accel_arg_int(1);
  assert_fails(accel_load_state_dict(path_of("t.safetensors"), &number, &loaded), ACCEL_ERROR_TYPE_MISMATCH,
               "device_map");
  accel_value_dispose(&tensors);
}

static void test_save_refuses(void **state) {
  (void)state;
  const float number = 1;
  accel_value_t tensors = ACCEL_VALUE_INIT, metadata = ACCEL_VALUE_INIT;
  const accel_value_t integer = accel_arg_int(7);
  assert_ok(accel_value_map(&tensors));
  assert_ok(accel_value_map(&metadata));
  assert_fails(accel_save(NULL, NULL, path_of("t.safetensors"), NULL), ACCEL_ERROR_INVALID_ARGUMENT, "value is NULL");
  assert_fails(accel_save(&tensors, NULL, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "path is NULL");
  assert_fails(accel_save(&tensors, NULL, "", NULL), ACCEL_ERROR_INVALID_ARGUMENT, "empty");
  assert_fails(accel_save(&integer, NULL, path_of("t.safetensors"), NULL), ACCEL_ERROR_TYPE_MISMATCH, "expected a map");
  put_tensor(&tensors, "a", &number, 1);
  assert_fails(accel_save(&tensors, &integer, path_of("t.safetensors"), NULL), ACCEL_ERROR_TYPE_MISMATCH, "metadata");
  assert_ok(accel_value_set(&metadata, "steps", &integer));
  assert_fails(accel_save(&tensors, &metadata, path_of("t.safetensors"), NULL), ACCEL_ERROR_TYPE_MISMATCH, "steps");
  assert_fails(accel_save(&tensors, NULL, path_of("missing/t.safetensors"), NULL), ACCEL_ERROR_IO, "missing");
  assert_ok(accel_value_set(&tensors, "number", &integer));
  assert_fails(accel_save(&tensors, NULL, path_of("t.safetensors"), NULL), ACCEL_ERROR_TYPE_MISMATCH, "number");
  accel_value_dispose(&metadata);
  accel_value_dispose(&tensors);
}

static void test_load_refuses(void **state) {
  (void)state;
  accel_value_t out = accel_arg_int(42);
  assert_fails(accel_load(NULL, NULL, &out), ACCEL_ERROR_INVALID_ARGUMENT, "path is NULL");
  assert_fails(accel_load(path_of("t.safetensors"), NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_fails(accel_load(path_of("t.safetensors"), NULL, &out), ACCEL_ERROR_NOT_FOUND, "t.safetensors");
  write_bytes(path_of("t.safetensors"), "\x02\0\0\0\0\0\0\0{}x", 11);
  assert_fails(accel_load(path_of("t.safetensors"), NULL, &out), ACCEL_ERROR_CORRUPT, "t.safetensors");
  assert_message("1 follow its header");
  write_bytes(path_of("t.safetensors"), "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
  assert_status(accel_load(path_of("t.safetensors"), NULL, &out), ACCEL_ERROR_CORRUPT);
  assert_int_equal(out.kind, ACCEL_VALUE_INT);
  assert_int_equal(out.as.integer, 42);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_save_and_load, make_folder, tear_down),
      cmocka_unit_test_setup_teardown(test_map_location, make_folder, tear_down),
      cmocka_unit_test_setup_teardown(test_ties_and_metadata, make_folder, tear_down),
      cmocka_unit_test_setup_teardown(test_whose_weights, make_folder, tear_down),
      cmocka_unit_test_setup_teardown(test_weights_come_to_the_devices_of_a_map, make_folder, tear_down),
      cmocka_unit_test_setup_teardown(test_save_refuses, make_folder, tear_down),
      cmocka_unit_test_setup_teardown(test_load_refuses, make_folder, tear_down),
  };
  return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
