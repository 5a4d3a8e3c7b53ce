/* Section 14: reports: where the time of a training loop goes. */
#include "capi_test.h"

enum { WIDTH = 16, STEPS = 5 };

static const char *const parts[] = {"data", "forward", "backward", "communication", "optimizer", "other"};

static double number_at(const accel_value_t *map, const char *outer, const char *key) {
  const accel_value_t *const inner = accel_value_get(map, outer);
  assert_non_null(inner);
  const accel_value_t *const number = accel_value_get(inner, key);
  assert_non_null(number);
  assert_int_equal(number->kind, ACCEL_VALUE_DOUBLE);
  return number->as.number;
}

static int64_t steps_of(accel_state_t *state, int32_t reset, accel_value_t *report) {
  accel_value_dispose(report);
  assert_ok(accel_step_report(state, reset, report));
  return accel_value_get(report, "steps")->as.integer;
}

static void assert_sums_up(const accel_value_t *report, const char *which) {
  double sum = 0;
  size_t i;
  for (i = 0; i < sizeof parts / sizeof *parts; i++) {
    assert_true(number_at(report, which, parts[i]) >= 0);
    sum += number_at(report, which, parts[i]);
  }
  assert_true(sum > 0.999 * number_at(report, which, "total") && sum < 1.001 * number_at(report, which, "total"));
}

static void a_loop_is_taken_apart(void **unused) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *state = NULL;
  accel_module_t *model = NULL, *prepared = NULL;
  accel_optimizer_t *plain = NULL, *optimizer = NULL;
  accel_dataset_t *dataset = NULL;
  accel_dataloader_t *loader = NULL, *batches = NULL;
  accel_tensor_t *rows = NULL;
  accel_value_t report = ACCEL_VALUE_INIT;
  float numbers[STEPS * WIDTH];
  const int64_t shape[] = {STEPS, WIDTH};
  int i, step;
  (void)unused;
  options.cpu = 1;
  options.process_index = 0;
  options.num_processes = 1;
  options.num_threads = 1;
  assert_ok(accel_state_create(&options, &state));
  for (i = 0; i < STEPS * WIDTH; i++) numbers[i] = (float)i / WIDTH;
  rows = new_test_tensor(numbers, shape, 2, ACCEL_DTYPE_FLOAT32);
  assert_ok(accel_dataset_tensors(&rows, 1, &dataset));
  assert_ok(accel_dataloader_create(dataset, NULL, &loader));
  assert_ok(accel_prepare_data_loader(state, loader, NULL, &batches));
  assert_ok(accel_module_linear(WIDTH, 1, 1, &model));
  assert_ok(accel_prepare_model(state, model, NULL, &prepared));
  assert_ok(accel_optimizer_sgd(model, NULL, &plain));
  assert_ok(accel_prepare_optimizer(state, plain, &optimizer));

  assert_int_equal(steps_of(state, 0, &report), 0);
  assert_true(number_at(&report, "mean", "total") == 0);
  for (step = 0; step < STEPS; step++) {
    accel_value_t batch = ACCEL_VALUE_INIT, output = ACCEL_VALUE_INIT;
    assert_ok(accel_dataloader_next(batches, &batch));
    assert_ok(accel_module_call(prepared, accel_value_at(&batch, 0), 1, &output));
    assert_ok(accel_backward(state, output.as.tensor, NULL));
    assert_ok(accel_optimizer_step(optimizer));
    assert_ok(accel_optimizer_zero_grad(optimizer, 1));
    accel_value_dispose(&output);
    accel_value_dispose(&batch);
    assert_int_equal(steps_of(state, 0, &report), step + 1);
    assert_sums_up(&report, "latest");
    assert_sums_up(&report, "mean");
    assert_true(number_at(&report, "latest", "data") > 0);
    assert_true(number_at(&report, "latest", "forward") > 0);
    assert_true(number_at(&report, "latest", "backward") > 0);
    assert_true(number_at(&report, "latest", "optimizer") > 0);
  }
  assert_int_equal(steps_of(state, 1, &report), STEPS);
  assert_int_equal(steps_of(state, 0, &report), 0);
  assert_fails(accel_step_report(state, 2, &report), ACCEL_ERROR_INVALID_ARGUMENT, "reset is 2; expected 0 or 1");

  accel_value_dispose(&report);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(plain);
  accel_module_release(prepared);
  accel_module_release(model);
  accel_dataloader_release(batches);
  accel_dataloader_release(loader);
  accel_dataset_release(dataset);
  accel_tensor_release(rows);
  accel_state_release(state);
}

static void threads_are_counted_from_one(void **unused) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *state = NULL;
  (void)unused;
  options.cpu = 1;
  options.num_threads = 0;
  assert_fails(accel_state_create(&options, &state), ACCEL_ERROR_INVALID_ARGUMENT,
               "num_threads is 0; expected at least 1");
}

static int64_t cpu_bytes(const accel_value_t *report, const char *key) {
  const accel_value_t *const number = accel_value_get(accel_value_get(report, "cpu"), key);
  assert_non_null(number);
  assert_int_equal(number->kind, ACCEL_VALUE_INT);
  return number->as.integer;
}

static void memory_of_tensors_is_kept_and_returned(void **unused) {
  const int64_t shape[] = {1 << 20};
  const int64_t bytes = 4 << 20;
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *state = NULL;
  accel_tensor_t *tensor = NULL;
  accel_value_t report = ACCEL_VALUE_INIT;
  int64_t mapped;
  (void)unused;
  options.cpu = 1;
  options.cpu_memory = ACCEL_CPU_MEMORY_CACHED;
  assert_ok(accel_state_create(&options, &state));
  assert_ok(accel_empty_cache(state));
  assert_ok(accel_memory_report(1, &report));
  assert_int_equal(cpu_bytes(&report, "kept"), 0);
  mapped = cpu_bytes(&report, "mapped");
  accel_value_dispose(&report);

  assert_ok(accel_tensor_full(shape, 1, 1.0, ACCEL_DTYPE_FLOAT32, accel_device(state), &tensor));
  accel_tensor_release(tensor);
  assert_ok(accel_memory_report(0, &report));
  assert_int_equal(cpu_bytes(&report, "in_use"), 0);
  assert_true(cpu_bytes(&report, "kept") >= bytes);
  assert_true(cpu_bytes(&report, "most_in_use") >= bytes);
  assert_int_equal(cpu_bytes(&report, "mapped"), mapped + 1);
  accel_value_dispose(&report);

  assert_ok(accel_tensor_full(shape, 1, 2.0, ACCEL_DTYPE_FLOAT32, accel_device(state), &tensor));
  assert_ok(accel_memory_report(0, &report));
  assert_int_equal(cpu_bytes(&report, "mapped"), mapped + 1);
  assert_int_equal(cpu_bytes(&report, "kept"), 0);
  accel_value_dispose(&report);
  accel_tensor_release(tensor);
  assert_ok(accel_empty_cache(state));
  assert_ok(accel_memory_report(0, &report));
  assert_int_equal(cpu_bytes(&report, "kept"), 0);
  accel_value_dispose(&report);
  assert_fails(accel_memory_report(2, &report), ACCEL_ERROR_INVALID_ARGUMENT, "reset_peak is 2");
  accel_state_release(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(a_loop_is_taken_apart, assert_nothing_left),
      cmocka_unit_test_teardown(memory_of_tensors_is_kept_and_returned, assert_nothing_left),
      cmocka_unit_test_teardown(threads_are_counted_from_one, assert_nothing_left),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
