/* SPDX-License-Identifier: Apache-2.0 */
/* accel_tensor_elements() of a tensor that is not on the CPU: run with a device of ACCEL_DEVICE_PLUGINS. */
#include "../capi/capi_test.h"

static void test_refused_until_copied(void **state) {
  (void)state;
  const int64_t three[] = {3};
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  accel_device_t device = cpu;
  accel_tensor_t *there = NULL, *here = NULL;
  void *found = NULL;
  int64_t count = 0;
  assert_ok(accel_device_default(&device));
  assert_int_not_equal(device.type, ACCEL_DEVICE_CPU);
  assert_ok(accel_tensor_full(three, 1, 2, ACCEL_DTYPE_FLOAT32, &device, &there));
  assert_fails(accel_tensor_elements(there, ACCEL_DTYPE_FLOAT32, &found, &count), ACCEL_ERROR_UNSUPPORTED,
               "expected one on the CPU, accel_tensor_to() copies it there");
  assert_null(found);
  assert_ok(accel_tensor_to(there, ACCEL_DTYPE_FLOAT32, &cpu, 0, &here));
  assert_ok(accel_tensor_elements(here, ACCEL_DTYPE_FLOAT32, &found, &count));
  assert_int_equal(count, 3);
  assert_true(((const float *)found)[2] == 2);
  accel_tensor_release(here);
  accel_tensor_release(there);
}

int main(void) {
  const struct CMUnitTest tests[] = {capi_unit_test(test_refused_until_copied)};
  return cmocka_run_group_tests_name("elements_on_device", tests, NULL, NULL);
}
