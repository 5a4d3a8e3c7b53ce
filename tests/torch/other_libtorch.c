/* SPDX-License-Identifier: Apache-2.0 */
/* A program that has loaded another LibTorch before libaccel: it gets an error, and lives on.
 *
 * usage: other_libtorch LIBACCEL LIBC10 LIBTORCH_CPU [VERSION]
 *
 * With VERSION the stand-ins have all symbols, so libaccel loads, and each call is refused with that version. Without
 * it they have none, and libaccel cannot be loaded. It links nothing, so that it decides what is loaded first. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel.h"

#define CHECK(condition, found) \
  ((condition) ? (void)0 : (fprintf(stderr, "line %d: %s; found: %s\n", __LINE__, #condition, (found)), exit(1)))

static void* load(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL, dlerror());
  return library;
}

/* A function of libaccel. C has no cast from an object's pointer to a function's. */
static void find(void* library, const char* name, void* out_function) {
  void* const symbol = dlsym(library, name);
  CHECK(symbol != NULL, name);
  memcpy(out_function, &symbol, sizeof symbol);
}

static void check_refused(accel_status_t status, const char* message, const char* path, const char* version) {
  CHECK(status == ACCEL_ERROR_UNSUPPORTED, message);
  CHECK(strstr(message, version) != NULL, message);
  CHECK(strstr(message, path) != NULL, message);
  CHECK(strstr(message, " was built for LibTorch ") != NULL, message);
  CHECK(strchr(message, '\n') == NULL, message);
}

static void check_calls_refused(void* library, const char* libtorch_cpu, const char* version) {
  const char* (*last_error)(void);
  accel_status_t (*state_create)(const accel_state_options_t*, accel_state_t**);
  accel_status_t (*tensor_full)(const int64_t*, size_t, double, accel_dtype_t, accel_device_t, accel_tensor_t**);
  accel_status_t (*op_find)(const char*, const char*, const accel_op_t**);
  accel_status_t (*module_create)(const char*, accel_module_t**);
  int32_t (*is_available)(const char*);
  int64_t (*live_objects)(void);
  find(library, "accel_last_error", &last_error);
  find(library, "accel_state_create", &state_create);
  find(library, "accel_tensor_full", &tensor_full);
  find(library, "accel_op_find", &op_find);
  find(library, "accel_module_create", &module_create);
  find(library, "accel_is_available", &is_available);
  find(library, "accel_debug_live_objects", &live_objects);

  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  accel_state_t* state = NULL;
  accel_tensor_t* tensor = NULL;
  const accel_op_t* op = NULL;
  accel_module_t* module = NULL;
  check_refused(state_create(NULL, &state), last_error(), libtorch_cpu, version);
  check_refused(tensor_full(NULL, 0, 1.0, ACCEL_DTYPE_FLOAT32, cpu, &tensor), last_error(), libtorch_cpu, version);
  check_refused(op_find("aten::add", "Tensor", &op), last_error(), libtorch_cpu, version);
  check_refused(module_create("Model", &module), last_error(), libtorch_cpu, version);
  CHECK(is_available("cuda") != 1, last_error());
  CHECK(state == NULL && tensor == NULL && op == NULL && module == NULL, "an output that was written");
  CHECK(live_objects() == 0, "a handle that is alive");
}

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    fprintf(stderr, "usage: other_libtorch LIBACCEL LIBC10 LIBTORCH_CPU [VERSION]\n");
    return 2;
  }
  load(argv[2]);
  load(argv[3]);
  if (argc == 5) {
    check_calls_refused(load(argv[1]), argv[3], argv[4]);
    return 0;
  }
  CHECK(dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL) == NULL, "a library that was loaded");
  const char* const message = dlerror();
  CHECK(message != NULL && strstr(message, "undefined symbol") != NULL, message != NULL ? message : "no message");
  return 0;
}
