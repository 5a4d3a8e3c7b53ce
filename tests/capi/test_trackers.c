/* SPDX-License-Identifier: Apache-2.0 */
/* Section 14: trackers. What they write is looked at by tests/track. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include "capi_test.h"

#include <math.h>

enum { MOST_EVENTS = 32 };

typedef struct {
  int count;
  int destroyed;
  accel_tracker_event_t events[MOST_EVENTS];
  int64_t steps[MOST_EVENTS];
  char contents[MOST_EVENTS][400];
  accel_status_t answer;
} record_t;

static accel_status_t note(accel_tracker_event_t event, const accel_value_t *content, int64_t step, void *user_data) {
  record_t *const record = user_data;
  accel_buffer_t json = ACCEL_BUFFER_INIT;
  assert_true(record->count < MOST_EVENTS);
  record->events[record->count] = event;
  record->steps[record->count] = step;
  if (event == ACCEL_TRACKER_FIGURE) { /* bytes are none of JSON */
    const accel_value_t *const bytes = accel_value_get(content, "bytes");
    assert_int_equal(bytes->as.bytes->size, 11);
  } else {
    assert_ok(accel_value_to_json(content, &json));
    snprintf(record->contents[record->count], sizeof record->contents[0], "%s", json.data);
    accel_buffer_dispose(&json);
  }
  record->count++;
  if (record->answer != ACCEL_OK) accel_error_set(record->answer, "on purpose");
  return record->answer;
}

static void count_destroy(void *user_data) { ((record_t *)user_data)->destroyed++; }

static accel_state_t *state_of_rank(int32_t rank) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *state = NULL;
  options.cpu = 1;
  options.process_index = rank;
  options.num_processes = 1;
  assert_ok(accel_state_create(&options, &state));
  return state;
}

static void set(accel_value_t *map, const char *name, accel_value_t value) {
  assert_ok(accel_value_set(map, name, &value));
}

/* A folder of the test, which remove_folder() removes with the files of one run in it. */
static void make_test_folder(char *folder) {
  strcpy(folder, "/tmp/accel_trackers_XXXXXX");
  assert_non_null(mkdtemp(folder));
}
static void remove_folder(const char *folder) {
  char command[300];
  snprintf(command, sizeof command, "rm -r '%s'", folder);
  assert_int_equal(system(command), 0);
}

static char *read_file(const char *folder, const char *name) {
  char path[400];
  char *const content = calloc(1, 1 << 16);
  FILE *file = NULL;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  file = fopen(path, "rb");
  assert_non_null(file);
  assert_true(fread(content, 1, (1 << 16) - 1, file) > 0);
  fclose(file);
  return content;
}

static void assert_event(const record_t *record, int index, accel_tracker_event_t event, int64_t step,
                         const char *content) {
  assert_true(index < record->count);
  assert_int_equal(record->events[index], event);
  assert_int_equal(record->steps[index], step);
  assert_string_equal(record->contents[index], content);
}

static void a_tracker_of_the_program_hears_everything(void **unused) {
  record_t record = {0};
  accel_state_t *const state = state_of_rank(0);
  accel_tracker_t *tracker = NULL, *found = NULL;
  accel_value_t config = from_json("{\"lr\": 0.5}"), kwargs = from_json("{\"mine\": {\"color\": \"red\"}}");
  accel_value_t values = from_json("{\"loss\": 1.5, \"eval\": {\"n\": 2}}"), names = ACCEL_VALUE_INIT;
  accel_value_t columns = from_json("[\"a\"]"), rows = from_json("[[1], [true]]");
  const char *const scalar_names[] = {"x"};
  const double scalars[] = {2};
  accel_buffer_t location = ACCEL_BUFFER_INIT;
  (void)unused;
  assert_ok(accel_tracker_create("mine", NULL, note, &record, count_destroy, &tracker));
  assert_fails(accel_tracker_log(tracker, &values, 1), ACCEL_ERROR_INVALID_STATE, "'mine' does not run here");
  assert_ok(accel_add_tracker(state, tracker));
  assert_ok(accel_init_trackers(state, "project", &config, &kwargs, NULL));
  assert_fails(accel_add_tracker(state, tracker), ACCEL_ERROR_INVALID_STATE, "run already");
  assert_ok(accel_trackers(state, &names));
  assert_json(&names, "[\"mine\"]");
  assert_ok(accel_log(state, &values, 3, &kwargs));
  assert_ok(accel_log_scalars(state, scalar_names, scalars, 1, ACCEL_NO_STEP));
  assert_ok(accel_log_table(state, "answers", &columns, &rows, 4));
  assert_ok(accel_log_figure(state, "plot", "<svg></svg>", 11, 5));
  assert_ok(accel_log_artifact(state, "/proc/self/status", NULL));
  assert_ok(accel_flush_trackers(state));
  assert_ok(accel_get_tracker(state, "mine", &found));
  assert_ok(accel_tracker_location(found, &location));
  assert_int_equal(location.size, 0);
  assert_ok(accel_tracker_log(found, &values, 6));
  assert_ok(accel_finish_trackers(state));
  assert_ok(accel_finish_trackers(state));
  assert_fails(accel_tracker_log(found, &values, 7), ACCEL_ERROR_INVALID_STATE, "'mine' does not run here");
  assert_event(&record, 0, ACCEL_TRACKER_START, ACCEL_NO_STEP,
               "{\"project\":\"project\",\"run\":\"project\",\"logging_dir\":null,\"rank\":0,\"world_size\":1,"
               "\"options\":{\"color\":\"red\"}}");
  assert_event(&record, 1, ACCEL_TRACKER_CONFIGURATION, ACCEL_NO_STEP, "{\"lr\":0.5}");
  assert_event(&record, 2, ACCEL_TRACKER_VALUES, 3,
               "{\"values\":{\"loss\":1.5,\"eval\":{\"n\":2}},\"kwargs\":{\"color\":\"red\"}}");
  assert_event(&record, 3, ACCEL_TRACKER_VALUES, ACCEL_NO_STEP, "{\"values\":{\"x\":2.0},\"kwargs\":{}}");
  assert_event(&record, 4, ACCEL_TRACKER_TABLE, 4, "{\"name\":\"answers\",\"columns\":[\"a\"],\"rows\":[[1],[true]]}");
  assert_event(&record, 5, ACCEL_TRACKER_FIGURE, 5, "");
  assert_event(&record, 6, ACCEL_TRACKER_ARTIFACT, ACCEL_NO_STEP, "{\"path\":\"/proc/self/status\",\"name\":null}");
  assert_event(&record, 7, ACCEL_TRACKER_FLUSH, ACCEL_NO_STEP, "null");
  assert_event(&record, 8, ACCEL_TRACKER_VALUES, 6, "{\"values\":{\"loss\":1.5,\"eval\":{\"n\":2}},\"kwargs\":{}}");
  assert_event(&record, 9, ACCEL_TRACKER_FINISH, ACCEL_NO_STEP, "null");
  assert_int_equal(record.count, 10);
  accel_tracker_release(accel_tracker_retain(found));
  accel_tracker_release(found);
  accel_tracker_release(tracker);
  accel_tracker_release(NULL);
  assert_int_equal(record.destroyed, 0);
  accel_state_release(state);
  assert_int_equal(record.destroyed, 1);
  accel_buffer_dispose(&location);
  accel_value_dispose(&names);
  accel_value_dispose(&rows);
  accel_value_dispose(&columns);
  accel_value_dispose(&values);
  accel_value_dispose(&kwargs);
  accel_value_dispose(&config);
}

static void a_tracker_that_fails_is_named(void **unused) {
  const accel_tracker_failure_t rules[] = {ACCEL_TRACKER_FAILURE_WARN, ACCEL_TRACKER_FAILURE_STOP};
  size_t i;
  (void)unused;
  for (i = 0; i < 2; i++) {
    record_t failing = {0}, other = {0};
    accel_state_t *const state = state_of_rank(0);
    accel_tracking_options_t options = ACCEL_TRACKING_OPTIONS_INIT;
    accel_tracker_t *trackers[2] = {NULL, NULL};
    accel_value_t values = from_json("{\"loss\": 1.5}");
    assert_ok(accel_tracker_create("failing", NULL, note, &failing, count_destroy, &trackers[0]));
    assert_ok(accel_tracker_create("other", NULL, note, &other, count_destroy, &trackers[1]));
    assert_ok(accel_add_tracker(state, trackers[0]));
    assert_ok(accel_add_tracker(state, trackers[1]));
    options.on_failure = rules[i];
    assert_ok(accel_init_trackers(state, "project", NULL, NULL, &options));
    failing.answer = ACCEL_ERROR_NOT_FOUND;
    if (rules[i] == ACCEL_TRACKER_FAILURE_STOP)
      assert_fails(accel_log(state, &values, 1, NULL), ACCEL_ERROR_NOT_FOUND, "tracker 'failing' failed: on purpose");
    else
      assert_ok(accel_log(state, &values, 1, NULL));
    failing.answer = ACCEL_OK;
    assert_ok(accel_log(state, &values, 2, NULL));
    assert_ok(accel_end_training(state));
    assert_int_equal(other.count, 4);
    assert_int_equal(failing.count, rules[i] == ACCEL_TRACKER_FAILURE_STOP ? 4 : 2);
    accel_value_dispose(&values);
    accel_tracker_release(trackers[0]);
    accel_tracker_release(trackers[1]);
    accel_state_release(state);
    assert_int_equal(failing.destroyed, 1);
  }
}

static void a_start_that_fails_ends_what_was_started(void **unused) {
  record_t failing = {0};
  accel_state_t *const state = state_of_rank(0);
  accel_tracking_options_t options = ACCEL_TRACKING_OPTIONS_INIT;
  accel_tracker_t *tracker = NULL;
  accel_value_t names = ACCEL_VALUE_INIT, values = from_json("{\"loss\": 1}");
  const accel_value_t none = ACCEL_VALUE_INIT;
  (void)unused;
  assert_ok(accel_tracker_create("failing", NULL, note, &failing, NULL, &tracker));
  assert_ok(accel_add_tracker(state, tracker));
  options.on_failure = ACCEL_TRACKER_FAILURE_STOP;
  failing.answer = ACCEL_ERROR_USER;
  assert_fails(accel_init_trackers(state, "project", NULL, NULL, &options), ACCEL_ERROR_USER,
               "tracker 'failing' failed: on purpose");
  assert_ok(accel_trackers(state, &names));
  assert_json(&names, "[]");
  failing.answer = ACCEL_OK;
  failing.count = 0;
  assert_ok(accel_init_trackers(state, "project", &none, &none, &options)); /* as bindings give what is left out */
  assert_ok(accel_log(state, &values, 1, &none));
  assert_int_equal(failing.count, 2);
  assert_int_equal(failing.events[1], ACCEL_TRACKER_VALUES);
  accel_value_dispose(&values);
  accel_value_dispose(&names);
  accel_tracker_release(tracker);
  accel_state_release(state);
}

static void the_release_of_the_state_ends_trackers(void **unused) {
  record_t record = {0};
  accel_state_t *const state = state_of_rank(0);
  accel_tracker_t *tracker = NULL;
  (void)unused;
  assert_ok(accel_tracker_create("mine", NULL, note, &record, count_destroy, &tracker));
  assert_ok(accel_add_tracker(state, tracker));
  assert_ok(accel_init_trackers(state, "project", NULL, NULL, NULL));
  accel_tracker_release(tracker);
  accel_state_release(state);
  assert_int_equal(record.destroyed, 1);
  assert_event(&record, record.count - 1, ACCEL_TRACKER_FINISH, ACCEL_NO_STEP, "null");
}

static void values_are_written_to_files(void **unused) {
  char folder[64];
  accel_state_t *const state = state_of_rank(0);
  accel_tracking_options_t options = ACCEL_TRACKING_OPTIONS_INIT;
  accel_tracker_t *found = NULL;
  accel_value_t values = ACCEL_VALUE_INIT, wrong = from_json("{\"loss\": 1, \"list\": [1]}");
  accel_value_t names = ACCEL_VALUE_INIT;
  accel_buffer_t location = ACCEL_BUFFER_INIT;
  char *content = NULL;
  const float one = 2.5F;
  const uint8_t yes = 1;
  const int64_t no_shape[] = {1};
  accel_tensor_t *const scalar = new_test_tensor(&one, no_shape, 1, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *const flag = new_test_tensor(&yes, NULL, 0, ACCEL_DTYPE_BOOL);
  (void)unused;
  make_test_folder(folder);
  options.log_with = "jsonl,csv";
  options.logging_dir = folder;
  options.run_name = "run";
  assert_ok(accel_init_trackers(state, "project", NULL, NULL, &options));
  assert_ok(accel_value_map(&values));
  set(&values, "scalar", accel_arg_tensor(scalar));
  set(&values, "flag", accel_arg_tensor(flag));
  set(&values, "nan", accel_arg_double(NAN));
  set(&values, "text", accel_arg_string("\xc3\xa9"));
  assert_fails(accel_log(state, &wrong, 1, NULL), ACCEL_ERROR_TYPE_MISMATCH, "value 'list' is of kind list");
  assert_ok(accel_log(state, &values, 1, NULL));
  assert_ok(accel_get_tracker(state, "jsonl", &found));
  assert_ok(accel_tracker_location(found, &location));
  assert_non_null(strstr(location.data, "/run/metrics.jsonl"));
  assert_fails(accel_add_tracker(state, found), ACCEL_ERROR_INVALID_ARGUMENT, "'jsonl' is none of the program");
  accel_tracker_release(found);
  found = NULL;
  assert_fails(accel_get_tracker(state, "mlflow", &found), ACCEL_ERROR_NOT_FOUND, "running are 'jsonl', 'csv'");
  assert_ok(accel_trackers(state, &names));
  assert_json(&names, "[\"jsonl\",\"csv\"]");
  assert_ok(accel_flush_trackers(state));
  content = read_file(folder, "run/metrics.jsonl");
  assert_non_null(
      strstr(content, "\"step\":1,\"values\":{\"scalar\":2.5,\"flag\":1,\"nan\":\"NaN\",\"text\":\"\xc3\xa9\"}}\n"));
  assert_null(strstr(content, "list"));
  free(content);
  accel_state_release(state);
  content = read_file(folder, "run/metrics.jsonl");
  assert_non_null(strstr(content, "\"status\":\"released\"}\n"));
  free(content);
  content = read_file(folder, "run/metrics.csv");
  assert_non_null(strstr(content, "step,time,scalar,flag,nan,text\n1,"));
  assert_non_null(strstr(content, ",2.5,1,NaN,\xc3\xa9\n"));
  free(content);
  accel_buffer_dispose(&location);
  accel_value_dispose(&names);
  accel_value_dispose(&wrong);
  accel_value_dispose(&values);
  accel_tensor_release(flag);
  accel_tensor_release(scalar);
  remove_folder(folder);
}

static void images_have_their_shapes_checked(void **unused) {
  char folder[64];
  accel_state_t *const state = state_of_rank(0);
  accel_tracking_options_t options = ACCEL_TRACKING_OPTIONS_INIT;
  const struct {
    int64_t shape[5];
    size_t ndim;
    int32_t channels_first;
    accel_dtype_t dtype;
    accel_status_t status;
    const char *says; /* of an error, or of the lines */
  } cases[] = {
      {{4, 6},
       2,
       0,
       ACCEL_DTYPE_UINT8,
       ACCEL_OK,
       "\"name\":\"0\",\"file\":\"images/0_0.png\",\"width\":6,\"height\":4"},
      {{4, 6, 3},
       3,
       0,
       ACCEL_DTYPE_FLOAT32,
       ACCEL_OK,
       "\"name\":\"1\",\"file\":\"images/1_1.png\",\"width\":6,\"height\":4"},
      {{3, 4, 6},
       3,
       1,
       ACCEL_DTYPE_FLOAT32,
       ACCEL_OK,
       "\"name\":\"2\",\"file\":\"images/2_2.png\",\"width\":6,\"height\":4"},
      {{2, 4, 6},
       3,
       0,
       ACCEL_DTYPE_UINT8,
       ACCEL_OK,
       "\"name\":\"3/1\",\"file\":\"images/3_1_3.png\",\"width\":6,\"height\":4"},
      {{2, 4, 4, 6},
       4,
       1,
       ACCEL_DTYPE_UINT8,
       ACCEL_OK,
       "\"name\":\"4/1\",\"file\":\"images/4_1_4.png\",\"width\":6,\"height\":4"},
      {{4}, 1, 0, ACCEL_DTYPE_UINT8, ACCEL_ERROR_SHAPE_MISMATCH, "image '5' has 1 dimensions"},
      {{2, 4, 6, 2}, 4, 0, ACCEL_DTYPE_UINT8, ACCEL_ERROR_SHAPE_MISMATCH, "has 2 channels; expected 1, 3 or 4"},
      {{4, 6}, 2, 0, ACCEL_DTYPE_INT64, ACCEL_ERROR_TYPE_MISMATCH, "image '7' has elements of type"},
      {{0, 6}, 2, 0, ACCEL_DTYPE_UINT8, ACCEL_ERROR_SHAPE_MISMATCH, "is 6 x 0; expected sides from 1"},
  };
  char *content = NULL;
  size_t i;
  (void)unused;
  make_test_folder(folder);
  options.log_with = "jsonl";
  options.logging_dir = folder;
  assert_ok(accel_init_trackers(state, "run", NULL, NULL, &options));
  for (i = 0; i < sizeof cases / sizeof *cases; i++) {
    const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
    accel_value_t images = ACCEL_VALUE_INIT;
    accel_tensor_t *tensor = NULL;
    char name[8];
    snprintf(name, sizeof name, "%d", (int)i);
    assert_ok(accel_tensor_full(cases[i].shape, cases[i].ndim, 1, cases[i].dtype, &cpu, &tensor));
    assert_ok(accel_value_map(&images));
    set(&images, name, accel_arg_tensor(tensor));
    assert_status(accel_log_images(state, &images, cases[i].channels_first, (int64_t)i), cases[i].status);
    if (cases[i].status != ACCEL_OK) assert_message(cases[i].says);
    accel_value_dispose(&images);
    accel_tensor_release(tensor);
  }
  assert_ok(accel_finish_trackers(state));
  content = read_file(folder, "run/metrics.jsonl");
  for (i = 0; i < sizeof cases / sizeof *cases; i++)
    if (cases[i].status == ACCEL_OK) assert_non_null(strstr(content, cases[i].says));
  free(content);
  accel_state_release(state);
  remove_folder(folder);
}

static void bad_input_is_named(void **unused) {
  accel_state_t *const state = state_of_rank(0);
  accel_tracking_options_t options = ACCEL_TRACKING_OPTIONS_INIT;
  accel_tracker_t *tracker = NULL;
  accel_value_t columns = from_json("[\"a\", \"b\"]"), rows = from_json("[[1, 2], [3]]"), number = accel_arg_int(1);
  accel_value_t numbers = from_json("[1]"), available = ACCEL_VALUE_INIT;
  record_t record = {0};
  (void)unused;
  assert_ok(accel_available_trackers(&available));
  assert_string_equal(accel_value_at(&available, 0)->as.string, "jsonl");
  options.log_with = "neptune";
  assert_fails(accel_init_trackers(state, "project", NULL, NULL, &options), ACCEL_ERROR_INVALID_ARGUMENT,
               "unknown tracker 'neptune'; expected 'jsonl', 'csv', 'tensorboard'");
  options.log_with = "tensorboard";
  assert_fails(accel_init_trackers(state, "project", NULL, NULL, &options), ACCEL_ERROR_INVALID_ARGUMENT,
               "tracker 'tensorboard' needs logging_dir");
  assert_fails(accel_init_trackers(state, "project", &number, NULL, NULL), ACCEL_ERROR_TYPE_MISMATCH,
               "config is of kind int; expected a map");
  assert_fails(accel_log(state, &numbers, 1, NULL), ACCEL_ERROR_TYPE_MISMATCH, "values is of kind list");
  assert_fails(accel_log_table(state, "t", &columns, &rows, 1), ACCEL_ERROR_SHAPE_MISMATCH,
               "row 1 of rows has 1 cells");
  assert_fails(accel_log_table(state, "t", &numbers, &rows, 1), ACCEL_ERROR_TYPE_MISMATCH, "columns has a int");
  assert_fails(accel_log_figure(state, "f", "GIF89a", 6, 1), ACCEL_ERROR_INVALID_ARGUMENT, "of an unknown kind");
  assert_fails(accel_log_artifact(state, "/no/such/file", NULL), ACCEL_ERROR_NOT_FOUND, "'/no/such/file'");
  assert_fails(accel_tracker_create("", NULL, note, &record, count_destroy, &tracker), ACCEL_ERROR_INVALID_ARGUMENT,
               "name is ''");
  assert_int_equal(record.destroyed, 1);
  assert_fails(accel_tracker_create("a", NULL, NULL, &record, count_destroy, &tracker), ACCEL_ERROR_INVALID_ARGUMENT,
               "tracker is NULL");
  assert_int_equal(record.destroyed, 2);
  accel_value_dispose(&available);
  accel_value_dispose(&numbers);
  accel_value_dispose(&rows);
  accel_value_dispose(&columns);
  accel_state_release(state);
}

static void logging_dir_is_that_of_the_project(void **unused) {
  char folder[64];
  accel_state_t *const state = state_of_rank(0);
  accel_tracking_options_t options = ACCEL_TRACKING_OPTIONS_INIT;
  accel_project_options_t project = ACCEL_PROJECT_OPTIONS_INIT;
  const char *const names[] = {"loss"};
  const double values[] = {1};
  char *content = NULL;
  (void)unused;
  make_test_folder(folder);
  project.project_dir = folder;
  assert_ok(accel_set_project(state, &project));
  options.log_with = "csv";
  assert_ok(accel_init_trackers(state, "run", NULL, NULL, &options));
  assert_ok(accel_log_scalars(state, names, values, 1, -5));
  assert_ok(accel_end_training(state));
  content = read_file(folder, "run/metrics.csv");
  assert_non_null(strstr(content, "\n-5,"));
  free(content);
  accel_state_release(state);
  remove_folder(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(a_tracker_of_the_program_hears_everything),
      capi_unit_test(a_tracker_that_fails_is_named),
      capi_unit_test(a_start_that_fails_ends_what_was_started),
      capi_unit_test(the_release_of_the_state_ends_trackers),
      capi_unit_test(values_are_written_to_files),
      capi_unit_test(images_have_their_shapes_checked),
      capi_unit_test(bad_input_is_named),
      capi_unit_test(logging_dir_is_that_of_the_project),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
