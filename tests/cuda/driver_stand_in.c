/* Preloaded: the file $STAND_IN_DRIVER is there, as if a driver had made it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int access(const char* path, int mode) {
  const char* driver = getenv("STAND_IN_DRIVER");
  if (driver != NULL && strcmp(driver, path) == 0) return 0;
  return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}
