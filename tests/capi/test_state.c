/* SPDX-License-Identifier: Apache-2.0 */
/* Section 3: process control. */
#define _POSIX_C_SOURCE 200809L
#include "capi_test.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static void test_one_process(void **unused) {
  accel_state_t *state = new_state();
  (void)unused;
  assert_int_equal(accel_process_index(state), 0);
  assert_int_equal(accel_num_processes(state), 1);
  assert_int_equal(accel_local_process_index(state), 0);
  assert_int_equal(accel_local_num_processes(state), 1);
  assert_int_equal(accel_is_main_process(state), 1);
  assert_int_equal(accel_is_local_main_process(state), 1);
  assert_int_equal(accel_is_last_process(state), 1);
  assert_int_equal(accel_use_distributed(state), 0);
  assert_int_equal(accel_distributed_type(state), ACCEL_DISTRIBUTED_NO);
  assert_string_equal(accel_distributed_type_name(ACCEL_DISTRIBUTED_NO), "NO");
  assert_string_equal(accel_distributed_type_name(ACCEL_DISTRIBUTED_MULTI_CPU), "MULTI_CPU");
  assert_string_equal(accel_distributed_type_name(ACCEL_DISTRIBUTED_MULTI_NEURON), "MULTI_NEURON");
  assert_string_equal(accel_distributed_type_name(ACCEL_DISTRIBUTED_FSDP), "FSDP");
  assert_string_equal(accel_distributed_type_name(ACCEL_DISTRIBUTED_MEGATRON_LM), "MEGATRON_LM");
  assert_null(accel_distributed_type_name(14));
  assert_null(accel_distributed_type_name(-1));
  assert_string_equal(accel_backend(state), "");
  assert_int_equal(accel_mixed_precision(state), ACCEL_PRECISION_NO);
  assert_int_equal(accel_debug(state), 0);
  assert_int_equal(accel_device(state)->type, ACCEL_DEVICE_CPU);
  assert_ptr_equal(accel_device(state), accel_device(state));
  assert_ok(accel_set_device(state));
  assert_ok(accel_wait_for_everyone(state));
  assert_int_equal(accel_sync_gradients(state), 1);
  assert_int_equal(accel_end_of_dataloader(state), 0);
  assert_int_equal(accel_remainder(state), -1);
  assert_int_equal(accel_gradient_accumulation_steps(state), 1);
  accel_gradient_accumulation_options_t window = ACCEL_GRADIENT_ACCUMULATION_OPTIONS_INIT;
  window.num_steps = 3;
  assert_ok(accel_set_gradient_accumulation(state, &window));
  assert_int_equal(accel_gradient_accumulation_steps(state), 3);
  window.num_steps = 0;
  assert_fails(accel_set_gradient_accumulation(state, &window), ACCEL_ERROR_INVALID_ARGUMENT, "is 0");
  assert_int_equal(accel_accumulation_step(state), 0);
  assert_ok(accel_set_accumulation_step(state, 1));
  for (int64_t step = 2; step <= 3; step++) {
    accel_scope_t *micro_batch = NULL;
    assert_ok(accel_accumulate_begin(state, NULL, 0, &micro_batch));
    assert_int_equal(accel_accumulation_step(state), step);
    assert_int_equal(accel_sync_gradients(state), step == 3);
    assert_ok(accel_scope_end(micro_batch));
  }
  assert_fails(accel_set_accumulation_step(state, -1), ACCEL_ERROR_INVALID_ARGUMENT, "step is -1; expected at least 0");
  assert_int_equal(accel_accumulation_step(state), 3);
  assert_ok(accel_interrupt()); /* nobody waits */
  assert_ok(accel_destroy_process_group(state));
  assert_ok(accel_end_training(state));
  accel_state_release(state);
}

static void expect_accumulation(const accel_state_t *state, const char *expected) {
  accel_value_t settings = ACCEL_VALUE_INIT;
  assert_ok(accel_gradient_accumulation(state, &settings));
  assert_json(&settings, expected);
  accel_value_dispose(&settings);
}

static void test_accumulation_can_be_changed(void **unused) {
  accel_gradient_accumulation_options_t options = ACCEL_GRADIENT_ACCUMULATION_OPTIONS_INIT, by_function;
  accel_state_t *state = new_state();
  accel_scope_t *scope = NULL;
  (void)unused;
  memset(&by_function, 1, sizeof by_function);
  assert_ok(accel_options_init(ACCEL_OPTIONS_GRADIENT_ACCUMULATION, &by_function, sizeof by_function));
  assert_memory_equal(&options, &by_function, sizeof options);
  expect_accumulation(state,
                      "{\"num_steps\":1,\"adjust_scheduler\":false,\"sync_with_dataloader\":true,"
                      "\"sync_each_batch\":false,\"true_divisor\":false}");
  options.num_steps = 2;
  options.adjust_scheduler = 1;
  options.sync_each_batch = 1;
  assert_ok(accel_set_gradient_accumulation(state, &options));
  assert_int_equal(accel_gradient_accumulation_steps(state), 2);
  assert_ok(accel_options_init(ACCEL_OPTIONS_GRADIENT_ACCUMULATION, &options, sizeof options));
  options.sync_with_dataloader = 0;
  options.true_divisor = 1;
  assert_ok(accel_set_gradient_accumulation(state, &options));
  expect_accumulation(state,
                      "{\"num_steps\":2,\"adjust_scheduler\":true,\"sync_with_dataloader\":false,"
                      "\"sync_each_batch\":true,\"true_divisor\":true}");
  for (int32_t micro_batch = 0; micro_batch < 4; micro_batch++) {
    assert_ok(accel_accumulate_begin(state, NULL, 0, &scope));
    assert_int_equal(accel_sync_gradients(state), micro_batch % 2);
    assert_ok(accel_scope_end(scope));
  }
  options.num_steps = 0;
  options.true_divisor = 0;
  assert_fails(accel_set_gradient_accumulation(state, &options), ACCEL_ERROR_INVALID_ARGUMENT, "is 0");
  options.num_steps = 5;
  options.adjust_scheduler = 2;
  assert_fails(accel_set_gradient_accumulation(state, &options), ACCEL_ERROR_INVALID_ARGUMENT,
               "options.adjust_scheduler is 2");
  expect_accumulation(state,
                      "{\"num_steps\":2,\"adjust_scheduler\":true,\"sync_with_dataloader\":false,"
                      "\"sync_each_batch\":true,\"true_divisor\":true}");
  accel_state_release(state);
}

static void test_fork_launched(void **unused) {
  (void)unused;
  accel_state_t *state = new_state();
  assert_int_equal(accel_fork_launched(state), 0);
  accel_state_release(state);
  assert_int_equal(setenv("FORK_LAUNCHED", "1", 1), 0);
  state = new_state();
  assert_int_equal(unsetenv("FORK_LAUNCHED"), 0);
  assert_int_equal(accel_fork_launched(state), 1);
  accel_state_release(state);
  assert_int_equal(accel_fork_launched(NULL), -1);
}

/* One process is treated as several are. */
static void test_split_checks_on_one_process(void **unused) {
  (void)unused;
  accel_state_t *state = new_state();
  const float numbers[] = {1, 2};
  const int64_t two = 2;
  accel_tensor_t *const tensor = new_test_tensor(numbers, &two, 1, ACCEL_DTYPE_FLOAT32);
  const accel_value_t rows = accel_arg_tensor(tensor), number = accel_arg_int(3);
  accel_value_t share = ACCEL_VALUE_INIT, uneven = ACCEL_VALUE_INIT;
  void *of_input = NULL, *of_share = NULL;
  assert_ok(accel_split_between_processes(state, &rows, 0, &share));
  assert_ok(accel_tensor_data(tensor, &of_input));
  assert_ok(accel_tensor_data(share.as.tensor, &of_share));
  assert_memory_equal(of_share, numbers, sizeof numbers);
  assert_ptr_not_equal(of_share, of_input);
  accel_value_dispose(&share);
  assert_fails(accel_split_between_processes(state, &number, 0, &share), ACCEL_ERROR_TYPE_MISMATCH, "cannot be split");
  assert_ok(accel_value_from_json("{\"a\": [1, 2], \"b\": [1]}", &uneven));
  assert_fails(accel_split_between_processes(state, &uneven, 0, &share), ACCEL_ERROR_INVALID_ARGUMENT, "same length");
  accel_value_dispose(&uneven);
  accel_tensor_release(tensor);
  accel_state_release(state);
}

static void test_options_are_checked(void **unused) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT, by_function;
  accel_state_t *state = NULL;
  (void)unused;
  memset(&by_function, 1, sizeof by_function);
  assert_ok(accel_options_init(ACCEL_OPTIONS_STATE, &by_function, sizeof by_function));
  assert_memory_equal(&options, &by_function, sizeof options);

  options.cpu = 7;
  assert_fails(accel_state_create(&options, &state), ACCEL_ERROR_INVALID_ARGUMENT, "options.cpu is 7");
  options.cpu = 1;
  options.mixed_precision = 9;
  assert_fails(accel_state_create(&options, &state), ACCEL_ERROR_INVALID_ARGUMENT, "options.mixed_precision is 9");
  options.mixed_precision = ACCEL_PRECISION_FP16;
  assert_fails(accel_state_create(&options, &state), ACCEL_ERROR_UNSUPPORTED, "use bf16");
  options.mixed_precision = ACCEL_UNSET;
  options.gradient_accumulation_steps = 0;
  assert_fails(accel_state_create(&options, &state), ACCEL_ERROR_INVALID_ARGUMENT, "gradient_accumulation_steps is 0");
  options.gradient_accumulation_steps = ACCEL_UNSET_INT64;
  options.process_index = 2;
  options.num_processes = 2;
  assert_fails(accel_state_create(&options, &state), ACCEL_ERROR_INVALID_ARGUMENT, "process index is 2");
  options.process_index = 0;
  options.num_processes = 1;
  options.timeout_ms = 0;
  assert_fails(accel_state_create(&options, &state), ACCEL_ERROR_INVALID_ARGUMENT, "timeout_ms is 0");
  options.timeout_ms = ACCEL_UNSET_INT64;
  options.struct_size = 8;
  assert_fails(accel_state_create(&options, &state), ACCEL_ERROR_INVALID_ARGUMENT, "struct_size is 8");
  struct {
    accel_state_options_t options;
    int64_t added;
  } newer = {ACCEL_STATE_OPTIONS_INIT, 1};
  newer.options.struct_size = sizeof newer;
  assert_status(accel_state_create(&newer.options, &state), ACCEL_ERROR_UNSUPPORTED);
  assert_null(state);
  assert_fails(accel_state_create(NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
}

static void test_wrong_handles(void **unused) {
  const int64_t shape[] = {1};
  accel_tensor_t *tensor = NULL;
  int32_t flag = 0;
  (void)unused;
  assert_ok(accel_tensor_full(shape, 1, 1.0, ACCEL_DTYPE_FLOAT32, &(accel_device_t){ACCEL_DEVICE_CPU, -1}, &tensor));
  assert_int_equal(accel_process_index((accel_state_t *)(void *)tensor), -1);
  assert_message("state is a tensor");
  assert_int_equal(accel_process_index(NULL), -1);
  assert_fails(accel_wait_for_everyone(NULL), ACCEL_ERROR_INVALID_ARGUMENT, "state is NULL");
  assert_fails(accel_check_trigger((accel_state_t *)(void *)tensor, &flag), ACCEL_ERROR_INVALID_HANDLE,
               "expected a state");
  assert_null(accel_device(NULL));
  assert_message("state is NULL");
  assert_null(accel_backend(NULL));
  accel_tensor_release(tensor);
  accel_state_release(NULL);
}

static void test_default_and_counting(void **unused) {
  accel_state_t *state = new_state();
  (void)unused;
  assert_null(accel_state_default());
  assert_ok(accel_state_set_default(state));
  assert_ptr_equal(accel_state_default(), state);
  assert_ptr_equal(accel_state_retain(state), state);
  accel_state_release(state);
  accel_state_release(state);
  assert_int_equal(accel_process_index(accel_state_default()), 0);
  assert_ok(accel_state_set_default(NULL));
  assert_null(accel_state_default());
}

static void test_states_of_one_job(void **unused) {
  accel_state_t *first = new_state(), *second = NULL;
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_module_t *model = NULL, *prepared = NULL;
  accel_buffer_t described = ACCEL_BUFFER_INIT;
  (void)unused;
  assert_ok(accel_module_linear(1, 1, 1, &model));
  assert_ok(accel_prepare_model(first, model, NULL, &prepared));
  accel_module_release(prepared);

  options.gradient_accumulation_steps = 4;
  options.step_scheduler_with_optimizer = 0;
  assert_ok(accel_state_share(first, &options, &second));
  assert_int_equal(accel_gradient_accumulation_steps(first), 4); /* of the job */
  assert_ok(accel_state_describe(second, &described));
  assert_non_null(strstr(described.data, "step_scheduler_with_optimizer = no (call)"));
  accel_buffer_dispose(&described);
  assert_ok(accel_state_describe(first, &described));
  assert_non_null(strstr(described.data, "step_scheduler_with_optimizer = yes (default)"));
  accel_buffer_dispose(&described);
  assert_ok(accel_prepare_model(second, model, NULL, &prepared)); /* nothing is prepared in it */
  accel_module_release(prepared);

  accel_state_t *third = NULL;
  options.timeout_ms = 5;
  assert_fails(accel_state_share(first, &options, &third), ACCEL_ERROR_INVALID_ARGUMENT, "timeout_ms differs");
  options.timeout_ms = 1800000;
  options.num_processes = 2;
  assert_fails(accel_state_share(first, &options, &third), ACCEL_ERROR_INVALID_ARGUMENT, "num_processes differs");
  accel_state_release(first);
  assert_int_equal(accel_process_index(second), 0);
  assert_ok(accel_wait_for_everyone(second));
  accel_state_release(second);
  accel_module_release(model);
}

static void test_describe(void **unused) {
  accel_state_t *state = new_state();
  accel_buffer_t text = ACCEL_BUFFER_INIT;
  (void)unused;
  assert_ok(accel_state_describe(state, &text));
  assert_non_null(strstr(text.data, "num_processes = 1 (call)"));
  accel_buffer_dispose(&text);
  assert_fails(accel_state_describe(state, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  accel_state_release(state);
}

static void test_cpu_settings(void **unused) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *state = NULL;
  accel_buffer_t text = ACCEL_BUFFER_INIT;
  (void)unused;
  options.cpu = 1;
  options.num_processes = 1;
  options.cpu_kernels = ACCEL_CPU_KERNELS_DEFAULT;
  options.cpu_memory = ACCEL_CPU_MEMORY_DEFAULT;
  assert_ok(accel_state_create(&options, &state));
  assert_ok(accel_state_describe(state, &text));
  assert_non_null(strstr(text.data, "cpu_kernels = default (call)"));
  assert_non_null(strstr(text.data, "float32 products = LibTorch's kernels\n"));
  assert_non_null(strstr(text.data, "memory of large CPU tensors = the C library's\n"));
  accel_buffer_dispose(&text);
  accel_state_release(state);
  options.cpu_kernels = ACCEL_CPU_KERNELS_ONEDNN;
  options.cpu_memory = ACCEL_CPU_MEMORY_CACHED;
  options.cpu_memory_kept = 1 << 20;
  assert_ok(accel_state_create(&options, &state));
  assert_ok(accel_state_describe(state, &text));
  assert_non_null(strstr(text.data, "float32 products = oneDNN\n"));
  assert_non_null(strstr(text.data, "memory of large CPU tensors = cached for the next\n"));
  accel_buffer_dispose(&text);
  accel_state_release(state);
  state = NULL;
  options.cpu_memory_kept = -2;
  assert_fails(accel_state_create(&options, &state), ACCEL_ERROR_INVALID_ARGUMENT, "cpu_memory_kept is -2 (from call)");
  options.cpu_memory_kept = ACCEL_UNSET_INT64;
  options.cpu_kernels = 3;
  assert_fails(accel_state_create(&options, &state), ACCEL_ERROR_INVALID_ARGUMENT, "options.cpu_kernels is 3");
}

static void test_scopes_and_triggers(void **unused) {
  accel_state_t *state = new_state();
  accel_scope_t *first = NULL, *local = NULL;
  int32_t raised = -1;
  (void)unused;
  assert_ok(accel_main_process_first_begin(state, &first));
  assert_ok(accel_local_main_process_first_begin(state, &local));
  assert_status(accel_scope_end(first), ACCEL_ERROR_INVALID_STATE);
  assert_ok(accel_scope_end(local));
  assert_ok(accel_scope_end(first));
  assert_ok(accel_check_trigger(state, &raised));
  assert_int_equal(raised, 0);
  assert_ok(accel_set_trigger(state));
  assert_ok(accel_check_trigger(state, &raised));
  assert_int_equal(raised, 1);
  assert_ok(accel_check_trigger(state, &raised));
  assert_int_equal(raised, 0);
  accel_state_release(state);
}

static void test_splitting(void **unused) {
  accel_state_t *state = new_state();
  accel_value_t list = ACCEL_VALUE_INIT, share = ACCEL_VALUE_INIT;
  const int64_t items[] = {4, 5, 6};
  int64_t begin = -1, end = -1;
  (void)unused;
  assert_ok(accel_split_range(state, 10, &begin, &end));
  assert_int_equal(begin, 0);
  assert_int_equal(end, 10);
  assert_fails(accel_split_range(state, -1, &begin, &end), ACCEL_ERROR_INVALID_ARGUMENT, "-1");
  assert_ok(accel_value_int_list(items, 3, &list));
  assert_ok(accel_split_between_processes(state, &list, 0, &share));
  assert_int_equal(accel_value_count(&share), 3);
  assert_status(accel_split_between_processes(state, NULL, 0, &share), ACCEL_ERROR_INVALID_ARGUMENT);
  accel_value_dispose(&share);
  accel_value_dispose(&list);
  accel_state_release(state);
}

/* Two ranks as threads of one process. */
#define RANKS 2
struct rank {
  int32_t index;
  int32_t sum, first, split, raised;
  accel_status_t status;
};

static accel_status_t run_rank(struct rank *rank) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *state = NULL;
  accel_scope_t *scope = NULL;
  accel_value_t gathered = ACCEL_VALUE_INIT, share = ACCEL_VALUE_INIT, list = ACCEL_VALUE_INIT, own;
  accel_tensor_t *tensor = NULL;
  const int64_t shape[] = {1}, items[] = {1, 2, 3};
  accel_status_t status;
  options.cpu = 1;
  options.process_index = rank->index;
  options.num_processes = RANKS;
  options.main_process_port = 16384 + getpid() % 13000;
  options.timeout_ms = 30000;
  status = accel_state_create(&options, &state);
  if (status < 0) return status;
  status = accel_tensor_full(shape, 1, rank->index + 1, ACCEL_DTYPE_INT64, accel_device(state), &tensor);
  if (status < 0) return status;
  own = accel_arg_tensor(tensor);
  status = accel_gather(state, &own, &gathered);
  if (status < 0) return status;
  status = accel_main_process_first_begin(state, &scope);
  if (status < 0) return status;
  rank->first = accel_is_main_process(state);
  status = accel_scope_end(scope);
  if (status < 0) return status;
  if (rank->index == 1 && (status = accel_set_trigger(state)) < 0) return status;
  status = accel_check_trigger(state, &rank->raised);
  if (status < 0) return status;
  status = accel_value_int_list(items, 3, &list);
  if (status < 0) return status;
  status = accel_split_between_processes(state, &list, 1, &share);
  if (status < 0) return status;
  rank->split = (int32_t)accel_value_at(&share, 1)->as.integer;
  {
    void *data = NULL;
    status = accel_tensor_data(gathered.as.tensor, &data);
    if (status < 0) return status;
    rank->sum = (int32_t)(((int64_t *)data)[0] * 10 + ((int64_t *)data)[1]);
  }
  accel_value_dispose(&share);
  accel_value_dispose(&list);
  accel_value_dispose(&gathered);
  accel_tensor_release(tensor);
  status = accel_end_training(state);
  accel_state_release(state);
  return status;
}

static void *rank_thread(void *argument) {
  struct rank *rank = argument;
  rank->status = run_rank(rank);
  if (rank->status < 0) print_error("rank %d: %s\n", (int)rank->index, accel_last_error());
  return NULL;
}

static void test_two_ranks_as_threads(void **unused) {
  pthread_t threads[RANKS];
  struct rank ranks[RANKS];
  int32_t i;
  (void)unused;
  memset(ranks, 0, sizeof ranks);
  for (i = 0; i < RANKS; i++) {
    ranks[i].index = i;
    assert_int_equal(pthread_create(&threads[i], NULL, rank_thread, &ranks[i]), 0);
  }
  for (i = 0; i < RANKS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (i = 0; i < RANKS; i++) {
    assert_int_equal(ranks[i].status, ACCEL_OK);
    assert_int_equal(ranks[i].sum, 12);
    assert_int_equal(ranks[i].first, i == 0);
    assert_int_equal(ranks[i].raised, 1);
    assert_int_equal(ranks[i].split, i == 0 ? 2 : 3);
  }
}

/* Languages may take the buffer from standard output; other ranks write to it as well. A datagram is what one write()
 * sends. */
// Regression: lines that two ranks printed were mixed where standard output has no buffer, as in Julia.
static void test_a_line_is_printed_at_once(void **unused) {
  accel_state_t *state = new_state();
  int ends[2];
  char line[16] = "";
  const int before = dup(STDOUT_FILENO);
  (void)unused;
  assert_true(before >= 0);
  assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
  assert_int_equal(fflush(stdout), 0);
  assert_int_equal(dup2(ends[1], STDOUT_FILENO), STDOUT_FILENO);
  setvbuf(stdout, NULL, _IONBF, 0);
  const accel_status_t status = accel_print(state, "loss 0.5");
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
  assert_int_equal(dup2(before, STDOUT_FILENO), STDOUT_FILENO);
  assert_ok(status);
  assert_int_equal(recv(ends[0], line, sizeof line - 1, MSG_DONTWAIT), 9);
  assert_string_equal(line, "loss 0.5\n");
  close(ends[0]), close(ends[1]), close(before);
  accel_state_release(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_one_process),          capi_unit_test(test_accumulation_can_be_changed),
      capi_unit_test(test_fork_launched),        capi_unit_test(test_split_checks_on_one_process),
      capi_unit_test(test_options_are_checked),  capi_unit_test(test_wrong_handles),
      capi_unit_test(test_default_and_counting), capi_unit_test(test_describe),
      capi_unit_test(test_states_of_one_job),    capi_unit_test(test_scopes_and_triggers),
      capi_unit_test(test_cpu_settings),         capi_unit_test(test_splitting),
      capi_unit_test(test_two_ranks_as_threads), capi_unit_test(test_a_line_is_printed_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
