/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations of `accel launch`: reading, writing, explaining. */
#define _DEFAULT_SOURCE
#include "folder_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

static char path[PATH_SIZE * 2];

static int set_up(void **state) {
  if (make_folder(state) != 0) return -1;
  strcpy(path, path_of("job.yaml"));
  setenv("HF_HOME", folder, 1);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  unsetenv("ACCELERATE_MIXED_PRECISION");
  unsetenv("ACCELERATE_CONFIG_FILE");
  return 0;
}

static int remove_folder(void **state) {
  unlink(path);
  unlink(path_of("accelerate/default_config.yaml"));
  rmdir(path_of("accelerate"));
  unsetenv("HF_HOME");
  unsetenv("CUDA_VISIBLE_DEVICES");
  if (rmdir(folder) != 0) return -1;
  return assert_nothing_left(state);
}

static void write_file(const char *content) {
  FILE *const file = fopen(path, "w");
  assert_non_null(file);
  fputs(content, file);
  fclose(file);
}

static void assert_content(const char *expected) {
  char content[2048] = "";
  FILE *const file = fopen(path, "r");
  assert_non_null(file);
  content[fread(content, 1, sizeof content - 1, file)] = '\0';
  fclose(file);
  assert_string_equal(content, expected);
}

static void test_a_file_becomes_a_map_and_back(void **state) {
  (void)state;
  write_file("distributed_type: FSDP\nfp16: true\nnum_processes: 2\nfsdp_config: {fsdp_version: 2}\n");
  accel_value_t loaded;
  assert_ok(accel_config_load(path, &loaded));
  assert_int_equal(loaded.kind, ACCEL_VALUE_MAP);
  assert_int_equal(accel_value_get(&loaded, "num_processes")->as.integer, 2);
  assert_string_equal(accel_value_get(&loaded, "mixed_precision")->as.string, "fp16");
  assert_null(accel_value_get(&loaded, "fp16"));
  assert_int_equal(accel_value_get(accel_value_get(&loaded, "fsdp_config"), "fsdp_version")->as.integer, 2);
  assert_int_equal(accel_value_get(&loaded, "gpu_ids")->kind, ACCEL_VALUE_NONE);

  unlink(path);
  assert_ok(accel_config_save(&loaded, path));
  assert_content(
      "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: FSDP\ndowncast_bf16: false\n"
      "enable_cpu_affinity: false\nfsdp_config:\n  fsdp_version: 2\nmachine_rank: 0\nmain_training_function: main\n"
      "mixed_precision: fp16\nnum_machines: 1\nnum_processes: 2\nrdzv_backend: static\nsame_network: false\n"
      "tpu_use_cluster: false\ntpu_use_sudo: false\nuse_cpu: false\n");
  accel_value_dispose(&loaded);
}

static void test_what_cannot_be_read(void **state) {
  (void)state;
  accel_value_t loaded;
  assert_fails(accel_config_load(path, &loaded), ACCEL_ERROR_NOT_FOUND, "job.yaml");
  assert_fails(accel_config_load(NULL, &loaded), ACCEL_ERROR_NOT_FOUND, "accelerate/default_config.yaml");
  assert_fails(accel_config_load(folder, &loaded), ACCEL_ERROR_IO, "is not a regular file");
  write_file("distributed_type: 'NO'\nnum_proceses: 2\nzebra: 1\n");
  assert_fails(accel_config_load(path, &loaded), ACCEL_ERROR_INVALID_ARGUMENT, "the nearest is 'num_processes'");
  assert_message("'zebra' (line 3");
}

static void test_what_cannot_be_written(void **state) {
  (void)state;
  accel_value_t text = accel_arg_int(3);
  assert_fails(accel_config_save(&text, path), ACCEL_ERROR_TYPE_MISMATCH, "expected a MAP");
  accel_value_t map;
  assert_ok(accel_value_from_json("{\"distributed_type\": \"NO\", \"zebra\": 1}", &map));
  assert_fails(accel_config_save(&map, path), ACCEL_ERROR_INVALID_ARGUMENT, "'zebra'");
  accel_value_dispose(&map);
  assert_ok(accel_value_from_json("{\"distributed_type\": \"NO\"}", &map));
  assert_fails(accel_config_save(&map, ""), ACCEL_ERROR_INVALID_ARGUMENT, "has no name");
  assert_fails(accel_config_save(&map, folder), ACCEL_ERROR_IO, "is a folder");
  accel_value_dispose(&map);
}

static void test_a_basic_file_is_written_once(void **state) {
  (void)state;
  int32_t written = -1;
  assert_fails(accel_config_write_basic("fp17", path, &written), ACCEL_ERROR_INVALID_ARGUMENT,
               "mixed_precision is 'fp17'; expected one of no, fp16, bf16, fp8");
  assert_int_equal(access(path, F_OK), -1);
  assert_ok(accel_config_write_basic("BF16", path, &written));
  assert_int_equal(written, 1);
  accel_value_t loaded;
  assert_ok(accel_config_load(path, &loaded));
  assert_string_equal(accel_value_get(&loaded, "mixed_precision")->as.string, "bf16");
  assert_int_equal(accel_value_get(&loaded, "num_processes")->as.integer, 1);
  accel_value_dispose(&loaded);
  assert_ok(accel_config_write_basic("no", path, &written));
  assert_int_equal(written, 0);
  assert_ok(accel_config_write_basic("no", NULL, &written));
  assert_int_equal(written, 1);
  assert_ok(accel_config_load(NULL, &loaded));
  accel_value_dispose(&loaded);
}

static void test_an_explanation_names_sources(void **state) {
  (void)state;
  write_file("distributed_type: MULTI_CPU\nmixed_precision: fp16\nnum_processes: 2\n");
  setenv("ACCELERATE_MIXED_PRECISION", "bf16", 1);
  accel_buffer_t explanation = {0};
  assert_ok(accel_config_explain(path, &explanation));
  unsetenv("ACCELERATE_MIXED_PRECISION");
  char expected[1024];
  snprintf(expected, sizeof expected,
           "{\"name\":\"mixed_precision\",\"value\":\"bf16\",\"source\":\"ACCELERATE_MIXED_PRECISION\",\"overruled\":"
           "[{\"value\":\"fp16\",\"source\":\"%s:2\"}]}",
           path);
  assert_non_null(strstr(explanation.data, expected));
  accel_buffer_dispose(&explanation);
  assert_ok(accel_config_explain(NULL, &explanation));
  assert_non_null(strstr(explanation.data, "\"file\":null"));
  accel_buffer_dispose(&explanation);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_a_file_becomes_a_map_and_back, set_up, remove_folder),
      cmocka_unit_test_setup_teardown(test_what_cannot_be_read, set_up, remove_folder),
      cmocka_unit_test_setup_teardown(test_what_cannot_be_written, set_up, remove_folder),
      cmocka_unit_test_setup_teardown(test_a_basic_file_is_written_once, set_up, remove_folder),
      cmocka_unit_test_setup_teardown(test_an_explanation_names_sources, set_up, remove_folder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
