/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* Progress bars, on rank 0 of each host. The library prints nothing but these, and only while one is open. */

typedef struct accel_progress_bar accel_progress_bar_t; /* a progress bar */

/** Shows the line of a progress bar.
 * @param line The text without end of line: "train:  40% |####      | 40/100 [00:12<00:18, 3.3 steps/s, loss 1.23]".
 * @param is_last 1: the bar ends.
 * @param user_data Handed to the callback.
 * @threads caller */
typedef void (*accel_progress_fn)(const char *line, int32_t is_last, void *user_data);

/* How progress is shown: with the blocks of Unicode where LC_ALL, LC_CTYPE or LANG say UTF-8, otherwise with "#".
 * @accelerate utils.tqdm */
typedef struct accel_progress_options {
  size_t struct_size;
  const char *unit;                     /* The unit that is counted. Default "steps" */
  accel_flag_t local_main_process_only; /* 0: each rank shows its own. Default 1 */
  accel_flag_t disable;                 /* 1: nothing is shown; 0: also on what is not a terminal, as lines. Default: on
                                         * what is not a terminal, unless there is a callback */
  accel_flag_t leave;                   /* 1: the last line stays. Default 1 */
  int32_t width;                        /* Columns. In [20, 1000]. Default: the terminal's, else 80 */
  int64_t initial;                      /* The count at which it begins, after a resumed run. In [0, inf). Default 0 */
  int64_t interval_ms;                  /* The shortest time between two lines. In [0, 3600000]. Default 100 */
} accel_progress_options_t;

/** Opens a progress bar on stderr, below those that are open.
 * @param state A state.
 * @param label The text before the bar; may be empty.
 * @param total How many there are; ACCEL_UNSET_INT64: unknown.
 * @param options NULL: defaults.
 * @param show Gets the lines instead of stderr, in accel_progress_update() and accel_progress_end(); NULL: stderr.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out The bar.
 * @return ACCEL_OK; INVALID_ARGUMENT.
 * @threads any
 * @accelerate utils.tqdm */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_progress_begin(accel_state_t *state, const char *label, int64_t total,
                     const accel_progress_options_t *ACCEL_NULLABLE options, accel_progress_fn ACCEL_NULLABLE show,
                     void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy,
                     accel_progress_bar_t *ACCEL_OWNED *out);

/** Opens a bar that follows a prepared loader by itself: a batch is a step when the next one is asked for. The label has the
 * epoch behind it, as the loader counts them; with each epoch the bar begins again. The loader's speed stays as it was.
 * @param state A state.
 * @param label See there.
 * @param loader A prepared loader.
 * @param options NULL: defaults.
 * @param out The bar. It ends with accel_progress_end().
 * @return Same as accel_progress_begin().
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_progress_of_dataloader(accel_state_t *state, const char *label, accel_dataloader_t *loader,
                             const accel_progress_options_t *ACCEL_NULLABLE options,
                             accel_progress_bar_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param bar A bar.
 * @return This bar, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_progress_bar_t *accel_progress_bar_retain(accel_progress_bar_t *bar);

/** Removes an owner; the last one ends the bar.
 * @param bar A bar, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_progress_bar_release(accel_progress_bar_t *ACCEL_NULLABLE bar);

/** Moves a bar on. Costs less than a microsecond where no line is due.
 * @param bar A bar.
 * @param count How far. Not negative.
 * @return ACCEL_OK; INVALID_ARGUMENT; INVALID_STATE after its end.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_progress_update(accel_progress_bar_t *bar, int64_t count);

/** Sets how many there are, where an estimate becomes better.
 * @param bar A bar.
 * @param total Not negative; ACCEL_UNSET_INT64: unknown.
 * @return ACCEL_OK; INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_progress_set_total(accel_progress_bar_t *bar, int64_t total);

/** Writes a line to stderr, above the open bars, which it would otherwise run into. Only on ranks that show the bar.
 * @param bar A bar.
 * @param line Without its newline.
 * @return ACCEL_OK; IO.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_progress_write(accel_progress_bar_t *bar, const char *line);

/** Sets what stands behind the rate: the loss, the memory.
 * @param bar A bar.
 * @param values A map from names to numbers and texts; "memory": NONE stands for the memory of the process.
 * @return ACCEL_OK; TYPE_MISMATCH that names the value.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_progress_set_values(accel_progress_bar_t *bar, const accel_value_t *values);

/** Where a bar is.
 * @param bar A bar.
 * @param out {"count", "total": NONE if unknown, "seconds", "rate": a second, "remaining_seconds": NONE if unknown}.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_progress_report(const accel_progress_bar_t *bar, accel_value_t *ACCEL_OWNED out);

/** Ends a bar: shows its last line.
 * @param bar A bar.
 * @return ACCEL_OK, also when it has ended before.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_progress_end(accel_progress_bar_t *bar);
