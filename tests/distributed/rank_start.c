/* SPDX-License-Identifier: Apache-2.0 */
/* The start of a job beside other threads of the program. */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <unistd.h>

#include "rank_program.h"

extern char** environ;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int32_t stop = 0;

static int32_t stops(void) {
  pthread_mutex_lock(&lock);
  const int32_t told = stop;
  pthread_mutex_unlock(&lock);
  return told;
}

/* As a logger does with each line: localtime() reads TZ. Returns its argument when all is well: nothing is changed,
 * even for a moment. */
static void* read_environment(void* argument) {
  char** const before = environ;
  while (!stops())
    for (int32_t i = 0; i < 100; i++)
      if (getenv("ACCEL_TEST_NO_SUCH_VARIABLE") != NULL || environ != before) return NULL;
  return argument;
}

/* The process ends as soon as it has its state. */
void run_leave(accel_state_t* state, const char* argument) {
  (void)state;
  (void)argument;
  _exit(0);
}

/* States of several ranks come and go, and a model is trained, while another thread reads the environment. */
// Regression: threads of the program that read the environment crashed while a state was made.
void run_environment(accel_state_t* state, const char* argument) {
  enum { STATES = 10 };
  char** const before = environ;
  pthread_t reader;
  void* found = NULL;
  (void)argument;
  EXPECT(pthread_create(&reader, NULL, read_environment, &stop) == 0);
  for (int32_t i = 0; i < STATES; i++) {
    accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
    accel_state_t* other = NULL;
    options.cpu = 1;
    CHECK(accel_state_create(&options, &other));
    CHECK(accel_wait_for_everyone(other));
    accel_state_release(other);
    EXPECT(environ == before);
  }
  run_ddp(state, NULL);
  pthread_mutex_lock(&lock);
  stop = 1;
  pthread_mutex_unlock(&lock);
  EXPECT(pthread_join(reader, &found) == 0 && found == &stop);
  CHECK(accel_wait_for_everyone(state));
}
