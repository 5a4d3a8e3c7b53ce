/* Calls to the system that fail: the program that links this stands before the C library for itself and for all
 * libraries that it loads. Nothing fails and nothing is counted until the calls of one kind are armed. */
#ifndef FAILING_CALLS_H
#define FAILING_CALLS_H

#include <stdint.h>

/* Whether there is such a kind: malloc, mmap, open, write, read, fsync, rename, mkdir, thread, socket, event. */
int32_t is_kind_of_call(const char* kind);

/* From now on the n-th call of the kind fails, counted from 1, and with `lasting` each one after it. 0: none, they are
 * counted. errno is what the system would say: ENOMEM, EMFILE, ENOSPC, EIO, EAGAIN. */
void arm_calls(const char* kind, int64_t n, int32_t lasting);
void disarm_calls(void);

int64_t count_of_calls(void); /* since they were armed */
int32_t a_call_has_failed(void);

#endif
