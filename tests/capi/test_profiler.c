/* SPDX-License-Identifier: Apache-2.0 */
/* Section 14: the profiler. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capi_test.h"

enum { WIDTH = 8, ROWS = 4 };

/* A state and a model in a folder of their own. */
struct setting {
  char folder[64];
  accel_state_t *state;
  accel_module_t *model;
  accel_tensor_t *input;
};

static int set_up(void **state) {
  struct setting *const setting = calloc(1, sizeof(*setting));
  const int64_t shape[] = {ROWS, WIDTH};
  strcpy(setting->folder, "/tmp/accel-profiler-XXXXXX");
  if (mkdtemp(setting->folder) == NULL) return -1;
  setting->state = new_state();
  assert_ok(accel_module_linear(WIDTH, WIDTH, 1, &setting->model));
  assert_ok(
      accel_tensor_full(shape, 2, 1, ACCEL_DTYPE_FLOAT32, &(accel_device_t){ACCEL_DEVICE_CPU, -1}, &setting->input));
  *state = setting;
  return 0;
}

static int tear_down(void **state) {
  struct setting *const setting = *state;
  char command[96];
  accel_tensor_release(setting->input);
  accel_module_release(setting->model);
  accel_state_release(setting->state);
  snprintf(command, sizeof command, "rm -rf %s", setting->folder);
  if (system(command) != 0) return -1;
  free(setting);
  return assert_nothing_left(state);
}

static void compute(const struct setting *setting) {
  const accel_value_t argument = accel_arg_tensor(setting->input);
  accel_value_t output = ACCEL_VALUE_INIT;
  assert_ok(accel_module_call(setting->model, &argument, 1, &output));
  accel_value_dispose(&output);
}

static accel_profile_t *begin(const struct setting *setting, const accel_profile_options_t *options) {
  accel_profile_t *profile = NULL;
  assert_ok(accel_profile_begin(setting->state, options, NULL, NULL, NULL, &profile));
  return profile;
}

static char *content_of(const char *path) {
  FILE *const file = fopen(path, "rb");
  char *content = NULL;
  long size = 0;
  assert_non_null(file);
  assert_int_equal(fseek(file, 0, SEEK_END), 0);
  size = ftell(file);
  rewind(file);
  content = calloc(1, (size_t)size + 1);
  assert_int_equal(fread(content, 1, (size_t)size, file), (size_t)size);
  fclose(file);
  return content;
}

static const accel_value_t *entry_named(const accel_value_t *list, const char *name) {
  size_t i;
  for (i = 0; i < accel_value_count(list); i++) {
    const accel_value_t *const entry = accel_value_at(list, i);
    if (strcmp(accel_value_get(entry, "name")->as.string, name) == 0) return entry;
  }
  return NULL;
}

static void what_is_recorded_is_written(void **state) {
  const struct setting *const setting = *state;
  accel_profile_options_t options = ACCEL_PROFILE_OPTIONS_INIT;
  accel_profile_t *profile = NULL;
  accel_scope_t *scope = NULL;
  accel_value_t averages = ACCEL_VALUE_INIT;
  accel_buffer_t table = ACCEL_BUFFER_INIT;
  const accel_value_t *entry = NULL;
  char path[128];
  char *trace = NULL;
  struct stat status;
  options.output_trace_dir = setting->folder;
  options.record_shapes = 1;
  options.with_flops = 1;
  options.with_modules = 1;
  profile = begin(setting, &options);
  assert_ok(accel_span_begin("my own \"span\"", &scope));
  compute(setting);
  assert_ok(accel_scope_end(scope));
  assert_ok(accel_wait_for_everyone(setting->state));
  assert_fails(accel_profile_export_trace(profile, "x.json"), ACCEL_ERROR_INVALID_STATE, "recorded nothing yet");
  assert_ok(accel_profile_step(profile));
  assert_int_equal(accel_profile_step_number(profile), 1);
  assert_ok(accel_profile_end(profile));
  assert_ok(accel_profile_end(profile));
  assert_fails(accel_profile_step(profile), ACCEL_ERROR_INVALID_STATE, "has ended");

  snprintf(path, sizeof path, "%s/profile_0.json", setting->folder);
  trace = content_of(path);
  assert_non_null(strstr(trace, "\"aten::linear\""));
  assert_non_null(strstr(trace, "\"my own \\\"span\\\"\""));
  assert_non_null(strstr(trace, "\"kind\":\"module\""));
  assert_non_null(strstr(trace, "\"kind\":\"collective\""));
  assert_non_null(strstr(trace, "\"accel\":{\"rank\":0,\"world_size\":1,"));
  free(trace);

  snprintf(path, sizeof path, "%s/again.json.gz", setting->folder);
  assert_ok(accel_profile_export_trace(profile, path));
  trace = content_of(path);
  assert_memory_equal(trace, "\x1f\x8b", 2);
  free(trace);
  snprintf(path, sizeof path, "%s/profile_0.json/x.json", setting->folder);
  assert_status(accel_profile_export_trace(profile, path), ACCEL_ERROR_IO);
  snprintf(path, sizeof path, "%s/new/profile_0.json", setting->folder);
  assert_ok(accel_profile_export_trace(profile, path));
  assert_int_equal(stat(path, &status), 0);

  assert_ok(accel_profile_key_averages(profile, 1, &averages));
  entry = entry_named(&averages, "aten::addmm");
  assert_non_null(entry);
  assert_int_equal(accel_value_get(entry, "count")->as.integer, 1);
  assert_int_equal(accel_value_get(entry, "flops")->as.integer, 2 * ROWS * WIDTH * WIDTH);
  assert_true(accel_value_get(entry, "self_cpu_us")->as.number > 0);
  assert_true(accel_value_get(entry, "self_cpu_us")->as.number <= accel_value_get(entry, "cpu_us")->as.number);
  assert_int_equal(accel_value_count(accel_value_get(entry, "shapes")), 5);
  entry = entry_named(&averages, "my own \"span\"");
  assert_non_null(entry);
  assert_string_equal(accel_value_get(entry, "kind")->as.string, "program");
  assert_true(accel_value_get(entry, "cpu_us")->as.number > 0);
  assert_ok(accel_profile_table(&averages, "count", 3, &table));
  assert_non_null(strstr(table.data, "Self CPU"));
  accel_buffer_dispose(&table);
  assert_fails(accel_profile_table(&averages, "size", 3, &table), ACCEL_ERROR_INVALID_ARGUMENT, "self_cpu_us, cpu_us");
  assert_fails(accel_profile_table(&averages, "count", -1, &table), ACCEL_ERROR_INVALID_ARGUMENT, "row_limit is -1");
  entry = accel_value_get(entry, "count");
  assert_status(accel_profile_table(entry, "count", 1, &table), ACCEL_ERROR_TYPE_MISMATCH);
  accel_value_dispose(&averages);
  accel_profile_release(profile);
}

struct cycles {
  int32_t count;
  int64_t steps[8];
  int32_t destroyed;
  accel_status_t status;
};

static accel_status_t note_cycle(accel_profile_t *profile, void *user_data) {
  struct cycles *const cycles = user_data;
  accel_value_t averages = ACCEL_VALUE_INIT;
  if (accel_profile_key_averages(profile, 0, &averages) != ACCEL_OK) return ACCEL_ERROR_INTERNAL;
  accel_value_dispose(&averages);
  cycles->steps[cycles->count++] = accel_profile_step_number(profile);
  return cycles->status;
}

static void note_end(void *user_data) { ((struct cycles *)user_data)->destroyed++; }

static void cycles_follow_the_schedule(void **state) {
  const struct setting *const setting = *state;
  accel_profile_options_t options = ACCEL_PROFILE_OPTIONS_INIT;
  accel_profile_t *profile = NULL;
  struct cycles cycles = {0, {0}, 0, ACCEL_OK};
  accel_profile_action_t action = ACCEL_PROFILE_NONE;
  const accel_profile_action_t expected[] = {
      ACCEL_PROFILE_NONE, ACCEL_PROFILE_NONE, ACCEL_PROFILE_WARMUP, ACCEL_PROFILE_RECORD, ACCEL_PROFILE_RECORD_AND_SAVE,
      ACCEL_PROFILE_NONE};
  int i;
  options.skip_first = 1;
  options.wait = 1;
  options.warmup = 1;
  options.active = 2;
  for (i = 0; i < 6; i++) {
    assert_ok(accel_profile_schedule(&options, i, &action));
    assert_int_equal(action, expected[i]);
  }
  assert_fails(accel_profile_schedule(&options, -1, &action), ACCEL_ERROR_INVALID_ARGUMENT, "step is -1");
  assert_ok(accel_profile_begin(setting->state, &options, note_cycle, &cycles, note_end, &profile));
  for (i = 0; i < 8; i++) {
    compute(setting);
    assert_ok(accel_profile_step(profile));
  }
  assert_int_equal(cycles.count, 1);
  assert_ok(accel_profile_end(profile)); /* in the second cycle's first recorded step */
  assert_int_equal(cycles.count, 2);
  assert_int_equal(cycles.steps[0], 5);
  assert_int_equal(cycles.steps[1], 8);
  accel_profile_release(profile);
  assert_int_equal(cycles.destroyed, 1);

  cycles.count = 0;
  cycles.status = ACCEL_ERROR_CANCELLED;
  options.skip_first = options.wait = options.warmup = 0;
  options.active = 1;
  assert_ok(accel_profile_begin(setting->state, &options, note_cycle, &cycles, note_end, &profile));
  assert_status(accel_profile_step(profile), ACCEL_ERROR_CANCELLED);
  assert_int_equal(accel_profile_step_number(profile), 1);
  accel_profile_release(profile);
  options.active = 0;
  assert_fails(accel_profile_schedule(&options, 0, &action), ACCEL_ERROR_INVALID_ARGUMENT, "active");
  assert_ok(accel_options_init(ACCEL_OPTIONS_PROFILE, &options, sizeof options));
  assert_fails(accel_profile_schedule(&options, 0, &action), ACCEL_ERROR_INVALID_ARGUMENT, "active is unset");
}

static void memory_is_a_line(void **state) {
  const struct setting *const setting = *state;
  accel_profile_options_t options = ACCEL_PROFILE_OPTIONS_INIT;
  const int64_t shape[] = {1000};
  accel_profile_t *profile = NULL;
  accel_tensor_t *tensor = NULL;
  accel_value_t timeline = ACCEL_VALUE_INIT;
  int64_t total = 0;
  size_t i;
  profile = begin(setting, NULL);
  assert_ok(accel_profile_end(profile));
  assert_fails(accel_profile_memory_timeline(profile, &timeline), ACCEL_ERROR_INVALID_STATE, "set profile_memory");
  assert_fails(accel_profile_key_averages(profile, 1, &timeline), ACCEL_ERROR_INVALID_STATE, "set record_shapes");
  assert_fails(accel_profile_key_averages(profile, 2, &timeline), ACCEL_ERROR_INVALID_ARGUMENT, "group_by_shapes is 2");
  accel_profile_release(profile);
  options.profile_memory = 1;
  profile = begin(setting, &options);
  assert_ok(accel_tensor_full(shape, 1, 1, ACCEL_DTYPE_FLOAT32, &(accel_device_t){ACCEL_DEVICE_CPU, -1}, &tensor));
  accel_tensor_release(tensor);
  assert_ok(accel_profile_end(profile));
  assert_ok(accel_profile_memory_timeline(profile, &timeline));
  assert_true(accel_value_count(&timeline) >= 2);
  for (i = 0; i < accel_value_count(&timeline); i++) {
    const accel_value_t *const change = accel_value_at(&timeline, i);
    total += accel_value_get(change, "bytes")->as.integer;
    assert_int_equal(accel_value_get(change, "total")->as.integer, total);
    assert_string_equal(accel_value_get(change, "device")->as.string, "cpu");
    assert_true(accel_value_get(change, "time_us")->as.number >= -1000);
    if (i == 0) assert_int_equal(total, 4000);
  }
  assert_int_equal(total, 0);
  accel_value_dispose(&timeline);
  accel_profile_release(profile);
}

static void *call_elsewhere(void *data) {
  accel_profile_t *const profile = data;
  assert_fails(accel_profile_step(profile), ACCEL_ERROR_INVALID_STATE, "another thread");
  assert_fails(accel_profile_end(profile), ACCEL_ERROR_INVALID_STATE, "another thread");
  return NULL;
}

static void *release_elsewhere(void *data) {
  accel_profile_release(data);
  return NULL;
}

static void on_another_thread(void *(*body)(void *), accel_profile_t *profile) {
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, body, profile), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
}

static void wrong_calls_are_refused(void **state) {
  const struct setting *const setting = *state;
  accel_profile_options_t options = ACCEL_PROFILE_OPTIONS_INIT;
  accel_profile_t *profile = NULL, *second = NULL;
  char path[128];
  FILE *file = NULL;
  options.activities = "cpu, tensor cores";
  assert_fails(accel_profile_begin(setting->state, &options, NULL, NULL, NULL, &profile), ACCEL_ERROR_INVALID_ARGUMENT,
               "activities has 'tensor cores'; expected some of cpu, ");
  options.activities = "cpu,xpu";
  assert_status(accel_profile_begin(setting->state, &options, NULL, NULL, NULL, &profile), ACCEL_ERROR_UNSUPPORTED);
  options.activities = "cpu";
  snprintf(path, sizeof path, "%s/file", setting->folder);
  file = fopen(path, "w");
  assert_non_null(file);
  fclose(file);
  options.output_trace_dir = path;
  assert_status(accel_profile_begin(setting->state, &options, NULL, NULL, NULL, &profile), ACCEL_ERROR_IO);
  options.output_trace_dir = NULL;
  options.wait = -1;
  assert_fails(accel_profile_begin(setting->state, &options, NULL, NULL, NULL, &profile), ACCEL_ERROR_INVALID_ARGUMENT,
               "wait is -1");
  options.wait = 0;
  assert_null(profile);
  profile = begin(setting, &options);
  assert_fails(accel_profile_begin(setting->state, &options, NULL, NULL, NULL, &second), ACCEL_ERROR_INVALID_STATE,
               "a profiler records in this process already");
  on_another_thread(call_elsewhere, profile);
  accel_profile_release(accel_profile_retain(profile));
  assert_int_equal(accel_profile_step_number(profile), 0);
  /* The last owner is on another thread, where LibTorch's profiler cannot be ended: the next one here does. */
  on_another_thread(release_elsewhere, profile);
  profile = begin(setting, &options);
  assert_ok(accel_profile_end(profile));
  accel_profile_release(profile);
}

static void a_folder_that_is_gone_is_an_error(void **state) {
  const struct setting *const setting = *state;
  accel_profile_options_t options = ACCEL_PROFILE_OPTIONS_INIT;
  accel_profile_t *profile = NULL, *second = NULL;
  char folder[96];
  FILE *file = NULL;
  snprintf(folder, sizeof folder, "%s/traces", setting->folder);
  options.output_trace_dir = folder;
  profile = begin(setting, &options);
  assert_int_equal(rmdir(folder), 0);
  file = fopen(folder, "w"); /* and cannot be made again */
  assert_non_null(file);
  fclose(file);
  assert_status(accel_profile_end(profile), ACCEL_ERROR_IO);
  assert_ok(accel_profile_end(profile));
  second = begin(setting, NULL); /* while the one that has ended is kept */
  assert_ok(accel_profile_end(second));
  accel_profile_release(second);
  accel_profile_release(profile);
}

static void spans_cost_nothing_to_be_told_of(void **state) {
  accel_scope_t *scope = NULL;
  int i;
  (void)state;
  for (i = 0; i < 3; i++) {
    assert_ok(accel_span_begin("nobody records this", &scope));
    assert_ok(accel_scope_end(scope));
  }
}

static void traces_are_merged(void **state) {
  const struct setting *const setting = *state;
  accel_profile_options_t options = ACCEL_PROFILE_OPTIONS_INIT;
  accel_profile_t *profile = NULL;
  const char *const folder = setting->folder, *missing = "/nowhere/profile_0.json";
  char path[128], merged[128];
  const char *broken = path;
  char *trace = NULL;
  FILE *file = NULL;
  options.output_trace_dir = folder;
  snprintf(merged, sizeof merged, "%s/merged.json", folder);
  assert_fails(accel_merge_traces(&folder, 1, merged), ACCEL_ERROR_NOT_FOUND, "has no trace");
  assert_status(accel_merge_traces(&missing, 1, merged), ACCEL_ERROR_NOT_FOUND);
  assert_fails(accel_merge_traces(NULL, 0, merged), ACCEL_ERROR_INVALID_ARGUMENT, "there are no traces");
  profile = begin(setting, &options);
  compute(setting);
  assert_ok(accel_profile_end(profile));
  accel_profile_release(profile);
  assert_ok(accel_merge_traces(&folder, 1, merged));
  trace = content_of(merged);
  assert_non_null(strstr(trace, "\"name\":\"rank 0 ("));
  assert_non_null(strstr(trace, "\"aten::linear\""));
  free(trace);
  snprintf(merged, sizeof merged, "%s/merged.json.gz", folder);
  assert_ok(accel_merge_traces(&folder, 1, merged));
  trace = content_of(merged);
  assert_memory_equal(trace, "\x1f\x8b", 2);
  free(trace);
  snprintf(path, sizeof path, "%s/profile_1.json", folder);
  file = fopen(path, "w");
  assert_non_null(file);
  fputs("{\"traceEvents\":[{\"ph\":\"X\",\"name\":]}", file);
  fclose(file);
  assert_fails(accel_merge_traces(&broken, 1, merged), ACCEL_ERROR_CORRUPT, "profile_1.json' is not a Chrome trace");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(what_is_recorded_is_written, set_up, tear_down),
      cmocka_unit_test_setup_teardown(cycles_follow_the_schedule, set_up, tear_down),
      cmocka_unit_test_setup_teardown(memory_is_a_line, set_up, tear_down),
      cmocka_unit_test_setup_teardown(wrong_calls_are_refused, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_folder_that_is_gone_is_an_error, set_up, tear_down),
      cmocka_unit_test_setup_teardown(spans_cost_nothing_to_be_told_of, set_up, tear_down),
      cmocka_unit_test_setup_teardown(traces_are_merged, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
