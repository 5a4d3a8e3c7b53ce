/* SPDX-License-Identifier: Apache-2.0 */
/* How the workloads are measured: a clock, the memory and processor time of the process, and the JSON line of a figure.
 */
#ifndef ACCEL_BENCH_MEASURE_H
#define ACCEL_BENCH_MEASURE_H

#include <accel.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Ends the program with the library's message when a call failed; gives the status back otherwise. */
#define CHECK(call) measure_check((call), #call)
accel_status_t measure_check(accel_status_t status, const char *call);

/* Memory that must be there. */
void *measure_allocate(size_t size);

/* The first call of every workload: notes when it began. Ends it when there is an option that `names` lacks; each
 * option takes one value. */
struct option_value {
  const char *name; /* "--width" */
  const char *value;
};
void measure_begin(int argc, char **argv, struct option_value *options, size_t n_options);
int64_t measure_integer(const struct option_value *option);

/* The state of a workload on a device: a kind such as "cuda", or "cpu". */
accel_state_t *measure_state(accel_state_options_t options, const char *device);
/* Waits until the state's device has done all that was queued, so that a sample has the whole of its work. */
void measure_wait(const accel_state_t *state);

/* Seconds of a clock that only goes forward. */
double measure_now(void);
/* Processor seconds of all threads of this process. */
double measure_processor(void);
/* A memory field of /proc/self/status in MiB: "VmHWM" (the peak), "RssAnon". */
double measure_memory(const char *field);
/* The peak starts again from the present size. */
void measure_reset_peak(void);
/* Sorts the samples. */
double measure_median(double *samples, size_t n_samples);

/* The bytes that this rank has received from those along an axis of the mesh, in its latest 2,000 operations. */
double measure_received(accel_state_t *state, const char *axis);
/* The sum of a number over all ranks. */
double measure_sum(accel_state_t *state, double number);

/* One figure. */
struct figure {
  const char *bench;
  const char *params; /* a JSON object */
  const char *unit;
  int higher_is_better;
  double *samples; /* sorted by the report */
  size_t n_samples;
  double base_rss_mb; /* the peak when the state was ready; 0: not told */
  const char *extra;  /* further JSON members: "\"loss\": 1.5", or NULL */
};
/* Prints the figure on rank 0 with the peak memory of the largest rank and the processor time that others took. All
 * ranks call. */
void measure_report(accel_state_t *state, const struct figure *figure);

#ifdef __cplusplus
}
#endif

#endif
