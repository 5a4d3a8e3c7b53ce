/* SPDX-License-Identifier: Apache-2.0 */
/* Section 14: progress bars, through callbacks. What a terminal shows is tested in tests/observe. */
#include "capi_test.h"

struct shown {
  int lines, last, destroyed;
  char line[512];
};

static void show(const char *line, int32_t is_last, void *user_data) {
  struct shown *const shown = user_data;
  shown->lines++;
  shown->last += is_last;
  snprintf(shown->line, sizeof shown->line, "%s", line);
}

static void count_destroy(void *user_data) { ((struct shown *)user_data)->destroyed++; }

static void a_callback_gets_the_lines(void **unused) {
  struct shown shown = {0};
  accel_progress_options_t options = ACCEL_PROGRESS_OPTIONS_INIT;
  accel_state_t *const state = new_state();
  accel_progress_bar_t *bar = NULL;
  accel_value_t values = ACCEL_VALUE_INIT, report = ACCEL_VALUE_INIT, number = accel_arg_double(0.5),
                list = ACCEL_VALUE_INIT;
  (void)unused;
  options.interval_ms = 0;
  options.initial = 10;
  options.unit = "rows";
  assert_ok(accel_progress_begin(state, "read", 40, &options, show, &shown, count_destroy, &bar));
  assert_int_equal(shown.lines, 1);
  assert_ok(accel_value_map(&values));
  assert_ok(accel_value_set(&values, "loss", &number));
  assert_ok(accel_progress_set_values(bar, &values));
  assert_ok(accel_progress_update(bar, 10));
  assert_int_equal(shown.lines, 2);
  assert_non_null(strstr(shown.line, "read:  50% |"));
  assert_non_null(strstr(shown.line, "20/40 ["));
  assert_non_null(strstr(shown.line, " rows/s, loss 0.5]"));
  assert_ok(accel_progress_report(bar, &report));
  assert_int_equal(accel_value_get(&report, "count")->as.integer, 20);
  assert_int_equal(accel_value_get(&report, "total")->as.integer, 40);
  assert_true(accel_value_get(&report, "rate")->as.number > 0);
  assert_int_equal(accel_value_get(&report, "remaining_seconds")->kind, ACCEL_VALUE_DOUBLE);
  accel_value_dispose(&report);

  assert_fails(accel_progress_update(bar, -1), ACCEL_ERROR_INVALID_ARGUMENT, "count is -1");
  assert_ok(accel_value_list(NULL, 0, &list));
  assert_ok(accel_value_set(&values, "odd", &list));
  assert_fails(accel_progress_set_values(bar, &values), ACCEL_ERROR_TYPE_MISMATCH, "value 'odd' is");
  assert_fails(accel_progress_set_values(bar, &number), ACCEL_ERROR_TYPE_MISMATCH, "expected a map");
  accel_value_dispose(&list);
  accel_value_dispose(&values);

  assert_ok(accel_progress_end(bar));
  assert_ok(accel_progress_end(bar));
  assert_int_equal(shown.last, 1);
  assert_fails(accel_progress_update(bar, 1), ACCEL_ERROR_INVALID_STATE, "has ended");
  assert_int_equal(shown.destroyed, 0);
  accel_progress_bar_release(bar);
  assert_int_equal(shown.destroyed, 1);
  accel_state_release(state);
}

static void the_last_owner_ends_it(void **unused) {
  struct shown shown = {0};
  accel_state_t *const state = new_state();
  accel_progress_bar_t *bar = NULL;
  accel_value_t report = ACCEL_VALUE_INIT;
  (void)unused;
  assert_ok(accel_progress_begin(state, "", ACCEL_UNSET_INT64, NULL, show, &shown, count_destroy, &bar));
  assert_ok(accel_progress_report(bar, &report));
  assert_int_equal(accel_value_get(&report, "total")->kind, ACCEL_VALUE_NONE);
  assert_int_equal(accel_value_get(&report, "remaining_seconds")->kind, ACCEL_VALUE_NONE);
  accel_value_dispose(&report);
  accel_state_release(state); /* the bar stays */
  assert_ok(accel_progress_update(bar, 3));
  accel_progress_bar_release(bar);
  assert_int_equal(shown.last, 1);
  assert_int_equal(shown.destroyed, 1);
  assert_non_null(strstr(shown.line, "3 steps ["));
}

static void bad_arguments_are_refused(void **unused) {
  struct shown shown = {0};
  accel_progress_options_t options = ACCEL_PROGRESS_OPTIONS_INIT;
  const int64_t shape[] = {2, 1};
  const float rows[] = {1, 2};
  accel_state_t *const state = new_state();
  accel_progress_bar_t *bar = NULL;
  accel_dataset_t *dataset = NULL;
  accel_dataloader_t *loader = NULL;
  accel_tensor_t *tensor = new_test_tensor(rows, shape, 2, ACCEL_DTYPE_FLOAT32);
  (void)unused;
  assert_fails(accel_progress_begin(state, "", -2, NULL, show, &shown, count_destroy, &bar),
               ACCEL_ERROR_INVALID_ARGUMENT, "total is -2");
  assert_int_equal(shown.destroyed, 1);
  options.width = 19;
  assert_fails(accel_progress_begin(state, "", 1, &options, NULL, NULL, NULL, &bar), ACCEL_ERROR_INVALID_ARGUMENT,
               "width is 19");
  assert_ok(accel_dataset_tensors(&tensor, 1, &dataset));
  assert_ok(accel_dataloader_create(dataset, NULL, &loader));
  assert_fails(accel_progress_of_dataloader(state, "", loader, NULL, &bar), ACCEL_ERROR_INVALID_ARGUMENT,
               "loader is not prepared");
  accel_dataloader_release(loader);
  accel_dataset_release(dataset);
  accel_tensor_release(tensor);
  accel_state_release(state);
}

/* The bar moves with the loader, and goes before it. */
static void a_loader_is_followed(void **unused) {
  const int64_t shape[] = {3, 1};
  const float rows[] = {1, 2, 3};
  accel_state_t *const state = new_state();
  accel_progress_bar_t *bar = NULL;
  accel_dataset_t *dataset = NULL;
  accel_dataloader_t *loader = NULL, *prepared = NULL;
  accel_tensor_t *tensor = new_test_tensor(rows, shape, 2, ACCEL_DTYPE_FLOAT32);
  accel_value_t batch = ACCEL_VALUE_INIT, report = ACCEL_VALUE_INIT;
  const int64_t expected[] = {0, 1, 2, 3, 0, 1};
  int i;
  (void)unused;
  assert_ok(accel_dataset_tensors(&tensor, 1, &dataset));
  assert_ok(accel_dataloader_create(dataset, NULL, &loader));
  assert_ok(accel_prepare_data_loader(state, loader, NULL, &prepared));
  assert_ok(accel_progress_of_dataloader(state, "", prepared, NULL, &bar));
  for (i = 0; i < 6; i++) {
    assert_status(accel_dataloader_next(prepared, &batch), i == 3 ? ACCEL_ITER_END : ACCEL_OK);
    accel_value_dispose(&batch);
    assert_ok(accel_progress_report(bar, &report));
    assert_int_equal(accel_value_get(&report, "count")->as.integer, expected[i]);
    assert_int_equal(accel_value_get(&report, "total")->as.integer, 3);
    accel_value_dispose(&report);
  }
  accel_progress_bar_release(bar);
  assert_ok(accel_dataloader_next(prepared, &batch));
  accel_value_dispose(&batch);
  accel_dataloader_release(prepared);
  accel_dataloader_release(loader);
  accel_dataset_release(dataset);
  accel_tensor_release(tensor);
  accel_state_release(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(a_callback_gets_the_lines),
      capi_unit_test(the_last_owner_ends_it),
      capi_unit_test(bad_arguments_are_refused),
      capi_unit_test(a_loader_is_followed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
