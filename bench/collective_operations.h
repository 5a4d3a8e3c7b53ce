/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of the workload collective: what a call is, on which buffers, and how much it moves. */
#ifndef ACCEL_BENCH_COLLECTIVE_OPERATIONS_H
#define ACCEL_BENCH_COLLECTIVE_OPERATIONS_H

#include <accel.h>

/* What the calls of one figure work on. */
struct buffers {
  accel_state_t *state;
  accel_tensor_t *shard; /* one rank's part */
  accel_tensor_t *whole; /* as large as the parts of all ranks, or another part */
  accel_value_t object;
};

enum buffer_need {
  OBJECT_ONLY, /* no tensors: the operation has no size */
  SHARD,
  SHARD_AND_WHOLE,
  TWO_SHARDS,
  TWO_CUT_SHARDS, /* of which each rank gets an equal chunk */
};

struct operation {
  const char *name;
  void (*call)(struct buffers *buffers);
  enum buffer_need need;
  double element; /* what the tensors hold: a sum in place would overflow with ones */
  /* For `ranks` ranks, as factors of one rank's part; NULL where nothing of that size moves. The size and the bus
   * factor are those of nccl-tests (doc/PERFORMANCE.md): time x algorithm bandwidth = size, and bus bandwidth =
   * algorithm bandwidth x bus, which the slowest link bounds whatever the number of ranks. */
  double (*size)(double ranks);
  double (*bus)(double ranks);
  /* What one rank at least loads and stores, where all ranks reach each other's memory. */
  double (*moved)(double ranks);
};

/* Ends the program when there is none. */
const struct operation *find_operation(const char *name);

#endif
