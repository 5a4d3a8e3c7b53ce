/* SPDX-License-Identifier: Apache-2.0 */
#include "collective_operations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

static void call_all_reduce(struct buffers *buffers) {
  CHECK(accel_all_reduce(buffers->state, buffers->shard, ACCEL_REDUCE_SUM));
}

static void call_reduce(struct buffers *buffers) {
  const accel_value_t argument = accel_arg_tensor(buffers->shard);
  accel_value_t result = ACCEL_VALUE_INIT;
  CHECK(accel_reduce(buffers->state, &argument, ACCEL_REDUCE_SUM, 1, &result));
  accel_value_dispose(&result);
}

static void call_gather(struct buffers *buffers) {
  const accel_value_t argument = accel_arg_tensor(buffers->shard);
  accel_value_t result = ACCEL_VALUE_INIT;
  CHECK(accel_gather(buffers->state, &argument, &result));
  accel_value_dispose(&result);
}

static void call_gather_uneven(struct buffers *buffers) {
  const accel_value_t argument = accel_arg_tensor(buffers->shard);
  accel_value_t result = ACCEL_VALUE_INIT;
  CHECK(accel_gather_uneven(buffers->state, &argument, &result));
  accel_value_dispose(&result);
}

static void call_all_gather(struct buffers *buffers) {
  CHECK(accel_all_gather(buffers->state, buffers->shard, buffers->whole));
}

static void call_reduce_scatter(struct buffers *buffers) {
  CHECK(accel_reduce_scatter(buffers->state, buffers->whole, ACCEL_REDUCE_SUM, buffers->shard));
}

static void call_broadcast(struct buffers *buffers) {
  const accel_value_t argument = accel_arg_tensor(buffers->shard);
  CHECK(accel_broadcast(buffers->state, &argument, 0));
}

static void call_all_to_all(struct buffers *buffers) {
  CHECK(accel_all_to_all(buffers->state, buffers->shard, buffers->whole));
}

static void call_scatter(struct buffers *buffers) {
  const accel_tensor_t *input = accel_process_index(buffers->state) == 0 ? buffers->whole : NULL;
  CHECK(accel_scatter(buffers->state, input, 0, buffers->shard));
}

/* To the next rank, and from the former one. */
static void call_send_recv(struct buffers *buffers) {
  const int32_t rank = accel_process_index(buffers->state), ranks = accel_num_processes(buffers->state);
  accel_work_t *sending = NULL;
  CHECK(accel_send_async(buffers->state, buffers->shard, (rank + 1) % ranks, 0, &sending));
  CHECK(accel_recv(buffers->state, buffers->whole, (rank + ranks - 1) % ranks, 0));
  CHECK(accel_work_wait(sending, INT64_MAX));
  accel_work_release(sending);
}

static void call_gather_object(struct buffers *buffers) {
  accel_value_t result = ACCEL_VALUE_INIT;
  CHECK(accel_gather_object(buffers->state, &buffers->object, &result));
  accel_value_dispose(&result);
}

static void call_broadcast_object_list(struct buffers *buffers) {
  accel_value_t list = ACCEL_VALUE_INIT, result = ACCEL_VALUE_INIT;
  CHECK(accel_value_list(&buffers->object, 1, &list));
  CHECK(accel_broadcast_object_list(buffers->state, &list, 0, &result));
  accel_value_dispose(&result);
  accel_value_dispose(&list);
}

static void call_barrier(struct buffers *buffers) { CHECK(accel_wait_for_everyone(buffers->state)); }

static double part(double ranks) {
  (void)ranks;
  return 1;
}
static double all_parts(double ranks) { return ranks; }
static double others(double ranks) { return (ranks - 1) / ranks; }
static double others_twice(double ranks) { return 2 * (ranks - 1) / ranks; }

/* Adds up its share of all ranks' tensors, and copies the shares of the others. */
static double reduced(double ranks) { return (1 + 1 / ranks) + others_twice(ranks); }
static double reduced_share(double ranks) { return ranks + 1; }
static double copied(double ranks) { return 2 * part(ranks); } /* a load and a store */
static double all_copied(double ranks) { return 2 * ranks; }

static const struct operation operations[] = {
    {"all_reduce", call_all_reduce, SHARD, 0, part, others_twice, reduced},
    {"reduce", call_reduce, SHARD, 1, part, others_twice, reduced},
    {"gather", call_gather, SHARD, 1, all_parts, others, all_copied},
    {"gather_uneven", call_gather_uneven, SHARD, 1, all_parts, others, all_copied},
    {"all_gather", call_all_gather, SHARD_AND_WHOLE, 1, all_parts, others, all_copied},
    {"reduce_scatter", call_reduce_scatter, SHARD_AND_WHOLE, 1, all_parts, others, reduced_share},
    {"broadcast", call_broadcast, SHARD, 1, part, part, copied},
    {"all_to_all", call_all_to_all, TWO_CUT_SHARDS, 1, part, others, copied},
    {"scatter", call_scatter, SHARD_AND_WHOLE, 1, all_parts, others, copied},
    {"send_recv", call_send_recv, TWO_SHARDS, 1, part, part, copied},
    {"gather_object", call_gather_object, OBJECT_ONLY, 0, NULL, NULL, NULL},
    {"broadcast_object_list", call_broadcast_object_list, OBJECT_ONLY, 0, NULL, NULL, NULL},
    {"barrier", call_barrier, OBJECT_ONLY, 0, NULL, NULL, NULL},
};

const struct operation *find_operation(const char *name) {
  for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
    if (strcmp(operations[i].name, name) == 0) return &operations[i];
  fprintf(stderr, "--ops '%s': no such operation\n", name);
  exit(2);
}
