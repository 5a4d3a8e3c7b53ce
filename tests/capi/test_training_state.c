/* SPDX-License-Identifier: Apache-2.0 */
/* Section 13: training states: projects, hooks, generators of the application, and what is in a checkpoint. */
#define _POSIX_C_SOURCE 200809L
#include <sys/stat.h>
#include <unistd.h>

#include "folder_fixture.h"

static int exists(const char *name) {
  struct stat found;
  return stat(path_of(name), &found) == 0;
}

/* A prepared linear layer of a state, whose weight is `value` everywhere. */
static accel_module_t *new_model(accel_state_t *state, float value) {
  const float numbers[2] = {value, value};
  const int64_t shape[2] = {1, 2};
  accel_module_t *model = NULL, *prepared = NULL;
  accel_tensor_t *weight = new_test_tensor(numbers, shape, 2, ACCEL_DTYPE_FLOAT32);
  assert_ok(accel_module_create("Layer", &model));
  assert_ok(accel_module_add_parameter(model, "weight", weight, 1));
  assert_ok(accel_prepare_model(state, model, NULL, &prepared));
  accel_tensor_release(weight);
  accel_module_release(model);
  return prepared;
}

static float weight_of(accel_module_t *model) {
  accel_value_t state_dict = ACCEL_VALUE_INIT;
  void *data = NULL;
  assert_ok(accel_module_state_dict(model, &state_dict));
  assert_ok(accel_tensor_data(accel_value_at(&state_dict, 0)->as.tensor, &data));
  const float value = *(const float *)data;
  accel_value_dispose(&state_dict);
  return value;
}

static void set_weight(accel_module_t *model, float value) {
  accel_value_t state_dict = ACCEL_VALUE_INIT;
  void *data = NULL;
  assert_ok(accel_module_state_dict(model, &state_dict));
  assert_ok(accel_tensor_data(accel_value_at(&state_dict, 0)->as.tensor, &data));
  *(float *)data = value;
  accel_value_dispose(&state_dict);
}

static accel_value_t project_of(accel_state_t *state) {
  accel_value_t project = ACCEL_VALUE_INIT;
  assert_ok(accel_project(state, &project));
  return project;
}

static int64_t iteration_of(accel_state_t *state) {
  accel_value_t project = project_of(state);
  const int64_t iteration = accel_value_get(&project, "iteration")->as.integer;
  accel_value_dispose(&project);
  return iteration;
}

static void test_projects(void **unused) {
  accel_state_t *state = new_state();
  accel_project_options_t options = ACCEL_PROJECT_OPTIONS_INIT;
  (void)unused;
  accel_value_t project = project_of(state);
  assert_int_equal(accel_value_get(&project, "project_dir")->kind, ACCEL_VALUE_NONE);
  assert_int_equal(accel_value_get(&project, "total_limit")->kind, ACCEL_VALUE_NONE);
  assert_int_equal(accel_value_get(&project, "iteration")->as.integer, 0);
  accel_value_dispose(&project);
  options.project_dir = "runs";
  options.total_limit = 3;
  assert_ok(accel_set_project(state, &options));
  assert_ok(accel_options_init(ACCEL_OPTIONS_PROJECT, &options, sizeof options));
  options.iteration = 7;
  assert_ok(accel_set_project(state, &options)); /* the others stay */
  project = project_of(state);
  assert_string_equal(accel_value_get(&project, "project_dir")->as.string, "runs");
  assert_string_equal(accel_value_get(&project, "logging_dir")->as.string, "runs");
  assert_int_equal(accel_value_get(&project, "total_limit")->as.integer, 3);
  assert_int_equal(accel_value_get(&project, "iteration")->as.integer, 7);
  accel_value_dispose(&project);
  options.total_limit = 0;
  assert_fails(accel_set_project(state, &options), ACCEL_ERROR_INVALID_ARGUMENT, "total_limit");
  accel_state_release(state);
}

static void test_replicas_of_one_rank(void **unused) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *state = NULL;
  int32_t ranks = 0;
  (void)unused;
  options.cpu = 1;
  options.verify_replicas_every = -1;
  assert_fails(accel_state_create(&options, &state), ACCEL_ERROR_INVALID_ARGUMENT, "verify_replicas_every");
  options.verify_replicas_every = 2;
  assert_ok(accel_state_create(&options, &state));
  assert_ok(accel_verify_replicas(state, &ranks));
  assert_int_equal(ranks, 1);
  accel_state_release(state);
}

static void test_automatic_naming(void **unused) {
  accel_state_t *state = new_state();
  accel_module_t *model = new_model(state, 1);
  accel_project_options_t options = ACCEL_PROJECT_OPTIONS_INIT;
  (void)unused;
  options.project_dir = path_of("run");
  options.automatic_checkpoint_naming = 1;
  options.total_limit = 2;
  assert_ok(accel_set_project(state, &options));
  assert_fails(accel_load_state(state, NULL, NULL), ACCEL_ERROR_NOT_FOUND, "there is no checkpoint");
  for (int i = 0; i < 3; i++) {
    set_weight(model, (float)i);
    assert_ok(accel_save_state(state, NULL, NULL));
    assert_int_equal(iteration_of(state), i + 1);
  }
  assert_false(exists("run/checkpoints/checkpoint_0"));
  assert_true(exists("run/checkpoints/checkpoint_1"));
  accel_value_t project = project_of(state);
  assert_string_equal(accel_value_get(&project, "checkpoint")->as.string, path_of("run/checkpoints/checkpoint_2"));
  assert_int_equal(accel_value_get(&project, "agreed_checkpoint")->kind,
                   ACCEL_VALUE_NONE); /* one rank agrees with none */
  accel_value_dispose(&project);
  /* A name that is there is not taken, and a failed save counts nothing and removes nothing. */
  options.iteration = 1;
  assert_ok(accel_set_project(state, &options));
  assert_fails(accel_save_state(state, NULL, NULL), ACCEL_ERROR_ALREADY_EXISTS, "checkpoint_1' already exists");
  assert_int_equal(iteration_of(state), 1);
  assert_true(exists("run/checkpoints/checkpoint_1"));
  /* The newest, and behind it. */
  set_weight(model, 9);
  assert_ok(accel_load_state(state, NULL, NULL));
  assert_true(weight_of(model) == 2);
  assert_int_equal(iteration_of(state), 3);
  assert_ok(accel_load_state(state, path_of("run/checkpoints/checkpoint_1"), NULL));
  assert_true(weight_of(model) == 1);
  assert_int_equal(iteration_of(state), 3); /* 2 is there */
  /* A folder of one's own. */
  assert_ok(accel_save_state(state, path_of("deep/er/own"), NULL));
  assert_true(exists("deep/er/own"));
  assert_int_equal(iteration_of(state), 4);
  accel_module_release(model);
  accel_state_release(state);
}

struct hook_log {
  int calls;
  size_t models;
  int32_t kind; /* of the first model */
  int leave_out, fail;
  char file[PATH_SIZE];
};

static accel_status_t note_hook(const accel_value_t *models, const char *where, accel_value_t *out_models,
                                void *user_data) {
  struct hook_log *log = user_data;
  log->calls++;
  log->models = accel_value_count(models);
  log->kind = accel_value_at(models, 0)->kind;
  if (log->fail) return accel_error_set(ACCEL_ERROR_USER, "the hook does not like it"), ACCEL_ERROR_USER;
  char path[PATH_SIZE];
  snprintf(path, sizeof path, "%s/hook.txt", where);
  FILE *const file = fopen(path, log->kind == ACCEL_VALUE_MAP ? "w" : "r");
  if (file == NULL) return ACCEL_ERROR_USER;
  fclose(file);
  if (!log->leave_out) return ACCEL_OK;
  const accel_value_t none = ACCEL_VALUE_INIT;
  return accel_value_list(&none, 1, out_models);
}

static int destroyed = 0;
static void count_destroy(void *user_data) {
  (void)user_data;
  destroyed++;
}

static void test_hooks(void **unused) {
  accel_state_t *state = new_state();
  accel_module_t *model = new_model(state, 1);
  struct hook_log save = {0}, load = {0};
  int64_t save_id = -1, load_id = -1;
  (void)unused;
  destroyed = 0;
  assert_ok(accel_register_save_state_pre_hook(state, note_hook, &save, count_destroy, &save_id));
  assert_ok(accel_register_load_state_pre_hook(state, note_hook, &load, count_destroy, &load_id));
  assert_true(save_id != load_id);
  assert_ok(accel_save_state(state, path_of("one"), NULL));
  assert_int_equal(save.calls, 1);
  assert_int_equal(save.models, 1);
  assert_int_equal(save.kind, ACCEL_VALUE_MAP);
  assert_true(exists("one/hook.txt")); /* what it writes is in the checkpoint */
  assert_true(exists("one/model.safetensors"));
  set_weight(model, 5);
  assert_ok(accel_load_state(state, path_of("one"), NULL));
  assert_int_equal(load.calls, 1);
  assert_int_equal(load.kind, ACCEL_VALUE_INT);
  assert_true(weight_of(model) == 1);
  /* A model that a hook takes out is neither written nor read. */
  save.leave_out = load.leave_out = 1;
  assert_ok(accel_save_state(state, path_of("two"), NULL));
  assert_false(exists("two/model.safetensors"));
  set_weight(model, 6);
  assert_ok(accel_load_state(state, path_of("two"), NULL));
  assert_true(weight_of(model) == 6);
  /* An error of a hook ends the call, and there is no checkpoint. */
  save.fail = 1;
  assert_fails(accel_save_state(state, path_of("three"), NULL), ACCEL_ERROR_USER, "the hook does not like it");
  assert_false(exists("three"));
  assert_ok(accel_remove_checkpoint_hook(state, save_id));
  assert_int_equal(destroyed, 1);
  assert_fails(accel_remove_checkpoint_hook(state, save_id), ACCEL_ERROR_NOT_FOUND, "no hook of checkpoints");
  assert_ok(accel_save_state(state, path_of("three"), NULL));
  assert_int_equal(save.calls, 3);
  assert_fails(accel_register_save_state_pre_hook(state, NULL, &save, count_destroy, NULL),
               ACCEL_ERROR_INVALID_ARGUMENT, "hook is NULL");
  assert_int_equal(destroyed, 2);
  accel_module_release(model);
  accel_state_release(state);
  assert_int_equal(destroyed, 3);
}

static accel_status_t save_number(accel_value_t *out, void *user_data) {
  *out = accel_arg_int(*(int64_t *)user_data);
  return ACCEL_OK;
}

static accel_status_t load_number(const accel_value_t *saved, void *user_data) {
  if (saved->kind != ACCEL_VALUE_INT) return ACCEL_ERROR_USER;
  *(int64_t *)user_data = saved->as.integer;
  return ACCEL_OK;
}

static void test_objects_of_the_application(void **unused) {
  accel_state_t *state = new_state();
  int64_t numbers[3] = {10, 11, 12}, generator = 99;
  (void)unused;
  assert_ok(accel_register_for_checkpointing(state, NULL, save_number, load_number, &numbers[0], NULL));
  assert_ok(accel_register_for_checkpointing(state, "named", save_number, load_number, &numbers[1], NULL));
  assert_ok(accel_register_for_checkpointing(state, NULL, save_number, load_number, &numbers[2], NULL));
  assert_ok(accel_register_random_state(state, "random_state", save_number, load_number, &generator, NULL));
  assert_fails(accel_register_random_state(state, "random_state", save_number, load_number, &generator, NULL),
               ACCEL_ERROR_ALREADY_EXISTS, "random_state");
  assert_fails(accel_register_for_checkpointing(state, "", save_number, load_number, NULL, NULL),
               ACCEL_ERROR_INVALID_ARGUMENT, "name is empty");
  assert_ok(accel_save_state(state, path_of("objects"), NULL));
  memset(numbers, 0, sizeof numbers);
  generator = 0;
  assert_ok(accel_free_memory(state)); /* what is registered stays */
  assert_ok(accel_load_state(state, path_of("objects"), NULL));
  for (int i = 0; i < 3; i++) assert_int_equal(numbers[i], 10 + i);
  assert_int_equal(generator, 99);
  accel_state_release(state);
}

static void test_asynchronous_saves(void **unused) {
  accel_state_t *state = new_state();
  accel_module_t *model = new_model(state, 1);
  accel_save_state_options_t options = ACCEL_SAVE_STATE_OPTIONS_INIT;
  int64_t written = -1, total = -1;
  (void)unused;
  assert_ok(accel_checkpoint_wait(state, 0)); /* nothing is under way */
  options.asynchronous = 1;
  options.when_busy = ACCEL_WHEN_BUSY_WAIT;
  for (int i = 0; i < 3; i++) {
    set_weight(model, (float)i);
    assert_ok(accel_save_state(state, path_of(i == 2 ? "last" : "first"), &options)); /* waits for the one before */
  }
  set_weight(model, 9); /* what is saved is a copy */
  assert_ok(accel_checkpoint_progress(state, &written, &total));
  assert_true(written >= 0 && total >= 0);
  assert_ok(accel_checkpoint_wait(state, 60000));
  assert_ok(accel_checkpoint_progress(state, &written, &total));
  assert_true(written == 0 && total == 0);
  accel_value_t project = project_of(state);
  assert_string_equal(accel_value_get(&project, "checkpoint")->as.string, path_of("last"));
  accel_value_dispose(&project);
  assert_ok(accel_load_state(state, path_of("last"), NULL));
  assert_true(weight_of(model) == 2);
  assert_fails(accel_checkpoint_wait(state, -1), ACCEL_ERROR_INVALID_ARGUMENT, "timeout_ms is -1");
  accel_module_release(model);
  accel_state_release(state);
}

static void test_what_is_in_a_checkpoint(void **unused) {
  accel_state_t *state = new_state();
  accel_module_t *model = new_model(state, 1);
  accel_value_t report = ACCEL_VALUE_INIT;
  (void)unused;
  assert_ok(accel_save_state(state, path_of("project/checkpoints/checkpoint_0"), NULL));
  set_weight(model, 2);
  assert_ok(accel_save_state(state, path_of("project/checkpoints/checkpoint_10"), NULL));
  assert_ok(accel_checkpoint_verify(path_of("project/checkpoints/checkpoint_0"), &report));
  assert_int_equal(accel_value_count(accel_value_get(&report, "problems")), 0);
  assert_true(accel_value_get(&report, "files")->as.integer >= 2);
  accel_value_dispose(&report);
  assert_ok(accel_checkpoint_list(path_of("project"), &report));
  assert_int_equal(accel_value_count(&report), 2);
  const accel_value_t *const last = accel_value_at(&report, 1);
  assert_string_equal(accel_value_get(last, "path")->as.string, path_of("project/checkpoints/checkpoint_10"));
  assert_int_equal(accel_value_get(last, "world_size")->as.integer, 1);
  assert_int_equal(accel_value_get(last, "complete")->as.integer, 1);
  accel_value_dispose(&report);
  assert_ok(accel_checkpoint_show(path_of("project/checkpoints/checkpoint_0"), &report));
  const accel_value_t *const files = accel_value_get(&report, "files"), *weights = NULL;
  for (size_t i = 0; i < accel_value_count(files); i++)
    if (strcmp(accel_value_get(accel_value_at(files, i), "name")->as.string, "model.safetensors") == 0)
      weights = accel_value_get(accel_value_at(files, i), "tensors");
  assert_non_null(weights);
  assert_string_equal(accel_value_get(accel_value_at(weights, 0), "name")->as.string, "weight");
  assert_string_equal(accel_value_get(accel_value_at(weights, 0), "dtype")->as.string, "float32");
  accel_value_dispose(&report);
  accel_save_state_options_t compressed = ACCEL_SAVE_STATE_OPTIONS_INIT;
  compressed.compression_level = 1;
  assert_ok(accel_save_state(state, path_of("compressed"), &compressed));
  assert_ok(accel_checkpoint_show(path_of("compressed"), &report));
  const accel_value_t *const smaller = accel_value_get(&report, "files");
  int with_tensors = 0;
  for (size_t i = 0; i < accel_value_count(smaller); i++)
    with_tensors += accel_value_get(accel_value_at(smaller, i), "tensors") != NULL;
  assert_int_equal(with_tensors, 1);
  accel_value_dispose(&report);
  accel_save_state_options_t limited = ACCEL_SAVE_STATE_OPTIONS_INIT;
  limited.page_locked_bytes = 0;
  limited.device_copy_bytes = 0;
  limited.asynchronous = 1;
  assert_ok(accel_save_state(state, path_of("limited"), &limited));
  assert_ok(accel_checkpoint_wait(state, 60000));
  limited.page_locked_bytes = (512 << 20) + 1;
  assert_fails(accel_save_state(state, path_of("limited"), &limited), ACCEL_ERROR_INVALID_ARGUMENT,
               "page_locked_bytes");
  limited.page_locked_bytes = ACCEL_UNSET;
  limited.device_copy_bytes = -1;
  assert_fails(accel_save_state(state, path_of("limited"), &limited), ACCEL_ERROR_INVALID_ARGUMENT,
               "device_copy_bytes");
  assert_ok(accel_checkpoint_diff(path_of("project/checkpoints/checkpoint_0"),
                                  path_of("project/checkpoints/checkpoint_10"), &report));
  const accel_value_t *const different = accel_value_get(&report, "different");
  int found = 0;
  for (size_t i = 0; i < accel_value_count(different); i++)
    found += strcmp(accel_value_at(different, i)->as.string, "model.safetensors: weight") == 0;
  assert_int_equal(found, 1);
  assert_int_equal(accel_value_count(accel_value_get(&report, "only_in_first")), 0);
  accel_value_dispose(&report);
  /* A damaged file is named. */
  FILE *const file = fopen(path_of("project/checkpoints/checkpoint_0/model.safetensors"), "r+b");
  assert_non_null(file);
  assert_int_equal(fseek(file, -1, SEEK_END), 0);
  fputc(0x55, file);
  fclose(file);
  assert_ok(accel_checkpoint_verify(path_of("project/checkpoints/checkpoint_0"), &report));
  assert_int_equal(accel_value_count(accel_value_get(&report, "problems")), 1);
  assert_non_null(strstr(accel_value_at(accel_value_get(&report, "problems"), 0)->as.string, "model.safetensors"));
  accel_value_dispose(&report);
  assert_fails(accel_checkpoint_verify(path_of("nothing"), &report), ACCEL_ERROR_NOT_FOUND, "nothing");
  assert_fails(accel_checkpoint_verify(folder, &report), ACCEL_ERROR_NOT_FOUND, folder);
  accel_module_release(model);
  accel_state_release(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_projects, make_folder, remove_folder_and_files),
      cmocka_unit_test(test_replicas_of_one_rank),
      cmocka_unit_test_setup_teardown(test_automatic_naming, make_folder, remove_folder_and_files),
      cmocka_unit_test_setup_teardown(test_hooks, make_folder, remove_folder_and_files),
      cmocka_unit_test_setup_teardown(test_objects_of_the_application, make_folder, remove_folder_and_files),
      cmocka_unit_test_setup_teardown(test_asynchronous_saves, make_folder, remove_folder_and_files),
      cmocka_unit_test_setup_teardown(test_what_is_in_a_checkpoint, make_folder, remove_folder_and_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
