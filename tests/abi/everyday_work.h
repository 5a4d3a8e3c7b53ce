/* SPDX-License-Identifier: Apache-2.0 */
/* What a program does with the library in a day. The functions give 0, or 1 after a line on standard error that says
 * which call failed; they use no test framework, because some run in other processes. */
#ifndef ACCEL_EVERYDAY_WORK_H
#define ACCEL_EVERYDAY_WORK_H

#include "accel.h"

/* One of two ranks, which are threads of this process. */
struct rank {
  int32_t index;
  int32_t port;
  accel_state_t* state;
};

int open_pair(struct rank ranks[2]);
int add_on_pair(struct rank ranks[2]); /* an all-reduce by both ranks */
void close_pair(struct rank ranks[2]);

/* A state, tensors, an operator, steps of a training, a pair of ranks; all is released at the end. */
ACCEL_EXPORT int do_everyday_work(void);

#endif
