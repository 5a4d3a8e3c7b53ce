/* SPDX-License-Identifier: Apache-2.0 */
/* Section 12: sizes of models, ties, memories and device maps. */
#include "capi_test.h"

static accel_tensor_t *new_meta_tensor(int64_t elements, accel_dtype_t dtype) {
  accel_device_t meta;
  accel_tensor_t *tensor = NULL;
  assert_ok(accel_device_parse("meta", &meta));
  assert_ok(accel_tensor_empty(&elements, 1, dtype, &meta, &tensor));
  return tensor;
}

static void add_layer(accel_module_t *model, const char *name, int64_t elements) {
  accel_tensor_t *weight = new_meta_tensor(elements, ACCEL_DTYPE_FLOAT32);
  accel_module_t *layer = NULL;
  assert_ok(accel_module_create("Layer", &layer));
  assert_ok(accel_module_add_parameter(layer, "weight", weight, 1));
  assert_ok(accel_module_add_child(model, name, layer));
  accel_module_release(layer);
  accel_tensor_release(weight);
}

/* "embed" and "head" of 10 numbers, which are tied, and around them a block with two layers of 20 and 30; a buffer of
 * 16 truth values, which is not saved. */
static accel_module_t *new_model(void) {
  accel_module_t *model = NULL, *block = NULL;
  accel_tensor_t *mask = new_meta_tensor(16, ACCEL_DTYPE_BOOL);
  assert_ok(accel_module_create("Net", &model));
  assert_ok(accel_module_create("Block", &block));
  add_layer(model, "embed", 10);
  add_layer(block, "one", 20);
  add_layer(block, "two", 30);
  assert_ok(accel_module_add_child(model, "block", block));
  add_layer(model, "head", 10);
  assert_ok(accel_module_tie(model, "head.weight", "embed.weight"));
  assert_ok(accel_module_add_buffer(model, "mask", mask, 0));
  accel_tensor_release(mask);
  accel_module_release(block);
  return model;
}

static void test_sizes(void **unused) {
  accel_module_t *model = new_model();
  accel_device_map_options_t options = ACCEL_DEVICE_MAP_OPTIONS_INIT;
  accel_value_t out = ACCEL_VALUE_INIT, leaves = ACCEL_VALUE_INIT,
                special = from_json("{\"embed.weight\": \"float64\"}");
  (void)unused;
  assert_ok(accel_compute_module_sizes(model, NULL, 0, &out));
  assert_ok(accel_get_module_leaves(&out, &leaves));
  assert_json(&leaves, "[\"embed.weight\",\"block.one.weight\",\"block.two.weight\",\"mask\"]");
  assert_json(&out,
              "{\"\":242,\"embed\":40,\"embed.weight\":40,\"block\":200,\"block.one\":80,\"block.one.weight\":80,"
              "\"block.two\":120,\"block.two.weight\":120,\"mask\":2}");
  assert_ok(accel_compute_module_sizes(model, NULL, 1, &out));
  assert_json(&out, "{\"\":2,\"mask\":2}");
  options.dtype = "int4";
  options.special_dtypes = &special;
  options.no_split_module_classes = "Block,Other";
  assert_ok(accel_get_max_layer_size(model, &options, &out));
  assert_json(&out, "{\"size\":80,\"names\":[\"embed\"]}");
  options.special_dtypes = NULL;
  assert_ok(accel_get_max_layer_size(model, &options, &out));
  assert_json(&out, "{\"size\":25,\"names\":[\"block\"]}");
  options.dtype = "int5";
  assert_fails(accel_compute_module_sizes(model, &options, 0, &out), ACCEL_ERROR_NOT_FOUND, "int5");
  assert_fails(accel_compute_module_sizes(model, NULL, 2, &out), ACCEL_ERROR_INVALID_ARGUMENT, "buffers_only is 2");
  accel_value_dispose(&special);
  special = from_json("[1]");
  options.dtype = NULL;
  options.special_dtypes = &special;
  assert_fails(accel_compute_module_sizes(model, &options, 0, &out), ACCEL_ERROR_TYPE_MISMATCH,
               "options.special_dtypes");
  assert_fails(accel_get_module_leaves(&special, &out), ACCEL_ERROR_TYPE_MISMATCH, "sizes is a list");
  accel_value_dispose(&special);
  accel_module_release(model);
}

static void test_tensors_of_a_module(void **unused) {
  accel_module_t *model = new_model();
  accel_value_t out = ACCEL_VALUE_INIT;
  (void)unused;
  assert_ok(accel_named_module_tensors(model, 1, 0, 0, &out));
  assert_int_equal(accel_value_count(&out), 1);
  accel_value_dispose(&out);
  assert_ok(accel_named_module_tensors(model, 1, 1, 0, &out));
  assert_int_equal(accel_value_count(&out), 4);
  assert_non_null(accel_value_get(&out, "mask"));
  accel_value_dispose(&out);
  assert_ok(accel_named_module_tensors(model, 1, 1, 1, &out));
  assert_int_equal(accel_value_count(&out), 3);
  accel_value_dispose(&out);
  assert_ok(accel_named_module_tensors(model, 0, 1, 0, &out));
  assert_null(accel_value_get(&out, "mask"));
  accel_value_dispose(&out);
  assert_ok(accel_get_non_persistent_buffers(model, 0, &out));
  assert_json(&out, "[\"mask\"]");
  accel_module_release(model);
}

static void test_ties(void **unused) {
  accel_module_t *model = new_model();
  accel_value_t ties = ACCEL_VALUE_INIT, split = ACCEL_VALUE_INIT, map = from_json("{\"embed\": 0, \"\": \"cpu\"}");
  (void)unused;
  assert_ok(accel_find_tied_parameters(model, &ties));
  assert_ok(accel_check_tied_parameters_on_same_device(&ties, &map, &split));
  assert_json(&split, "[[\"embed.weight\",\"head.weight\"]]");
  assert_ok(accel_retie_parameters(model, &ties)); /* all on meta: nothing happens */
  assert_fails(accel_retie_parameters(model, &map), ACCEL_ERROR_TYPE_MISMATCH, "tied_params has a map");
  accel_value_dispose(&map);
  map = from_json("{\"embed\": 0}");
  assert_fails(accel_check_tied_parameters_on_same_device(&ties, &map, &split), ACCEL_ERROR_INVALID_ARGUMENT,
               "no place for 'head.weight'");
  assert_json(&ties, "[[\"embed.weight\",\"head.weight\"]]");
  accel_value_dispose(&map);
  accel_module_release(model);
}

static void test_memories(void **unused) {
  accel_module_t *model = new_model();
  accel_value_t memory = from_json("{\"cpu\": \"1KiB\", \"1\": \"2KB\", \"0\": 1000}"), out = ACCEL_VALUE_INIT;
  accel_device_map_options_t options = ACCEL_DEVICE_MAP_OPTIONS_INIT;
  int64_t bytes = 0;
  (void)unused;
  assert_ok(accel_get_max_memory(&memory, &out));
  assert_int_equal(accel_value_count(&out), 3);
  assert_int_equal(accel_value_key_at(&out, 0)->kind, ACCEL_VALUE_INT);
  assert_ok(accel_value_as_int(accel_value_at(&out, 1), &bytes));
  assert_int_equal(bytes, 2000);
  assert_ok(accel_value_as_int(accel_value_get(&out, "cpu"), &bytes));
  assert_int_equal(bytes, 1024);
  accel_value_dispose(&out);
  assert_ok(accel_get_max_memory(NULL, &out));
  assert_ok(accel_value_as_int(accel_value_get(&out, "cpu"), &bytes));
  assert_true(bytes > 0);
  accel_value_dispose(&out);
  /* 242 / 2, and 1.25 times the mean of the layers with their own tensors. */
  assert_ok(accel_get_balanced_memory(model, &memory, NULL, &out));
  assert_ok(accel_value_as_int(accel_value_at(&out, 0), &bytes));
  assert_int_equal(bytes, 121 + 100);
  accel_value_dispose(&out);
  options.low_zero = 1;
  assert_ok(accel_get_balanced_memory(model, &memory, &options, &out));
  assert_ok(accel_value_as_int(accel_value_at(&out, 0), &bytes));
  assert_int_equal(bytes, 0);
  accel_value_dispose(&out);
  accel_value_dispose(&memory);
  assert_ok(accel_convert_file_size_to_int("1.5GiB", &bytes));
  assert_int_equal(bytes, (int64_t)3 << 29);
  assert_fails(accel_convert_file_size_to_int("1TB", &bytes), ACCEL_ERROR_INVALID_ARGUMENT, "size '1TB'");
  memory = from_json("{\"gpu\": 1}");
  assert_fails(accel_get_max_memory(&memory, &out), ACCEL_ERROR_INVALID_ARGUMENT, "device 'gpu' is not known");
  accel_value_dispose(&memory);
  accel_module_release(model);
}

static void test_inferred_maps(void **unused) {
  accel_module_t *model = new_model();
  accel_value_t memory = from_json("{\"0\": 220, \"cpu\": 100}"), out = ACCEL_VALUE_INIT, why = ACCEL_VALUE_INIT;
  accel_device_map_options_t options = ACCEL_DEVICE_MAP_OPTIONS_INIT;
  const accel_value_t *first = NULL;
  (void)unused;
  assert_ok(accel_infer_auto_device_map(model, &memory, NULL, &out, &why));
  assert_json(&out, "{\"embed\":0,\"head\":0,\"block\":\"disk\",\"mask\":\"disk\"}");
  first = accel_value_at(accel_value_get(&why, "decisions"), 0);
  assert_non_null(first);
  assert_int_equal(accel_value_count(accel_value_get(first, "tied_with")), 1);
  assert_string_equal(accel_value_get(first, "decision")->as.string, "placed");
  assert_non_null(strstr(accel_value_get(&why, "text")->as.string, "'block' split, because it does not fit on 0"));
  accel_value_dispose(&why);
  options.optimal_packing = 1;
  assert_ok(accel_infer_auto_device_map(model, &memory, &options, &out, NULL));
  assert_json(&out, "{\"embed\":\"disk\",\"head\":\"disk\",\"block.one\":\"disk\",\"block.two\":0,\"mask\":0}");
  options.optimal_packing = ACCEL_UNSET;
  options.no_split_module_classes = "Block";
  options.clean_result = 0;
  assert_ok(accel_infer_auto_device_map(model, &memory, &options, &out, NULL));
  assert_json(&out, "{\"embed\":\"disk\",\"head\":\"disk\",\"block\":\"disk\",\"mask\":\"disk\"}");
  options.allow_disk = 0;
  assert_fails(accel_infer_auto_device_map(model, &memory, &options, &out, NULL), ACCEL_ERROR_OUT_OF_MEMORY,
               "'embed' needs 40 bytes; 0 has");
  assert_fails(accel_infer_auto_device_map(model, &memory, NULL, NULL, &why), ACCEL_ERROR_INVALID_ARGUMENT,
               "out is NULL");
  accel_value_dispose(&memory);
  assert_ok(accel_infer_auto_device_map(model, NULL, NULL, &out, NULL));
  accel_value_dispose(&out);
  accel_module_release(model);
}

static void test_maps_by_hand(void **unused) {
  accel_module_t *model = new_model();
  accel_value_t memory = from_json("{\"0\": 1000, \"1\": 1000}"), out = ACCEL_VALUE_INIT, map = from_json("\"auto\"");
  int32_t several = -1;
  (void)unused;
  assert_ok(accel_resolve_device_map(model, &map, &memory, NULL, &out));
  assert_json(&out, "{\"embed\":0,\"head\":0,\"block\":1,\"mask\":1}");
  accel_value_dispose(&map);
  map = from_json("{\"embed\": 0, \"blok\": 1}");
  assert_fails(accel_resolve_device_map(model, &map, NULL, NULL, &out), ACCEL_ERROR_NOT_FOUND,
               "'blok', which is not in the model; the most similar path is 'block'");
  assert_fails(accel_check_device_map(model, &map, &out), ACCEL_ERROR_INVALID_ARGUMENT,
               "no place for 'block.one.weight', 'block.two.weight', 'head.weight'");
  accel_value_dispose(&map);
  map = from_json("{\"embed\": 0, \"block.one\": 1, \"block.two\": 1, \"head.weight\": 0}");
  assert_ok(accel_check_device_map(model, &map, &out));
  assert_json(&out, "[\"head.weight\"]");
  assert_ok(accel_check_device_map(model, &map, NULL));
  assert_ok(accel_clean_device_map(&map, &out));
  assert_json(&out, "{\"embed\":0,\"block\":1,\"head.weight\":0}");
  accel_value_dispose(&map);
  accel_value_dispose(&memory);
  assert_ok(accel_verify_device_map(model, &several));
  assert_int_equal(several, 0);
  accel_module_release(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_sizes),    capi_unit_test(test_tensors_of_a_module), capi_unit_test(test_ties),
      capi_unit_test(test_memories), capi_unit_test(test_inferred_maps),       capi_unit_test(test_maps_by_hand),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
