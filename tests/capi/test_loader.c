/* SPDX-License-Identifier: Apache-2.0 */
/* Section 9: what a loader does with items, and how ranks share them. */
#include "data_fixture.h"

static accel_dataloader_t *new_loader(int64_t length, const accel_dataloader_options_t *options) {
  accel_dataset_t *dataset = new_numbers(length);
  accel_dataloader_t *loader = NULL;
  assert_ok(accel_dataloader_create(dataset, options, &loader));
  accel_dataset_release(dataset);
  return loader;
}

static void expect_numbers(const accel_value_t *value, const int64_t *expected, int64_t count) {
  void *data = NULL;
  int64_t found = 0;
  assert_int_equal(value->kind, ACCEL_VALUE_TENSOR);
  assert_ok(accel_tensor_numel(value->as.tensor, &found));
  assert_int_equal(found, count);
  assert_ok(accel_tensor_data(value->as.tensor, &data));
  assert_memory_equal(data, expected, (size_t)count * sizeof *expected);
}

static void expect_batch(accel_dataloader_t *loader, const int64_t *expected, int64_t count) {
  accel_value_t batch = ACCEL_VALUE_INIT;
  assert_ok(accel_dataloader_next(loader, &batch));
  expect_numbers(accel_value_at(&batch, 0), expected, count);
  accel_value_dispose(&batch);
}

struct calls {
  int made, destroyed;
  accel_status_t status;
};

static void note_destroy(void *user_data) { ((struct calls *)user_data)->destroyed++; }

/* The number of items in place of the items. */
static accel_status_t count_items(const accel_value_t *items, accel_value_t *out_batch, void *user_data) {
  struct calls *const calls = user_data;
  calls->made++;
  if (calls->status != ACCEL_OK) return calls->status;
  *out_batch = accel_arg_int((int64_t)accel_value_count(items));
  return ACCEL_OK;
}

static void collate_by_callback(void **state) {
  (void)state;
  struct calls calls = {0, 0, ACCEL_OK};
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  options.batch_size = 3;
  accel_dataloader_t *loader = new_loader(5, &options);
  accel_value_t batch = ACCEL_VALUE_INIT;
  assert_ok(accel_dataloader_set_collate(loader, count_items, &calls, note_destroy));
  assert_ok(accel_dataloader_next(loader, &batch));
  assert_int_equal(batch.as.integer, 3);
  calls.status = ACCEL_ERROR_USER;
  assert_status(accel_dataloader_next(loader, &batch), ACCEL_ERROR_USER);
  calls.status = ACCEL_OK;
  assert_ok(accel_dataloader_next(loader, &batch)); /* the same batch again */
  assert_int_equal(batch.as.integer, 2);
  assert_int_equal(calls.made, 3);
  struct calls refused = {0, 0, ACCEL_OK};
  assert_fails(accel_dataloader_set_collate(loader, count_items, &refused, note_destroy), ACCEL_ERROR_INVALID_STATE,
               "at work");
  assert_int_equal(refused.destroyed, 1);
  accel_dataloader_release(loader);
  assert_int_equal(calls.destroyed, 1);
}

/* [[epoch], [2, 0]], one as a list and one as a tensor. */
static accel_status_t two_batches(int64_t epoch, accel_value_t *out_batches, void *user_data) {
  struct calls *const calls = user_data;
  const int64_t last[] = {2, 0}, two = 2;
  accel_value_t first = ACCEL_VALUE_INIT, batches[2];
  accel_tensor_t *tensor = NULL;
  if (calls->status != ACCEL_OK) return calls->status;
  assert_ok(accel_value_int_list(&epoch, 1, &first));
  assert_ok(accel_tensor_from_data(last, &two, 1, ACCEL_DTYPE_INT64, &tensor));
  batches[0] = first;
  batches[1] = accel_arg_tensor(tensor);
  const accel_status_t status = accel_value_list(batches, 2, out_batches);
  accel_tensor_release(tensor);
  accel_value_dispose(&first);
  return status;
}

static void batches_by_callback(void **state) {
  (void)state;
  struct calls calls = {0, 0, ACCEL_OK}, refused = {0, 0, ACCEL_OK};
  accel_dataloader_t *loader = new_loader(5, NULL);
  accel_value_t batch = ACCEL_VALUE_INIT;
  assert_ok(accel_dataloader_set_batch_sampler(loader, two_batches, &calls, note_destroy, ACCEL_UNSET_INT64));
  assert_int_equal(accel_dataloader_length(loader), 2);
  for (int64_t epoch = 0; epoch < 2; epoch++) {
    assert_int_equal(accel_dataloader_epoch(loader), epoch);
    expect_batch(loader, &epoch, 1);
    expect_batch(loader, (const int64_t[]){2, 0}, 2);
    assert_int_equal(accel_dataloader_valid_rows(loader), 2);
    assert_status(accel_dataloader_next(loader, &batch), ACCEL_ITER_END);
    assert_int_equal(accel_dataloader_valid_rows(loader), 0);
  }
  calls.status = ACCEL_ERROR_USER;
  assert_status(accel_dataloader_next(loader, &batch), ACCEL_ERROR_USER);
  assert_int_equal(accel_dataloader_length(loader), -1);
  accel_dataloader_release(loader);
  assert_int_equal(calls.destroyed, 1);

  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  options.shuffle = 1;
  loader = new_loader(5, &options);
  assert_fails(accel_dataloader_set_batch_sampler(loader, two_batches, &refused, note_destroy, 2),
               ACCEL_ERROR_INVALID_ARGUMENT, "shuffle is 1");
  assert_int_equal(refused.destroyed, 1);
  assert_fails(accel_dataloader_set_batch_sampler(loader, two_batches, &refused, note_destroy, 0),
               ACCEL_ERROR_INVALID_ARGUMENT, "batch_size is 0");
  assert_int_equal(refused.destroyed, 2);
  accel_dataloader_release(loader);
}

/* The first row alone. */
static accel_status_t first_row(const accel_value_t *rows, int64_t begin, int64_t end, int32_t process_index,
                                int32_t num_processes, accel_value_t *out_batch, void *user_data) {
  struct calls *const calls = user_data;
  calls->made++;
  assert_int_equal(begin, 0);
  assert_int_equal(end, 2);
  assert_int_equal(process_index, 0);
  assert_int_equal(num_processes, 1);
  return accel_slice_tensors(rows, 0, 1, out_batch);
}

static void slices_by_callback(void **state) {
  (void)state;
  struct calls calls = {0, 0, ACCEL_OK};
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  options.batch_size = 2;
  accel_state_t *one = new_state();
  accel_dataloader_t *plain = new_loader(2, &options), *loader = NULL, *refused = NULL;
  accel_dataloader_config_t config = ACCEL_DATALOADER_CONFIG_INIT;
  assert_ok(accel_dataloader_set_slice(plain, first_row, &calls, note_destroy));
  config.dispatch_batches = 1;
  config.put_on_device = 0;
  assert_fails(accel_prepare_data_loader(one, plain, &config, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "put_on_device");
  config.put_on_device = ACCEL_UNSET;
  assert_ok(accel_prepare_data_loader(one, plain, &config, &loader));
  expect_batch(loader, (const int64_t[]){0}, 1);
  assert_int_equal(accel_end_of_dataloader(one), 1);
  assert_int_equal(accel_remainder(one), 2);
  assert_int_equal(calls.made, 1);
  accel_dataloader_release(loader);
  accel_dataloader_release(plain);
  accel_state_release(one);
  assert_int_equal(calls.destroyed, 1);
}

static accel_status_t one_row_each(const accel_value_t *items, accel_value_t *out_batch, void *user_data) {
  (void)user_data;
  return accel_value_copy(items, out_batch);
}

static void threads_call_back(void **state) {
  (void)state;
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  options.num_workers = 3;
  accel_dataloader_t *loader = new_loader(40, &options);
  assert_ok(accel_dataloader_set_collate(loader, one_row_each, NULL, NULL));
  for (int64_t i = 0; i < 40; i++) {
    accel_value_t batch = ACCEL_VALUE_INIT;
    assert_ok(accel_dataloader_next(loader, &batch));
    expect_numbers(accel_value_at(accel_value_at(&batch, 0), 0), &i, 1);
    accel_value_dispose(&batch);
  }
  accel_dataloader_release(loader);
}

static accel_status_t take_batch(accel_dataloader_t *loader) {
  accel_value_t batch = ACCEL_VALUE_INIT;
  const accel_status_t status = accel_dataloader_next(loader, &batch);
  accel_value_dispose(&batch);
  return status;
}

static accel_status_t begin_again(accel_dataloader_t *loader) { return accel_dataloader_set_epoch(loader, 3); }

static accel_status_t go_elsewhere(accel_dataloader_t *loader) {
  const accel_value_t nowhere = ACCEL_VALUE_INIT;
  return accel_dataloader_load_state_dict(loader, &nowhere);
}

static accel_status_t skip_batch(accel_dataloader_t *loader) {
  accel_dataloader_t *rest = NULL;
  const accel_status_t status = accel_skip_first_batches(loader, 1, &rest);
  accel_dataloader_release(rest);
  return status;
}

struct use {
  accel_status_t (*call)(accel_dataloader_t *loader);
  accel_dataloader_t *loader;
};

static accel_status_t use_loader(const accel_value_t *items, accel_value_t *out_batch, void *user_data) {
  const struct use *const use = user_data;
  const accel_status_t status = use->call(use->loader);
  (void)items;
  if (status == ACCEL_OK) *out_batch = accel_arg_int(1);
  return status;
}

/* It would call itself for ever, or a worker would wait for its own batch. */
// Regression: a callback that took the next batch of its own loader called itself until the stack was full, or waited
// for ever.
static void callbacks_use_other_loaders_only(void **state) {
  (void)state;
  accel_status_t (*const calls[])(accel_dataloader_t *) = {take_batch, begin_again, go_elsewhere, skip_batch};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    for (int64_t workers = 0; workers <= 2; workers += 2) {
      accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
      struct use use = {calls[i], NULL};
      options.num_workers = workers;
      use.loader = new_loader(4, &options);
      assert_ok(accel_dataloader_set_collate(use.loader, use_loader, &use, NULL));
      assert_fails(take_batch(use.loader), ACCEL_ERROR_INVALID_STATE, "uses the loader itself");
      accel_dataloader_release(use.loader);
    }
  struct use other = {take_batch, new_loader(4, NULL)};
  accel_dataloader_t *loader = new_loader(4, NULL);
  assert_ok(accel_dataloader_set_collate(loader, use_loader, &other, NULL));
  for (int i = 0; i < 4; i++) assert_ok(take_batch(loader));
  accel_dataloader_release(loader);
  accel_dataloader_release(other.loader);
}

static void refuses_bad_options(void **state) {
  (void)state;
  accel_dataset_t *numbers = new_numbers(3);
  accel_dataloader_t *refused = NULL;
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  options.collate = 2;
  assert_fails(accel_dataloader_create(numbers, &options, &refused), ACCEL_ERROR_INVALID_ARGUMENT,
               "options.collate is 2");
  options.collate = ACCEL_COLLATE_PAD;
  options.pad_to_multiple_of = 0;
  assert_fails(accel_dataloader_create(numbers, &options, &refused), ACCEL_ERROR_INVALID_ARGUMENT,
               "pad_to_multiple_of is 0");
  options.pad_to_multiple_of = ACCEL_UNSET_INT64;
  options.padding_side = 7;
  assert_fails(accel_dataloader_create(numbers, &options, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "padding_side is 7");
  options.padding_side = ACCEL_PADDING_SIDE_LEFT;
  options.num_workers = -1;
  assert_fails(accel_dataloader_create(numbers, &options, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "num_workers is -1");
  assert_null(refused);
  assert_int_equal(accel_dataloader_epoch(NULL), -1);
  assert_int_equal(accel_dataloader_valid_rows(NULL), -1);
  accel_dataset_release(numbers);
}

static void config_of_the_reference(void **state) {
  (void)state;
  accel_state_t *one = new_state();
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  options.batch_size = 32;
  options.shuffle = 1;
  accel_dataloader_t *plain = new_loader(32, &options), *loader = NULL;
  accel_dataloader_config_t config = ACCEL_DATALOADER_CONFIG_INIT;
  config.data_seed = 7;
  config.use_stateful_dataloader = 0;
  assert_ok(accel_prepare_data_loader(one, plain, &config, &loader));
  accel_value_t batch = ACCEL_VALUE_INIT, dict = ACCEL_VALUE_INIT;
  void *data = NULL;
  assert_ok(accel_dataloader_next(loader, &batch));
  assert_ok(accel_tensor_data(accel_value_at(&batch, 0)->as.tensor, &data));
  assert_int_equal(((const int64_t *)data)[0], 15); /* torch.randperm(32, generator=seed 7) */
  assert_ok(accel_dataloader_state_dict(loader, &dict));
  assert_int_equal(accel_value_get(&dict, "seed")->as.integer, 7);
  assert_int_equal(accel_value_get(&dict, "samples")->as.integer, 32);
  accel_value_dispose(&dict);
  accel_value_dispose(&batch);
  accel_dataloader_release(loader);
  accel_dataloader_release(plain);
  accel_state_release(one);
}

static void expect_config(const accel_dataloader_t *loader, const char *expected) {
  accel_value_t config = ACCEL_VALUE_INIT;
  assert_ok(accel_dataloader_config(loader, &config));
  assert_json(&config, expected);
  accel_value_dispose(&config);
}

static void count_warnings(int32_t level, const char *message, void *user_data) {
  if (level == ACCEL_LOG_WARNING && strstr(message, "pin_memory") != NULL) ++*(int *)user_data;
}

// Regression: one process accepted batches of any size with `split_batches`, which several refuse.
static void config_is_told(void **state) {
  (void)state;
  accel_state_t *one = new_state();
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  accel_dataloader_config_t config = ACCEL_DATALOADER_CONFIG_INIT;
  options.batch_size = 4;
  options.pin_memory = 0;
  accel_dataloader_t *plain = new_loader(10, &options), *loader = NULL;
  accel_value_t out = ACCEL_VALUE_INIT;
  int warnings = 0;
  assert_int_equal(accel_dataloader_total_batch_size(plain), 4);
  assert_int_equal(accel_dataloader_total_dataset_length(plain), 10);
  assert_fails(accel_dataloader_config(plain, &out), ACCEL_ERROR_INVALID_STATE, "not prepared");
  assert_fails(accel_dataloader_set_even_batches(plain, 0), ACCEL_ERROR_INVALID_STATE, "not prepared");
  assert_ok(accel_prepare_data_loader(one, plain, NULL, &loader));
  assert_int_equal(accel_dataloader_total_batch_size(loader), 4);
  assert_int_equal(accel_dataloader_total_dataset_length(loader), 10);
  expect_config(loader,
                "{\"even_batches\":true,\"split_batches\":false,\"put_on_device\":true,"
                "\"non_blocking\":false,\"dispatch_batches\":false,\"use_seedable_sampler\":true,"
                "\"data_seed\":null,\"use_stateful_dataloader\":true,\"sequence_keys\":\"\"}");
  assert_fails(accel_dataloader_set_even_batches(loader, 2), ACCEL_ERROR_INVALID_ARGUMENT, "even_batches is 2");
  assert_ok(accel_dataloader_set_even_batches(loader, 0));
  accel_dataloader_release(loader);
  config.even_batches = config.use_seedable_sampler = config.put_on_device = config.use_stateful_dataloader = 0;
  config.split_batches = config.non_blocking = 1;
  config.data_seed = 3;
  assert_ok(accel_set_log_callback(count_warnings, &warnings, NULL));
  assert_ok(accel_prepare_data_loader(one, plain, &config, &loader));
  assert_int_equal(warnings, 0); /* nothing is copied */
  expect_config(loader,
                "{\"even_batches\":false,\"split_batches\":true,\"put_on_device\":false,"
                "\"non_blocking\":true,\"dispatch_batches\":false,\"use_seedable_sampler\":false,"
                "\"data_seed\":3,\"use_stateful_dataloader\":false,\"sequence_keys\":\"\"}");
  accel_dataloader_release(loader);
  config.put_on_device = 1;
  assert_ok(accel_prepare_data_loader(one, plain, &config, &loader));
  assert_int_equal(warnings, 1);
  accel_dataloader_release(loader);
  assert_ok(accel_set_log_callback(NULL, NULL, NULL));
  /* Batches of any size cannot be split, on one process either. */
  struct calls calls = {0, 0, ACCEL_OK};
  accel_dataloader_t *any = new_loader(5, NULL);
  loader = NULL;
  assert_ok(accel_dataloader_set_batch_sampler(any, two_batches, &calls, note_destroy, ACCEL_UNSET_INT64));
  assert_int_equal(accel_dataloader_total_batch_size(any), -1);
  assert_message("any size");
  assert_fails(accel_prepare_data_loader(one, any, &config, &loader), ACCEL_ERROR_INVALID_ARGUMENT, "split_batches");
  assert_null(loader);
  accel_dataloader_release(any);
  accel_dataloader_release(plain);
  accel_state_release(one);
}

static void loops_are_known(void **state) {
  (void)state;
  accel_state_t *one = new_state();
  accel_dataloader_t *plain = new_loader(2, NULL), *outer = NULL, *inner = NULL, *found = NULL;
  accel_value_t batch = ACCEL_VALUE_INIT;
  assert_ok(accel_prepare_data_loader(one, plain, NULL, &outer));
  assert_ok(accel_prepare_data_loader(one, plain, NULL, &inner));
  assert_int_equal(accel_in_dataloader(one), 0);
  assert_fails(accel_active_dataloader(one, 0, &found), ACCEL_ERROR_NOT_FOUND, "depth 0");
  assert_ok(accel_dataloader_set_epoch(outer, 5));
  assert_ok(accel_dataloader_next(outer, &batch));
  accel_value_dispose(&batch);
  assert_ok(accel_dataloader_next(inner, &batch));
  accel_value_dispose(&batch);
  assert_int_equal(accel_in_dataloader(one), 1);
  assert_ok(accel_active_dataloader(one, 0, &found));
  assert_int_equal(accel_dataloader_epoch(found), 0);
  accel_dataloader_release(found);
  assert_ok(accel_active_dataloader(one, 1, &found));
  assert_int_equal(accel_dataloader_epoch(found), 5);
  expect_batch(found, (const int64_t[]){1}, 1); /* the same place */
  assert_status(accel_dataloader_next(outer, &batch), ACCEL_ITER_END);
  accel_dataloader_release(found);
  assert_fails(accel_active_dataloader(one, 1, &found), ACCEL_ERROR_NOT_FOUND, "depth 1");
  assert_fails(accel_active_dataloader(one, -1, &found), ACCEL_ERROR_INVALID_ARGUMENT, "depth is -1");
  accel_dataloader_release(inner);
  assert_ok(accel_free_memory(one));
  assert_int_equal(accel_in_dataloader(one), 0); /* a loader that is gone is in no loop */
  accel_dataloader_release(outer);
  accel_dataloader_release(plain);
  accel_state_release(one);
}

static void a_loop_of_the_application(void **test) {
  (void)test;
  accel_state_t *state = new_state();
  accel_loop_t *outer = NULL, *inner = NULL;
  assert_int_equal(accel_in_dataloader(state), 0);
  assert_ok(accel_loop_begin(state, &outer));
  assert_int_equal(accel_in_dataloader(state), 1);
  assert_int_equal(accel_end_of_dataloader(state), 0);
  assert_int_equal(accel_remainder(state), -1);
  assert_ok(accel_loop_set_batch(outer, (const int64_t[]){4}, 1, 2, 0));
  assert_int_equal(accel_end_of_dataloader(state), 0);
  assert_int_equal(accel_remainder(state), 2);

  assert_ok(accel_loop_begin(state, &inner));
  assert_int_equal(accel_remainder(state), -1);
  assert_ok(accel_loop_set_batch(inner, (const int64_t[]){4}, 1, 0, 1));
  assert_int_equal(accel_end_of_dataloader(state), 1);
  accel_loop_release(inner);
  assert_int_equal(accel_end_of_dataloader(state), 0);

  assert_ok(accel_loop_set_batch(outer, (const int64_t[]){4}, 1, 2, 1));
  assert_int_equal(accel_end_of_dataloader(state), 1);
  assert_int_equal(accel_remainder(state), 2);
  assert_ptr_equal(accel_loop_retain(outer), outer);
  accel_loop_release(outer);
  assert_int_equal(accel_in_dataloader(state), 1);
  accel_loop_release(outer);
  assert_int_equal(accel_in_dataloader(state), 0);
  accel_state_release(state);
}

static void metrics_of_a_loop_of_the_application(void **test) {
  (void)test;
  accel_state_t *state = new_state();
  accel_loop_t *loop = NULL;
  assert_ok(accel_loop_begin(state, &loop));
  assert_ok(accel_loop_set_batch(loop, (const int64_t[]){4}, 1, 3, 1)); /* the fourth row is a repetition */
  const int64_t shape[] = {4}, rows[] = {5, 6, 7, 5};
  accel_tensor_t *tensor = NULL;
  assert_ok(accel_tensor_from_data(rows, shape, 1, ACCEL_DTYPE_INT64, &tensor));
  const accel_value_t given = accel_arg_tensor(tensor);
  accel_value_t gathered = ACCEL_VALUE_INIT;
  assert_ok(accel_gather_for_metrics(state, &given, &gathered));
  expect_numbers(&gathered, rows, 3);
  accel_value_dispose(&gathered);

  /* As objects: one for each row, whatever they are. */
  accel_value_t items[4], list = ACCEL_VALUE_INIT;
  for (int64_t i = 0; i < 4; i++) items[i] = accel_arg_int(i);
  items[1] = given;
  assert_ok(accel_value_list(items, 4, &list));
  assert_ok(accel_gather_object_for_metrics(state, &list, &gathered));
  assert_int_equal(accel_value_count(&gathered), 3);
  assert_int_equal(accel_value_at(&gathered, 1)->kind, ACCEL_VALUE_TENSOR);
  assert_int_equal(accel_value_at(&gathered, 2)->as.integer, 2);
  accel_value_dispose(&gathered);
  accel_value_dispose(&list);
  accel_tensor_release(tensor);
  accel_loop_release(loop);
  accel_state_release(state);
}

static void wrong_batches_of_a_loop(void **test) {
  (void)test;
  accel_state_t *state = new_state();
  accel_loop_t *loop = NULL;
  assert_ok(accel_loop_begin(state, &loop));
  assert_fails(accel_loop_set_batch(loop, (const int64_t[]){4, 4}, 2, -1, 0), ACCEL_ERROR_INVALID_ARGUMENT,
               "n_rows is 2");
  assert_fails(accel_loop_set_batch(loop, (const int64_t[]){4}, 1, 5, 1), ACCEL_ERROR_INVALID_ARGUMENT,
               "remainder is 5");
  assert_fails(accel_loop_set_batch(loop, (const int64_t[]){4}, 1, -1, 2), ACCEL_ERROR_INVALID_ARGUMENT,
               "end_of_dataloader is 2");
  assert_ok(accel_loop_set_batch(loop, (const int64_t[]){-1}, 1, -7, 0));
  assert_int_equal(accel_remainder(state), -1);
  accel_loop_release(loop);
  accel_state_release(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(collate_by_callback),
      capi_unit_test(batches_by_callback),
      capi_unit_test(slices_by_callback),
      capi_unit_test(threads_call_back),
      capi_unit_test(refuses_bad_options),
      capi_unit_test(config_of_the_reference),
      capi_unit_test(config_is_told),
      capi_unit_test(loops_are_known),
      capi_unit_test(callbacks_use_other_loaders_only),
      capi_unit_test(a_loop_of_the_application),
      capi_unit_test(metrics_of_a_loop_of_the_application),
      capi_unit_test(wrong_batches_of_a_loop),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
