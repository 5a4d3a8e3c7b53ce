/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* The profiler: what each rank does when, as Chrome traces that Perfetto (ui.perfetto.dev) and chrome://tracing show. LibTorch's operators
 * are recorded by Kineto, and beside them the library's own spans: collectives with bytes and ranks, waits, data loading, copies of
 * offloaded weights, optimizer steps, writes of checkpoints. */

typedef struct accel_profile accel_profile_t; /* a profiler and what it recorded */

/* The options of a profile: the content of the record, and the steps that are recorded. A step is what lies between two
 * calls of accel_profile_step(). After `skip_first` steps comes a cycle: `wait` steps without recording, `warmup` steps
 * whose record is dropped, `active` ones that are recorded; then on_trace_ready runs. Without a schedule (active unset)
 * everything from begin to end is recorded. @accelerate utils.ProfileKwargs */
typedef struct accel_profile_options {
  size_t struct_size;
  const char *activities;       /* "cpu" and types of devices ("xpu"), joined by commas. Variable
                                 * ACCEL_PROFILE_ACTIVITIES. Default: the CPU and the state's device */
  const char *output_trace_dir; /* A folder, which is made: each cycle writes profile_<rank>.json there. Variable
                                 * ACCEL_PROFILE_DIR. Default: none */
  int64_t wait;                 /* Steps of a cycle that are not recorded. In [0, inf). Variable ACCEL_PROFILE_WAIT. Default 0 */
  int64_t warmup;               /* Steps whose record is dropped. In [0, inf). Variable ACCEL_PROFILE_WARMUP. Default 0 */
  int64_t active;               /* Steps that are recorded. In [1, inf). Variable ACCEL_PROFILE_ACTIVE. Default: no
                                 * schedule */
  int64_t repeat;               /* Cycles; 0: until the end. In [0, inf). Variable ACCEL_PROFILE_REPEAT. Default 0 */
  int64_t skip_first;           /* Steps before the first cycle. In [0, inf). Variable ACCEL_PROFILE_SKIP_FIRST. Default 0 */
  accel_flag_t record_shapes;   /* 1: the shapes of the inputs of operators. Variable ACCEL_PROFILE_RECORD_SHAPES.
                                 * Default 0 */
  accel_flag_t profile_memory;  /* 1: allocations. Variable ACCEL_PROFILE_MEMORY. Default 0 */
  accel_flag_t with_stack;      /* 1: where in the program an operator was called: TorchScript's stack; Python's for programs
                                 * in Python. Variable ACCEL_PROFILE_WITH_STACK. Default 0 */
  accel_flag_t with_flops;      /* 1: an estimate of the floating point operations of matmuls and convolutions. Variable
                                 * ACCEL_PROFILE_WITH_FLOPS. Default 0 */
  accel_flag_t with_modules;    /* 1: a span for each call of a module of accel.h, around its operators; TorchScript's
                                 * modules are in the operators' arguments. Variable ACCEL_PROFILE_WITH_MODULES. Default 0 */
  accel_flag_t merge;           /* 1: rank 0 writes profile_merged.json of all ranks too, at the end, if their files are in
                                 * one folder. Default 1 */
} accel_profile_options_t;

/** Runs when a cycle is complete: at its last step, or at the end while one is recorded.
 * @param profile The profiler: to export the trace or ask for averages.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_trace_ready_fn)(accel_profile_t *profile, void *user_data);

/** Begins to profile this thread, and what computes for it. One profiler at a time in a process. With output_trace_dir all ranks
 * call it, and measure how far their clocks are apart.
 * @param state A state.
 * @param options NULL: defaults.
 * @param on_trace_ready NULL: only the files of output_trace_dir are written.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out The profiler. accel_profile_end() on the same thread ends it.
 * @return ACCEL_OK; INVALID_ARGUMENT for an unknown activity, which lists the known ones; UNSUPPORTED for a device that LibTorch cannot
 *   use here; INVALID_STATE while another profiler runs, also one of Python's; IO for a folder that cannot be written.
 * @threads collective, waits
 * @accelerate profile, utils.ProfileKwargs */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_profile_begin(accel_state_t *state, const accel_profile_options_t *ACCEL_NULLABLE options,
                    accel_trace_ready_fn ACCEL_NULLABLE on_trace_ready, void *ACCEL_NULLABLE user_data,
                    accel_destroy_fn ACCEL_NULLABLE destroy, accel_profile_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param profile A profiler.
 * @return This profiler, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_profile_t *accel_profile_retain(accel_profile_t *profile);

/** Removes an owner; the last one ends the profiler without writing what it was recording.
 * @param profile A profiler, or NULL.
 * @threads any, waits */
ACCEL_SINCE(0, 1) void accel_profile_release(accel_profile_t *ACCEL_NULLABLE profile);

/** Ends a step.
 * @param profile A profiler.
 * @return ACCEL_OK; IO when the file of a cycle cannot be written; what on_trace_ready returns; INVALID_STATE after the end or on
 *   another thread.
 * @threads thread, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_profile_step(accel_profile_t *profile);

/** The number of steps that have ended.
 * @param profile A profiler.
 * @return The number.
 * @threads any */
ACCEL_SINCE(0, 1) int64_t accel_profile_step_number(const accel_profile_t *profile);

/* The action of a schedule in a step. The numbers are pinned. */
typedef int32_t accel_profile_action_t;
#define ACCEL_PROFILE_NONE 0
#define ACCEL_PROFILE_WARMUP 1
#define ACCEL_PROFILE_RECORD 2
#define ACCEL_PROFILE_RECORD_AND_SAVE 3

/** Computes the action of a schedule in a step, as torch.profiler.schedule() does.
 * @param options The schedule.
 * @param step From 0.
 * @param out ACCEL_PROFILE_*.
 * @return ACCEL_OK; INVALID_ARGUMENT for a negative step, or options without active.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_profile_schedule(const accel_profile_options_t *options, int64_t step, accel_profile_action_t *out);

/** Writes the latest recorded cycle as a Chrome trace; ".gz" at the end of the name compresses it.
 * @param profile A profiler that has recorded one.
 * @param path The file.
 * @return ACCEL_OK; INVALID_STATE before one is complete; IO.
 * @threads thread, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_profile_export_trace(accel_profile_t *profile, const char *path);

/** Operators and spans of the latest recorded cycle by name: a list of {"name", "kind": "operator" or the kind of a span, "count", "self_cpu_us",
 * "cpu_us", "device_us", "self_cpu_memory", "flops", "bytes", "shapes"}, the largest self_cpu_us first. The time of an operator
 * itself is without the time of operators in it; spans, which lie around and beside operators, have none. Kernels of devices are of kind "kernel".
 * @param profile A profiler that has recorded one.
 * @param group_by_shapes 1: operators with different shapes of inputs are different; needs record_shapes.
 * @param out The list.
 * @return ACCEL_OK; INVALID_STATE before one is complete, or without record_shapes.
 * @threads thread, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_profile_key_averages(accel_profile_t *profile, int32_t group_by_shapes, accel_value_t *ACCEL_OWNED out);

/** Key averages as a table for people.
 * @param averages A value of accel_profile_key_averages().
 * @param sort_by A number of its entries: "self_cpu_us", "cpu_us", "count", "self_cpu_memory", "flops", "device_us", "bytes".
 * @param row_limit Lines; 0: all.
 * @param out The text.
 * @return ACCEL_OK; INVALID_ARGUMENT for an unknown number; TYPE_MISMATCH.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_profile_table(const accel_value_t *averages, const char *sort_by, int64_t row_limit,
                    accel_buffer_t *ACCEL_OWNED out);

/** The memory of tensors over time in the latest recorded cycle: a list of {"time_us": since its begin, "device", "bytes": change,
 * "total": the sum of the changes so far}. Memory from before the cycle that is given back in it is not seen on the CPU.
 * @param profile A profiler with profile_memory that has recorded one.
 * @param out The list.
 * @return ACCEL_OK; INVALID_STATE without profile_memory, or before one is complete.
 * @threads thread, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_profile_memory_timeline(accel_profile_t *profile, accel_value_t *ACCEL_OWNED out);

/** Ends profiling: a cycle that is being recorded is complete then. With output_trace_dir the ranks wait for each other, so that all
 * files are there.
 * @param profile A profiler.
 * @return ACCEL_OK, also when it has ended before; IO; what on_trace_ready returns; TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_profile_end(accel_profile_t *profile);

/** Begins a span of the program's own, which traces show. Costs a tenth of a microsecond while nothing is recorded.
 * @param name Its name.
 * @param out The scope.
 * @return ACCEL_OK.
 * @threads thread */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_span_begin(const char *name, accel_scope_t *ACCEL_OWNED *out);

/** Joins the traces of several ranks to one: a process a rank, with clocks that agree: each trace has the offset of its host's clock
 * to rank 0's, which the ranks measure when they begin to profile.
 * @param paths [n_paths] Files of traces, or one folder with profile_<rank>.json files.
 * @param n_paths Their number.
 * @param path The file that is written; ".gz" compresses it.
 * @return ACCEL_OK; NOT_FOUND; CORRUPT that names the file; IO.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_merge_traces(const char *const *paths, size_t n_paths, const char *path);
