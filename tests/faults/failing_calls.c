/* SPDX-License-Identifier: Apache-2.0 */
#undef _FILE_OFFSET_BITS /* it would give open() and its like the names of their 64-bit forms, which stand here as \
                            well */
#define _GNU_SOURCE
#include "failing_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

typedef enum kind { kMalloc, kMmap, kOpen, kWrite, kRead, kFsync, kRename, kMkdir, kThread, kSocket, kEvent } kind_t;

static const char* const kNames[kKindsOfCalls] = {"malloc", "mmap",  "open",   "write",  "read", "fsync",
                                                  "rename", "mkdir", "thread", "socket", "event"};
static atomic_int armed;
static atomic_llong counts[kKindsOfCalls];
static atomic_int failed;
static int failing_kind;
static int64_t first_failure;
static int32_t failures_last;

int kind_of_call(const char* name) {
  for (int kind = 0; kind < kKindsOfCalls; kind++)
    if (strcmp(name, kNames[kind]) == 0) return kind;
  return -1;
}

void arm_calls(int kind, int64_t n, int32_t lasting) {
  failing_kind = kind;
  first_failure = n;
  failures_last = lasting;
  for (int i = 0; i < kKindsOfCalls; i++) atomic_store(&counts[i], 0);
  atomic_store(&failed, 0);
  atomic_store(&armed, 1);
}

void disarm_calls(void) { atomic_store(&armed, 0); }

int64_t count_of_calls(int kind) { return atomic_load(&counts[kind]); }

int32_t a_call_has_failed(void) { return atomic_load(&failed); }

static int fails(kind_t kind, int code) {
  if (!atomic_load_explicit(&armed, memory_order_relaxed)) return 0;
  const int64_t n = atomic_fetch_add(&counts[kind], 1) + 1;
  if ((int)kind != failing_kind || first_failure == 0 || n < first_failure || (n > first_failure && !failures_last))
    return 0;
  atomic_store(&failed, 1);
  errno = code;
  return 1;
}

/* Memory. dlsym() itself allocates, so these take the C library's second names. */
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) { return fails(kMalloc, ENOMEM) ? NULL : __libc_malloc(size); }
void* calloc(size_t number, size_t size) { return fails(kMalloc, ENOMEM) ? NULL : __libc_calloc(number, size); }
void* realloc(void* memory, size_t size) { return fails(kMalloc, ENOMEM) ? NULL : __libc_realloc(memory, size); }
void* memalign(size_t alignment, size_t size) {
  return fails(kMalloc, ENOMEM) ? NULL : __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  void* const made = memalign(alignment, size);
  if (made == NULL) return ENOMEM;
  *memory = made;
  return 0;
}

void* mmap(void* address, size_t length, int protection, int flags, int descriptor, off_t offset) {
  if (fails(kMmap, ENOMEM)) return MAP_FAILED;
  return (void*)syscall(SYS_mmap, address, length, protection, flags, descriptor, offset);
}
void* mmap64(void* address, size_t length, int protection, int flags, int descriptor, off64_t offset) {
  return mmap(address, length, protection, flags, descriptor, offset);
}

/* NAME(parameters) as the C library has it, unless it fails with -1. */
#define FAILING(type, name, parameters, arguments, kind, code)  \
  type name parameters {                                        \
    static __typeof__(&name) real;                              \
    if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, #name); \
    return fails(kind, code) ? (type)-1 : real arguments;       \
  }

FAILING(ssize_t, write, (int file, const void* data, size_t size), (file, data, size), kWrite, ENOSPC)
FAILING(ssize_t, writev, (int file, const struct iovec* parts, int number), (file, parts, number), kWrite, ENOSPC)
FAILING(ssize_t, pwrite, (int file, const void* data, size_t size, off_t at), (file, data, size, at), kWrite, ENOSPC)
FAILING(ssize_t, pwrite64, (int file, const void* data, size_t size, off64_t at), (file, data, size, at), kWrite,
        ENOSPC)
FAILING(int, ftruncate, (int file, off_t size), (file, size), kWrite, ENOSPC)
FAILING(int, ftruncate64, (int file, off64_t size), (file, size), kWrite, ENOSPC)
FAILING(ssize_t, read, (int file, void* data, size_t size), (file, data, size), kRead, EIO)
FAILING(ssize_t, pread, (int file, void* data, size_t size, off_t at), (file, data, size, at), kRead, EIO)
FAILING(ssize_t, pread64, (int file, void* data, size_t size, off64_t at), (file, data, size, at), kRead, EIO)
FAILING(int, fsync, (int file), (file), kFsync, EIO)
FAILING(int, fdatasync, (int file), (file), kFsync, EIO)
FAILING(int, rename, (const char* from, const char* to), (from, to), kRename, EIO)
FAILING(int, mkdir, (const char* path, mode_t mode), (path, mode), kMkdir, EACCES)
FAILING(int, memfd_create, (const char* name, unsigned flags), (name, flags), kOpen, EMFILE)
FAILING(int, shm_open, (const char* name, int flags, mode_t mode), (name, flags, mode), kOpen, EMFILE)
FAILING(int, socket, (int domain, int type, int protocol), (domain, type, protocol), kSocket, EMFILE)
FAILING(int, socketpair, (int domain, int type, int protocol, int ends[2]), (domain, type, protocol, ends), kSocket,
        EMFILE)
FAILING(int, bind, (int file, const struct sockaddr* address, socklen_t size), (file, address, size), kSocket,
        EADDRINUSE)
FAILING(int, listen, (int file, int backlog), (file, backlog), kSocket, EADDRINUSE)
FAILING(int, connect, (int file, const struct sockaddr* address, socklen_t size), (file, address, size), kSocket,
        ECONNREFUSED)
FAILING(int, accept, (int file, struct sockaddr* address, socklen_t* size), (file, address, size), kSocket, EMFILE)
FAILING(int, accept4, (int file, struct sockaddr* address, socklen_t* size, int flags), (file, address, size, flags),
        kSocket, EMFILE)
FAILING(ssize_t, send, (int file, const void* data, size_t size, int flags), (file, data, size, flags), kSocket,
        ECONNRESET)
FAILING(ssize_t, sendmsg, (int file, const struct msghdr* message, int flags), (file, message, flags), kSocket,
        ECONNRESET)
FAILING(ssize_t, recv, (int file, void* data, size_t size, int flags), (file, data, size, flags), kSocket, ECONNRESET)
FAILING(ssize_t, recvmsg, (int file, struct msghdr* message, int flags), (file, message, flags), kSocket, ECONNRESET)
FAILING(int, shmget, (key_t key, size_t size, int flags), (key, size, flags), kMmap, ENOSPC)
FAILING(void*, shmat, (int segment, const void* address, int flags), (segment, address, flags), kMmap, ENOMEM)
FAILING(int, epoll_create1, (int flags), (flags), kEvent, EMFILE)
FAILING(int, epoll_ctl, (int events, int operation, int file, struct epoll_event* event),
        (events, operation, file, event), kEvent, ENOSPC)
FAILING(int, eventfd, (unsigned value, int flags), (value, flags), kEvent, EMFILE)
FAILING(int, pipe, (int ends[2]), (ends), kEvent, EMFILE)
FAILING(int, pipe2, (int ends[2], int flags), (ends, flags), kEvent, EMFILE)

/* Those with other answers or with arguments that are not always there. */
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
  static __typeof__(&pthread_create) real;
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "pthread_create");
  return fails(kThread, EAGAIN) ? EAGAIN : real(thread, attributes, body, argument);
}

static int open_at(int folder, const char* path, int flags, mode_t mode) {
  return fails(kOpen, EMFILE) ? -1 : (int)syscall(SYS_openat, folder, path, flags, mode);
}
static mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}
#define OPENING(declaration, folder)               \
  declaration {                                    \
    va_list arguments;                             \
    va_start(arguments, flags);                    \
    const mode_t mode = mode_of(flags, arguments); \
    va_end(arguments);                             \
    return open_at(folder, path, flags, mode);     \
  }
OPENING(int open(const char* path, int flags, ...), AT_FDCWD)
OPENING(int open64(const char* path, int flags, ...), AT_FDCWD)
OPENING(int openat(int folder, const char* path, int flags, ...), folder)
OPENING(int openat64(int folder, const char* path, int flags, ...), folder)

FILE* fopen(const char* path, const char* mode) {
  static __typeof__(&fopen) real;
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "fopen");
  return fails(kOpen, EMFILE) ? NULL : real(path, mode);
}
FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }

/* The library exchanges folders, and asks for descriptors of processes, by the call's number. */
long syscall(long number, ...) {
  static __typeof__(&syscall) real;
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "syscall");
  long values[6];
  va_list arguments;
  va_start(arguments, number);
  for (int i = 0; i < 6; i++) values[i] = va_arg(arguments, long);
  va_end(arguments);
  if (number == SYS_renameat2 && fails(kRename, EIO)) return -1;
  if (number == SYS_pidfd_open && fails(kOpen, EMFILE)) return -1;
  return real(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}
