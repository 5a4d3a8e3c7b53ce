/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a program: one that ends without an error and has not released all handles ends with status 70. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void check(int status, void *unused) {
  (void)unused;
  int64_t (*live_objects)(void) = NULL;
  *(void **)&live_objects = dlsym(RTLD_DEFAULT, "accel_debug_live_objects"); /* other programs lack it */
  const int64_t left = status == 0 && live_objects != NULL ? live_objects() : 0;
  if (left == 0) return;
  fprintf(stderr, "%lld handles were not released\n", (long long)left);
  fflush(NULL);
  _exit(70);
}

__attribute__((constructor)) static void check_at_exit(void) { on_exit(check, NULL); }
