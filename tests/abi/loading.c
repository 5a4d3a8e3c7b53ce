/* SPDX-License-Identifier: Apache-2.0 */
/* Links nothing of the library: loads it as an interpreter does, finds every function of the header, and uses some.
 *
 * usage: loading LIBRARY */
#define _XOPEN_SOURCE 700
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../capi/generated/function_names.h"
#include "accel.h"
#include "process_resources.h"

enum { TIMES = 100 };

static const char* library_path = NULL;

/* The functions that do the work, under the names of their types. */
static struct {
  accel_status_t (*state_create)(const accel_state_options_t*, accel_state_t**);
  void (*state_release)(accel_state_t*);
  accel_status_t (*tensor_full)(const int64_t*, size_t, double, accel_dtype_t, const accel_device_t*, accel_tensor_t**);
  accel_status_t (*tensor_item)(const accel_tensor_t*, double*);
  void (*tensor_release)(accel_tensor_t*);
  accel_status_t (*op_find)(const char*, const char*, const accel_op_t**);
  accel_status_t (*op_call)(const accel_op_t*, const accel_value_t*, size_t, accel_value_t*, size_t, size_t*);
  void (*value_dispose)(accel_value_t*);
  int64_t (*live_objects)(void);
} api;

static void* load(void) {
  void* const library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fail_msg("%s", dlerror());
  return library;
}

/* The conversion of an object pointer to a function pointer that POSIX describes. */
#define FIND(library, member, name) *(void**)&api.member = dlsym(library, name)

static void find_functions(void* library) {
  FIND(library, state_create, "accel_state_create");
  FIND(library, state_release, "accel_state_release");
  FIND(library, tensor_full, "accel_tensor_full");
  FIND(library, tensor_item, "accel_tensor_item");
  FIND(library, tensor_release, "accel_tensor_release");
  FIND(library, op_find, "accel_op_find");
  FIND(library, op_call, "accel_op_call");
  FIND(library, value_dispose, "accel_value_dispose");
  FIND(library, live_objects, "accel_debug_live_objects");
}

static void create_add_and_release(void) {
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t* state = NULL;
  accel_tensor_t* tensor = NULL;
  const accel_op_t* add = NULL;
  accel_value_t terms[2], sum = ACCEL_VALUE_INIT;
  size_t count = 0;
  double number = 0;
  options.cpu = 1;
  options.process_index = 0;
  options.num_processes = 1;
  assert_int_equal(api.state_create(&options, &state), ACCEL_OK);
  assert_int_equal(api.tensor_full(NULL, 0, 1.5, ACCEL_DTYPE_FLOAT32, &cpu, &tensor), ACCEL_OK);
  assert_int_equal(api.op_find("aten::add", "Tensor", &add), ACCEL_OK);
  terms[0] = terms[1] = accel_arg_tensor(tensor);
  assert_int_equal(api.op_call(add, terms, 2, &sum, 1, &count), ACCEL_OK);
  assert_int_equal(api.tensor_item(sum.as.tensor, &number), ACCEL_OK);
  assert_true(number == 3.0);
  api.value_dispose(&sum);
  api.tensor_release(tensor);
  api.state_release(state);
  assert_int_equal(api.live_objects(), 0);
}

/* The library finds its plugins beside itself, also when the program has changed its folder since. Comes first: the
 * name by which a library was loaded first stays. */
// Regression: a library that was loaded by a relative path lost its plugins when the program changed its folder.
static void test_plugins_are_found_after_loading_by_a_relative_path(void** state) {
  int32_t (*is_available)(const char*) = NULL;
  char folder[4096], name[4200];
  char* slash = NULL;
  void* library = NULL;
  int32_t before = 0;
  (void)state;
  assert_true(strlen(library_path) < sizeof folder);
  strcpy(folder, library_path);
  slash = strrchr(folder, '/');
  assert_non_null(slash);
  *slash = '\0';
  sprintf(name, "./%s", slash + 1);
  assert_int_equal(unsetenv("ACCEL_PLUGIN_PATH"), 0);
  assert_int_equal(chdir(folder), 0);
  library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fail_msg("%s", dlerror());
  *(void**)&is_available = dlsym(library, "accel_is_available");
  before = is_available("ucx");
  assert_int_equal(chdir("/"), 0);
  assert_int_equal(is_available("ucx"), before);
  assert_int_equal(dlclose(library), 0);
}

static void test_every_function_is_found(void** state) {
  const size_t count = sizeof accel_function_names / sizeof *accel_function_names;
  void* const library = load();
  size_t i;
  (void)state;
  for (i = 0; i < count; i++)
    if (dlsym(library, accel_function_names[i]) == NULL) fail_msg("%s", dlerror());
  assert_int_equal(dlclose(library), 0);
}

static void test_values_are_made_by_the_library_too(void** state) {
  void* const library = load();
  accel_status_t (*value_int)(int64_t, accel_value_t*) = NULL;
  accel_status_t (*value_device)(const accel_device_t*, accel_value_t*) = NULL;
  const accel_device_t device = {ACCEL_DEVICE_CUDA, 3};
  const accel_value_t inline_int = accel_arg_int(-7), inline_device = accel_arg_device(&device);
  accel_value_t made = ACCEL_VALUE_INIT;
  (void)state;
  assert_null(dlsym(library, "accel_arg_int"));
  *(void**)&value_int = dlsym(library, "accel_value_int");
  *(void**)&value_device = dlsym(library, "accel_value_device");
  assert_int_equal(value_int(-7, &made), ACCEL_OK);
  assert_memory_equal(&made, &inline_int, sizeof made);
  assert_int_equal(value_device(&device, &made), ACCEL_OK);
  assert_memory_equal(&made, &inline_device, sizeof made);
  assert_int_equal(dlclose(library), 0);
}

static void test_loading_and_working_many_times(void** state) {
  int descriptors = 0, threads = 0, time;
  (void)state;
  for (time = 1; time <= TIMES; time++) {
    void* const library = load();
    find_functions(library);
    create_add_and_release();
    assert_int_equal(dlclose(library), 0);
    if (time == 1) { /* what LibTorch opens and starts once stays */
      descriptors = count_descriptors();
      threads = count_threads();
    }
  }
  assert_in_range(settled(count_descriptors, descriptors), 1, descriptors);
  assert_in_range(settled(count_threads, threads), 1, threads);
}

int main(int count, char** arguments) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plugins_are_found_after_loading_by_a_relative_path),
      cmocka_unit_test(test_every_function_is_found),
      cmocka_unit_test(test_values_are_made_by_the_library_too),
      cmocka_unit_test(test_loading_and_working_many_times),
  };
  if (count != 2) return 2;
  library_path = realpath(arguments[1], NULL); /* kept until the end */
  if (library_path == NULL) return 2;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
