/* SPDX-License-Identifier: Apache-2.0 */
/* Section 14: reports: where the time of a training loop goes. */
#define _DEFAULT_SOURCE
#include <unistd.h>

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
  accel_state_options_t options = one_process_options();
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

/* Steps of which one takes so long. The engine sees a forward, a collective and an update. */
static void train(accel_state_t *state, int steps, useconds_t microseconds) {
  const int64_t shape[] = {1, 2};
  const float numbers[] = {1, 2};
  accel_module_t *model = NULL, *prepared = NULL;
  accel_optimizer_t *plain = NULL, *optimizer = NULL;
  accel_tensor_t *row = new_test_tensor(numbers, shape, 2, ACCEL_DTYPE_FLOAT32);
  accel_value_t input = accel_arg_tensor(row);
  int step;
  assert_ok(accel_module_linear(2, 1, 1, &model));
  assert_ok(accel_prepare_model(state, model, NULL, &prepared));
  assert_ok(accel_optimizer_sgd(model, NULL, &plain));
  assert_ok(accel_prepare_optimizer(state, plain, &optimizer));
  for (step = 0; step < steps; step++) {
    accel_value_t output = ACCEL_VALUE_INIT;
    assert_ok(accel_module_call(prepared, &input, 1, &output));
    usleep(microseconds);
    assert_ok(accel_count_tokens(state, 1000));
    assert_ok(accel_backward(state, output.as.tensor, NULL));
    assert_ok(accel_optimizer_step(optimizer));
    assert_ok(accel_optimizer_zero_grad(optimizer, 1));
    accel_value_dispose(&output);
  }
  accel_tensor_release(row);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(plain);
  accel_module_release(prepared);
  accel_module_release(model);
}

static void a_report_has_memory_and_throughput(void **unused) {
  accel_state_t *const state = new_state();
  accel_value_t report = ACCEL_VALUE_INIT;
  accel_buffer_t table = ACCEL_BUFFER_INIT;
  double tokens;
  (void)unused;
  assert_int_equal(steps_of(state, 0, &report), 0);
  assert_int_equal(accel_value_get(&report, "tokens_per_second")->kind, ACCEL_VALUE_NONE);
  assert_int_equal(accel_value_get(&report, "model_flops_utilization")->kind, ACCEL_VALUE_NONE);
  train(state, 10, 2000);
  assert_ok(accel_set_model_flops(state, 1e3, 1e9));
  assert_int_equal(steps_of(state, 0, &report), 10);
  tokens = accel_value_get(&report, "tokens_per_second")->as.number;
  assert_true(tokens > 1000 && tokens < 1000 / 0.002);
  assert_true(accel_value_get(&report, "model_flops_utilization")->as.number > 0.99 * tokens * 1e-6);
  assert_true(accel_value_get(accel_value_get(&report, "memory"), "resident")->as.integer > 1 << 20);
  assert_true(accel_value_get(accel_value_get(&report, "memory"), "most_resident")->as.integer >=
              accel_value_get(accel_value_get(&report, "memory"), "resident")->as.integer);
  assert_int_equal(accel_value_get(accel_value_get(&report, "memory"), "device_in_use")->as.integer, 0);
  assert_ok(accel_step_report_table(&report, &table));
  assert_non_null(strstr(table.data, "tokens/s"));
  accel_buffer_dispose(&table);

  assert_ok(accel_step_report_of_ranks(state, 1, &report));
  assert_int_equal(accel_value_count(accel_value_get(&report, "ranks")), 1);
  assert_int_equal(accel_value_get(&report, "slowest_rank")->kind, ACCEL_VALUE_NONE);
  assert_true(accel_value_get(&report, "tokens_per_second")->as.number > 0);
  assert_ok(accel_step_report_table(&report, &table));
  assert_non_null(strstr(table.data, "host"));
  accel_buffer_dispose(&table);
  assert_int_equal(steps_of(state, 0, &report), 0);
  accel_value_dispose(&report);
  accel_state_release(state);
}

static void bad_numbers_and_values_are_refused(void **unused) {
  accel_state_t *const state = new_state();
  accel_value_t value = accel_arg_int(3), report = ACCEL_VALUE_INIT;
  accel_buffer_t table = ACCEL_BUFFER_INIT;
  (void)unused;
  assert_fails(accel_count_tokens(state, -1), ACCEL_ERROR_INVALID_ARGUMENT, "n_tokens is -1; expected at least 0");
  assert_fails(accel_set_model_flops(state, 0, 1), ACCEL_ERROR_INVALID_ARGUMENT, "flops_per_token is 0");
  assert_fails(accel_set_model_flops(state, 1, -1), ACCEL_ERROR_INVALID_ARGUMENT, "peak_flops_per_second is -1");
  assert_fails(accel_step_report_table(&value, &table), ACCEL_ERROR_TYPE_MISMATCH, "expected what accel_step_report()");
  assert_fails(accel_step_report_of_ranks(state, 2, &report), ACCEL_ERROR_INVALID_ARGUMENT, "reset is 2");
  accel_state_release(state);
}

static void a_server_needs_an_address_of_this_host(void **unused) {
  accel_serve_metrics_options_t options = ACCEL_SERVE_METRICS_OPTIONS_INIT;
  accel_state_t *const state = new_state();
  int32_t port = 0;
  (void)unused;
  options.port = 65536;
  assert_fails(accel_serve_metrics(state, &options, &port), ACCEL_ERROR_INVALID_ARGUMENT, "port is 65536");
  if (accel_is_available("http") == 1) {
    options.port = 0;
    options.host = "192.0.2.1"; /* of no host: it is for documentation */
    assert_fails(accel_serve_metrics(state, &options, &port), ACCEL_ERROR_IO, "cannot listen at 192.0.2.1");
    assert_ok(accel_serve_metrics(state, NULL, &port));
    assert_true(port > 0);
  } else {
    assert_fails(accel_serve_metrics(state, NULL, &port), ACCEL_ERROR_UNSUPPORTED, "libaccel_http.so");
  }
  accel_state_release(state);
}

enum { RANKS = 3, SLOW = 1 };

static accel_status_t train_as_a_rank(int32_t local_process_index, void *unused) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *state = NULL;
  accel_value_t report = ACCEL_VALUE_INIT;
  accel_buffer_t table = ACCEL_BUFFER_INIT;
  const accel_value_t *ranks;
  int rank;
  (void)unused;
  options.cpu = 1;
  assert_ok(accel_state_create(&options, &state));
  train(state, 8, local_process_index == SLOW ? 30000 : 0);
  assert_ok(accel_step_report_of_ranks(state, 1, &report));
  assert_int_equal(accel_value_get(&report, "slowest_rank")->as.integer, SLOW);
  assert_true(accel_value_get(&report, "slowdown")->as.number > 2);
  ranks = accel_value_get(&report, "ranks");
  assert_int_equal(accel_value_count(ranks), RANKS);
  for (rank = 0; rank < RANKS; rank++) {
    const accel_value_t *const of_rank = accel_value_at(ranks, (size_t)rank);
    assert_int_equal(accel_value_get(of_rank, "rank")->as.integer, rank);
    assert_int_equal(accel_value_get(of_rank, "steps")->as.integer, 8);
    assert_sums_up(of_rank, "mean");
    if (rank != SLOW) assert_true(number_at(of_rank, "mean", "communication") > 0.01);
  }
  assert_ok(accel_step_report_table(&report, &table));
  assert_non_null(strstr(table.data, "rank 1 is the slowest: it computes "));
  accel_buffer_dispose(&table);
  accel_value_dispose(&report);
  accel_state_release(state);
  return ACCEL_OK;
}

static void the_rank_that_sleeps_is_the_slowest(void **unused) {
  accel_launch_options_t options = ACCEL_LAUNCH_OPTIONS_INIT;
  (void)unused;
  options.num_processes = RANKS;
  options.cpu = 1;
  assert_ok(accel_launch(&options, train_as_a_rank, NULL, NULL));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(the_rank_that_sleeps_is_the_slowest), /* before others start threads: it forks */
      capi_unit_test(a_report_has_memory_and_throughput),
      capi_unit_test(bad_numbers_and_values_are_refused),
      capi_unit_test(a_server_needs_an_address_of_this_host),
      cmocka_unit_test_teardown(a_loop_is_taken_apart, assert_nothing_left),
      cmocka_unit_test_teardown(memory_of_tensors_is_kept_and_returned, assert_nothing_left),
      cmocka_unit_test_teardown(threads_are_counted_from_one, assert_nothing_left),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
