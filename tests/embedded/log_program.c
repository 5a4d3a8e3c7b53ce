/* SPDX-License-Identifier: Apache-2.0 */
/* Threads whose calls fail, without a state, and a child of fork() with one more: log_program NAME THREADS CALLS
 * Each failure is a message of level debug. Prints how many of them the callback got, whose level is that of errors. */
#define _POSIX_C_SOURCE 200809L
#include <accel.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *name;
static int calls;
static int heard;

static void hear(int32_t level, const char *message, void *user_data) {
  (void)level, (void)message, (void)user_data;
  __atomic_add_fetch(&heard, 1, __ATOMIC_RELAXED);
}

static void *fail(void *number) {
  char wanted[96];
  for (int call = 0; call < calls; call++) {
    const accel_op_t *op = NULL;
    snprintf(wanted, sizeof wanted, "%s::thread%d_call%d", name, *(int *)number, call);
    if (accel_op_find(wanted, "", &op) != ACCEL_ERROR_NOT_FOUND) abort();
  }
  return NULL;
}

int main(int argc, char **argv) {
  enum { MOST = 16 };
  if (argc != 4) return 2;
  const int threads = atoi(argv[2]);
  name = argv[1];
  calls = atoi(argv[3]);
  if (threads < 1 || threads > MOST) return 2;
  if (accel_set_log_callback(hear, NULL, NULL) < 0 || accel_set_log_level(ACCEL_LOG_ERROR) < 0) return 1;
  pthread_t started[MOST];
  int numbers[MOST];
  for (int i = 0; i < threads; i++) {
    numbers[i] = i;
    if (pthread_create(&started[i], NULL, fail, &numbers[i]) != 0) return 1;
  }
  for (int i = 0; i < threads; i++) pthread_join(started[i], NULL);
  const pid_t child = fork();
  if (child == 0) {
    const accel_op_t *op = NULL; /* refused: the parent has used the library */
    _exit(accel_op_find("child::of_fork", "", &op) == ACCEL_ERROR_INVALID_STATE ? 0 : 1);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) return 1;
  printf("%d\n", heard);
  return 0;
}
