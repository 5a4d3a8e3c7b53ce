/* SPDX-License-Identifier: Apache-2.0 */
/* Models that Python saved: options of TorchScript, and packages. */
#include "capi_test.h"

static void test_optimized_torchscript(void **state) {
  (void)state;
  accel_module_t *model = NULL;
  accel_torchscript_options_t options = ACCEL_TORCHSCRIPT_OPTIONS_INIT;
  options.optimize_for_inference = 1;
  assert_ok(accel_module_load_torchscript("../engine/fixtures/scripted.pt", &options, &model));
  int64_t parameters = -1;
  assert_ok(accel_module_num_parameters(model, &parameters));
  assert_int_equal(parameters, 0);
  assert_fails(accel_module_train(model, 1), ACCEL_ERROR_UNSUPPORTED, "cannot be trained");
  accel_module_release(model);
  options.device = "nowhere";
  assert_fails(accel_module_load_torchscript("../engine/fixtures/scripted.pt", &options, &model),
               ACCEL_ERROR_INVALID_ARGUMENT, "nowhere");
  assert_status(accel_module_load_torchscript("no.pt", NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT);
}

static void test_package_files(void **state) {
  (void)state;
  accel_module_t *model = NULL;
  accel_package_options_t options = ACCEL_PACKAGE_OPTIONS_INIT;
  assert_fails(accel_module_from_package("no.pt2", NULL, &model), ACCEL_ERROR_NOT_FOUND, "'no.pt2'");
  assert_fails(accel_module_from_package("meson.build", NULL, &model), ACCEL_ERROR_CORRUPT, "meson.build");
  assert_fails(accel_module_from_package("../engine/fixtures/scripted.pt", NULL, &model), ACCEL_ERROR_CORRUPT,
               "no model of AOTInductor");
  options.concurrent_calls = 0;
  assert_fails(accel_module_from_package("no.pt2", &options, &model), ACCEL_ERROR_INVALID_ARGUMENT, "concurrent_calls");
  assert_status(accel_module_from_package(NULL, NULL, &model), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_status(accel_module_from_package("no.pt2", NULL, NULL), ACCEL_ERROR_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_optimized_torchscript),
      capi_unit_test(test_package_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
