/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* Reports on the training loop: times, memory, throughput. */

/** Where the time of the loop's steps went: {"steps": 12, "latest": {...}, "mean": {...}}, both of seconds: "data" (waiting for
 * prepared loaders), "forward" (prepared models), "backward", "communication" (waiting for other ranks or for gradients,
 * wherever in the loop), "optimizer" (prepared ones), "other" (all else), and their sum "total". A step goes from update to
 * update: it ends where the loop fetches data or computes again after an optimizer has stepped. The recording is always on and
 * costs some 0.2 us a step. Beside these: "memory", bytes: {"resident", "most_resident": of the process, "cpu_in_use",
 * "cpu_most_in_use": as accel_memory_report() has them, "device_in_use", "device_most_in_use": of the state's device, 0 on the CPU};
 * "tokens_per_second", since the last reset, and "model_flops_utilization", from 0 to 1: both NONE without accel_count_tokens().
 * @param state A state.
 * @param reset 1: the next mean begins here.
 * @param out The mean of the steps since the last reset; all 0 before the first one has ended.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_step_report(accel_state_t *state, int32_t reset, accel_value_t *ACCEL_OWNED out);

/** The step reports of all ranks, and what is slow: {"ranks": [{"rank", "host", and what accel_step_report() has}],
 * "slowest_rank": the one that computes longest in a step, for which the others wait, or NONE with one rank or before a step;
 * "slowdown": its time without communication divided by the median of the ranks', of two the smaller one; "tokens_per_second": of
 * all together, or NONE}. Trackers get it, too, and accel_serve_metrics() shows it.
 * @param state A state.
 * @param reset 1: the next mean begins here.
 * @param out The report, equal on all ranks.
 * @return ACCEL_OK; TIMEOUT, PEER_LOST, CANCELLED, COLLECTIVE_MISMATCH.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_step_report_of_ranks(accel_state_t *state, int32_t reset, accel_value_t *ACCEL_OWNED out);

/** A step report as a table for people: a line a rank, milliseconds and percent.
 * @param report A report of accel_step_report() or accel_step_report_of_ranks().
 * @param out The text.
 * @return ACCEL_OK; TYPE_MISMATCH for another value.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_step_report_table(const accel_value_t *report, accel_buffer_t *ACCEL_OWNED out);

/** Counts what this rank has trained with, once in each micro-batch, for the throughput in step reports.
 * @param state A state.
 * @param n_tokens Tokens, or rows, or whatever is counted. Not negative.
 * @return ACCEL_OK; INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_count_tokens(accel_state_t *state, int64_t n_tokens);

/** Sets the cost of a token, for the model flops utilization in step reports.
 * @param state A state.
 * @param flops_per_token Floating point operations of forward and backward, as the model needs them: 6 for each parameter of a
 *   transformer, and 12 x layers x width x length for attention, is the usual estimate (Chowdhery et al., PaLM, 2022, appendix B).
 * @param peak_flops_per_second The peak of this rank's device.
 * @return ACCEL_OK; INVALID_ARGUMENT for numbers that are not positive.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_set_model_flops(accel_state_t *state, double flops_per_token, double peak_flops_per_second);

/* Where accel_serve_metrics() listens. */
typedef struct accel_serve_metrics_options {
  size_t struct_size;
  const char *host; /* An address of this host. Variable ACCEL_METRICS_HOST. Default "127.0.0.1" */
  int32_t port;     /* 0: a free one. In [0, 65535]. Variable ACCEL_METRICS_PORT. Default 0 */
  int32_t reserved; /* 0 */
} accel_serve_metrics_options_t;

/** Serves the step report of this rank, the latest of all ranks, and the latest scalars of accel_log() in Prometheus' text format
 * at http://HOST:PORT/metrics, from a thread, until the state is released. A second call moves it. This rank's report is at
 * most a second older than the last accel_log() or accel_count_tokens(). Requests whose Host is neither an address nor a name
 * of this host are refused.
 * @param state A state.
 * @param options NULL: defaults.
 * @param out_port The port.
 * @return ACCEL_OK; IO for a port that is in use; UNSUPPORTED without the server's plugin.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_serve_metrics(accel_state_t *state, const accel_serve_metrics_options_t *ACCEL_NULLABLE options,
                    int32_t *out_port);

/** The memory of this process's large CPU tensors, with ACCEL_CPU_MEMORY_CACHED: {"cpu": {"in_use": bytes of blocks that
 * tensors have, "most_in_use": the largest that it has been, "kept": bytes of blocks that wait for the next tensor, "reused":
 * how often a tensor found a block waiting, "mapped": how often not}}. All 0 where the memory is LibTorch's.
 * @param reset_peak 1: most_in_use begins again at in_use, after it has been returned.
 * @param out The report.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_memory_report(int32_t reset_peak, accel_value_t *ACCEL_OWNED out);
