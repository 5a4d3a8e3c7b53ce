/* SPDX-License-Identifier: Apache-2.0 */
/* Loading the library, working with it and releasing everything changes nothing of the process that is not the
 * library's.
 *
 * usage: good_manners EVERYDAY_WORK, a module that links the library, so that loading it is part of what is watched. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <fenv.h>
#include <float.h>
#include <locale.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "process_resources.h"

extern char** environ;

enum { DAYS = 6, MOST_SIGNALS = 65, MOST_TEXT = 65536 };

/* What all parts of a process share. */
struct surroundings {
  char environment[MOST_TEXT];
  char locale[256];
  char folder[4096];
  mode_t mask;
  int rounding;
  int keeps_small_numbers;
  struct sigaction actions[MOST_SIGNALS];
  sigset_t blocked;
};

static struct surroundings before, after;
static const char* module_path = NULL;
static int (*do_everyday_work)(void) = NULL;

static int keeps_small_numbers(void) {
  volatile double smallest = DBL_MIN;
  volatile double half = smallest / 2; /* 0 when results are flushed */
  return half != 0 && half * 2 == smallest;
}

static void look(struct surroundings* seen) {
  size_t used = 0;
  int i;
  memset(seen, 0, sizeof *seen);
  for (i = 0; environ[i] != NULL; i++) {
    assert_true(used + strlen(environ[i]) + 2 < MOST_TEXT);
    used += (size_t)sprintf(seen->environment + used, "%s\n", environ[i]);
  }
  snprintf(seen->locale, sizeof seen->locale, "%s", setlocale(LC_ALL, NULL));
  assert_non_null(getcwd(seen->folder, sizeof seen->folder));
  seen->mask = umask(0);
  umask(seen->mask);
  seen->rounding = fegetround();
  seen->keeps_small_numbers = keeps_small_numbers();
  for (i = 1; i < MOST_SIGNALS; i++) sigaction(i, NULL, &seen->actions[i]); /* fails for those that libc keeps */
  sigprocmask(SIG_BLOCK, NULL, &seen->blocked);
}

static void assert_unchanged(void) {
  int i;
  look(&after);
  assert_string_equal(after.environment, before.environment);
  assert_string_equal(after.locale, before.locale);
  assert_string_equal(after.folder, before.folder);
  assert_int_equal(after.mask, before.mask);
  assert_int_equal(after.rounding, before.rounding);
  assert_int_equal(after.keeps_small_numbers, before.keeps_small_numbers);
  for (i = 1; i < MOST_SIGNALS; i++) {
    const struct sigaction *const was = &before.actions[i], *const is = &after.actions[i];
    if (is->sa_handler != was->sa_handler || is->sa_flags != was->sa_flags) fail_msg("signal %d is handled anew", i);
    if (sigismember(&after.blocked, i) != sigismember(&before.blocked, i)) fail_msg("signal %d is blocked anew", i);
  }
}

/* Runs `body` while standard output and standard error are a file; returns how many bytes came there. */
static long bytes_written_by(void (*body)(void)) {
  FILE* const file = tmpfile();
  const int saved[] = {dup(STDOUT_FILENO), dup(STDERR_FILENO)};
  long written;
  assert_non_null(file);
  fflush(NULL);
  dup2(fileno(file), STDOUT_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  body();
  fflush(NULL);
  dup2(saved[0], STDOUT_FILENO);
  dup2(saved[1], STDERR_FILENO);
  close(saved[0]);
  close(saved[1]);
  fseek(file, 0, SEEK_END);
  written = ftell(file);
  if (written > 0) {
    char text[512];
    rewind(file);
    while (fgets(text, sizeof text, file) != NULL) print_error("%s", text);
  }
  fclose(file);
  return written;
}

static void load(void) {
  void* const module = dlopen(module_path, RTLD_NOW | RTLD_LOCAL);
  if (module == NULL) return;
  *(void**)&do_everyday_work = dlsym(module, "do_everyday_work"); /* as POSIX has it */
}

static void work(void) {
  if (do_everyday_work() != 0) do_everyday_work = NULL;
}

static void test_loading(void** state) {
  (void)state;
  look(&before);
  assert_int_equal(bytes_written_by(load), 0);
  if (do_everyday_work == NULL) fail_msg("%s", dlerror());
  assert_unchanged();
}

static void test_working(void** state) {
  int descriptors = 0, threads = 0, day;
  (void)state;
  look(&before);
  for (day = 1; day <= DAYS; day++) {
    assert_int_equal(bytes_written_by(work), 0);
    assert_non_null(do_everyday_work);
    assert_unchanged();
    if (day == 1) { /* what LibTorch starts once stays */
      descriptors = count_descriptors();
      threads = count_threads();
    }
  }
  assert_in_range(settled(count_descriptors, descriptors), 1, descriptors);
  assert_in_range(settled(count_threads, threads), 1, threads);
}

int main(int count, char** arguments) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_loading), cmocka_unit_test(test_working)};
  if (count != 2) return 2;
  module_path = arguments[1];
  /* Not what every process begins with, so that something put back to that would be seen. */
  setlocale(LC_ALL, "C.UTF-8");
  umask(027);
  signal(SIGUSR2, SIG_IGN);
  fesetround(FE_TONEAREST);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
