/* SPDX-License-Identifier: Apache-2.0 */
/* Calls to the system that fail: the program that links this stands before the C library for itself and for all
 * libraries that it loads. Nothing fails and nothing is counted until the calls of one kind are armed. */
#ifndef FAILING_CALLS_H
#define FAILING_CALLS_H

#include <stdint.h>

enum { kKindsOfCalls = 11 };

/* The number of a kind: malloc, mmap, open, write, read, fsync, rename, mkdir, thread, socket, event. -1 for another
 * name. */
int kind_of_call(const char* name);

/* From now on calls are counted, and the n-th one of a kind fails, counted from 1, with `lasting` each one after it
 * too. 0: none does. errno is what the system would say: ENOMEM, EMFILE, ENOSPC, EIO, EAGAIN. */
void arm_calls(int kind, int64_t n, int32_t lasting);
void disarm_calls(void);

int64_t count_of_calls(int kind); /* since they were armed */
int32_t a_call_has_failed(void);

#endif
