/* SPDX-License-Identifier: Apache-2.0 */
/* Section 12: loading, dispatch and offload. */
#define _POSIX_C_SOURCE 200809L

#include <sys/stat.h>
#include <unistd.h>

#include "folder_fixture.h"

enum { WIDTH = 8, ROWS = 3 };

static const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};

#define big_model_test(function) cmocka_unit_test_setup_teardown(function, make_folder, remove_folder_and_files)

/* Linear layers "0", "1" and "2". */
static accel_module_t *new_model(void) {
  accel_module_t *layers[3], *model = NULL;
  for (int i = 0; i < 3; i++) assert_ok(accel_module_linear(WIDTH, WIDTH, 1, &layers[i]));
  assert_ok(accel_module_sequential(layers, 3, &model));
  for (int i = 0; i < 3; i++) accel_module_release(layers[i]);
  return model;
}

static accel_module_t *new_empty_model(void) {
  accel_scope_t *scope = NULL;
  assert_ok(accel_init_empty_weights_begin(ACCEL_UNSET, &scope));
  accel_module_t *const model = new_model();
  assert_ok(accel_scope_end(scope));
  return model;
}

/* A model whose weights are in "model.safetensors". */
static accel_module_t *saved_model(void) {
  accel_module_t *const model = new_model();
  accel_value_t weights = ACCEL_VALUE_INIT;
  assert_ok(accel_module_state_dict(model, &weights));
  assert_ok(accel_save(&weights, NULL, path_of("model.safetensors"), NULL));
  accel_value_dispose(&weights);
  return model;
}

static void parse(const char *json, accel_value_t *out) { assert_ok(accel_value_from_json(json, out)); }

static accel_value_t call(accel_module_t *model, double number) {
  const int64_t shape[] = {ROWS, WIDTH};
  accel_tensor_t *tensor = NULL;
  accel_value_t output = ACCEL_VALUE_INIT;
  assert_ok(accel_tensor_full(shape, 2, number, ACCEL_DTYPE_FLOAT32, &cpu, &tensor));
  const accel_value_t input = accel_arg_tensor(tensor);
  assert_ok(accel_module_call(model, &input, 1, &output));
  accel_tensor_release(tensor);
  return output;
}

static void assert_equal_values(const accel_value_t *a, const accel_value_t *b) {
  int32_t equal = 0;
  assert_ok(accel_value_equal(a, b, &equal));
  assert_int_equal(equal, 1);
}

static void assert_same_output(accel_module_t *model, accel_module_t *expected) {
  accel_value_t got = call(model, 0.25), wanted = call(expected, 0.25);
  assert_equal_values(&got, &wanted);
  accel_value_dispose(&got);
  accel_value_dispose(&wanted);
}

static accel_device_t device_of(accel_module_t *model, const char *name) {
  accel_tensor_t *tensor = NULL;
  assert_ok(accel_module_tensor(model, name, &tensor));
  accel_device_t device = {-1, -1};
  assert_ok(accel_tensor_device(tensor, &device));
  accel_tensor_release(tensor);
  return device;
}

static accel_dtype_t dtype_of(const accel_tensor_t *tensor) {
  accel_dtype_t dtype = 0;
  assert_ok(accel_tensor_dtype(tensor, &dtype));
  return dtype;
}

static void test_load_and_dispatch(void **state) {
  (void)state;
  accel_module_t *const model = saved_model(), *const empty = new_empty_model();
  accel_value_t map = ACCEL_VALUE_INIT, used = ACCEL_VALUE_INIT, report = ACCEL_VALUE_INIT;
  parse("{\"0\": \"cpu\", \"1\": \"disk\", \"2\": \"disk\"}", &map);
  assert_ok(accel_load_checkpoint_and_dispatch(NULL, empty, folder, &map, NULL, NULL, &used));
  assert_json(&used, "{\"0\":\"cpu\",\"1\":\"disk\",\"2\":\"disk\"}");
  assert_int_equal(device_of(empty, "0.weight").type, ACCEL_DEVICE_CPU);
  assert_int_equal(device_of(empty, "1.weight").type, ACCEL_DEVICE_META);
  assert_same_output(empty, model);
  assert_same_output(empty, model);
  assert_ok(accel_dispatch_report(empty, &report));
  assert_int_equal(accel_value_get(&report, "passes")->as.integer, 2);
  assert_int_equal(accel_value_get(&report, "offloaded_bytes")->as.integer, 2 * 4 * (WIDTH * WIDTH + WIDTH));
  accel_value_dispose(&report);

  int32_t offloaded = 0;
  accel_module_t *layer = NULL;
  assert_ok(accel_module_child(empty, "1", &layer));
  assert_ok(accel_has_offloaded_params(layer, &offloaded));
  assert_int_equal(offloaded, 1);
  accel_scope_t *scope = NULL;
  assert_ok(accel_align_module_device_begin(layer, NULL, &scope));
  assert_int_equal(device_of(empty, "1.weight").type, ACCEL_DEVICE_CPU);
  assert_ok(accel_scope_end(scope));
  assert_int_equal(device_of(empty, "1.weight").type, ACCEL_DEVICE_META);
  accel_module_release(layer);

  assert_fails(accel_module_to(empty, ACCEL_UNSET, &cpu), ACCEL_ERROR_INVALID_STATE, "offloaded weights");
  assert_ok(accel_remove_dispatch(empty, 1));
  assert_int_equal(device_of(empty, "2.bias").type, ACCEL_DEVICE_CPU);
  assert_ok(accel_dispatch_report(empty, &report));
  assert_int_equal(report.kind, ACCEL_VALUE_NONE);
  assert_same_output(empty, model);
  accel_value_dispose(&map);
  accel_value_dispose(&used);
  accel_module_release(empty);
  accel_module_release(model);
}

// Regression: `accel_align_module_device_begin()` took the device meta, and its end ended the process.
static void test_no_weights_can_be_read_on_meta(void **state) {
  (void)state;
  accel_module_t *layer = NULL;
  accel_scope_t *scope = NULL;
  assert_ok(accel_module_linear(3, 4, 1, &layer));
  assert_fails(accel_align_module_device_begin(layer, &(accel_device_t){ACCEL_DEVICE_META, -1}, &scope),
               ACCEL_ERROR_INVALID_ARGUMENT, "device is meta");
  assert_int_equal(device_of(layer, "weight").type, ACCEL_DEVICE_CPU);
  accel_module_release(layer);
}

static void test_named_maps(void **state) {
  (void)state;
  accel_module_t *const model = saved_model(), *const empty = new_empty_model();
  accel_value_t memory = ACCEL_VALUE_INIT, used = ACCEL_VALUE_INIT;
  parse("{\"cpu\": 700}", &memory);
  const accel_value_t sequential = accel_arg_string("sequential"), wrong = accel_arg_string("best");
  assert_fails(accel_load_checkpoint_and_dispatch(NULL, empty, folder, &wrong, &memory, NULL, NULL),
               ACCEL_ERROR_INVALID_ARGUMENT, "best");
  assert_ok(accel_load_checkpoint_and_dispatch(NULL, empty, folder, &sequential, &memory, NULL, &used));
  int disk = 0;
  for (size_t i = 0; i < accel_value_count(&used); i++)
    disk += strcmp(accel_value_at(&used, i)->as.string, "disk") == 0;
  assert_true(disk > 0);
  assert_same_output(empty, model);
  accel_value_dispose(&used);
  accel_value_dispose(&memory);
  accel_module_release(empty);
  accel_module_release(model);
}

static void test_loading_only(void **state) {
  (void)state;
  accel_module_t *const model = saved_model(), *const empty = new_empty_model();
  accel_value_t report = ACCEL_VALUE_INIT, map = ACCEL_VALUE_INIT;
  accel_dispatch_options_t options = ACCEL_DISPATCH_OPTIONS_INIT;
  assert_ok(accel_load_checkpoint_in_model(empty, path_of("model.safetensors"), NULL, NULL, &report));
  assert_json(&report, "{\"missing\":[],\"unexpected\":[]}");
  assert_same_output(empty, model);
  accel_value_dispose(&report);

  parse("{\"\": \"disk\"}", &map);
  assert_fails(accel_load_checkpoint_in_model(empty, folder, &map, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT,
               "offload_folder");
  char offload[PATH_SIZE * 2];
  snprintf(offload, sizeof offload, "%s/offload", folder);
  options.offload_folder = offload;
  assert_ok(accel_load_checkpoint_in_model(empty, folder, &map, &options, NULL));
  assert_int_equal(device_of(empty, "0.weight").type, ACCEL_DEVICE_META);
  assert_ok(accel_dispatch_model(empty, &map, NULL, &options));
  assert_same_output(empty, model);
  assert_fails(accel_dispatch_model(empty, &map, NULL, &options), ACCEL_ERROR_INVALID_STATE, "dispatched already");
  assert_fails(accel_load_checkpoint_in_model(model, path_of("no.safetensors"), NULL, NULL, NULL),
               ACCEL_ERROR_NOT_FOUND, "no.safetensors");
  options.broadcast_from_rank0 = 1;
  assert_fails(accel_load_checkpoint_and_dispatch(NULL, model, folder, &map, NULL, &options, NULL),
               ACCEL_ERROR_INVALID_ARGUMENT, "state is NULL");
  assert_fails(accel_load_checkpoint_in_model(model, folder, &map, &options, NULL), ACCEL_ERROR_INVALID_ARGUMENT,
               "options.state is NULL");
  accel_value_dispose(&map);
  accel_module_release(empty);
  accel_module_release(model);
}

/* As torch does without a map. */
// Regression: `strict` said nothing of weights that the checkpoint lacks.
static void test_strict_asks_for_all_names(void **state) {
  (void)state;
  accel_module_t *const model = saved_model(), *const other = new_model();
  accel_value_t weights = ACCEL_VALUE_INIT, part = ACCEL_VALUE_INIT, report = ACCEL_VALUE_INIT, map = ACCEL_VALUE_INIT;
  accel_dispatch_options_t options = ACCEL_DISPATCH_OPTIONS_INIT;
  options.strict = 1;
  assert_ok(accel_load_checkpoint_in_model(other, folder, NULL, &options, &report));
  accel_value_dispose(&report);
  assert_ok(accel_module_state_dict(model, &weights));
  assert_ok(accel_extract_submodules_state_dict(&weights, "0,2", &part));
  assert_ok(accel_save(&part, NULL, path_of("model.safetensors"), NULL));
  parse("{\"\": \"cpu\"}", &map);
  assert_fails(accel_load_checkpoint_in_model(other, folder, NULL, &options, NULL), ACCEL_ERROR_NOT_FOUND,
               "lacks '1.weight', '1.bias', which the model has");
  assert_fails(accel_load_checkpoint_and_dispatch(NULL, other, folder, &map, NULL, &options, NULL),
               ACCEL_ERROR_NOT_FOUND, "lacks '1.weight'");
  options.strict = 0;
  assert_ok(accel_load_checkpoint_in_model(other, folder, &map, &options, &report));
  assert_json(&report, "{\"missing\":[\"1.weight\",\"1.bias\"],\"unexpected\":[]}");
  accel_value_dispose(&report);
  accel_value_dispose(&map);
  accel_value_dispose(&part);
  accel_value_dispose(&weights);
  accel_module_release(other);
  accel_module_release(model);
}

/* The ranks of a state get the weights of rank 0, which is alone here; several are in the tests of the engine. */
// Regression: `accel_load_checkpoint_in_model()` with `broadcast_from_rank0` always failed, and Python dropped the
// setting.
static void test_rank_0_sends_the_weights(void **unused) {
  (void)unused;
  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  accel_dispatch_options_t options = ACCEL_DISPATCH_OPTIONS_INIT;
  accel_state_t *state = NULL, *other = NULL;
  accel_value_t map = ACCEL_VALUE_INIT, opened = ACCEL_VALUE_INIT;
  char offload[PATH_SIZE * 2];
  accel_module_t *const model = saved_model(), *empty = new_empty_model();
  snprintf(offload, sizeof offload, "%s/offload", folder);
  settings.cpu = 1;
  assert_ok(accel_state_create(&settings, &state));
  assert_ok(accel_state_create(&settings, &other));
  options.broadcast_from_rank0 = 1;
  options.state = state;
  assert_ok(accel_load_checkpoint_in_model(empty, folder, NULL, &options, NULL));
  assert_same_output(empty, model);
  accel_module_release(empty);
  assert_fails(accel_load_checkpoint_in_model(model, path_of("no.safetensors"), NULL, &options, NULL),
               ACCEL_ERROR_NOT_FOUND, "no.safetensors");

  /* With a map they are written, since other ranks may not see the checkpoint. */
  parse("{\"0\": \"cpu\", \"1\": \"disk\", \"2\": \"disk\"}", &map);
  empty = new_empty_model();
  options.offload_folder = offload;
  assert_ok(accel_load_checkpoint_in_model(empty, folder, &map, &options, NULL));
  unlink(path_of("model.safetensors"));
  assert_ok(accel_offloaded_weights(offload, NULL, &opened));
  assert_int_equal(accel_value_count(&opened), 4);
  assert_ok(accel_dispatch_model(empty, &map, NULL, &options));
  assert_same_output(empty, model);
  accel_value_dispose(&opened);
  accel_module_release(empty);

  /* The state is said once. */
  empty = saved_model();
  assert_fails(accel_load_checkpoint_and_dispatch(other, empty, folder, &map, NULL, &options, NULL),
               ACCEL_ERROR_INVALID_ARGUMENT, "state and options.state are two states");
  assert_ok(accel_load_checkpoint_and_dispatch(NULL, empty, folder, &map, NULL, &options, NULL));
  assert_int_equal(device_of(empty, "1.weight").type, ACCEL_DEVICE_META);
  accel_value_dispose(&map);
  accel_module_release(empty);
  accel_module_release(model);
  accel_state_release(other);
  accel_state_release(state);
}

static void test_offload_of_whole_models(void **state) {
  (void)state;
  accel_module_t *const model = saved_model(), *const offloaded = new_empty_model();
  accel_value_t weights = ACCEL_VALUE_INIT, opened = ACCEL_VALUE_INIT, part = ACCEL_VALUE_INIT;
  char offload[PATH_SIZE * 2];
  snprintf(offload, sizeof offload, "%s/offload", folder);
  assert_fails(accel_disk_offload(offloaded, offload, &cpu, NULL), ACCEL_ERROR_NOT_FOUND, "meta tensors");
  assert_ok(accel_module_state_dict(model, &weights));
  assert_ok(accel_offload_state_dict(offload, &weights));
  assert_ok(accel_offloaded_weights(offload, NULL, &opened));
  assert_equal_values(&opened, &weights);
  assert_ok(accel_extract_submodules_state_dict(&opened, "1", &part));
  assert_int_equal(accel_value_count(&part), 2);
  assert_non_null(accel_value_get(&part, "1.bias"));
  accel_tensor_t *const tensors[] = {accel_value_get(&part, "1.bias")->as.tensor};
  assert_ok(accel_read_ahead(tensors, 1));
  assert_ok(accel_disk_offload(offloaded, offload, &cpu, NULL));
  assert_int_equal(device_of(offloaded, "1.weight").type, ACCEL_DEVICE_META);
  assert_same_output(offloaded, model);
  accel_value_dispose(&part);
  accel_value_dispose(&opened);
  accel_value_dispose(&weights);
  accel_module_release(offloaded);
  accel_module_release(model);
}

/* Where there is no accelerator the CPU stands for one. */
// Regression: `accel_cpu_offload()` had no state dict, and needed a device.
static void test_offload_with_a_state_dict(void **state) {
  (void)state;
  accel_module_t *const model = saved_model(), *const empty = new_empty_model(), *const other = new_model();
  accel_value_t weights = ACCEL_VALUE_INIT, part = ACCEL_VALUE_INIT;
  char offload[PATH_SIZE * 2];
  snprintf(offload, sizeof offload, "%s/offload", folder);
  assert_ok(accel_module_state_dict(model, &weights));
  assert_ok(accel_extract_submodules_state_dict(&weights, "0,1", &part));
  assert_fails(accel_cpu_offload(empty, NULL, &weights, NULL), ACCEL_ERROR_INVALID_ARGUMENT,
               "device is NULL and '0.weight' is a meta tensor");
  assert_fails(accel_disk_offload(empty, offload, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "device is NULL");
  assert_fails(accel_cpu_offload(empty, &cpu, &part, NULL), ACCEL_ERROR_NOT_FOUND, "lacks '2.weight', '2.bias'");
  assert_ok(accel_cpu_offload(empty, &cpu, &weights, NULL));
  assert_same_output(empty, model);
  assert_ok(accel_cpu_offload(other, NULL, &weights, NULL)); /* weights that are there are replaced */
  assert_same_output(other, model);
  assert_ok(accel_cpu_offload(other, NULL, NULL, NULL));
  assert_ok(accel_disk_offload(other, offload, NULL, NULL));
  assert_int_equal(device_of(other, "1.weight").type, ACCEL_DEVICE_META);
  assert_same_output(other, model);
  accel_value_dispose(&part);
  accel_value_dispose(&weights);
  accel_module_release(other);
  accel_module_release(empty);
  accel_module_release(model);
}

/* In memory first, then in the files that an index names, which may be in no folder. */
// Regression: `accel_offloaded_weights()` took a folder and nothing else.
static void test_weights_of_several_places(void **state) {
  (void)state;
  accel_module_t *const model = saved_model();
  accel_value_t weights = ACCEL_VALUE_INIT, first = ACCEL_VALUE_INIT, opened = ACCEL_VALUE_INIT;
  accel_offloaded_weights_options_t options = ACCEL_OFFLOADED_WEIGHTS_OPTIONS_INIT;
  char offload[PATH_SIZE * 2], index[PATH_SIZE * 4];
  snprintf(offload, sizeof offload, "%s/offload", folder);
  snprintf(index, sizeof index,
           "{\"1.half\":{\"safetensors_file\":\"%s\",\"weight_name\":\"1.weight\",\"dtype\":\"float16\"}}",
           path_of("model.safetensors"));
  assert_ok(accel_module_state_dict(model, &weights));
  assert_ok(accel_offload_state_dict(offload, &weights));
  assert_ok(accel_extract_submodules_state_dict(&weights, "0", &first));
  assert_fails(accel_offloaded_weights(NULL, NULL, &opened), ACCEL_ERROR_INVALID_ARGUMENT, "expected one of the three");
  assert_fails(accel_offloaded_weights(NULL, &options, &opened), ACCEL_ERROR_INVALID_ARGUMENT, "folder is NULL");

  options.state_dict = &first;
  assert_ok(accel_offloaded_weights(NULL, &options, &opened));
  assert_equal_values(&opened, &first);
  accel_value_dispose(&opened);
  assert_ok(accel_offloaded_weights(offload, &options, &opened));
  assert_int_equal(accel_value_count(&opened), 6);
  void *in_memory = NULL, *found = NULL;
  assert_ok(accel_tensor_data(accel_value_get(&first, "0.weight")->as.tensor, &in_memory));
  assert_ok(accel_tensor_data(accel_value_get(&opened, "0.weight")->as.tensor, &found));
  assert_ptr_equal(found, in_memory);
  accel_value_dispose(&opened);

  options.index = index;
  options.device = "cpu";
  assert_ok(accel_offloaded_weights(NULL, &options, &opened));
  assert_int_equal(accel_value_count(&opened), 3);
  assert_int_equal(dtype_of(accel_value_get(&opened, "1.half")->as.tensor), ACCEL_DTYPE_FLOAT16);
  accel_value_dispose(&opened);
  options.prefix = "1.";
  assert_ok(accel_offloaded_weights(NULL, &options, &opened));
  assert_int_equal(accel_value_count(&opened), 1);
  assert_non_null(accel_value_get(&opened, "half"));
  accel_value_dispose(&opened);
  options.index = NULL;
  assert_ok(accel_offloaded_weights(offload, &options, &opened));
  assert_int_equal(accel_value_count(&opened), 2);
  assert_non_null(accel_value_get(&opened, "weight"));
  accel_value_dispose(&opened);

  options.index = "{\"1.weight\":{\"dtype\":\"float32\",\"shape\":[8,8]}}";
  assert_fails(accel_offloaded_weights(NULL, &options, &opened), ACCEL_ERROR_INVALID_ARGUMENT,
               "'1.weight' has no safetensors_file");
  options.index = "[]";
  assert_fails(accel_offloaded_weights(NULL, &options, &opened), ACCEL_ERROR_CORRUPT, "not a JSON object");
  options.index = NULL;
  options.device = "disk";
  assert_fails(accel_offloaded_weights(offload, &options, &opened), ACCEL_ERROR_INVALID_ARGUMENT, "device is 'disk'");
  accel_value_dispose(&first);
  accel_value_dispose(&weights);
  accel_module_release(model);
}

static void test_weights_on_disk_leave_the_memory(void **state) {
  (void)state;
  accel_module_t *const model = new_model(), *const other = new_model();
  accel_value_t map = ACCEL_VALUE_INIT, opened = ACCEL_VALUE_INIT, expected = call(model, 0.25);
  accel_dispatch_options_t options = ACCEL_DISPATCH_OPTIONS_INIT;
  char offload[PATH_SIZE * 2];
  snprintf(offload, sizeof offload, "%s/offload", folder);
  parse("{\"0\": \"cpu\", \"1\": \"disk\", \"2\": \"cpu\"}", &map);
  assert_fails(accel_dispatch_model(model, &map, NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "offload_folder");
  assert_int_equal(device_of(model, "1.weight").type, ACCEL_DEVICE_CPU);
  options.offload_folder = offload;
  assert_ok(accel_dispatch_model(model, &map, NULL, &options));
  assert_int_equal(device_of(model, "1.weight").type, ACCEL_DEVICE_META);
  assert_ok(accel_offloaded_weights(offload, NULL, &opened));
  assert_int_equal(accel_value_count(&opened), 2);
  accel_value_t got = call(model, 0.25);
  assert_equal_values(&got, &expected);
  accel_value_dispose(&got);
  accel_value_dispose(&opened);

  /* The index has one of the three layers. */
  assert_ok(accel_disk_offload(other, offload, &cpu, NULL));
  assert_ok(accel_offloaded_weights(offload, NULL, &opened));
  assert_int_equal(accel_value_count(&opened), 6);
  accel_value_dispose(&opened);
  accel_value_dispose(&expected);
  accel_value_dispose(&map);
  accel_module_release(other);
  accel_module_release(model);
}

static void test_batches_share_a_pass(void **state) {
  (void)state;
  enum { BATCHES = 3 };
  const int64_t shape[] = {ROWS, WIDTH};
  accel_module_t *const model = saved_model(), *const empty = new_empty_model();
  accel_value_t map = ACCEL_VALUE_INIT, batches[BATCHES], outputs = ACCEL_VALUE_INIT;
  parse("{\"\": \"disk\"}", &map);
  assert_ok(accel_load_checkpoint_and_dispatch(NULL, empty, folder, &map, NULL, NULL, NULL));
  for (int i = 0; i < BATCHES; i++) {
    accel_tensor_t *tensor = NULL;
    assert_ok(accel_tensor_full(shape, 2, i, ACCEL_DTYPE_FLOAT32, &cpu, &tensor));
    const accel_value_t input = accel_arg_tensor(tensor);
    assert_ok(accel_value_list(&input, 1, &batches[i]));
    accel_tensor_release(tensor);
  }
  assert_ok(accel_module_call_batches(empty, batches, BATCHES, &outputs));
  assert_int_equal(accel_value_count(&outputs), BATCHES);
  for (int i = 0; i < BATCHES; i++) {
    accel_value_t wanted = call(model, i);
    assert_equal_values(accel_value_at(&outputs, (size_t)i), &wanted);
    accel_value_dispose(&wanted);
    accel_value_dispose(&batches[i]);
  }
  batches[0] = accel_arg_int(1);
  assert_fails(accel_module_call_batches(empty, batches, 1, &outputs), ACCEL_ERROR_TYPE_MISMATCH, "inputs[0]");
  accel_value_dispose(&outputs);
  accel_value_dispose(&map);
  accel_module_release(empty);
  accel_module_release(model);
}

static void test_single_tensors_and_casting(void **state) {
  (void)state;
  const int64_t shape[] = {WIDTH};
  accel_module_t *const empty = new_empty_model(), *const model = new_model();
  accel_tensor_t *value = NULL, *weight = NULL;
  assert_ok(accel_tensor_full(shape, 1, 2, ACCEL_DTYPE_FLOAT32, &cpu, &value));
  assert_fails(accel_set_module_tensor_to_device(empty, "0.bias", &cpu, NULL, ACCEL_UNSET),
               ACCEL_ERROR_INVALID_ARGUMENT, "meta tensor");
  assert_fails(accel_set_module_tensor_to_device(empty, "0.weight", &cpu, value, ACCEL_UNSET),
               ACCEL_ERROR_SHAPE_MISMATCH, "'0.weight'");
  assert_ok(accel_set_module_tensor_to_device(empty, "0.bias", &cpu, value, ACCEL_DTYPE_BFLOAT16));
  assert_int_equal(device_of(empty, "0.bias").type, ACCEL_DEVICE_CPU);
  accel_tensor_release(value);
  /* As load_state_dict() does. */
  assert_ok(accel_tensor_full(shape, 1, 2, ACCEL_DTYPE_INT64, &cpu, &value));
  assert_ok(accel_set_module_tensor_to_device(empty, "1.bias", &cpu, value, ACCEL_UNSET));
  assert_ok(accel_module_tensor(empty, "1.bias", &weight));
  assert_int_equal(dtype_of(weight), ACCEL_DTYPE_FLOAT32);
  accel_tensor_release(weight);
  accel_tensor_release(value);

  assert_fails(accel_attach_layerwise_casting(model, ACCEL_DTYPE_FLOAT16, ACCEL_DTYPE_FLOAT32, "(", NULL),
               ACCEL_ERROR_INVALID_ARGUMENT, "regular expression");
  assert_ok(accel_attach_layerwise_casting(model, ACCEL_DTYPE_FLOAT16, ACCEL_DTYPE_FLOAT32, "^1$", NULL));
  assert_ok(accel_module_tensor(model, "0.weight", &weight));
  assert_int_equal(dtype_of(weight), ACCEL_DTYPE_FLOAT16);
  accel_tensor_release(weight);
  assert_ok(accel_module_tensor(model, "1.weight", &weight));
  assert_int_equal(dtype_of(weight), ACCEL_DTYPE_FLOAT32);
  accel_tensor_release(weight);
  accel_value_t output = call(model, 1);
  assert_int_equal(dtype_of(output.as.tensor), ACCEL_DTYPE_FLOAT32);
  accel_value_dispose(&output);
  accel_module_release(model);
  accel_module_release(empty);
}

/* On the CPU, groups are used where they are. */
static void test_weight_stream(void **state) {
  (void)state;
  enum { GROUPS = 3 };
  accel_value_t items[GROUPS], groups = ACCEL_VALUE_INIT, tensors = ACCEL_VALUE_INIT;
  accel_weight_stream_t *stream = NULL;
  for (int i = 0; i < GROUPS; i++) {
    const int64_t shape[] = {2 + i};
    accel_tensor_t *tensor = NULL;
    assert_ok(accel_tensor_full(shape, 1, i, ACCEL_DTYPE_FLOAT32, &cpu, &tensor));
    const accel_value_t item = accel_arg_tensor(tensor);
    assert_ok(accel_value_list(&item, 1, &items[i]));
    accel_tensor_release(tensor);
  }
  assert_ok(accel_value_list(items, GROUPS, &groups));
  assert_fails(accel_weight_stream_create(&groups, &cpu, -2, &stream), ACCEL_ERROR_INVALID_ARGUMENT, "prefetch_bytes");
  assert_fails(accel_weight_stream_create(&items[0], &cpu, 0, &stream), ACCEL_ERROR_TYPE_MISMATCH, "groups[0]");
  assert_ok(accel_weight_stream_create(&groups, &cpu, ACCEL_UNSET_INT64, &stream));
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < GROUPS; i++) {
      assert_ok(accel_weight_stream_begin_use(stream, i, &tensors));
      assert_equal_values(&tensors, &items[i]);
      accel_value_dispose(&tensors);
      assert_ok(accel_weight_stream_end_use(stream, i));
    }
    assert_ok(accel_weight_stream_end_pass(stream));
  }
  assert_fails(accel_weight_stream_end_use(stream, 1), ACCEL_ERROR_INVALID_STATE, "group 1 is not in use");
  assert_fails(accel_weight_stream_begin_use(stream, GROUPS, &tensors), ACCEL_ERROR_INVALID_ARGUMENT, "group is 3");
  accel_weight_stream_release(stream);
  accel_value_dispose(&groups);
  for (int i = 0; i < GROUPS; i++) accel_value_dispose(&items[i]);
}

/* Where there is no accelerator the CPU stands for one. */
static void test_chain(void **state) {
  (void)state;
  accel_module_t *const first = new_model(), *const second = new_model();
  accel_offload_hook_t *first_hook = NULL, *second_hook = NULL;
  assert_ok(accel_cpu_offload_with_hook(first, &cpu, NULL, &first_hook));
  assert_ok(accel_cpu_offload_with_hook(second, &cpu, first_hook, &second_hook));
  accel_value_t output = call(second, 1);
  accel_value_dispose(&output);
  assert_ok(accel_offload_hook_offload(second_hook));
  assert_ok(accel_offload_hook_remove(second_hook));
  accel_offload_hook_release(first_hook);
  accel_offload_hook_release(second_hook);
  accel_offload_hook_release(NULL);
  accel_module_release(first);
  accel_module_release(second);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      big_model_test(test_load_and_dispatch),
      big_model_test(test_no_weights_can_be_read_on_meta),
      big_model_test(test_named_maps),
      big_model_test(test_loading_only),
      big_model_test(test_strict_asks_for_all_names),
      big_model_test(test_rank_0_sends_the_weights),
      big_model_test(test_offload_of_whole_models),
      big_model_test(test_offload_with_a_state_dict),
      big_model_test(test_weights_of_several_places),
      big_model_test(test_weights_on_disk_leave_the_memory),
      big_model_test(test_batches_share_a_pass),
      big_model_test(test_single_tensors_and_casting),
      big_model_test(test_weight_stream),
      big_model_test(test_chain),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
