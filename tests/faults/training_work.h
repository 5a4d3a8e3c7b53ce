/* SPDX-License-Identifier: Apache-2.0 */
/* What a training program does, for a process in which a call to the system fails. */
#ifndef TRAINING_WORK_H
#define TRAINING_WORK_H

#include <stdint.h>

#include "accel.h"
#include "failing_calls.h"

enum { kRows = 32, kWide = 8, kMostRanks = 2 };

typedef struct work {
  int kind;           /* of the calls */
  const char* folder; /* with rows.jsonl, and the checkpoint "state" */
  int64_t number;     /* of the call that fails, counted from 1; 0: none does, -1: and a save writes 1 instead of 2 */
  int32_t lasting;    /* all calls behind it fail, too */
  int32_t ranks;
  int32_t failing; /* the rank whose call fails */
  int32_t rank;
  const accel_save_state_options_t* options; /* of a save; NULL: the defaults */
} work_t;

/* What a process leaves for the one that forked it, in memory that both map. */
typedef struct outcome {
  int64_t counts[kKindsOfCalls];
  int32_t failed;
  accel_status_t status;
  int64_t live;
  int32_t contents; /* of the checkpoint that was loaded */
  char message[600];
  char frames[12000]; /* of a crash, innermost first: file+offset, separated by blanks */
} outcome_t;

typedef struct named_work {
  const char* name;
  void (*run)(const work_t* work, outcome_t* outcome);
  int32_t saves;
} named_work_t;

/* "create", "train", "data", "save" or "load"; NULL for another name. */
const named_work_t* work_named(const char* name);

/* Writes rows.jsonl into the folder; the process ends if it cannot. */
void write_rows(const char* folder);

/* Calls do not fail any more; how many there were, and whether one failed, is noted. */
void note_calls(outcome_t* outcome);

#endif
