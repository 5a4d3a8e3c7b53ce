/* SPDX-License-Identifier: Apache-2.0 */
/* A new folder for each test. A program that includes this defines _POSIX_C_SOURCE first, for mkdtemp(). */
#ifndef ACCEL_FOLDER_FIXTURE_H
#define ACCEL_FOLDER_FIXTURE_H

#include "capi_test.h"

#define PATH_SIZE 256

static char folder[PATH_SIZE];

/* The path of a file of the folder; valid until the fourth call after this one. */
static inline const char *path_of(const char *name) {
  static char paths[4][PATH_SIZE * 2];
  static int next = 0;
  char *const path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

/* A setup. A teardown that knows which files may be left removes these and then, by rmdir(), the folder. */
static inline int make_folder(void **state) {
  (void)state;
  const char *const root = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
  snprintf(folder, sizeof folder, "%s/accel-capi-XXXXXX", root);
  return mkdtemp(folder) == NULL ? -1 : 0;
}

/* A teardown for files of any number and in any depth. */
static inline int remove_folder_and_files(void **state) {
  char command[PATH_SIZE + 8];
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command) != 0 ? -1 : assert_nothing_left(state);
}

#endif
