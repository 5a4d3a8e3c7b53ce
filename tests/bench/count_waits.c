/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a benchmark: counts how often it waits for its device, and says so at its end. */
#define _GNU_SOURCE
#include <accel.h>
#include <dlfcn.h>
#include <stdio.h>

static int waits;

accel_status_t accel_device_synchronize(const accel_device_t* device) {
  accel_status_t (*next)(const accel_device_t*) = NULL;
  *(void**)&next = dlsym(RTLD_NEXT, "accel_device_synchronize");
  waits++;
  return next(device);
}

__attribute__((destructor)) static void say(void) { fprintf(stderr, "waits: %d\n", waits); }
