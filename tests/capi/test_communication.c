/* SPDX-License-Identifier: Apache-2.0 */
/* Sections 4 and 4a: collectives of one process: what comes back, and what is refused. Several ranks are the matter of
 * tests/distributed. */
#include "capi_test.h"

static const accel_device_t kCpu = {ACCEL_DEVICE_CPU, -1};

static int set_up(void **state) {
  accel_state_options_t options = one_process_options();
  return accel_state_create(&options, (accel_state_t **)state) == ACCEL_OK ? 0 : -1;
}

static int tear_down(void **state) {
  accel_state_release(*state);
  return assert_nothing_left(state);
}

static accel_tensor_t *full(int64_t rows, double number, accel_dtype_t dtype) {
  accel_tensor_t *tensor = NULL;
  assert_ok(accel_tensor_full(&rows, 1, number, dtype, &kCpu, &tensor));
  return tensor;
}

static void test_trees(void **state) {
  accel_tensor_t *tensor = full(3, 2.0, ACCEL_DTYPE_FLOAT32);
  const accel_value_t value = accel_arg_tensor(tensor), number = accel_arg_int(3);
  accel_value_t out = ACCEL_VALUE_INIT;
  int32_t same = 0;
  assert_ok(accel_gather(*state, &value, &out));
  assert_ok(accel_value_equal(&value, &out, &same));
  assert_int_equal(same, 1);
  accel_value_dispose(&out);
  assert_ok(accel_gather_for_metrics(*state, &value, &out));
  accel_value_dispose(&out);
  assert_fails(accel_gather_object_for_metrics(*state, &value, &out), ACCEL_ERROR_TYPE_MISMATCH, "expected a list");
  assert_ok(accel_reduce(*state, &value, ACCEL_REDUCE_MEAN, 1.0, &out));
  assert_ptr_not_equal(out.as.tensor, tensor);
  accel_value_dispose(&out);
  assert_ok(accel_broadcast(*state, &value, 0));
  assert_ok(accel_pad_across_processes(*state, &value, 0, 0.0, 0, &out));
  accel_value_dispose(&out);
  assert_ok(accel_gather_uneven(*state, &value, &out));
  accel_value_dispose(&out);

  assert_fails(accel_gather(*state, &number, &out), ACCEL_ERROR_TYPE_MISMATCH, "expected tensors");
  assert_fails(accel_reduce(*state, &value, ACCEL_REDUCE_AND, 1.0, &out), ACCEL_ERROR_TYPE_MISMATCH, "bitwise");
  assert_fails(accel_reduce(*state, &value, 42, 1.0, &out), ACCEL_ERROR_INVALID_ARGUMENT, "42");
  assert_fails(accel_broadcast(*state, &value, 1), ACCEL_ERROR_INVALID_ARGUMENT, "from_process is 1");
  assert_fails(accel_gather(NULL, &value, &out), ACCEL_ERROR_INVALID_ARGUMENT, "state is NULL");
  assert_fails(accel_gather(*state, NULL, &out), ACCEL_ERROR_INVALID_ARGUMENT, "value is NULL");
  assert_fails(accel_gather(*state, &value, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out is NULL");
  assert_int_equal(out.kind, ACCEL_VALUE_NONE);
  accel_tensor_release(tensor);
}

static void test_objects(void **state) {
  accel_value_t object = ACCEL_VALUE_INIT, out = ACCEL_VALUE_INIT;
  const accel_value_t number = accel_arg_int(1);
  assert_ok(accel_value_from_json("[{\"loss\": 0.5}, \"done\"]", &object));
  assert_ok(accel_gather_object(*state, &object, &out));
  assert_int_equal(accel_value_count(&out), 2);
  accel_value_dispose(&out);
  assert_ok(accel_broadcast_object_list(*state, &object, 0, &out));
  accel_value_dispose(&out);
  accel_tensor_t *bytes = full(3, 7.0, ACCEL_DTYPE_UINT8);
  const accel_value_t data = accel_arg_tensor(bytes);
  assert_ok(accel_gather_object(*state, &data, &out));
  assert_int_equal(accel_value_count(&out), 1); /* a list of what each rank passed */
  assert_int_equal(accel_value_at(&out, 0)->kind, ACCEL_VALUE_TENSOR);
  accel_value_dispose(&out);
  accel_tensor_release(bytes);
  assert_fails(accel_broadcast_object_list(*state, &number, 0, &out), ACCEL_ERROR_TYPE_MISMATCH, "list");
  assert_fails(accel_broadcast_object_list(*state, &object, 3, &out), ACCEL_ERROR_INVALID_ARGUMENT,
               "from_process is 3");
  accel_value_dispose(&object);
}

static void test_a_tensor_that_one_rank_has(void **state) {
  accel_tensor_t *tensor = full(3, 7.0, ACCEL_DTYPE_UINT8), *copy = NULL;
  accel_dtype_t dtype = ACCEL_DTYPE_FLOAT32;
  int64_t count = 0;
  assert_ok(accel_copy_tensor_to_devices(*state, tensor, &copy));
  assert_ok(accel_tensor_dtype(copy, &dtype));
  assert_int_equal(dtype, ACCEL_DTYPE_UINT8);
  assert_ok(accel_tensor_numel(copy, &count));
  assert_int_equal(count, 3);
  accel_tensor_release(copy);
  copy = NULL;
  assert_fails(accel_copy_tensor_to_devices(*state, NULL, &copy), ACCEL_ERROR_INVALID_ARGUMENT,
               "0 ranks have a tensor");
  assert_null(copy);
  assert_fails(accel_copy_tensor_to_devices(*state, tensor, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "out");
  accel_tensor_release(tensor);
}

static void test_bare_tensors(void **state) {
  accel_tensor_t *a = full(4, 1.0, ACCEL_DTYPE_FLOAT32), *b = full(4, 2.0, ACCEL_DTYPE_FLOAT32),
                 *c = full(3, 0.0, ACCEL_DTYPE_FLOAT32);
  accel_tensor_t *integers = full(4, 0.0, ACCEL_DTYPE_INT32);
  void *data = NULL;
  assert_ok(accel_all_reduce(*state, a, ACCEL_REDUCE_SUM));
  assert_ok(accel_all_gather(*state, a, b));
  assert_ok(accel_tensor_data(b, &data));
  assert_true(((float *)data)[3] == 1.0f);
  assert_ok(accel_reduce_scatter(*state, a, ACCEL_REDUCE_MAX, b));
  assert_ok(accel_all_to_all(*state, a, b));
  assert_ok(accel_scatter(*state, a, 0, b));
  assert_fails(accel_scatter(*state, NULL, 0, b), ACCEL_ERROR_INVALID_ARGUMENT, "input is NULL");
  assert_fails(accel_all_gather(*state, a, c), ACCEL_ERROR_SHAPE_MISMATCH, "elements");
  assert_fails(accel_all_gather(*state, a, integers), ACCEL_ERROR_TYPE_MISMATCH, "same dtype");
  assert_fails(accel_all_reduce(*state, a, ACCEL_REDUCE_XOR), ACCEL_ERROR_TYPE_MISMATCH, "bitwise");
  assert_ok(accel_all_reduce(*state, integers, ACCEL_REDUCE_XOR));
  assert_fails(accel_send(*state, a, 0, 0), ACCEL_ERROR_INVALID_ARGUMENT, "this rank itself");
  assert_fails(accel_recv(*state, a, 1, 0), ACCEL_ERROR_INVALID_ARGUMENT, "from_process is 1");
  assert_fails(accel_all_reduce(*state, NULL, ACCEL_REDUCE_SUM), ACCEL_ERROR_INVALID_ARGUMENT, "tensor is NULL");
  assert_fails(accel_all_reduce(*state, *state, ACCEL_REDUCE_SUM), ACCEL_ERROR_INVALID_HANDLE, "tensor is a state");
  accel_tensor_release(a);
  accel_tensor_release(b);
  accel_tensor_release(c);
  accel_tensor_release(integers);
}

static accel_status_t count_end(int32_t status, void *user_data) {
  assert_int_equal(status, ACCEL_OK);
  ++*(int32_t *)user_data;
  return ACCEL_OK;
}

static accel_status_t refuse(int32_t status, void *user_data) {
  (void)status;
  (void)user_data;
  accel_error_set(ACCEL_ERROR_USER, "the program does not want it");
  return ACCEL_ERROR_USER;
}

static void count_destroyed(void *user_data) { *(int32_t *)user_data += 100; }

static void test_started_calls(void **state) {
  accel_tensor_t *tensor = full(3, 2.0, ACCEL_DTYPE_FLOAT32), *other = full(3, 0.0, ACCEL_DTYPE_FLOAT32);
  const accel_value_t value = accel_arg_tensor(tensor);
  accel_work_t *works[12] = {NULL};
  accel_value_t objects = ACCEL_VALUE_INIT, out = ACCEL_VALUE_INIT;
  size_t n = 0;
  assert_ok(accel_value_from_json("[1, 2]", &objects));
  assert_ok(accel_gather_async(*state, &value, &works[n++]));
  assert_ok(accel_gather_uneven_async(*state, &value, &works[n++]));
  assert_ok(accel_reduce_async(*state, &value, ACCEL_REDUCE_SUM, 1.0, &works[n++]));
  assert_ok(accel_pad_across_processes_async(*state, &value, 0, 0.0, 0, &works[n++]));
  assert_ok(accel_gather_for_metrics_async(*state, &value, &works[n++]));
  assert_ok(accel_gather_object_for_metrics_async(*state, &objects, &works[n++]));
  assert_ok(accel_gather_object_async(*state, &objects, &works[n++]));
  assert_ok(accel_broadcast_object_list_async(*state, &objects, 0, &works[n++]));
  for (size_t i = 0; i < n; i++) {
    assert_ok(accel_work_wait(works[i], 60000));
    assert_int_equal(accel_work_test(works[i]), 1);
    assert_ok(accel_work_result(works[i], &out));
    assert_int_equal(out.kind, i < 5 ? ACCEL_VALUE_TENSOR : ACCEL_VALUE_LIST);
    accel_value_dispose(&out);
    accel_work_release(works[i]);
  }
  n = 0;
  assert_ok(accel_broadcast_async(*state, &value, 0, &works[n++]));
  assert_ok(accel_all_reduce_async(*state, tensor, ACCEL_REDUCE_SUM, &works[n++]));
  assert_ok(accel_all_gather_async(*state, tensor, other, &works[n++]));
  assert_ok(accel_reduce_scatter_async(*state, tensor, ACCEL_REDUCE_SUM, other, &works[n++]));
  assert_ok(accel_all_to_all_async(*state, tensor, other, &works[n++]));
  assert_ok(accel_scatter_async(*state, tensor, 0, other, &works[n++]));
  assert_ok(accel_wait_for_everyone_async(*state, &works[n++]));
  for (size_t i = 0; i < n; i++) {
    assert_ok(accel_work_wait(works[i], 60000));
    assert_ok(accel_work_result(works[i], &out));
    assert_int_equal(out.kind, ACCEL_VALUE_NONE);
    accel_work_release(works[i]);
  }
  assert_fails(accel_send_async(*state, tensor, 0, 0, &works[0]), ACCEL_ERROR_INVALID_ARGUMENT, "this rank itself");
  assert_fails(accel_recv_async(*state, tensor, 1, 0, &works[0]), ACCEL_ERROR_INVALID_ARGUMENT, "from_process is 1");
  accel_value_dispose(&objects);
  accel_tensor_release(tensor);
  accel_tensor_release(other);
}

static void test_works(void **state) {
  accel_tensor_t *tensor = full(4, 1.0, ACCEL_DTYPE_FLOAT32);
  accel_work_t *work = NULL, *failing = NULL;
  accel_value_t out = ACCEL_VALUE_INIT;
  accel_error_t *error = NULL;
  int32_t ends = 0;
  assert_ok(accel_all_reduce_async(*state, tensor, ACCEL_REDUCE_SUM, &work));
  assert_ok(accel_work_then(work, count_end, &ends, count_destroyed));
  assert_ok(accel_work_wait(work, 60000));
  assert_int_equal(ends, 101);
  assert_ok(accel_work_then(work, count_end, &ends, NULL)); /* after the end, and of a work that is let go */
  accel_work_release(work);
  assert_ok(accel_progress(*state, 0));
  assert_int_equal(ends, 102);

  assert_ok(accel_all_reduce_async(*state, tensor, ACCEL_REDUCE_XOR, &failing));
  assert_fails(accel_work_wait(failing, 60000), ACCEL_ERROR_TYPE_MISMATCH, "bitwise");
  assert_fails(accel_work_result(failing, &out), ACCEL_ERROR_TYPE_MISMATCH, "bitwise");
  assert_ok(accel_error_take(&error));
  assert_int_equal(accel_error_code(error), ACCEL_ERROR_TYPE_MISMATCH);
  accel_error_release(error);
  assert_ok(accel_work_then(failing, refuse, NULL, NULL));
  assert_fails(accel_progress(*state, 0), ACCEL_ERROR_USER, "does not want it");
  assert_fails(accel_work_then(failing, NULL, &ends, count_destroyed), ACCEL_ERROR_INVALID_ARGUMENT,
               "callback is NULL");
  assert_int_equal(ends, 202);
  assert_fails(accel_work_wait(failing, -1), ACCEL_ERROR_INVALID_ARGUMENT, "timeout_ms is -1");
  assert_fails(accel_progress(*state, -1), ACCEL_ERROR_INVALID_ARGUMENT, "max_us is -1");
  accel_work_release(accel_work_retain(failing));
  accel_work_release(failing);
  accel_tensor_release(tensor);
}

static void test_flight_record(void **state) {
  accel_buffer_t text = ACCEL_BUFFER_INIT;
  accel_value_t record = ACCEL_VALUE_INIT;
  accel_tensor_t *tensor = full(4, 1.0, ACCEL_DTYPE_FLOAT32);
  assert_ok(accel_all_reduce(*state, tensor, ACCEL_REDUCE_SUM));
  assert_ok(accel_flight_record(*state, &text));
  assert_non_null(strstr(text.data, "\"call\":\"all_reduce\""));
  assert_non_null(strstr(text.data, "\"bytes\":16"));
  assert_ok(accel_value_from_json(text.data, &record));
  accel_value_dispose(&record);
  accel_buffer_dispose(&text);
  accel_tensor_release(tensor);
}

static void test_groups(void **state) {
  const int64_t self[] = {0}, wrong[] = {1};
  accel_state_t *group = NULL, *half = NULL, *survivors = NULL;
  assert_ok(accel_group_create(*state, self, 1, &group));
  assert_int_equal(accel_num_processes(group), 1);
  assert_ok(accel_wait_for_everyone(group));
  assert_ok(accel_group_split(group, 7, 0, &half));
  assert_ok(accel_group_shrink(half, 0, &survivors));
  assert_int_equal(accel_process_index(survivors), 0);
  accel_state_release(survivors);
  accel_state_release(half);
  accel_state_release(group);
  assert_fails(accel_group_create(*state, wrong, 1, &group), ACCEL_ERROR_INVALID_ARGUMENT, "ranks[0] is 1");
  assert_fails(accel_group_create(*state, self, 0, &group), ACCEL_ERROR_INVALID_ARGUMENT, "only members");
  assert_fails(accel_group_shrink(*state, -1, &group), ACCEL_ERROR_INVALID_ARGUMENT, "wait_ms is -1");
}

static void test_mesh(void **state) {
  const int64_t sizes[] = {1, 1}, wrong[] = {1, 2};
  accel_mesh_t *mesh = NULL, *own = NULL;
  accel_state_t *group = NULL;
  accel_buffer_t text = ACCEL_BUFFER_INIT;
  int64_t number = -1;
  assert_ok(accel_state_mesh(*state, &mesh));
  assert_ok(accel_mesh_describe(mesh, &text));
  assert_string_equal(text.data,
                      "pipeline 1, replicate 1, shard 1, context 1, tensor 1; this rank is at 0, 0, 0, 0, 0");
  accel_buffer_dispose(&text);
  const char *const settings[][2] = {{"pipeline", "pipeline_parallel_size = 1 ("},
                                     {"shard", "data_parallel_shard_size = 1 ("},
                                     {"context", "context_parallel_size = 1 ("},
                                     {"tensor", "tensor_parallel_size = 1 ("}};
  assert_ok(accel_state_describe(*state, &text));
  for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
    assert_ok(accel_mesh_size(mesh, settings[i][0], &number));
    assert_int_equal(number, 1);
    assert_non_null(strstr(text.data, settings[i][1]));
  }
  accel_buffer_dispose(&text);
  assert_ok(accel_mesh_size(mesh, "replicate,shard", &number));
  assert_int_equal(number, 1);
  assert_ok(accel_mesh_coordinate(mesh, "tensor", &number));
  assert_int_equal(number, 0);
  assert_ok(accel_mesh_group(mesh, "tensor", &group));
  accel_mesh_release(mesh);
  assert_int_equal(accel_num_processes(group), 1);
  assert_ok(accel_wait_for_everyone(group));
  accel_state_release(group);

  assert_ok(accel_mesh_create(*state, "replicate,expert", sizes, 2, &own));
  accel_mesh_release(accel_mesh_retain(own));
  assert_ok(accel_mesh_size(own, "expert", &number));
  assert_fails(accel_mesh_size(own, "tensor", &number), ACCEL_ERROR_NOT_FOUND, "no axis 'tensor'");
  assert_fails(accel_mesh_coordinate(own, "", &number), ACCEL_ERROR_INVALID_ARGUMENT, "axes is empty");
  assert_fails(accel_mesh_group(own, NULL, &group), ACCEL_ERROR_INVALID_ARGUMENT, "axes is NULL");
  accel_mesh_release(own);
  assert_fails(accel_mesh_create(*state, "replicate,expert", sizes, (size_t)1 << 62, &own),
               ACCEL_ERROR_INVALID_ARGUMENT, "more than any memory holds");
  assert_fails(accel_mesh_create(*state, "replicate,expert", wrong, 2, &own), ACCEL_ERROR_INVALID_ARGUMENT,
               "1 (replicate) x 2 (expert) and there is 1 rank");
  assert_fails(accel_mesh_create(*state, "replicate,expert", sizes, 1, &own), ACCEL_ERROR_INVALID_ARGUMENT,
               "n_axes is 1; expected a size for each of the 2 axes");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_trees, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_objects, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_a_tensor_that_one_rank_has, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_bare_tensors, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_started_calls, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_works, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_flight_record, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_groups, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_mesh, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
